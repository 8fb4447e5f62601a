"""Conversations as token ids.

    <|user|>content<|end|><|assistant|>content<|end|>...

A header and `<|end|>` are one control symbol each, which no content can produce. The rendering is
append-only: what a later message adds never changes what stands before it, so a conversation grows
by the sampled ids and by `render_followup` alone and nothing is rendered twice. Which tokens were
sampled is known to the sampler; `render_conversation` makes a mask for supervised text only.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from spade_jax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


def render_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """A conversation so far, with the header that asks the assistant to go on.

    Raises:
      ValueError: there is no message, or the last one is the assistant's own.
    """
    if not messages or messages[-1].role == "assistant":
        raise ValueError("a prompt ends with a system or user message, for the assistant to answer")
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
    """A whole conversation and where the assistant speaks.

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
    for message in messages:
        body = render_reply(tokenizer, message.content)
        ids += [headers[message.role], *body]
        loss_mask += [False, *[message.role == "assistant"] * len(body)]
    return ids, loss_mask
