"""Hints that are asked for separately: from an environment's source, by the policy or an endpoint.

The hint may know the source, the agent that reads it may not; so the rules ask for what helps in every
instance and gives no answer away. They are the same as those of a design that brings its own hint.
"""

import json
import re

from spade_jax.roles.prompts.parts import HINT_RULES, source_block
from spade_jax.text.chat import Message
from spade_jax.text.extract import MAX_HINT_CHARACTERS, ExtractionError, after_thinking
from spade_jax.types import EnvironmentSource, Setting

_TASK: dict[Setting, str] = {
    "games": """\
You advise an agent, a language model, that is about to act in a text environment over several turns.
You read the environment's program, which the agent never sees, and write one hint.""",
    "tool_use": """\
You advise an agent, a language model, that is about to carry out a user's instructions by calling
tools. You read the environment's program, which the agent never sees, and write one hint.""",
}
_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)
_PREFIX = re.compile(r"\A\**hint\**\s*:\**\s*", re.IGNORECASE)
# How chat templates write the end of a message, where it was decoded as text.
_CONTROL = re.compile(r"<\|[^|<>\s]+\|>|</s>")
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”"}


def hint_messages(source: EnvironmentSource, *, setting: Setting) -> list[Message]:
    """The conversation that asks for the hint of one environment."""
    system = f"{_TASK[setting]}\n\n{HINT_RULES[setting]}\n\nReply with the hint's text and nothing else."
    return [
        Message(role="system", content=system),
        Message(role="user", content=f"{source_block(source)}\n\nWrite the hint."),
    ]


def read_hint(reply: str) -> str:
    """The hint in a reply, on one line.

    What may stand around it is taken off: thinking, a mark that ends the message, a fence with
    `{"hint": ...}`, quotes, a leading "Hint:". It is never cut: half a hint may mislead.

    Raises:
      ExtractionError: there is no hint, or it is too long.
    """
    text = _CONTROL.split(after_thinking(reply), maxsplit=1)[0].strip()
    fenced = _FENCE.fullmatch(text)
    if fenced:
        text = fenced[1].strip()
    if text.startswith("{"):
        text = _from_json(text)
    text = _unquoted(_PREFIX.sub("", _unquoted(" ".join(text.split())), count=1)).strip()
    if not text:
        raise ExtractionError("no_hint", "the reply has no text besides thinking and marks")
    if len(text) > MAX_HINT_CHARACTERS:
        raise ExtractionError("long_hint", f"{len(text)} characters, at most {MAX_HINT_CHARACTERS} are read")
    return text


def _from_json(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    hint = value.get("hint") if isinstance(value, dict) else None
    if not isinstance(hint, str):
        raise ExtractionError("no_hint", 'the reply is no JSON object {"hint": "..."}')
    return hint


def _unquoted(text: str) -> str:
    """Without a pair of quotes around the whole of it."""
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1] and text[-1] not in text[1:-1]:
        return text[1:-1].strip()
    return text
