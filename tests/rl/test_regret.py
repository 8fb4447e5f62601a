"""Tests named after a defect (`defect_1` is algorithm.md 15.B 1) fail where it comes back."""

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
            streams=(_EMPTY,),
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


def test_unpaired_regret_compares_the_means_of_any_numbers_of_episodes():
    estimate = estimate_regret(
        episodes("without_hint", [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0)]),
        episodes("with_hint", [(7, 1.0), (8, 1.0), (9, 0.0)]),
        paired=False,
    )
    assert estimate.regret == pytest.approx(2 / 3 - 1 / 4)
    assert (estimate.win_rate, estimate.win_rate_with_hint) == (0.25, pytest.approx(2 / 3))
    # Sample variances 1/4 and 1/3 over 4 and 3 episodes.
    assert estimate.standard_error == pytest.approx(math.sqrt(1 / 16 + 1 / 9))
    assert estimate.num_pairs == 0


def test_defect_1_chance_instances_tilt_the_unpaired_estimate_and_not_the_paired_one():
    """The hint is worth 0 on each instance; the reference plays its arms on other instances."""
    plain = episodes("without_hint", [(0, 0.0), (1, 1.0)])
    hinted = episodes("with_hint", [(1, 1.0), (1, 1.0), (0, 0.0), (2, 1.0)])
    assert estimate_regret(plain, hinted).regret == 0.0
    assert estimate_regret(plain, hinted).standard_error == 0.0
    assert estimate_regret(plain, hinted, paired=False).regret == 0.25


@pytest.mark.parametrize("paired", [True, False])
def test_defect_16_a_truncated_episode_is_a_loss_not_a_gap(paired):
    """The reference drops episodes that take too long, and so the hard ones."""
    plain = episodes("without_hint", [(0, 1.0), (1, 0.0)])
    plain[1] = dataclasses.replace(plain[1], terminated=False, truncated=True)
    hinted = episodes("with_hint", [(0, 1.0), (1, 1.0)])
    estimate = estimate_regret(plain, hinted, paired=paired)
    assert (estimate.return_without_hint, estimate.win_rate, estimate.regret) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("paired", [True, False])
def test_defect_9_a_fault_of_the_environment_is_no_loss_of_the_agent(paired):
    """The reference counts an exception in the environment as a return of -1."""
    plain = episodes("without_hint", [(0, 1.0), (1, -1.0)], failures={1})
    hinted = episodes("with_hint", [(0, 1.0), (1, 1.0)])
    estimate = estimate_regret(plain, hinted, paired=paired)
    assert (estimate.win_rate, estimate.regret) == (1.0, 0.0)


@given(outcomes, outcomes, st.booleans(), st.floats(-0.5, 0.5))
def test_a_common_shift_of_all_returns_moves_no_regret(plain, hinted, paired, shift):
    def moved(outcomes):
        return [(seed, value + shift) for seed, value in outcomes]

    before = estimate_regret(episodes("without_hint", plain), episodes("with_hint", hinted), paired=paired)
    after = estimate_regret(
        episodes("without_hint", moved(plain)), episodes("with_hint", moved(hinted)), paired=paired
    )
    if before is None:
        assert after is None
        return
    assert after.regret == pytest.approx(before.regret, abs=1e-9)
    assert after.standard_error == pytest.approx(before.standard_error, abs=1e-6, nan_ok=True)


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0]), min_size=1, max_size=8))
def test_with_one_episode_on_each_shared_seed_both_estimates_are_the_same_regret(values):
    plain = episodes("without_hint", list(enumerate(values)))
    hinted = episodes("with_hint", list(enumerate(reversed(values))))
    paired, unpaired = (estimate_regret(plain, hinted, paired=paired) for paired in (True, False))
    assert paired.regret == pytest.approx(unpaired.regret, abs=1e-12)
    assert paired.regret == pytest.approx(0, abs=1e-12)


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
    unpaired = estimate_regret(episodes("without_hint", [(1, 1.0)]), good, paired=False)
    assert unpaired.regret == 0
    assert math.isnan(unpaired.standard_error)
    assert estimate_regret([], good, paired=False) is None
    assert estimate_regret(episodes("without_hint", [(0, 1.0)]), [], paired=False) is None
    assert estimate_regret(episodes("without_hint", [(0, 1.0)], failures={0}), good, paired=False) is None


def test_trajectories_in_the_wrong_place_are_refused():
    plain, hinted = episodes("without_hint", [(0, 1.0)]), episodes("with_hint", [(0, 1.0)])
    with pytest.raises(ValueError, match="with_hint among"):
        estimate_regret(hinted, plain)
    other = [dataclasses.replace(hinted[0], environment_id="c00000-e01")]
    with pytest.raises(ValueError, match="one environment"):
        estimate_regret(plain, other)
