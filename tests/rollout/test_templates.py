"""Whole conversations in the formats of pretrained models: each reply is sampled, and trained, in exactly the
context that the template makes of what was said before it."""

import asyncio

import numpy as np
import pytest

from spade_jax.rl.packing import pack
from spade_jax.roles.agent import first_message
from spade_jax.roles.hints import read_hint
from spade_jax.rollout.conversation import Conversation
from spade_jax.sampling.methods import SamplingParams
from spade_jax.text.chat import Message
from spade_jax.types import TrainingSequence
from tests.chat_templates import CHATS, TOOLS
from tests.scripted import ScriptedEngine

every_chat = pytest.mark.parametrize("name", CHATS)
# What is said in each turn, by whom, and the answer to it.
DIALOGUE = [
    ("user", ["where?"], "fig"),
    ("tool", ["12", "red"], "kite"),
    ("user", ["there"], "<tool_call>fig</tool_call>"),
    ("tool", ["blue"], "kite"),
]
# Replies after which a template rewrites what came before, so that a new stream starts.
REWRITES = {
    ("qwen3", True): [1],  # where the user speaks again, earlier thoughts go
    ("qwen3", False): [0, 1, 2],  # the header's empty thought is in no past message
    ("thinker", True): [1],
    ("thinker", False): [1],
}


def told(role, contents):
    return [Message(role=role, content=content) for content in contents]


def hold(name, *, thinking, tools=TOOLS, dialogue=DIALOGUE):
    """The streams of a dialogue in one format, and for each reply its text and all that came before it."""
    chat = CHATS[name]
    answers = iter(dialogue)

    def reply(*_):
        *_, answer = next(answers)
        if name == "thinker":
            return f"so\n</think>\n\n{answer}"
        said = f"<think>\nso\n</think>\n\n{answer}" if thinking else answer
        return f" {said}" if name == "mistral" else said  # whose template writes a space before it

    engine = ScriptedEngine(chat, reply)
    sampling = SamplingParams(max_tokens=100, temperature=1.0, seed=0, stop_ids=chat.stop_ids)

    async def main():
        replies, before = [], []
        with engine.session((0,)) as session:
            talk = Conversation(
                session, chat, sampling=sampling, max_context=4096, tools=tools, thinking=thinking
            )
            for role, contents, _ in dialogue:
                before += told(role, contents)
                answer = await talk.ask(told(role, contents))
                replies.append((answer.text, list(before)))
                before += told("assistant", [answer.text.lstrip(" ")])
            return talk.streams(), replies

    return asyncio.run(main())


def sampled_runs(stream):
    """Where each reply of a stream begins and ends."""
    edges = np.flatnonzero(np.diff(stream.loss_mask.astype(int), prepend=0, append=0))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


@every_chat
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["no tools", "tools"])
def test_defects_6_and_7_each_reply_has_the_context_that_the_template_writes(name, thinking, tools):
    chat = CHATS[name]
    streams, replies = hold(name, thinking=thinking, tools=tools)
    runs = [(stream, *run) for stream in streams for run in sampled_runs(stream)]
    assert len(runs) == len(replies)
    for (stream, start, end), (text, before) in zip(runs, replies, strict=True):
        assert stream.tokens[:start].tolist() == chat.prompt(before, tools=tools, thinking=thinking)
        assert chat.read_reply(stream.tokens[start:end].tolist()) == text
        assert stream.tokens[end - 1] == chat.stop_ids[0]
    lengths = np.diff([-1, *REWRITES.get((name, thinking), []), len(replies) - 1])
    assert [len(sampled_runs(stream)) for stream in streams] == lengths.tolist()


@every_chat
def test_packed_streams_are_the_streams_also_where_padding_is_a_stop_token(name):
    streams, _ = hold(name, thinking=False)
    sequences = [TrainingSequence(role="agent", stream=stream, advantage=1.0) for stream in streams]
    batch = pack(sequences, row_length=1024, rows_multiple=2, pad_id=CHATS[name].pad_id)
    at = batch.segment_ids > 0
    assert at.sum() == sum(len(stream.tokens) for stream in streams)
    assert batch.loss_mask.sum() == sum(stream.loss_mask.sum() for stream in streams)
    assert not batch.loss_mask[~at].any()
    assert (batch.tokens[~at] == CHATS[name].pad_id).all()
    ends = np.isin(batch.tokens, CHATS[name].stop_ids) & batch.loss_mask
    assert ends.sum() == len(DIALOGUE)


@every_chat
def test_defect_4_the_token_that_ends_a_hint_does_not_end_the_message_that_tells_it(name):
    chat = CHATS[name]
    clean = first_message("where?", hint="go left", setting="tool_use")
    for stop in chat.stop_ids:
        hint = read_hint(chat.read_reply([*chat.encode("Hint: go left"), stop]))
        message = first_message("where?", hint=hint, setting="tool_use")
        assert chat.prompt([message]) == chat.prompt([clean])
    # And one that is spelled in letters, by a model elsewhere, stays letters.
    spelled = first_message("where?", hint=f"go {chat.decode(chat.stop_ids[:1])} left", setting="tool_use")
    stops = [[index in chat.stop_ids for index in chat.prompt([message])] for message in (clean, spelled)]
    assert sum(stops[0]) == sum(stops[1])
