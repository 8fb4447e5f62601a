"""Conversations as token ids.

    <|user|>content<|end|><|assistant|>content<|end|>...

`Chat` is what a role speaks through: it renders a conversation, says what follows a sampled reply, and
reads the reply. A header and `<|end|>` of the native format are one control symbol each, which no content
can produce. Its rendering is append-only: what a later message adds never changes what stands before it,
so a conversation grows by the sampled ids and by `continuation` alone and nothing is rendered twice. Other
formats are in `spade_jax.text.template_chat`. Which tokens were sampled is known to the sampler;
`render_conversation` makes a mask for supervised text only.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from spade_jax.text.tokenizer import Tokenizer

# An environment writes its tools' schemas; they may be nested without end.
_MAX_NESTING = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a conversation; "tool" is what one tool call returned."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Chat(Protocol):
    """A tokenizer with the format of its conversations; immutable.

    Tools are function schemas as the OpenAI API takes them, `{"type": "function", "function": {"name": ...,
    "description": ..., "parameters": {...}}}`, and the same in all calls of one conversation, as is
    `thinking`.
    """

    @property
    def pad_id(self) -> int:
        """Fills rows up; whether a token is padding is said by its segment, never by this id."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end a reply; the first is the one that the format itself writes there."""

    def encode(self, text: str) -> list[int]:
        """The ids of plain text, which never include one that structures a conversation."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text that `ids` spell; control tokens appear by name."""

    def read_reply(self, ids: Iterable[int]) -> str:
        """The text of a sampled reply, without its stop token."""

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        thinking: bool = False,
    ) -> list[int]:
        """A conversation so far, with the header that asks the assistant to go on.

        Raises:
          ValueError: there is no message, the last one is the assistant's own, or the format has none of
            what is asked for.
        """

    def continuation(
        self,
        messages: Sequence[Message],
        reply: Sequence[int],
        new_messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        thinking: bool = False,
    ) -> list[int] | None:
        """What follows a reply: the rest of its turn, the new messages and the next header.

        Args:
          messages: the whole conversation that the reply answers.
          reply: as it was sampled, its stop token last.
          new_messages: one user message, or the results of the reply's tool calls.

        Returns:
          The ids to append to the prompt and the reply, or None where the format would rewrite what stands
          there; then a new sequence starts with the `prompt` of `[*messages, reply, *new_messages]`.

        Raises:
          ValueError: the reply does not end with a stop token, or as `prompt` does.
        """


class NativeChat:
    """`Chat` in the project's own format, over its own tokenizer.

    Tools are told in the system message, a run of tool results is one user message, and there is no
    thinking.
    """

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.pad_id = tokenizer.pad_id
        self.stop_ids = (tokenizer.end_id,)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode(ids)

    def read_reply(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode(index for index in ids if index not in self.stop_ids)

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        thinking: bool = False,
    ) -> list[int]:
        check_prompt(messages)
        if thinking:
            raise ValueError("the native format has no thinking; set thinking=False for both roles")
        return render_prompt(self.tokenizer, tell_tools(messages, tools) if tools else messages)

    def continuation(
        self,
        messages: Sequence[Message],
        reply: Sequence[int],
        new_messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        thinking: bool = False,
    ) -> list[int] | None:
        check_reply(reply, self.stop_ids)
        # What came before, tools included, stays as it is.
        return self.prompt(new_messages, thinking=thinking)


def check_prompt(messages: Sequence[Message]) -> None:
    """Raises a ValueError unless there is something for the assistant to answer."""
    if not messages or messages[-1].role == "assistant":
        raise ValueError(
            "a prompt ends with a system or user message or a tool's result, for the assistant to answer"
        )


def check_reply(reply: Sequence[int], stop_ids: tuple[int, ...]) -> None:
    """Raises a ValueError unless the reply ended by itself."""
    if len(reply) == 0 or reply[-1] not in stop_ids:
        last = reply[-1] if len(reply) else "nothing"
        raise ValueError(
            f"only a reply that ended can be continued; its last id is {last}, want one of {stop_ids}"
        )


