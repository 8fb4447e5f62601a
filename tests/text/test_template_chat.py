"""Prompts and what follows a reply, against the tokenization of what each template makes of the whole."""

import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers

from spade_jax.errors import TokenizerError
from spade_jax.text.chat import Message, describe_tools
from spade_jax.text.template_chat import TemplateChat
from tests.chat_templates import CHATML, CHATS, IM, TAGS, TOKENIZERS, TOOLS, TURN_ENDS, byte_level, pretrained

every_chat = pytest.mark.parametrize("name", CHATS)


def say(role, *contents: str) -> list[Message]:
    return [Message(role=role, content=content) for content in contents]


def in_turns(messages: list[Message], tools) -> list[Message]:
    """The conversation for a template that knows users and assistants alone."""
    told = describe_tools(tools) if tools else ""
    turns: list[Message] = []
    for message in messages:
        if message.role == "system":
            told = "\n\n".join(part for part in (message.content, told) if part)
        elif message.role == "tool":
            result = f"<tool_response>\n{message.content}\n</tool_response>"
            if turns[-1].role == "user":
                result = f"{turns.pop().content}\n{result}"
            turns += say("user", result)
        else:
            turns.append(message)
    if told:
        turns[0] = say("user", f"{told}\n\n{turns[0].content}")[0]
    return turns


def rendering(name: str, messages: list[Message], tools, thinking: bool) -> str:
    if name in ("gemma", "mistral"):
        messages, tools = in_turns(messages, tools), ()
    return TOKENIZERS[name].apply_chat_template(
        [{"role": message.role, "content": message.content} for message in messages],
        tools=list(tools) or None,
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=thinking,
    )


def ids_of(name: str, text: str) -> list[int]:
    return TOKENIZERS[name].encode(text, add_special_tokens=False)


def a_turn(name: str, messages: list[Message], reply: str, new: list[Message], tools=(), thinking=False):
    """Prompt, canonical reply, continuation, and the tokenization of the whole, which may not grow."""
    before = rendering(name, messages, tools, thinking)
    turn = before + (" " if name == "mistral" else "") + reply + TURN_ENDS[name]
    whole = rendering(name, [*messages, *say("assistant", reply), *new], tools, thinking)
    prompt = CHATS[name].prompt(messages, tools=tools, thinking=thinking)
    sampled = ids_of(name, turn)[len(ids_of(name, before)) :]
    added = CHATS[name].continuation(messages, sampled, new, tools=tools, thinking=thinking)
    assert (added is not None) == whole.startswith(turn)
    return prompt, sampled, added, ids_of(name, whole)


WORDS = st.text("fig kite.\n12é", min_size=1, max_size=9).map(str.strip).filter(bool)
NEW = st.builds(say, st.just("user"), WORDS) | st.lists(WORDS, min_size=1, max_size=3).map(
    lambda results: say("tool", *results)
)


@settings(max_examples=25, deadline=None)
@every_chat
@given(
    system=WORDS | st.none(),
    question=WORDS,
    turns=st.lists(st.tuples(WORDS | st.none(), WORDS, NEW), min_size=1, max_size=4),
    tools=st.sampled_from([(), TOOLS]),
    thinking=st.booleans(),
)
def test_a_stream_is_the_tokenization_of_its_conversation(name, system, question, turns, tools, thinking):
    chat = CHATS[name]
    messages = [*(say("system", system) if system else []), *say("user", question)]
    stream = chat.prompt(messages, tools=tools, thinking=thinking)
    for thought, answer, new in turns:
        reply = answer
        if name == "thinker":
            reply = f"{thought or 'so'}\n</think>\n\n{answer}"
        elif thought and thinking:
            reply = f"<think>\n{thought}\n</think>\n\n{answer}"
        prompt, sampled, added, whole = a_turn(name, messages, reply, new, tools, thinking)
        assert stream == prompt
        assert chat.read_reply(sampled).lstrip(" ") == reply
        messages += [*say("assistant", reply), *new]
        if added is None:
            stream = chat.prompt(messages, tools=tools, thinking=thinking)
        else:
            stream += sampled + added
        assert stream == whole


@pytest.mark.parametrize(
    ("name", "thinking", "grows_by_user", "grows_by_tool"),
    [
        ("chatml", True, True, True),
        ("qwen3", True, False, True),  # thoughts live until the user speaks
        ("qwen3", False, False, False),  # the header's empty thought is in no past message
        ("thinker", True, False, True),
        ("llama3", True, True, True),
        ("gemma", True, True, True),
        ("mistral", True, True, True),
    ],
)
def test_where_a_template_rewrites_the_past(name, thinking, grows_by_user, grows_by_tool):
    reply = "fig"
    if thinking:
        reply = "so\n</think>\n\nfig" if name == "thinker" else "<think>\nso\n</think>\n\nfig"
    for new, grows in ((say("user", "there"), grows_by_user), (say("tool", "12", "red"), grows_by_tool)):
        _, _, added, _ = a_turn(name, say("user", "where?"), reply, new, thinking=thinking)
        assert (added is not None) == grows


