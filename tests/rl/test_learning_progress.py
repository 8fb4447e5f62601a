import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spade_jax.rl.learning_progress import slope, two_bucket

ESTIMATORS = pytest.mark.parametrize("estimator", [slope, two_bucket])
cycles = st.lists(st.lists(st.floats(-1, 1), max_size=5), max_size=8)


def test_two_bucket_by_hand():
    # Late 5 wins of 8, early 3 of 8.
    assert two_bucket([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]) == pytest.approx(2 / 8)
    # The middle of three is late, and plays count, not cycles: (0 + 1 + 1) / 3 - 0.
    assert two_bucket([[0, 0, 0], [0], [1, 1]]) == pytest.approx(2 / 3)


def test_slope_by_hand():
    # Means 1/4, 1/2, 1/2, 3/4 at 0, 1, 2, 3: slope 0.15 a cycle over 3 cycles.
    assert slope([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]) == pytest.approx(0.45)
    # A line through two points hits them, whatever their weights.
    assert slope([[0.0] * 7, [1.0]]) == pytest.approx(1)


def test_slope_takes_a_cycle_with_more_plays_for_surer():
    # Weights 1, 1, 2 and means 0, 1, 1: O = 5/4, covariance -5/4*0 - 1/4*1 + 3/4*2 = 5/4,
    # variance 25/16 + 1/16 + 2 * 9/16 = 44/16, slope 5/11, twice that.
    assert slope([[0], [1], [1, 1]]) == pytest.approx(10 / 11)


@given(cycles)
def test_slope_is_the_weighted_fit_of_the_cycles_means(returns):
    x = [offset for offset, cycle in enumerate(returns) if cycle]
    assume(len(x) > 1)
    means = [np.mean(returns[offset]) for offset in x]
    weights = np.sqrt([len(returns[offset]) for offset in x])
    wanted = np.polyfit(x, means, 1, w=weights)[0] * (x[-1] - x[0])
    assert slope(returns) == pytest.approx(wanted, abs=1e-9)


@ESTIMATORS
@pytest.mark.parametrize("returns", [[], [[]], [[1, 0]], [[], [1, 0], []]])
def test_progress_within_one_cycle_is_not_known(estimator, returns):
    assert estimator(returns) is None


@ESTIMATORS
@given(returns=cycles, shift=st.floats(-1, 1))
def test_only_changes_count_and_time_turned_round_changes_the_sign(estimator, returns, shift):
    progress = estimator(returns)
    moved = estimator([[value + shift for value in cycle] for cycle in returns])
    if progress is None:
        assert moved is None
        return
    assert moved == pytest.approx(progress, abs=1e-9)
    if len([cycle for cycle in returns if cycle]) % 2 == 0 or estimator is slope:
        assert estimator(returns[::-1]) == pytest.approx(-progress, abs=1e-9)


@ESTIMATORS
@given(returns=cycles)
def test_empty_cycles_at_either_end_change_nothing(estimator, returns):
    assert estimator([[], *returns, [], []]) == pytest.approx(estimator(returns), abs=1e-9)
