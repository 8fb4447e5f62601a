"""The skeleton that the tool-use programs of the warm start share, and the replies that play them.

There are two kinds. One asks a question, which is answered by what the tools tell; the other gives
instructions one by one, each with a criterion on the state, and is answered by "done". In both an
answer is the last turn, right or wrong, so that guessing does not pay.

An action is a whole reply: one call, or an answer.
"""

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from spade_jax.warm_start.family import Parameters, class_name

KEYS = list("ABCD")
NUMBERS = range(1, 10)
ALL_DONE = "all done"
_NUMBER = r"\b[1-9]\b"


def call(name: str, **arguments: str | int) -> str:
    """The reply that calls a tool."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def answer(text: str | int) -> str:
    """The reply that answers."""
    return f"<answer>{text}</answer>"


DONE = answer("done")


def tool(name: str, description: str, **types: str) -> str:
    """The line of a program that offers a tool.

    Args:
      types: the JSON type of each argument; all are required.
    """
    properties = {argument: {"type": kind} for argument, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return f'"{name}": {json.dumps({"description": description, "parameters": parameters})},'


GET = tool("get", "Reads one.", key="string")


def lines(*parts: str) -> str:
    """Parts of a program, one below the other, each without the indentation that it has where it stands."""
    return "\n".join(textwrap.dedent(part).strip() for part in parts)


def question_program(
    name: str, *, tools: Sequence[str], reset: str, question: str, methods: str
) -> Callable[[Parameters, str], str]:
    """The source of a family whose programs ask a question.

    Args:
      tools: lines made by `tool`.
      reset: lines that draw the instance from `self.rng` and set `self._expected_answer`.
      question: the first observation, as the inside of an f-string at the end of `reset`, in which
        `$word` stands for the word of the document.
      methods: the tools.
    """
    return _program(
        name,
        tools=tools,
        reset=lines(reset, f'return f"{question}", {{}}'),
        methods=lines(methods),
        right="super()._check_answer(answer)",
    )


def instruction_program(
    name: str, *, tools: Sequence[str], reset: str, methods: str
) -> Callable[[Parameters, str], str]:
    """The source of a family whose programs give instructions one by one.

    Args:
      tools: lines made by `tool`.
      reset: lines that draw the instance from `self.rng` and set `self._state`, `self._user_messages` and
        `self._message_criteria`.
      methods: the tools; what each returns ends with `self._advance_if_done()`.
    """
    return _program(
        name,
        tools=tools,
        reset=lines(reset, _BEGIN),
        methods=lines(methods, _ADVANCE),
        right="answer == self._expected_answer and self._current_msg == len(self._user_messages)",
    )


_BEGIN = """
    self._current_msg = 0
    self._expected_answer = "done"
    return "$word " + self._user_messages[0], {}
"""
_ADVANCE = f"""
    def _advance_if_done(self):
        todo = list(zip(self._message_criteria, [*self._user_messages, "{ALL_DONE}"][1:]))
        for criterion, message in todo[self._current_msg :][:1]:
            if criterion(self._state):
                self._current_msg += 1
                return ", next " + message
        return ""
"""


def _program(
    name: str, *, tools: Sequence[str], reset: str, methods: str, right: str
) -> Callable[[Parameters, str], str]:
    listed = textwrap.indent("\n".join(tools), " " * 12)
    reset = textwrap.indent(reset, " " * 8)
    methods = textwrap.indent(methods, " " * 4)

    def source(parameters: Parameters, word: str) -> str:
        numbers = {key: value for key, value in parameters.items() if key != "max_turns"}
        return f"""\
import random

class {class_name(name)}(ToolUseBaseEnv):
    {", ".join(numbers)} = {", ".join(map(str, numbers.values()))}
    def __init__(self, max_turns={parameters["max_turns"]}):
        super().__init__(max_turns)
    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.turn_count = 0
        self._call_history = []
        self._tools = {{
{listed}
        }}
{reset.replace("$word", word)}
{methods}
    def _check_answer(self, answer):
        self.turn_count = self.max_turns
        return {right}
"""

    return source


def found(observations: Sequence[str], pattern: str) -> list[Any]:
    """What `re.findall` finds of a pattern in all observations, each a line."""
    return re.findall(pattern, "\n".join(observations), re.MULTILINE)


def all_done(observations: Sequence[str]) -> bool:
    """Whether all instructions were carried out."""
    return any(observation.endswith(ALL_DONE) for observation in observations)


def numbers_told(observations: Sequence[str]) -> list[int]:
    """The distinct numbers in what the tools told."""
    return sorted({int(number) for number in found(observations[1:], _NUMBER)})


def possible_sums(observations: Sequence[str]) -> list[int]:
    """What the numbers that the tools told may add up to, and one more."""
    told = [int(number) for number in found(observations[1:], _NUMBER)]
    return [number for number in NUMBERS if told and min(told) <= number <= sum(told) + 1]


def keys_asked(observations: Sequence[str]) -> list[str]:
    """The keys in the first observation, each once, in the order shown."""
    return list(dict.fromkeys(re.findall(r"\b[A-D]\b", observations[0])))