def describe_tools(tools: Sequence[Mapping[str, Any]]) -> str:
    """The tools as signatures, one line each: `move(item: string, to?: red|blue) - what it does`.

    `?` marks what may be left out. A schema that JSON Schema does not know is shown as `any`, and the
    descriptions of parameters are left out, so that small models can afford the text.
    """
    return "\n".join(["Tools:", *(_signature(tool["function"]) for tool in tools)])


def tell_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The conversation with the tools described in its system message, after what it says already."""
    told = describe_tools(tools)
    if messages and messages[0].role == "system":
        return [Message(role="system", content=f"{messages[0].content}\n\n{told}"), *messages[1:]]
    return [Message(role="system", content=told), *messages]


def merge_tool_results(messages: Iterable[Message]) -> list[Message]:
    """The conversation with each run of tool results as one user message."""
    merged: list[Message] = []
    for is_tool, run in itertools.groupby(messages, key=lambda message: message.role == "tool"):
        if is_tool:
            results = [f"<tool_response>\n{message.content}\n</tool_response>" for message in run]
            merged.append(Message(role="user", content="\n".join(results)))
        else:
            merged += run
    return merged


def render_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """A conversation so far in the native format, with the header that asks the assistant to go on.

    Raises:
      ValueError: there is no message, or the last one is the assistant's own.
    """
    check_prompt(messages)
    ids, _ = render_conversation(tokenizer, messages)
    return [*ids, tokenizer.assistant_id]


def render_reply(tokenizer: Tokenizer, text: str) -> list[int]:
    """What an assistant that says `text` samples after its header: the text and its end."""
    return [*tokenizer.encode(text), tokenizer.end_id]


def render_followup(tokenizer: Tokenizer, message: Message) -> list[int]:
    """What is appended after a reply that ended with `end_id`: one message and the next header.

    Raises:
      ValueError: the message is the assistant's own.
    """
    return render_prompt(tokenizer, [message])


def render_conversation(tokenizer: Tokenizer, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
    """A whole conversation in the native format and where the assistant speaks.

    Returns:
      ids and loss mask, both [T]. The mask is True at the content and the end of each assistant
      message, which is what a policy samples, and False at headers and all other messages.
    """
    headers = {
        "system": tokenizer.system_id,
        "user": tokenizer.user_id,
        "assistant": tokenizer.assistant_id,
    }
    ids: list[int] = []
    loss_mask: list[bool] = []
    for message in merge_tool_results(messages):
        body = render_reply(tokenizer, message.content)
        ids += [headers[message.role], *body]
        loss_mask += [False, *[message.role == "assistant"] * len(body)]
    return ids, loss_mask


def _signature(function: Mapping[str, Any]) -> str:
    parameters = _fields(function.get("parameters"), _MAX_NESTING)
    description = " ".join(str(function.get("description") or "").split())
    return f"{function['name']}({parameters})" + (f" - {description}" if description else "")


def _fields(schema: Any, levels: int) -> str:
    """The properties of an object's schema: `item: string, to?: red|blue`."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    required = schema.get("required")
    required = required if isinstance(required, list) else []
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_type(one, levels)}" for name, one in properties.items()
    )


def _type(schema: Any, levels: int) -> str:
    """The values that a schema allows: `string`, `red|blue`, `[integer]`, `{street: string}`.

    Args:
      levels: of nesting that are still shown.
    """
    if not isinstance(schema, dict) or levels == 0:
        return "any"
    for choice in ("anyOf", "oneOf"):
        if isinstance(schema.get(choice), list):
            return "|".join(_type(one, levels - 1) for one in schema[choice])
    if isinstance(schema.get("enum"), list):
        return "|".join(map(str, schema["enum"]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return "|".join(map(str, kind))
    if kind == "array" and "items" in schema:
        return f"[{_type(schema['items'], levels - 1)}]"
    if kind == "object" and (fields := _fields(schema, levels - 1)):
        return f"{{{fields}}}"
    return kind if isinstance(kind, str) else "any"
