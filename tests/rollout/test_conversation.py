"""A conversation trains each reply on exactly the context that it was sampled in."""

import asyncio
import itertools
import re

import numpy as np
import pytest

from spade_jax.rollout.conversation import Conversation
from spade_jax.sampling.methods import SamplingParams
from spade_jax.text.chat import Message, NativeChat
from tests.scripted import ScriptedEngine, small_tokenizer

QUESTIONS = ["say 10", "say 20", "say 30"]
REPLIES = ["<think>one</think>10", "<think>two</think>20", "<think>three</think>30"]


class ForgetfulChat(NativeChat):
    """Strips the thinking from earlier replies, and so rewrites what came before."""

    def prompt(self, messages, **settings):
        def stripped(message):
            return Message(role=message.role, content=re.sub("<think>.*?</think>", "", message.content))

        return super().prompt([stripped(message) for message in messages], **settings)

    def continuation(self, messages, reply, new_messages, **settings):
        return None


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer()


@pytest.fixture
def hold(tokenizer):
    """Asks all questions; the conversation, the engine that answered and what came back."""

    def ask_all(chat_class=NativeChat, *, replies=REPLIES, left_out=(), **settings):
        engine = ScriptedEngine(
            NativeChat(tokenizer), lambda _, talk: replies[QUESTIONS.index(last_question(talk))]
        )

        async def main():
            with engine.session((0,)) as session:
                sampling = SamplingParams(
                    max_tokens=settings.pop("max_tokens", 100),
                    temperature=0.5,
                    seed=7,
                    stop_ids=(tokenizer.end_id,),
                )
                talk = Conversation(
                    session, chat_class(tokenizer), sampling=sampling, **{"max_context": 4096} | settings
                )
                answers = []
                for index, question in enumerate(QUESTIONS):
                    answers.append(await talk.ask([Message(role="user", content=question)]))
                    if index in left_out:
                        talk.leave_out_last_reply()
                return talk.streams(), answers

        return *asyncio.run(main()), engine

    return ask_all


def last_question(talk):
    return re.findall(r"say \d0", talk)[-1]


def sampled(tokenizer, stream):
    return tokenizer.decode(stream.tokens[stream.loss_mask])


def test_a_format_that_only_grows_gives_one_stream(hold, tokenizer):
    streams, answers, engine = hold()
    assert [answer.text for answer in answers] == REPLIES
    assert all(answer.finished for answer in answers)
    (stream,) = streams
    assert sampled(tokenizer, stream) == "".join(f"{reply}<|end|>" for reply in REPLIES)
    assert stream.temperature == 0.5
    contexts = [talk for _, talk, _ in engine.requests]
    assert all(later.startswith(before) for before, later in itertools.pairwise(contexts))


def test_a_format_that_rewrites_gives_a_stream_for_each_reply_in_the_context_it_had(hold, tokenizer):
    streams, answers, engine = hold(ForgetfulChat)
    assert [answer.text for answer in answers] == REPLIES
    assert [sampled(tokenizer, stream) for stream in streams] == [f"{reply}<|end|>" for reply in REPLIES]
    for stream, (_, context, _) in zip(streams, engine.requests, strict=True):
        assert tokenizer.decode(stream.tokens[~stream.loss_mask]) == context
        assert "<think>" not in context
        assert (stream.behavior_logprobs[~stream.loss_mask] == 0).all()
    assert "10" in engine.requests[1][1].rpartition("say 20")[0].partition("say 10")[2]


def test_no_two_contexts_share_a_seed(hold):
    *_, engine = hold(ForgetfulChat)
    seeds = [params.seed for _, _, params in engine.requests]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    *_, engine = hold()
    assert {params.seed for _, _, params in engine.requests} == {7}


@pytest.mark.parametrize("chat_class", [NativeChat, ForgetfulChat])
def test_a_reply_left_out_stays_in_the_context_and_is_not_trained(hold, tokenizer, chat_class):
    streams, _, engine = hold(chat_class, left_out={1})
    everything, _, all_engine = hold(chat_class)
    assert [talk for _, talk, _ in engine.requests] == [talk for _, talk, _ in all_engine.requests]
    kept = "".join(sampled(tokenizer, stream) for stream in streams)
    assert kept == f"{REPLIES[0]}<|end|>{REPLIES[2]}<|end|>"
    for stream, whole in zip(streams, everything, strict=True):
        np.testing.assert_array_equal(stream.tokens, whole.tokens)
        assert (stream.behavior_logprobs[~stream.loss_mask] == 0).all()


def test_without_room_nothing_is_asked(hold, tokenizer):
    (whole,), _, _ = hold()
    streams, answers, engine = hold(max_context=len(whole.tokens) + 1, max_tokens=30)
    assert answers[:2] != [None, None]
    assert answers[2] is None
    assert len(engine.requests) == 2
    (stream,) = streams
    assert sampled(tokenizer, stream) == f"{REPLIES[0]}<|end|>{REPLIES[1]}<|end|>"
