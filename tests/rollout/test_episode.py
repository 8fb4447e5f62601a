"""One episode against a written policy: how it ends, what it is worth, and which tokens are the policy's."""

import asyncio
import dataclasses

import numpy as np
import pytest

from spade_jax.config import AgentConfig
from spade_jax.roles.agent import action_reply, first_message, next_message
from spade_jax.rollout.episode import EpisodePlan, play_episode
from spade_jax.text.chat import Message, NativeChat, render_conversation, render_prompt
from tests.scripted import FaultySandbox, ScriptedEngine, game_source, right, running_sandbox, small_tokenizer

CONFIG = AgentConfig(max_turns=4, max_tokens=24)
SOURCE = game_source("Two", turns=2)
PLAN = EpisodePlan(source=SOURCE, condition="without_hint", instance_seed=11, sampling_seed=5)


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer()


@pytest.fixture(scope="module")
def sandbox():
    with running_sandbox() as running:
        yield running


@pytest.fixture
def play(sandbox, tokenizer):
    """Plays with a reply for each turn: a text, or what makes one from the conversation."""

    def play_replies(*replies, plan=PLAN, config=CONFIG, pool=sandbox.pool, max_context=4096):
        left = iter(replies)
        engine = ScriptedEngine(
            NativeChat(tokenizer), lambda _, talk: reply(talk) if callable(reply := next(left)) else reply
        )

        async def main():
            with engine.session((0,)) as session:
                return await play_episode(
                    plan,
                    session,
                    sandbox=pool,
                    chat=engine.chat,
                    config=config,
                    max_context=max_context,
                )

        return sandbox.run(main()), engine

    return play_replies


def outcome(trajectory):
    return trajectory.terminated, trajectory.truncated, trajectory.failure, trajectory.episode_return


def sampled_text(tokenizer, trajectory):
    return tokenizer.decode(trajectory.streams[0].tokens[trajectory.streams[0].loss_mask])


def test_a_won_game(play):
    trajectory, engine = play(right, right)
    assert outcome(trajectory) == (True, False, "", 1.0)
    assert [turn.reward for turn in trajectory.turns] == [1.0, 1.0]
    assert trajectory.turns[0].reply == right(trajectory.turns[0].observation)
    assert trajectory.last_observation.startswith("say ")
    assert (trajectory.environment_id, trajectory.condition, trajectory.instance_seed) == (
        "Two",
        "without_hint",
        11,
    )
    assert len(engine.requests) == 2


def test_a_lost_game_is_worth_its_last_reward(play):
    trajectory, _ = play(right, "\\boxed{wrong}")
    assert outcome(trajectory) == (True, False, "", -1.0)


def test_the_instance_comes_from_its_seed(play):
    def first(seed):
        return play("\\boxed{0}", plan=dataclasses.replace(PLAN, instance_seed=seed))[0].turns[0].observation

    assert first(11) == first(11)
    assert len({first(seed) for seed in range(5)}) > 1


def test_every_token_is_asked_for_with_the_plans_seed_and_the_configs_temperature(play, tokenizer):
    config = dataclasses.replace(CONFIG, temperature=0.3)
    trajectory, engine = play(right, right, config=config)
    assert trajectory.streams[0].temperature == 0.3
    for _, _, params in engine.requests:
        assert (params.seed, params.temperature, params.max_tokens) == (5, 0.3, 24)
        assert params.stop_ids == (tokenizer.end_id,)


def test_the_loss_mask_is_true_exactly_on_sampled_tokens(play, tokenizer):
    trajectory, _ = play(right, right)
    stream = trajectory.streams[0]
    assert sampled_text(tokenizer, trajectory) == "".join(f"{turn.reply}<|end|>" for turn in trajectory.turns)
    assert "say" not in sampled_text(tokenizer, trajectory)
    assert (stream.behavior_logprobs[~stream.loss_mask] == 0).all()
    assert (stream.behavior_logprobs[stream.loss_mask] < 0).all()


def test_play_is_written_as_the_warm_start_writes_it(play, tokenizer):
    """The context of a reply is, token for token, what a demonstration of the same play trains on."""
    trajectory, _ = play(right, right)
    messages = []
    for turn in trajectory.turns:
        make = next_message if messages else lambda text: first_message(text, hint=None)
        messages += [make(turn.observation), Message(role="assistant", content=turn.reply)]
    tokens, loss_mask = render_conversation(tokenizer, messages)
    assert trajectory.streams[0].tokens.tolist() == tokens
    assert trajectory.streams[0].loss_mask.tolist() == loss_mask


