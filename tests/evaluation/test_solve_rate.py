"""The solve rate, counted on paper."""

import asyncio

import numpy as np
import pytest

from spade_jax.evaluation.held_out import held_out_environments
from spade_jax.evaluation.solve_rate import evaluate
from spade_jax.metrics import wilson_interval
from spade_jax.types import TokenStream, Trajectory
from spade_jax.warm_start.syllabus import GAMES, syllabus_of

NUM_FAMILIES = len(GAMES.families)
SOURCES = held_out_environments(NUM_FAMILIES)
EPISODES = 2


def measured(outcomes, sources=SOURCES):
    """Evaluates with outcomes: (environment index, play) to a return, or to a kind of failure."""
    plays = []

    async def play(plans):
        plays.extend(plans)
        trajectories = []
        for index, plan in enumerate(plans):
            outcome = outcomes(*divmod(index, EPISODES))
            failed = isinstance(outcome, str)
            trajectories.append(
                Trajectory(
                    environment_id=plan.source.environment_id,
                    condition=plan.condition,
                    instance_seed=plan.instance_seed,
                    turns=(),
                    last_observation="",
                    streams=(
                        TokenStream(
                            tokens=np.zeros(0, np.int32),
                            loss_mask=np.zeros(0, bool),
                            behavior_logprobs=np.zeros(0, np.float32),
                            temperature=1.0,
                        ),
                    ),
                    episode_return=0.0 if failed else outcome,
                    terminated=not failed,
                    truncated=False,
                    failure=outcome if failed else "",
                )
            )
        return trajectories

    metrics = asyncio.run(evaluate(sources, episodes=EPISODES, play=play))
    assert len(plays) == len(sources) * EPISODES
    return metrics


UNSEEN = [
    index for index, source in enumerate(SOURCES) if source.environment_id.endswith(("courier", "market"))
]


def test_solved_are_the_episodes_with_a_positive_return():
    # One of two episodes solved; what is paid 0 or less is not solved.
    metrics = measured(lambda environment, play: 0.25 if play == 0 else -1.0 if environment % 2 else 0.0)
    assert metrics["heldout/solve_rate"] == 0.5
    low, high = wilson_interval(NUM_FAMILIES, 2 * NUM_FAMILIES)
    assert (metrics["heldout/solve_rate_low"], metrics["heldout/solve_rate_high"]) == (low, high)
    assert metrics["heldout/num_failed"] == 0


def test_families_that_no_training_saw_are_counted_apart():
    assert len(UNSEEN) == 2
    metrics = measured(lambda environment, play: float(environment in UNSEEN))
    assert metrics["heldout/unseen/solve_rate"] == 1.0
    assert metrics["heldout/harder/solve_rate"] == 0.0
    assert metrics["heldout/solve_rate"] == pytest.approx(2 / NUM_FAMILIES)
    low, high = wilson_interval(2 * EPISODES, 2 * EPISODES)
    assert (metrics["heldout/unseen/solve_rate_low"], metrics["heldout/unseen/solve_rate_high"]) == (
        low,
        high,
    )


def test_so_are_those_of_tool_use():
    families = syllabus_of("tool_use").families
    sources = held_out_environments(len(families), "tool_use")
    metrics = measured(lambda environment, play: float(environment >= len(families) - 2), sources)
    assert metrics["heldout/unseen/solve_rate"] == 1.0
    assert metrics["heldout/harder/solve_rate"] == 0.0


def test_failed_episodes_are_counted_and_kept_out():
    metrics = measured(lambda environment, play: 1.0 if play else "host_fault" if environment else "timeout")
    assert metrics["heldout/num_failed"] == NUM_FAMILIES
    assert metrics["heldout/solve_rate"] == 1.0
    low, _ = wilson_interval(NUM_FAMILIES, NUM_FAMILIES)
    assert metrics["heldout/solve_rate_low"] == low


def test_where_nothing_is_known_nothing_is_said():
    metrics = measured(lambda environment, play: "host_fault")
    assert metrics == {"heldout/num_failed": NUM_FAMILIES * EPISODES}
