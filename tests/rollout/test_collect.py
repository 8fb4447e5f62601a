"""Many episodes at once: the plan pairs the conditions, and results come in the order of the plans."""

import pytest

from spade_jax.config import AgentConfig
from spade_jax.rollout.collect import plan_pairs, play_all
from tests.scripted import ScriptedEngine, game_source, right, running_sandbox, small_tokenizer

SOURCES = [game_source("One"), game_source("Two", turns=2)]


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
    plans = plan_pairs(SOURCES, episodes=5, run_seed=3, cycle=2)
    assert len(plans) == 2 * 2 * 5
    for source in SOURCES:
        plain, hinted = by_condition(plans, source.environment_id).values()
        seeds = [plan.instance_seed for plan in plain]
        assert seeds == [plan.instance_seed for plan in hinted]
        assert len(set(seeds)) == 5


def test_no_two_episodes_share_the_seed_of_their_sampling():
    plans = plan_pairs(SOURCES, episodes=5, run_seed=3, cycle=2)
    plans += plan_pairs(SOURCES, episodes=5, run_seed=3, cycle=3)
    assert len({plan.sampling_seed for plan in plans}) == len(plans)


def test_a_plan_follows_from_run_seed_and_cycle():
    def seeds(**changed):
        plans = plan_pairs(SOURCES, **{"episodes": 2, "run_seed": 3, "cycle": 2} | changed)
        return [(plan.instance_seed, plan.sampling_seed) for plan in plans]

    assert seeds() == seeds()
    assert not set(seeds()) & set(seeds(cycle=3))
    assert not set(seeds()) & set(seeds(run_seed=4))


@pytest.fixture(scope="module")
def sandbox():
    with running_sandbox() as running:
        yield running


@pytest.mark.parametrize("num_slots", [3, 64])
def test_trajectories_come_in_the_order_of_their_plans(sandbox, num_slots):
    plans = plan_pairs(SOURCES, episodes=2, run_seed=0, cycle=0)
    ended, num_open = [], []
    engine = ScriptedEngine(small_tokenizer(), lambda _, talk: right(talk))
    engine.num_slots = num_slots

    def advance():
        ended.append(1)
        num_open.append(len(engine.open_keys))

    trajectories = sandbox.run(
        play_all(
            plans,
            engine=engine,
            sandbox=sandbox.pool,
            tokenizer=engine.tokenizer,
            config=AgentConfig(max_tokens=24),
            max_context=4096,
            advance=advance,
        )
    )
    assert len(ended) == len(plans) == 8
    assert max(num_open) < num_slots
    for plan, trajectory in zip(plans, trajectories, strict=True):
        assert trajectory.environment_id == plan.source.environment_id
        assert trajectory.condition == plan.condition
        assert trajectory.instance_seed == plan.instance_seed
        assert trajectory.episode_return == 1.0
    assert not engine.open_keys
    assert sandbox.pool.num_live == 0


def test_nothing_to_play_is_no_episode(sandbox):
    engine = ScriptedEngine(small_tokenizer(), lambda *_: "")
    trajectories = sandbox.run(
        play_all(
            [],
            engine=engine,
            sandbox=sandbox.pool,
            tokenizer=engine.tokenizer,
            config=AgentConfig(),
            max_context=64,
            advance=lambda: None,
        )
    )
    assert trajectories == []
