"""Tests named after a defect (`defect_11` is algorithm.md 15.B 11) fail where it comes back."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import AgentConfig
from spade_jax.rl.advantage import group_advantages, updated_baseline

returns = st.lists(st.floats(-1, 1), min_size=2, max_size=16)
METHODS = ("z_score", "mean", "leave_one_out", "ema")
WITHIN_GROUP = ("z_score", "mean", "leave_one_out")
Z_SCORE, MEAN, LEAVE_ONE_OUT, EMA = (AgentConfig(advantage=method) for method in METHODS)


def keeping(method):
    return AgentConfig(advantage=method, drop_equal_groups=False)


def test_oracle_of_the_reference_implementation():
    np.testing.assert_allclose(
        group_advantages([1] + [0] * 7, Z_SCORE), [2.645751] + [-0.377964] * 7, atol=1e-6
    )


@pytest.mark.parametrize(
    ("config", "baseline", "wanted"),
    [
        # Mean 1/4, population standard deviation sqrt(3)/4.
        (Z_SCORE, 0.0, [math.sqrt(3)] + [-1 / math.sqrt(3)] * 3),
        (MEAN, 0.0, [0.75, -0.25, -0.25, -0.25]),
        # 1 - 0, and 0 - 1/3 for each of the others.
        (LEAVE_ONE_OUT, 0.0, [1, -1 / 3, -1 / 3, -1 / 3]),
        (EMA, 0.0, [1, 0, 0, 0]),
        (EMA, 0.5, [0.5, -0.5, -0.5, -0.5]),
    ],
)
def test_each_method_by_hand(config, baseline, wanted):
    advantages = group_advantages([1, 0, 0, 0], config, baseline=baseline)
    assert advantages.dtype == np.float32
    np.testing.assert_allclose(advantages, wanted, rtol=1e-6)


@given(returns)
def test_advantages_have_mean_0_and_deviation_1_or_there_are_none(group):
    advantages = group_advantages(group, Z_SCORE)
    if advantages is None:
        assert max(group) - min(group) < 1e-6
    else:
        assert advantages.shape == (len(group),)
        assert abs(advantages.mean()) < 1e-4
        assert advantages.std() == pytest.approx(1, abs=1e-4)


@given(returns, st.sampled_from(WITHIN_GROUP), st.booleans())
def test_advantages_within_a_group_sum_to_zero_and_keep_its_order(group, method, drop):
    config = AgentConfig(advantage=method, drop_equal_groups=drop)
    advantages = group_advantages(group, config)
    if advantages is None:
        assert drop
        return
    assert abs(advantages.astype(np.float64).sum()) < 1e-4
    order = np.argsort(group)
    assert np.all(np.diff(advantages[order]) >= 0)


@given(returns)
def test_leave_one_out_is_the_mean_scaled_by_the_size_of_the_group(group):
    mean, left = group_advantages(group, MEAN), group_advantages(group, LEAVE_ONE_OUT)
    if mean is None:
        assert left is None
    else:
        np.testing.assert_allclose(left, mean * len(group) / (len(group) - 1), atol=1e-5)


@given(returns, st.sampled_from(METHODS), st.floats(-1, 1), st.randoms())
def test_the_order_of_episodes_does_not_matter(group, method, baseline, random):
    config = keeping(method)
    order = random.sample(range(len(group)), len(group))
    original = group_advantages(group, config, baseline=baseline)
    shuffled = group_advantages([group[index] for index in order], config, baseline=baseline)
    np.testing.assert_allclose(shuffled, original[order], atol=1e-4)


@given(returns, st.floats(0.1, 1), st.floats(-1, 1))
def test_scale_and_offset_of_the_returns_do_not_matter(group, scale, offset):
    moved = group_advantages([scale * value + offset for value in group], Z_SCORE)
    original = group_advantages(group, Z_SCORE)
    if original is not None and moved is not None:
        np.testing.assert_allclose(moved, original, atol=1e-3)


@pytest.mark.parametrize("method", WITHIN_GROUP)
@pytest.mark.parametrize("group", [[0.5], [1.0] * 8, [0.0] * 8, [0.1 + 0.2, 0.3, 0.3], [0.1] * 7])
def test_defect_23_a_group_without_variance_is_dropped_or_kept_as_zeros(method, group):
    assert group_advantages(group, AgentConfig(advantage=method)) is None
    np.testing.assert_array_equal(group_advantages(group, keeping(method)), np.zeros(len(group)))


@pytest.mark.parametrize("method", METHODS)
def test_no_episodes_have_no_advantages(method):
    assert group_advantages([], AgentConfig(advantage=method), baseline=0.5) is None
    assert group_advantages([], keeping(method), baseline=0.5) is None


def test_under_ema_a_group_that_agrees_teaches_unless_it_is_as_before():
    np.testing.assert_allclose(group_advantages([1, 1], EMA, baseline=0.25), [0.75, 0.75])
    np.testing.assert_allclose(group_advantages([1], EMA, baseline=0.25), [0.75])
    assert group_advantages([0.25, 0.25], EMA, baseline=0.25) is None
    assert group_advantages([0, 0], EMA) is None
    np.testing.assert_array_equal(group_advantages([0, 0], keeping("ema")), [0, 0])


def test_defect_11_the_baseline_accumulates_over_the_groups_of_an_environment():
    """The reference makes a new one each cycle, so that the advantage is the raw return."""
    baseline, seen = 0.0, []
    for group in ([1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]):
        seen.append(group_advantages(group, EMA, baseline=baseline)[0])
        baseline = updated_baseline(baseline, group, EMA)
    # Baselines 0, 0.5 * 0 + 0.5 * 1, 0.5 * 0.5 + 0.5 * 0.5; each group meets the one before its own.
    np.testing.assert_allclose(seen, [1.0, 0.5, 0.5])
    assert baseline == 0.5 * 0.5 + 0.5 * 0.25
    forgetful = dataclasses.replace(EMA, baseline_decay=1.0)
    assert updated_baseline(0.0, [1, 1], forgetful) == 0


def test_a_group_without_episodes_leaves_the_baseline_alone():
    assert updated_baseline(0.0, [], EMA) == 0.0
    assert updated_baseline(0.25, [], EMA) == 0.25


@given(st.floats(-1, 1), returns, st.floats(0, 1))
def test_the_baseline_moves_towards_the_mean_and_never_past_it(baseline, group, decay):
    moved = updated_baseline(baseline, group, AgentConfig(advantage="ema", baseline_decay=decay))
    low, high = sorted((baseline, float(np.mean(group))))
    assert low - 1e-9 <= moved <= high + 1e-9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_returns_that_are_no_numbers_are_refused(method, value):
    with pytest.raises(ValueError, match="finite"):
        group_advantages([0.0, value], AgentConfig(advantage=method))
