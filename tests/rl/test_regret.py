import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.rl.regret import episode_return, estimate_regret
from spade_jax.types import TokenStream, Trajectory

_EMPTY = TokenStream(
    tokens=np.zeros(0, np.int32),
    loss_mask=np.zeros(0, bool),
    behavior_logprobs=np.zeros(0, np.float32),
    temperature=1.0,
)


def episodes(condition, outcomes, failures=()):
    """One episode for each (instance seed, return) pair."""
    return [
        Trajectory(
            environment_id="c00000-e00",
            condition=condition,
            instance_seed=seed,
            turns=(),
            last_observation="",
            stream=_EMPTY,
            episode_return=value,
            terminated=True,
            truncated=False,
            failure="timeout" if index in failures else "",
        )
        for index, (seed, value) in enumerate(outcomes)
    ]


outcome = st.tuples(st.integers(0, 9), st.sampled_from([-1.0, 0.0, 0.25, 1.0]))
outcomes = st.lists(outcome, min_size=1, max_size=12)


def test_return_is_the_clipped_last_reward_of_an_episode_that_terminated():
    assert episode_return([0.0, 0.5, 7.0], terminated=True) == 1.0
    assert episode_return([1.0, -3.0], terminated=True) == -1.0
    assert episode_return([1.0, 0.25], terminated=True) == 0.25
    assert episode_return([1.0], terminated=False) == 0.0
    assert episode_return([], terminated=True) == 0.0


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_never_becomes_a_return(reward):
    with pytest.raises(ValueError, match="finite"):
        episode_return([reward], terminated=True)


def test_regret_of_paired_episodes():
    estimate = estimate_regret(
        episodes("without_hint", [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0)]),
        episodes("with_hint", [(0, 1.0), (1, 1.0), (2, 1.0), (3, 0.0)]),
    )
    assert estimate.regret == 0.5
    assert (estimate.win_rate, estimate.win_rate_with_hint) == (0.25, 0.75)
    assert (estimate.return_without_hint, estimate.return_with_hint) == (0.25, 0.75)
    assert estimate.standard_error == pytest.approx(np.std([1, 0, 1, 0], ddof=1) / 2)
    assert estimate.num_pairs == 4


def test_pairing_takes_the_spread_between_instances_out_of_the_error():
    plain = episodes("without_hint", [(0, -1.0), (1, -0.5), (2, 0.0), (3, 0.5)])
    hinted = episodes("with_hint", [(0, -0.5), (1, 0.0), (2, 0.5), (3, 1.0)])
    assert estimate_regret(plain, hinted).standard_error == pytest.approx(0.0, abs=1e-12)


def test_regret_is_not_floored():
    estimate = estimate_regret(episodes("without_hint", [(0, 1.0)]), episodes("with_hint", [(0, -1.0)]))
    assert estimate.regret == -2.0
    assert math.isnan(estimate.standard_error)


@given(outcomes, outcomes, st.data())
def test_failed_episodes_leave_no_trace(plain, hinted, data):
    failures = data.draw(st.sets(st.integers(0, len(plain) - 1)))
    with_failures = episodes("without_hint", plain, failures)
    alone = [trajectory for trajectory in with_failures if not trajectory.failure]
    hinted = episodes("with_hint", hinted)
    got, wanted = estimate_regret(with_failures, hinted), estimate_regret(alone, hinted)
    assert repr(got) == repr(wanted)


@given(outcomes, outcomes)
def test_regret_is_the_difference_of_the_returns_and_changes_sign_with_the_conditions(plain, hinted):
    def swap(trajectories, condition):
        return [dataclasses.replace(trajectory, condition=condition) for trajectory in trajectories]

    without, with_hint = episodes("without_hint", plain), episodes("with_hint", hinted)
    estimate = estimate_regret(without, with_hint)
    mirrored = estimate_regret(swap(with_hint, "without_hint"), swap(without, "with_hint"))
    if estimate is None:
        assert mirrored is None
        return
    assert estimate.regret == pytest.approx(estimate.return_with_hint - estimate.return_without_hint)
    assert estimate.regret == pytest.approx(-mirrored.regret)
    assert estimate.win_rate == mirrored.win_rate_with_hint


@given(outcomes, outcomes)
def test_order_of_arrival_does_not_matter(plain, hinted):
    without, with_hint = episodes("without_hint", plain), episodes("with_hint", hinted)
    shuffled = random.Random(0).sample(without, len(without))
    assert repr(estimate_regret(without, with_hint)) == repr(estimate_regret(shuffled, with_hint))


def test_nothing_is_known_without_a_good_episode_in_each_condition():
    good = episodes("with_hint", [(0, 1.0)])
    assert estimate_regret([], good) is None
    assert estimate_regret(episodes("without_hint", [(0, 1.0)], failures={0}), good) is None
    assert estimate_regret(episodes("without_hint", [(1, 1.0)]), good) is None


def test_trajectories_in_the_wrong_place_are_refused():
    plain, hinted = episodes("without_hint", [(0, 1.0)]), episodes("with_hint", [(0, 1.0)])
    with pytest.raises(ValueError, match="with_hint among"):
        estimate_regret(hinted, plain)
    other = [dataclasses.replace(hinted[0], environment_id="c00000-e01")]
    with pytest.raises(ValueError, match="one environment"):
        estimate_regret(plain, other)
