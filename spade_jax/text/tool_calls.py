"""What a reply says where an agent has tools: an answer, calls, or a call that cannot be read.

    read_action(reply, schemas) -> answer            -> the environment's `step`
                                -> calls, in order   -> its tools
                                -> malformed, why    -> `format_reminder`, to the agent

    read_sequence(text, schemas) -> calls and answers, of a text that consists of them

A call stands between `<tool_call>` and `</tool_call>` in one of the two forms that chat templates teach:

    {"name": "buy", "arguments": {"count": 3}}
    <function=buy><parameter=count>3</parameter></function>

Nothing is repaired or guessed. Reading ends at the first block that cannot be read, since what follows
it counted on it. No text raises, and none takes long.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from spade_jax.text.extract import after_thinking

MAX_ARGUMENTS_DEPTH = 32

Schemas = Mapping[str, Mapping[str, Any]]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_ANSWER_OPEN, _ANSWER_CLOSE = "<answer>", "</answer>"
_BLOCK_START = re.compile(r"\s*(?:```\w*\s*)?")
_BLOCK_END = re.compile(r"\s*(?:```\s*)?</tool_call>")
_SPACE = re.compile(r"\s*")
_BLOCK_OPEN = re.compile(f"{_OPEN}|{_ANSWER_OPEN}")
_WORD = re.compile(r"[^\W\d_]")
_FUNCTION = re.compile(r"<function=([^<>\n]+)>\s*")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>")
_STRAY = re.compile(r"</tool_call>|<function=")
# Line breaks inside a string are what models write for \n, and can mean nothing else.
_JSON = json.JSONDecoder(strict=False)
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_KINDS = {
    bool: "boolean", int: "integer", float: "number", str: "string",
    dict: "object", list: "array", type(None): "null",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call, as the agent wrote it; whether there is such a tool is for the environment to say."""

    name: str
    arguments: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolReply:
    """What one reply says.

    Attributes:
      answer: the content of the first `<answer>` outside the calls, stripped; it beats all calls.
      calls: in order, up to the first that cannot be read; empty where there is an answer.
      malformed: why a call could not be read, for the agent to see, or "".
      action: what `step` is given where there is no call to make: the answer in its tags, or else all
        that was said.
    """

    answer: str | None
    calls: tuple[ToolCall, ...]
    malformed: str
    action: str


class _Unreadable(Exception):
    """Why a call cannot be read."""


def read_action(reply: str, schemas: Schemas) -> ToolReply:
    """Reads a reply; what stands before the end of its thinking is not said.

    In the first form arguments are as JSON has them, whole; they may come as a string of JSON, and be
    called `parameters`. A block holds one object, several, or a list of them, in a code fence or not.
    A string in a call may hold tags; they mean nothing there.

    In the second form a value is text, without the line break next to each of its tags. Where the schema
    declares its parameter a string, it stays text. Otherwise it is what it says as JSON, or as Python's
    True, False and None, and stays text if it is neither. Where a string is one of several declared
    types, it is what it says only if that is of one of the others.

    Args:
      reply: as sampled, without its stop token.
      schemas: the JSON schema of the arguments by name of the tool.
    """
    text = after_thinking(reply)
    calls: list[ToolCall] = []
    malformed = ""
    position = 0
    while not malformed:
        opened = text.find(_OPEN, position)
        answer = _first_answer(text, position, opened if opened >= 0 else len(text))
        if answer is not None:
            return _answered(answer)
        if opened < 0:
            break
        try:
            block, position = _read_block(text, opened + len(_OPEN), schemas)
            calls += block
        except _Unreadable as error:
            malformed = str(error)
            position = opened
    if malformed:
        answer = _first_answer(text, position, len(text))
        if answer is not None:
            return _answered(answer)
    elif not calls and _STRAY.search(text):
        malformed = f"{_OPEN} does not stand before it"
    return ToolReply(answer=None, calls=tuple(calls), malformed=malformed, action=text.strip())


def read_sequence(text: str, schemas: Schemas) -> list[ToolCall | str]:
    """The calls and answers, as their text, of a text that consists of them, in order.

    Numbers and marks may stand around them. Empty where words do, or where a block cannot be read.

    Args:
      schemas: as for `read_action`.
    """
    actions: list[ToolCall | str] = []
    position = 0
    while opened := _BLOCK_OPEN.search(text, position):
        if _WORD.search(text, position, opened.start()):
            return []
        if opened[0] == _OPEN:
            try:
                calls, position = _read_block(text, opened.end(), schemas)
            except _Unreadable:
                return []
            actions += calls
        else:
            closed = text.find(_ANSWER_CLOSE, opened.end())
            if closed < 0:
                return []
            actions.append(text[opened.end() : closed].strip())
            position = closed + len(_ANSWER_CLOSE)
    return [] if _WORD.search(text, position) else actions


def format_reminder(reason: str) -> str:
    """What is appended to the observation after a call that could not be read."""
    return (
        f"\n\nA tool call in your last message could not be read: {reason}. Write a call as\n"
        f'{_OPEN}\n{{"name": "the tool", "arguments": {{"its parameter": "the value"}}}}\n{_CLOSE}'
    )


