"""Players that understand nothing: they pick among what they see.

Each is a function of the latest observation, a generator and, where there are any, the tools. What a tool
asks for is made from its JSON schema, which is a claim of the environment: nothing in it is trusted.
"""

import json
import random
import re
from collections.abc import Sequence
from typing import Any

from spade_jax.environments.validation.actions import Action, say
from spade_jax.sandbox.protocol import Tool
from spade_jax.text.tool_calls import ToolCall

# Quoted text, boxed text, numbers, and words in a row with `,`, `/`, `|` or "or" between them.
_QUOTED = re.compile(
    r"\\boxed\{([^{}\n]{1,40})\}|\"([^\"\n]{1,40})\"|(?<!\w)'([^'\n]{1,40})'|`([^`\n]{1,40})`"
)
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")
_LISTED = re.compile(r"\b\w++(?:\s*+(?:,\s*+or\b|\bor\b|[,/|])\s*+\w++)+")
_MAX_TEXT = 200
_MAX_ARGUMENTS = 20_000
_INTEGERS = 2**31


def words(observation: str) -> list[str]:
    """The words and numbers of an observation; never empty."""
    return re.findall(r"\w+", observation) or ["1"]


def options(observation: str) -> list[str]:
    """What looks like a choice in an observation: quoted, boxed, listed, or a number."""
    found = ["".join(groups) for groups in _QUOTED.findall(observation)] + _NUMBERS.findall(observation)
    for listed in _LISTED.findall(observation):
        found += [word for word in re.findall(r"\w+", listed) if word != "or"]
    return list(dict.fromkeys(found))


def random_word(observation: str, rng: random.Random) -> str:
    r"""A word of the observation, in a box."""
    return say(rng.choice(words(observation)), has_tools=False)


def random_answer(observation: str, rng: random.Random, *, has_tools: bool) -> str:
    """A random move or answer: one of what looks like options as often as any word."""
    listed = options(observation)
    choice = rng.choice(listed if listed and rng.random() < 0.5 else words(observation))
    return say(choice, has_tools=has_tools)


def random_action(observation: str, tools: Sequence[Tool], rng: random.Random) -> Action:
    """A random answer or, three times in four where there are tools, a random call."""
    if tools and rng.random() < 0.75:
        return random_call(rng.choice(tools), observation, rng)
    if tools and rng.random() < 0.5:
        return say("done", has_tools=True)
    return random_answer(observation, rng, has_tools=bool(tools))


def random_call(tool: Tool, observation: str, rng: random.Random) -> ToolCall:
    """A call of one tool with arguments of the kinds that its schema asks for."""
    arguments = _object(tool.parameters, observation, rng)
    if len(json.dumps(arguments)) > _MAX_ARGUMENTS:
        arguments = {}
    return ToolCall(name=tool.name, arguments=arguments)


def _value(schema: Any, observation: str, rng: random.Random) -> Any:
    """A value for a schema, whose nesting the sandbox has bounded; text where it says nothing."""
    if not isinstance(schema, dict):
        return _text(observation, rng)
    for key in ("enum", "examples"):
        if isinstance(schema.get(key), list) and schema[key]:
            return rng.choice(schema[key])
    if "const" in schema:
        return schema["const"]
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return _value(rng.choice(schema[key]), observation, rng)
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        kind = rng.choice(kind)
    match kind:
        case "object":
            return _object(schema, observation, rng)
        case "array":
            return [_value(schema.get("items"), observation, rng)]
        case "integer" | "number":
            return _number(schema, observation, rng)
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
    return _text(observation, rng)


def _object(schema: dict[str, Any], observation: str, rng: random.Random) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return {}
    needed = required if isinstance(required, list) else []
    return {
        name: _value(inner, observation, rng)
        for name, inner in properties.items()
        if name in needed or rng.random() < 0.5
    }


def _number(schema: dict[str, Any], observation: str, rng: random.Random) -> int:
    """A number of the observation or a small one, within the bounds; whole, so that both kinds take it."""
    seen = [int(number) for number in re.findall(r"\d{1,9}", observation)]
    number = rng.choice(seen) if seen and rng.random() < 0.5 else rng.randint(0, 10)
    low, high = (
        _bound(schema.get(key), default) for key, default in (("minimum", 0), ("maximum", _INTEGERS))
    )
    return min(max(number, low), high)


def _bound(value: Any, default: int) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) <= _INTEGERS else default


def _text(observation: str, rng: random.Random) -> str:
    return rng.choice(options(observation) or words(observation))[:_MAX_TEXT]