@pytest.mark.parametrize(
    "reply",
    [
        "fig",
        "",
        "<think>\n\n</think>\n\nfig",
        "<think>\nso\n</think>\n\n",
        "<think>\nso\n</think>\n\nfig<think>\nor\n</think>\n\nkite",
        "<think>\nso",
        "so\n</think>\n\nfig",
    ],
)
@pytest.mark.parametrize("name", ["chatml", "qwen3", "thinker"])
def test_whatever_a_thought_looks_like(name, reply):
    a_turn(name, say("user", "where?"), reply, say("tool", "12"), thinking=True)


def test_a_reply_that_is_not_written_as_the_template_would_still_grows():
    """What was sampled stays; of its shape alone depends what follows."""
    chat = CHATS["llama3"]
    messages, new = say("user", "where?"), say("user", "there")
    _, sampled, added, _ = a_turn("llama3", messages, "fig", new)
    padded = [*chat.encode("  fig\n\n"), sampled[-1]]
    assert chat.continuation(messages, padded, new) == added


def test_results_of_several_calls_are_one_user_turn():
    _, _, added, _ = a_turn("qwen3", say("user", "where?"), "fig", say("tool", "12", "red"), thinking=True)
    assert CHATS["qwen3"].decode(added) == (
        "\n<|im_start|>user\n<tool_response>\n12\n</tool_response>\n<tool_response>\nred\n</tool_response>"
        "<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_and_tools_that_the_template_does_not_know_are_told_to_the_user():
    messages = [*say("system", "be red"), *say("user", "where?")]
    assert CHATS["gemma"].decode(CHATS["gemma"].prompt(messages, tools=TOOLS)) == (
        "<bos><start_of_turn>user\nbe red\n\nTools:\nmove(item?: string) - Moves it\n\nwhere?<end_of_turn>\n"
        "<start_of_turn>model\n"
    )
    assert CHATS["gemma"].decode(CHATS["gemma"].prompt(messages[:1])) == (
        "<bos><start_of_turn>user\nbe red<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.parametrize("name", ["llama3", "gemma", "mistral"])
def test_the_first_token_stands_there_once(name):
    bos = TOKENIZERS[name].bos_token_id
    assert ids_of(name, "fig")[0] != bos
    assert TOKENIZERS[name].encode("fig")[0] == bos  # what a careless second tokenization adds
    prompt, sampled, added, _ = a_turn(name, say("user", "where?"), "fig", say("user", "there"))
    assert [*prompt, *sampled, *added].count(bos) == 1


@pytest.mark.parametrize(
    ("name", "stops", "pad"),
    [
        ("qwen3", ["<|im_end|>"], "<|endoftext|>"),
        ("chatml", ["<|im_end|>", "<|endoftext|>"], "<|endoftext|>"),  # no padding, an end of its own
        ("llama3", ["<|eot_id|>"], "<|eot_id|>"),
        ("gemma", ["<end_of_turn>", "<eos>"], "<pad>"),
        ("mistral", ["</s>"], "</s>"),
    ],
)
def test_ends_and_padding(name, stops, pad):
    to_id = TOKENIZERS[name].convert_tokens_to_ids
    assert CHATS[name].stop_ids == tuple(map(to_id, stops))
    assert CHATS[name].pad_id == to_id(pad)


def test_a_reply_that_ends_as_no_turn_does_starts_anew():
    chat = CHATS["chatml"]
    _, sampled, _, _ = a_turn("chatml", say("user", "where?"), "fig", say("user", "there"))
    assert (
        chat.continuation(say("user", "where?"), [*sampled[:-1], chat.stop_ids[1]], say("user", "-")) is None
    )
    with pytest.raises(ValueError, match="only a reply that ended"):
        chat.continuation(say("user", "where?"), sampled[:-1], say("user", "there"))
    with pytest.raises(ValueError, match="only a reply that ended"):
        chat.continuation(say("user", "where?"), [], say("user", "there"))


@every_chat
def test_a_stop_token_is_no_part_of_what_a_reply_says(name):
    chat = CHATS[name]
    fig = chat.encode("fig")
    for stop in chat.stop_ids:
        assert chat.read_reply([*fig, stop]) == chat.decode(fig)
        assert chat.read_reply([stop, *fig, stop, *fig]) == chat.decode([*fig, *fig])
    assert chat.read_reply(chat.encode(TURN_ENDS[name])).replace(" ", "") == TURN_ENDS[name]  # words


@every_chat
def test_text_that_spells_control_tokens_stays_text(name):
    chat, added = CHATS[name], TOKENIZERS[name].added_tokens_decoder
    control = {
        index: token.content
        for index, token in added.items()
        if (token.special and token.content != "<unk>") or token.content in TAGS[4:]
    }
    forged = f"fig{'kite'.join(control.values())}fig"

    def controlling(ids: Sequence[int] | None) -> list[str]:
        return [control[index] for index in ids or () if index in control]

    def conversation(words: str):
        schema = {"properties": {words: {"enum": [words]}}}
        tools = [
            {"type": "function", "function": {"name": words, "description": words, "parameters": schema}}
        ]
        asked = [*say("system", words), *say("user", words), *say("assistant", "fig"), *say("tool", words)]
        prompt = chat.prompt(asked, tools=tools)
        reply = [*chat.encode(words), chat.stop_ids[0]]
        new = chat.continuation(asked, reply, say("tool", words, words), tools=tools, thinking=True)
        return prompt, reply, new

    for ids, wanted in zip(conversation(forged), conversation("kite"), strict=True):
        assert controlling(ids) == controlling(wanted)
    if name not in ("gemma", "mistral"):  # which put a space at a cut
        assert chat.decode(chat.encode(forged)) == forged
        assert forged in chat.decode(chat.prompt(say("user", forged)))


def test_a_conversation_read_again_keeps_the_tokens_that_a_policy_may_sample():
    for name, call in (("qwen3", "<tool_call>fig</tool_call>"), ("llama3", "<|python_tag|>fig")):
        messages = [*say("user", "where?"), *say("assistant", call), *say("tool", "12")]
        assert CHATS[name].prompt(messages) == ids_of(name, rendering(name, messages, (), False))
    forged = [*say("user", "where?"), *say("assistant", "<|im_end|>"), *say("tool", "12")]
    assert CHATS["qwen3"].prompt(forged).count(CHATS["qwen3"].stop_ids[0]) == 3


def test_control_tokens_that_only_the_normalizer_makes_are_refused():
    tokenizer = pretrained(byte_level(normalizers.NFKC()), CHATML, special=IM, eos_token="<|endoftext|>")
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    chat = TemplateChat(tokenizer)
    assert chat.encode("＜fig＞") == chat.encode("<fig>")
    tokenizer.add_tokens([AddedToken("<|over|>", special=True, normalized=True)])
    with pytest.raises(ValueError, match=r"reads the control tokens '<.over.>' where '' are written"):
        TemplateChat(tokenizer).encode("＜|over|＞")


def test_odd_characters_are_replaced():
    """Surrogates are no characters, and two code points are this module's own."""
    chat = CHATS["qwen3"]
    assert chat.decode(chat.encode("fig\ud800\ufdd0\ufdd1")) == "fig\ufffd\ufffd\ufffd"
    assert "fig\ufffdkite" in chat.decode(chat.prompt(say("user", "fig\ufdd1kite")))


def test_a_schema_without_end_is_told_to_some_depth():
    schema: dict = {"type": "string"}
    for _ in range(500):
        schema = {"type": "array", "items": schema}
    tool = {"type": "function", "function": {"name": "dig", "description": "", "parameters": schema}}
    for chat in (CHATS["qwen3"], CHATS["gemma"]):
        assert len(chat.prompt(say("user", "where?"), tools=[tool])) < 2000


def test_variables_of_the_template():
    template = CHATML.replace("assistant\n' }}", "assistant\n' + date }}")
    assert "date" in template
    chat = TemplateChat(
        pretrained(byte_level(), template, special=IM, eos_token="<|im_end|>"), template_kwargs={"date": "12"}
    )
    assert chat.decode(chat.prompt(say("user", "where?"))).endswith("<|im_start|>assistant\n12")
    with pytest.raises(ValueError, match="enable_thinking is no template_kwarg"):
        TemplateChat(TOKENIZERS["qwen3"], template_kwargs={"enable_thinking": True})


def test_what_is_no_chat():
    with pytest.raises(TokenizerError, match="no fast tokenizer with a chat template"):
        TemplateChat(pretrained(byte_level(), None, special=IM))
    endless = "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"
    with pytest.raises(TokenizerError, match="a token that ends a reply"):
        TemplateChat(pretrained(byte_level(), endless, special=IM))
    with pytest.raises(ValueError, match="ends with a system or user message or a tool's result"):
        CHATS["qwen3"].prompt(say("assistant", "fig"))
    with pytest.raises(ValueError, match=r"refuses messages of user, user, .* take turns"):
        CHATS["gemma"].prompt(say("user", "where?", "there"))


def test_it_needs_no_accelerator_library():
    code = "import sys, spade_jax.text.template_chat; print({'jax', 'torch', 'flax'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
