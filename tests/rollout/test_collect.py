"""Many episodes at once: the plan pairs the conditions, and results come in the order of the plans."""

import dataclasses

import pytest

from spade_jax.config import AgentConfig
from spade_jax.rollout.collect import plan_episodes, play_all
from spade_jax.text.chat import NativeChat
from tests.scripted import ScriptedEngine, game_source, right, running_sandbox, small_tokenizer

SOURCES = [game_source("One"), game_source("Two", turns=2)]


def plan(sources=SOURCES, *, hinted=("One", "Two"), run_seed=3, cycle=2, **agent):
    config = AgentConfig(**{"episodes": 5} | agent)
    return plan_episodes(sources, hinted=hinted, config=config, run_seed=run_seed, cycle=cycle)


def by_condition(plans, environment_id):
    return {
        condition: [
            plan
            for plan in plans
            if (plan.source.environment_id, plan.condition) == (environment_id, condition)
        ]
        for condition in ("without_hint", "with_hint")
    }


def test_both_conditions_play_the_same_instances():
    plans = plan()
    assert len(plans) == 2 * 2 * 5
    for source in SOURCES:
        plain, hinted = by_condition(plans, source.environment_id).values()
        seeds = [plan.instance_seed for plan in plain]
        assert seeds == [plan.instance_seed for plan in hinted]
        assert len(set(seeds)) == 5


def test_no_two_episodes_share_the_seed_of_their_sampling():
    plans = plan() + plan(cycle=3)
    assert len({plan.sampling_seed for plan in plans}) == len(plans)


def test_a_plan_follows_from_run_seed_and_cycle():
    def seeds(**changed):
        return [(each.instance_seed, each.sampling_seed) for each in plan(episodes=2, **changed)]

    assert seeds() == seeds()
    assert not set(seeds()) & set(seeds(cycle=3))
    assert not set(seeds()) & set(seeds(run_seed=4))


def test_more_plays_with_the_hint_begin_with_the_shared_instances():
    plain, hinted = by_condition(plan(hint_episodes=8), "One").values()
    assert (len(plain), len(hinted)) == (5, 8)
    assert [each.instance_seed for each in hinted[:5]] == [each.instance_seed for each in plain]
    assert len({each.instance_seed for each in hinted}) == 8


def test_unpaired_conditions_share_no_instance():
    plain, hinted = by_condition(plan(paired=False), "One").values()
    assert len(plain) == len(hinted) == 5
    assert not {each.instance_seed for each in plain} & {each.instance_seed for each in hinted}


def test_a_hint_is_tried_only_where_it_is_wanted_and_there_is_one():
    sources = [*SOURCES, dataclasses.replace(game_source("Three"), hint="")]
    plans = plan(sources, hinted={"Two", "Three"})
    with_hint = [each.source.environment_id for each in plans if each.condition == "with_hint"]
    assert with_hint == ["Two"] * 5
    assert sum(each.condition == "without_hint" for each in plans) == 15


@pytest.fixture(scope="module")
def sandbox():
    with running_sandbox() as running:
        yield running


@pytest.mark.parametrize("num_slots", [3, 64])
def test_trajectories_come_in_the_order_of_their_plans(sandbox, num_slots):
    plans = plan(episodes=2, run_seed=0, cycle=0)
    ended, num_open = [], []
    engine = ScriptedEngine(NativeChat(small_tokenizer()), lambda _, talk: right(talk))
    engine.num_slots = num_slots

    def advance():
        ended.append(1)
        num_open.append(len(engine.open_keys))

    trajectories = sandbox.run(
        play_all(
            plans,
            engine=engine,
            sandbox=sandbox.pool,
            chat=engine.chat,
            config=AgentConfig(max_tokens=24),
            max_context=4096,
            advance=advance,
        )
    )
    assert len(ended) == len(plans) == 8
    assert max(num_open) < num_slots
    for planned, trajectory in zip(plans, trajectories, strict=True):
        assert trajectory.environment_id == planned.source.environment_id
        assert trajectory.condition == planned.condition
        assert trajectory.instance_seed == planned.instance_seed
        assert trajectory.episode_return == 1.0
    assert not engine.open_keys
    assert sandbox.pool.num_live == 0


def test_nothing_to_play_is_no_episode(sandbox):
    engine = ScriptedEngine(NativeChat(small_tokenizer()), lambda *_: "")
    trajectories = sandbox.run(
        play_all(
            [],
            engine=engine,
            sandbox=sandbox.pool,
            chat=engine.chat,
            config=AgentConfig(),
            max_context=64,
            advance=lambda: None,
        )
    )
    assert trajectories == []
