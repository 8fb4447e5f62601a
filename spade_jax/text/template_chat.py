"""Conversations in the format of a pretrained model, by its own chat template.

    messages -> template -> text -> one tokenization -> ids

The template alone decides what stands where, so a continuation is found by comparing renderings:

    <|im_start|>user⏎where?<|im_end|>⏎<|im_start|>assistant⏎            prompt: the messages
    here                                                                sampled, then <|im_end|>
    ⏎<|im_start|>user⏎there?<|im_end|>⏎<|im_start|>assistant⏎           continuation

The rendering of the messages, a stand-in for the reply, and the new messages has to start with the prompt
and the stand-in; what is left is the continuation. Where it does not, the template rewrites the past (it
drops earlier thinking, or moves the tools), and the conversation goes on as a new sequence.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerFast

from spade_jax.errors import TokenizerError
from spade_jax.text.chat import Message, check_prompt, check_reply, merge_tool_results, tell_tools

# Two of the code points that Unicode leaves to a program's own use: where text is cut before it is
# tokenized, and what stands in for words. No message keeps them, nor a surrogate, which is no character.
_CUT = "\ufdd0"
_WORDS = "\ufdd1"
_NO_CHARACTERS = re.compile(f"[{_CUT}{_WORDS}\ud800-\udfff]")

_THINK_TAGS = {"<think>": "<think>\n", "</think>": "\n</think>\n\n"}
_THINK_TAG = re.compile("(</?think>)")

_PROBE_TOOL = {
    "type": "function",
    "function": {"name": "probe", "description": "", "parameters": {"type": "object", "properties": {}}},
}
# Levels of a tool's schema that are told, since an environment may nest it without end. Below them stands
# {}, the schema of anything.
_MAX_NESTING = 32


class TemplateChat:
    """`spade_jax.text.chat.Chat` by the chat template of a tokenizer.

    What the template has no place for is told in what it has: tools in the system message, tool results in
    a user message, both as the native format does, and the system message at the top of the first user
    message.

    Control tokens are the tokenizer's special ones and all that the template writes around messages. Where
    a message or a tool spells one, the text is cut within it and its parts are encoded by themselves, so
    that it stays text, to the letter (a tokenizer that puts a space before all that it encodes shows one at
    the cut). In the assistant's messages, special tokens that the template does not write around messages
    stay tokens, since the policy may have sampled them; so do, in any message, tokens that are not special,
    such as Qwen's `<think>` and `<tool_call>`.

    A template that writes today's date should be given one in `template_kwargs`.

    Args:
      template_kwargs: variables of the template, but for `enable_thinking`, which each call says.

    Attributes:
      pad_id: the tokenizer's own; where it has none, the last of `stop_ids`.
      stop_ids: the token that the template writes after a reply, and the tokenizer's end of sequence where
        that is another one.

    Raises:
      TokenizerError: the tokenizer is not a fast one with a chat template, or the template does not end an
        assistant's message with a token.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, *, template_kwargs: Mapping[str, Any] | None = None
    ):
        if not tokenizer.is_fast or tokenizer.chat_template is None:
            raise TokenizerError(
                f"{type(tokenizer).__name__} is no fast tokenizer with a chat template; take that of an "
                "instruction-tuned model, or set its chat_template"
            )
        if "enable_thinking" in (template_kwargs or {}):
            raise ValueError("enable_thinking is no template_kwarg: say thinking=... in each call")
        self._tokenizer = tokenizer
        self._template_kwargs = dict(template_kwargs or {})

        user, assistant, tool = (_raw(role, _WORDS) for role in ("user", "assistant", "tool"))
        self._takes_system = self._shows(_WORDS, 2, [_raw("system", _WORDS), user])
        self._takes_tools = self._shows("probe", 1, [user], [_PROBE_TOOL])
        self._takes_tool_results = self._shows(_WORDS, 4, [user, assistant, tool, tool], [_PROBE_TOOL])

        # White space may have tokens of its own, which structure nothing.
        added = {
            token.content: index
            for index, token in tokenizer.added_tokens_decoder.items()
            if token.content.strip("▁ \t\r\n")
        }
        any_added = _any_of(added)
        around = self._render([user, assistant, user], header=False).split(_WORDS)
        turn_end = any_added.search(around[2]) if len(around) == 4 else None
        if turn_end is None:
            raise TokenizerError(
                f"the chat template makes {_WORDS.join(around)!r} of three messages {_WORDS!r}; want each of "
                "them once and, after the second, a token that ends a reply"
            )
        if self._takes_tool_results:
            with_results = self._render([user, assistant, tool, tool], [_PROBE_TOOL], header=False)
            around += with_results.split(_WORDS)[1:]  # before the user's words it may list the tools

        named = {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token}
        found = {name for text in around for name in any_added.findall(text)}
        written = (named | found - _THINK_TAGS.keys()) & added.keys()
        special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        control = written | special & added.keys()
        self._written = _any_of(written)
        self._control = _any_of(control)
        # What stands for unknown characters comes from plain text too.
        self._control_ids = {
            name: added[name] for name in control if name in written or name != tokenizer.unk_token
        }

        self._turn_end = turn_end[0]
        turn_end_id, eos_id = added[self._turn_end], tokenizer.eos_token_id
        self.stop_ids = (turn_end_id,) if eos_id in (None, turn_end_id) else (turn_end_id, eos_id)
        self.pad_id = self.stop_ids[-1] if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    def encode(self, text: str) -> list[int]:
        return self._encode(_cut(text, self._control))

    def decode(self, ids: Iterable[int]) -> str:
        text = self._tokenizer.decode(
            [int(index) for index in ids], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def read_reply(self, ids: Iterable[int]) -> str:
        return self.decode(index for index in ids if index not in self.stop_ids)

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        thinking: bool = False,
    ) -> list[int]:
        check_prompt(messages)
        return self._encode(self._render(*self._told(messages, tools), thinking=thinking))

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
        check_prompt(messages)
        check_prompt(new_messages)
        if reply[-1] != self.stop_ids[0]:
            return None  # the template ends no reply like that
        asked, listed = self._told(messages, tools)
        answer = _stand_in(self.read_reply(reply))
        new, _ = self._told(new_messages, ())
        before = self._render(asked, listed, thinking=thinking)
        whole = self._render([*asked, _raw("assistant", answer), *new], listed, thinking=thinking)
        # White space that the template puts around a reply is the policy's to sample.
        turn = re.compile(rf"\s*{re.escape(answer)}\s*{re.escape(self._turn_end)}")
        found = turn.match(whole, len(before)) if whole.startswith(before) else None
        if found is None:
            return None
        ids = self._encode(self._turn_end + whole[found.end() :])
        return ids[ids.index(self.stop_ids[0]) + 1 :]

    def _told(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, str]], list[Any]]:
        """Messages and tools as the template takes them, cut within the control tokens that they spell."""
        if tools and not self._takes_tools:
            messages, tools = tell_tools(messages, tools), ()
        if not self._takes_tool_results:
            messages = merge_tool_results(messages)
        if not self._takes_system:
            messages = _system_to_user(messages)
        raw = []
        for message in messages:
            control = self._written if message.role == "assistant" else self._control
            raw.append(_raw(message.role, _cut(message.content, control)))
        return raw, [_cut_within(tool, self._control, _MAX_NESTING) for tool in tools]

    def _render(
        self,
        messages: list[dict[str, str]],
        tools: Sequence[Any] = (),
        *,
        header: bool = True,
        thinking: bool = False,
    ) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                messages,
                tools=list(tools) or None,
                add_generation_prompt=header,
                tokenize=False,
                enable_thinking=thinking,
                **self._template_kwargs,
            )
        except (jinja2.TemplateError, TypeError) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ValueError(
                f"the chat template refuses messages of {roles}, with {len(tools)} tools: {error}"
            ) from error
        assert isinstance(text, str)
        return text

    def _shows(
        self, wanted: str, times: int, messages: list[dict[str, str]], tools: Sequence[Any] = ()
    ) -> bool:
        """Whether the template takes the messages and shows what is wanted at least so many times."""
        try:
            return self._render(messages, tools).count(wanted) >= times
        except ValueError:
            return False

    def _encode(self, text: str) -> list[int]:
        """The ids of text with cuts.

        Raises:
          ValueError: the tokenizer reads other control tokens than are written there.
        """
        ids = [
            index
            for part in text.split(_CUT)
            for index in self._tokenizer.encode(part, add_special_tokens=False, verbose=False)
        ]
        written = [
            self._control_ids[name] for name in self._control.findall(text) if name in self._control_ids
        ]
        known = set(written) | set(self._control_ids.values())
        read = [index for index in ids if index in known]
        if read != written:
            raise ValueError(
                f"the tokenizer reads the control tokens {self.decode(read)!r} where "
                f"{self.decode(written)!r} are written; its normalizer makes them of other text"
            )
        return ids


