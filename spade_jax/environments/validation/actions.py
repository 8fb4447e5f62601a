r"""Actions: what is said to an environment, how it is said, and how it is read from a solution's text.

A game is told `\boxed{X}`, as the agent's replies are passed on. Where an environment offers tools, an
action is a call of one or `<answer>X</answer>`.
"""

import re
from collections.abc import Sequence

from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.protocol import Step, Tool
from spade_jax.text.tool_calls import ToolCall, read_sequence

Action = str | ToolCall

_BARE = re.compile(r"[-+]?\w[\w.]{0,63}")
_BRACES = re.compile(r"\\boxed\{|\{|\}")
_DRESSED = re.compile(r"(\\boxed\{|<answer>|)(.*?)(\}|</answer>|)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d{1,15}(\.\d{1,15})?")
_NONSENSE = "zq"
_MAX_SOLUTION = 8000


async def take(environment: SandboxedEnvironment, action: Action) -> Step:
    """Takes one action; a call of a tool earns nothing and ends nothing."""
    if isinstance(action, str):
        return await environment.step(action)
    result = await environment.call_tool(action.name, action.arguments)
    return Step(observation=result.output, reward=0.0, terminated=False, truncated=False, info={})


def say(text: str, *, has_tools: bool) -> str:
    """The action that gives a text as one's move or answer; nothing at all for "" ."""
    if not text:
        return ""
    return f"<answer>{text}</answer>" if has_tools else f"\\boxed{{{text}}}"


def said(action: str) -> str:
    """What an action gives, without its dress."""
    dressed = _DRESSED.fullmatch(action)
    assert dressed is not None, "the pattern matches any text"
    return dressed[2].strip()


def read_solution(text: str, tools: Sequence[Tool]) -> list[list[Action]]:
    r"""The actions that an environment's solution consists of.

    Playable are a sequence of `\boxed{}` moves, with or without words around them; calls of tools and an
    answer, with no words around them; and a single word or number.

    Args:
      tools: of the episode, none in a game.

    Returns:
      the ways to play it, likeliest first; empty for prose, which says nothing that can be played.
    """
    text = text.strip()
    if len(text) > _MAX_SOLUTION:
        return []
    if tools:
        found = read_sequence(text, {tool.name: tool.parameters for tool in tools})
        if not any(isinstance(item, str) for item in found):
            return []
        return [[say(item, has_tools=True) if isinstance(item, str) else item for item in found]]
    moves = _read_boxes(text)
    if moves:
        return [[say(move, has_tools=False) for move in moves]]
    return [[say(text, has_tools=False)], [text]] if _BARE.fullmatch(text) else []


def spoil(action: str) -> list[str]:
    """Wrong versions of an action: one that is near it, and one that means nothing."""
    content = said(action)
    if _NUMBER.fullmatch(content):
        near = str(float(content) + 1) if "." in content else str(int(content) + 1)
    elif content:
        near = content[:-1] + ("y" if content[-1] == "x" else "x")
    else:
        near = "x"
    dressed = _DRESSED.fullmatch(action)
    assert dressed is not None, "the pattern matches any text"
    return [f"{dressed[1]}{wrong}{dressed[3]}" for wrong in (near, _NONSENSE)]


def _read_boxes(text: str) -> list[str]:
    r"""The contents of all `\boxed{...}` in order, those inside another one not apart."""
    contents = []
    start, depth = 0, 0
    for brace in _BRACES.finditer(text):
        if brace[0] == "}":
            depth -= depth > 0
            if depth == 0 and start:
                contents.append(text[start : brace.start()].strip())
                start = 0
        elif start:
            depth += 1
        elif brace[0] != "{":
            start, depth = brace.end(), 1
    return contents