def _answered(answer: str) -> ToolReply:
    answer = answer.strip()
    return ToolReply(answer=answer, calls=(), malformed="", action=f"{_ANSWER_OPEN}{answer}{_ANSWER_CLOSE}")


def _first_answer(text: str, start: int, end: int) -> str | None:
    """The content of the first `<answer>` that opens in this range, if it is closed anywhere."""
    opened = text.find(_ANSWER_OPEN, start, end)
    closed = text.find(_ANSWER_CLOSE, opened) if opened >= 0 else -1
    return text[opened + len(_ANSWER_OPEN) : closed] if closed >= 0 else None


def _read_block(text: str, start: int, schemas: Schemas) -> tuple[list[ToolCall], int]:
    """The calls of the block whose content starts here, and where it ends."""
    if text.find(_CLOSE, start) < 0:
        raise _Unreadable(f"{_CLOSE} does not stand after it")
    calls: list[ToolCall] = []
    position = _skip(_BLOCK_START, text, start)
    while not (end := _BLOCK_END.match(text, position)):
        if text.startswith("<function=", position):
            call, position = _read_function(text, position, schemas)
            calls.append(call)
        else:
            objects, position = _read_objects(text, position)
            calls += objects
        position = _skip(_SPACE, text, position)
    if not calls:
        raise _Unreadable("it is empty")
    return calls, end.end()


def _read_objects(text: str, position: int) -> tuple[list[ToolCall], int]:
    try:
        value, end = _JSON.raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"it is no JSON, {_what_is_wrong(error)}") from None
    return [_call_of(item) for item in (value if isinstance(value, list) else [value])], end


def _call_of(item: Any) -> ToolCall:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
        raise _Unreadable('it is no JSON object with a "name"')
    arguments = item.get("arguments", item.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments.strip() or "{}", strict=False)
        except (ValueError, RecursionError) as error:
            raise _Unreadable(f"its arguments are no JSON, {_what_is_wrong(error)}") from None
    return _checked_call(item["name"], {} if arguments is None else arguments)


def _read_function(text: str, position: int, schemas: Schemas) -> tuple[ToolCall, int]:
    opened = _FUNCTION.match(text, position)
    if opened is None:
        raise _Unreadable("a function starts with <function=NAME>")
    name, position = opened[1], opened.end()
    arguments: dict[str, Any] = {}
    while parameter := _PARAMETER.match(text, position):
        closed = text.find("</parameter>", parameter.end())
        # Past another's start it is the end of that one, perhaps in another call.
        if closed < 0 or text.find("<parameter=", parameter.end(), closed) >= 0:
            raise _Unreadable(f"{parameter[0]} does not end with </parameter>")
        value = text[parameter.end() : closed].removeprefix("\n").removesuffix("\n")
        arguments[parameter[1]] = _value(value, _types(schemas, name, parameter[1]))
        position = _skip(_SPACE, text, closed + len("</parameter>"))
    if not text.startswith("</function>", position):
        raise _Unreadable(
            "after <function=NAME> come <parameter=NAME>value</parameter>, any number, and then </function>;"
            f" not {text[position : position + 20]!r}"
        )
    return _checked_call(name, arguments), position + len("</function>")


def _value(text: str, types: set[str]) -> Any:
    """What the text of a parameter stands for, by the types that its schema declares."""
    word = text.strip()
    try:
        value = json.loads(_PYTHON_WORDS.get(word, word), strict=False)
    except (ValueError, RecursionError):
        return text
    kind = _KINDS[type(value)]
    others = types - {"string"}
    if "string" in types and kind not in others and not (kind == "integer" and "number" in others):
        return text
    return value


def _types(schemas: Schemas, tool: str, parameter: str) -> set[str]:
    """The JSON types that a tool's parameter may have; none where its schema names none.

    Schemas are an environment's own and may have any shape.
    """
    found: Any = schemas.get(tool)
    for key in ("properties", parameter):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return set()
    types: list[Any] = []
    choices = found.get("anyOf")
    for schema in [found, *(choices if isinstance(choices, list) else [])]:
        declared = schema.get("type") if isinstance(schema, Mapping) else None
        types += declared if isinstance(declared, list) else [declared]
    return {name for name in types if isinstance(name, str)}


def _checked_call(name: str, arguments: Any) -> ToolCall:
    if not isinstance(arguments, dict):
        raise _Unreadable(f"its arguments are {_KINDS[type(arguments)]}, not an object")
    level: list[Any] = [arguments]
    for _ in range(MAX_ARGUMENTS_DEPTH):
        level = [
            inner
            for container in level
            if isinstance(container, dict | list)
            for inner in (container.values() if isinstance(container, dict) else container)
        ]
    if any(isinstance(value, dict | list) for value in level):
        raise _Unreadable(f"its arguments are nested more than {MAX_ARGUMENTS_DEPTH} deep")
    return ToolCall(name=name, arguments=arguments)


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    """The end of what a pattern that matches everywhere matches here."""
    found = pattern.match(text, position)
    assert found is not None
    return found.end()


def _what_is_wrong(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at {error.doc[error.pos : error.pos + 20]!r}"
    return str(error)
