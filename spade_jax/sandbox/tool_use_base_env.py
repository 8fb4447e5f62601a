"""The class that generated tool-use environments inherit from, ready in every source's namespace.

Runs in the child: standard library only. A source defines `reset`, a method `tool_<name>` for each tool
it lists in `_tools` and, where it has one to tell, `solution`; this class reads what an agent says, calls
the tools and checks the answer. The underscored names are part of the contract too: sources set, call and
override them.

The contract is the reference implementation's (spade-rl/spade, `ToolUseBaseEnv`), as is the module's
name, under which sources may import it.
"""

import json
import re
from typing import Any


class ToolUseBaseEnv:
    """An environment that is played by calling tools and ended by an answer.

    Attributes:
      max_turns: `step` truncates the episode after this many calls of it.
      turn_count: calls of `step` in this episode.
    """

    def __init__(self, max_turns: int = 10, **_: Any):
        self.max_turns = max_turns
        self.turn_count = 0
        self._tools: dict[str, dict[str, Any]] = {}
        self._state: dict[str, Any] = {}
        self._call_history: list[dict[str, Any]] = []
        self._expected_answer: Any = None
        self.reset()

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode: sets `_tools`, `_state` and `_expected_answer`, and states the task."""
        raise NotImplementedError(f"{type(self).__name__} defines no reset(seed)")

    def solution(self) -> str:
        """A sequence of calls and the answer they lead to; shown when the turns run out, where defined."""
        raise NotImplementedError(f"{type(self).__name__} defines no solution()")

    def get_tools(self) -> list[dict[str, Any]]:
        """The tools as function schemas, in the form that chat templates take."""
        nothing = {"type": "object", "properties": {}}
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.get("description", ""),
                    "parameters": tool.get("parameters", nothing),
                },
            }
            for name, tool in self._tools.items()
        ]

    def execute_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls one tool; takes no turn.

        Returns:
          `output`, text, and `returncode`: 0, or 1 where there is no such tool or it raised.
        """
        method = getattr(self, f"tool_{name}", None)
        if method is None:
            return {
                "output": f"There is no tool {name!r}; there are: {', '.join(self._tools)}",
                "returncode": 1,
            }
        try:
            output = str(method(**arguments))
        except Exception as error:
            return {"output": f"Calling {name} failed: {error}", "returncode": 1}
        self._call_history.append({"name": name, "arguments": arguments, "result": output})
        return {"output": output, "returncode": 0}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one turn: an `<answer>`, or else the first `<tool_call>`, a JSON object.

        The right answer ends the episode with reward 1; what is neither answer nor call costs 0.1.
        """
        self.turn_count += 1
        answer = _enclosed("answer", action)
        if answer is not None and self._check_answer(answer.strip()):
            return "Your answer is right.", 1.0, True, False, {}
        observation, reward = (
            self._call(action) if answer is None else (self._incorrect_answer_feedback(), 0.0)
        )
        if self.turn_count < self.max_turns:
            return observation, reward, False, False, {}
        return f"{observation}\n\nThat was the last turn.{self._told_solution()}", 0.0, False, True, {}

    def close(self) -> None:
        """Nothing to give back."""

    def _call(self, action: str) -> tuple[str, float]:
        text = _enclosed("tool_call", action)
        if text is None:
            return "Call a tool, or give your result as <answer>result</answer>.", -0.1
        try:
            call = json.loads(text)
        except ValueError as error:
            return f"The tool call is no JSON: {error}", -0.1
        if not isinstance(call, dict) or not isinstance(call.get("arguments") or {}, dict):
            return 'A tool call is an object with "name" and an object "arguments".', -0.1
        result = self.execute_tool(call.get("name", ""), call.get("arguments") or {})
        return result["output"], 0.0

    def _told_solution(self) -> str:
        """What the last turn tells of the solution; "" where the source defines none."""
        # Some sources store its text under the method's name.
        solution: Any = self.solution
        try:
            text = solution() if callable(solution) else solution
        except NotImplementedError:
            return ""
        return f" A solution:\n{text}"

    def _check_answer(self, answer: str) -> bool:
        """Whether the answer is the expected one, but for case, or as a number within 0.01."""
        given, expected = str(answer).strip(), str(self._expected_answer).strip()
        if given.lower() == expected.lower():
            return True
        try:
            return abs(_number(given) - _number(expected)) < 0.01
        except ValueError:
            return False

    def _incorrect_answer_feedback(self) -> str:
        """What a wrong answer gets, with the pending instruction where instructions come one by one."""
        feedback = "Your answer is wrong. Go on with the tools."
        messages, current = getattr(self, "_user_messages", None), getattr(self, "_current_msg", None)
        if isinstance(messages, list | tuple) and isinstance(current, int) and 0 <= current < len(messages):
            feedback += (
                f" Step {current + 1} of {len(messages)} is still to do: {messages[current]} Do it with the"
                " tools before you answer <answer>done</answer>."
            )
        return feedback

    def _obs_suffix(self) -> str:
        """Empty; older sources append it to their observations."""
        return ""


def _enclosed(tag: str, text: str) -> str | None:
    found = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return found and found[1]


def _number(text: str) -> float:
    return float(text.replace("$", "").replace(",", ""))