@pytest.mark.parametrize("condition", ["without_hint", "with_hint"])
def test_the_hint_is_seen_in_its_condition_alone(play, condition):
    trajectory, engine = play(right, right, plan=dataclasses.replace(PLAN, condition=condition))
    assert trajectory.condition == condition
    expected = 1 if condition == "with_hint" else 0  # once, in the first message
    assert [talk.count("HINT: obey Two") for _, talk, _ in engine.requests] == [expected] * 2


def test_the_turn_limit_truncates_and_is_worth_nothing(play):
    trajectory, _ = play(*["\\boxed{stay}"] * 4)
    assert outcome(trajectory) == (False, True, "", 0.0)
    assert [turn.reward for turn in trajectory.turns] == [0.5] * 4


def test_winning_in_the_last_turn_is_no_truncation(play):
    trajectory, _ = play("\\boxed{stay}", "\\boxed{stay}", right, right)
    assert outcome(trajectory) == (True, False, "", 1.0)


def test_the_environment_may_truncate(play):
    trajectory, _ = play("\\boxed{stop}")
    assert outcome(trajectory) == (False, True, "", 0.0)
    assert len(trajectory.turns) == 1


def test_a_reply_without_an_end_truncates_and_is_never_played(play, tokenizer):
    ramble = "\\boxed{" + "9" * 60
    trajectory, _ = play(right, ramble)
    assert outcome(trajectory) == (False, True, "", 0.0)
    assert len(trajectory.turns) == 1
    # What was sampled stays in the stream: it is the policy's doing.
    assert sampled_text(tokenizer, trajectory).endswith("9" * 20)


@pytest.mark.parametrize("room", [-1, 0])
def test_a_full_context_truncates_before_anything_is_asked(play, tokenizer, room):
    (turn,) = play("\\boxed{0}")[0].turns
    prompt = render_prompt(tokenizer, [first_message(turn.observation, hint=None)])
    max_context = len(prompt) + CONFIG.max_tokens + room
    if room < 0:
        trajectory, engine = play(max_context=max_context)
        assert outcome(trajectory) == (False, True, "", 0.0)
        assert not engine.requests
        assert not trajectory.streams[0].loss_mask.any()
    else:
        trajectory, engine = play(right, max_context=max_context)
        assert len(engine.requests) == len(trajectory.turns) == 1
        assert outcome(trajectory) == (False, True, "", 0.0)  # no room for a second turn


def test_the_action_is_the_last_box_and_nothing_around_it(play):
    trajectory, _ = play(lambda talk: f"no \\boxed{{1}} but {right(talk)} it is", right)
    assert outcome(trajectory) == (True, False, "", 1.0)


def test_an_environment_that_fails_in_the_middle(play, tokenizer):
    trajectory, _ = play(right, "\\boxed{crash}")
    assert outcome(trajectory) == (False, False, "environment_error", 0.0)
    assert len(trajectory.turns) == 1
    assert sampled_text(tokenizer, trajectory).endswith("\\boxed{crash}<|end|>")


def test_an_environment_that_fails_at_its_reset(play):
    source = dataclasses.replace(SOURCE, code=SOURCE.code.replace("self.done = 0", "1 / 0"))
    trajectory, engine = play(plan=dataclasses.replace(PLAN, source=source))
    assert outcome(trajectory) == (False, False, "environment_error", 0.0)
    assert not engine.requests
    assert trajectory.streams == ()


def test_an_environment_that_pays_what_is_no_number(play):
    source = dataclasses.replace(SOURCE, code=SOURCE.code.replace("1.0", 'float("nan")'))
    trajectory, _ = play(right, plan=dataclasses.replace(PLAN, source=source))
    assert outcome(trajectory) == (False, False, "invalid_output", 0.0)


def test_a_fault_of_the_host_is_told_from_one_of_the_environment(play, sandbox):
    trajectory, _ = play(pool=FaultySandbox(sandbox.pool, "Two"))
    assert outcome(trajectory) == (False, False, "host_fault", 0.0)


def test_a_cancelled_episode_leaves_no_child_behind(sandbox, tokenizer):
    async def main():
        never = asyncio.Event()
        engine = ScriptedEngine(NativeChat(tokenizer), lambda *_: "")
        session = engine.session((0,))

        async def wait(*_):
            await never.wait()

        session.generate = wait
        parts = {"sandbox": sandbox.pool, "chat": engine.chat, "config": CONFIG, "max_context": 4096}
        task = asyncio.create_task(play_episode(PLAN, session, **parts))
        while sandbox.pool.num_live == 0:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled(), sandbox.pool.num_live

    assert sandbox.run(main()) == (True, 0)


def test_an_action_reply_is_the_format_that_the_game_reads(play):
    trajectory, _ = play(action_reply("0"))
    assert outcome(trajectory) == (True, False, "", -1.0)
    assert np.count_nonzero(trajectory.streams[0].loss_mask) > 0
