import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.text.chat import Message, render_conversation, render_followup, render_prompt, render_reply
from spade_jax.text.tokenizer import Tokenizer

CONTENTS = st.text(max_size=12) | st.sampled_from(["<|end|>", "<|user|>", "up\n", " \\boxed{fig}", ""])
MESSAGES = st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), content=CONTENTS)


def test_the_layout_of_a_prompt(tokenizer: Tokenizer):
    prompt = render_prompt(
        tokenizer, [Message(role="system", content="be brief"), Message(role="user", content="go")]
    )
    assert tokenizer.decode(prompt) == "<|system|>be brief<|end|><|user|>go<|end|><|assistant|>"


@given(history=st.lists(MESSAGES, max_size=4), question=CONTENTS, reply=CONTENTS, observation=CONTENTS)
def test_a_conversation_grows_at_its_end_alone(
    tokenizer: Tokenizer, history: list[Message], question: str, reply: str, observation: str
):
    asked = [*history, Message(role="user", content=question)]
    answered = [*asked, Message(role="assistant", content=reply)]
    next_message = Message(role="user", content=observation)
    grown = (
        render_prompt(tokenizer, asked)
        + render_reply(tokenizer, reply)
        + render_followup(tokenizer, next_message)
    )
    assert grown == render_prompt(tokenizer, [*answered, next_message])


@given(messages=st.lists(MESSAGES, max_size=5))
def test_the_mask_covers_what_the_assistant_samples_and_nothing_else(
    tokenizer: Tokenizer, messages: list[Message]
):
    ids, loss_mask = render_conversation(tokenizer, messages)
    assert len(ids) == len(loss_mask)
    sampled = [index for index, masked in zip(ids, loss_mask, strict=True) if masked]
    replies = [
        index
        for message in messages
        if message.role == "assistant"
        for index in render_reply(tokenizer, message.content)
    ]
    assert sampled == replies


@given(messages=st.lists(MESSAGES, max_size=5))
def test_content_cannot_open_or_close_a_message(tokenizer: Tokenizer, messages: list[Message]):
    ids, _ = render_conversation(tokenizer, messages)
    headers = {tokenizer.system_id, tokenizer.user_id, tokenizer.assistant_id}
    assert sum(index in headers for index in ids) == len(messages)
    assert ids.count(tokenizer.end_id) == len(messages)
    assert tokenizer.pad_id not in ids


def test_a_prompt_waits_for_the_assistant(tokenizer: Tokenizer):
    reply = Message(role="assistant", content="up")
    with pytest.raises(ValueError, match="ends with a system or user message"):
        render_prompt(tokenizer, [reply])
    with pytest.raises(ValueError, match="ends with a system or user message"):
        render_prompt(tokenizer, [])
    with pytest.raises(ValueError, match="ends with a system or user message"):
        render_followup(tokenizer, reply)