def _raw(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Finds any of the names, the longest first."""
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")


def _cut(text: str, control: re.Pattern[str]) -> str:
    """The text with a cut after the first character of each control token that it spells."""
    return control.sub(lambda name: f"{name[0][0]}{_CUT}{name[0][1:]}", _NO_CHARACTERS.sub("\ufffd", text))


def _cut_within(value: Any, control: re.Pattern[str], levels: int) -> Any:
    """A tool's schema with all its strings cut, names of fields included."""
    if isinstance(value, str):
        return _cut(value, control)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if levels == 0:
        return {}
    if isinstance(value, Mapping):
        return {_cut(key, control): _cut_within(one, control, levels - 1) for key, one in value.items()}
    return [_cut_within(one, control, levels - 1) for one in value]


def _stand_in(reply: str) -> str:
    """A reply of the same shape: where it thinks, where it speaks, each part in its usual lines."""
    return "".join(_THINK_TAGS.get(part, _WORDS if part.strip() else "") for part in _THINK_TAG.split(reply))


def _system_to_user(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation with what its system message says at the top of the first user message."""
    if messages[0].role != "system":
        return messages
    system, *rest = messages
    if rest and rest[0].role == "user":
        return [Message(role="user", content=f"{system.content}\n\n{rest[0].content}"), *rest[1:]]
    return [Message(role="user", content=system.content), *rest]
