import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.rl.advantage import group_advantages

returns = st.lists(st.floats(-1, 1), min_size=2, max_size=16)


def test_oracle_of_the_reference_implementation():
    np.testing.assert_allclose(group_advantages([1] + [0] * 7), [2.645751] + [-0.377964] * 7, atol=1e-6)


@given(returns)
def test_advantages_have_mean_0_and_deviation_1_or_there_are_none(group):
    advantages = group_advantages(group)
    if advantages is None:
        assert max(group) - min(group) < 1e-6
    else:
        assert advantages.shape == (len(group),)
        assert abs(advantages.mean()) < 1e-4
        assert advantages.std() == pytest.approx(1, abs=1e-4)


@given(returns, st.floats(0.1, 1), st.floats(-1, 1))
def test_scale_and_offset_of_the_returns_do_not_matter(group, scale, offset):
    moved = group_advantages([scale * value + offset for value in group])
    original = group_advantages(group)
    if original is not None and moved is not None:
        np.testing.assert_allclose(moved, original, atol=1e-3)


@pytest.mark.parametrize("group", [[], [0.5], [1.0] * 8, [0.0] * 8, [0.1 + 0.2, 0.3, 0.3], [0.1] * 7])
def test_a_group_without_variance_is_dropped_rather_than_blown_up(group):
    assert group_advantages(group) is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_returns_that_are_no_numbers_are_refused(value):
    with pytest.raises(ValueError, match="finite"):
        group_advantages([0.0, value])
