"""Oracle vectors are values that the reference implementation produces."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.rl.win_rate_rewards import (
    frontier,
    frontier_penalty,
    learnability,
    plateau,
    solver_variance,
    target_band,
)

win_rates = st.floats(0, 1)
any_win_rates = st.floats(-1, 1)


@pytest.mark.parametrize(
    ("band", "values"),
    [
        (
            (0.4, 0.6, 0.25),
            {0: 0, 0.15: 0, 0.2: 0.2, 0.3: 0.6, 0.4: 1, 0.6: 1, 0.7: 0.6, 0.8: 0.2, 0.85: 0, 1: 0},
        ),
        ((0.2, 0.4, 0.2), {0: 0, 0.1: 0.5, 0.2: 1, 0.4: 1, 0.5: 0.5, 0.6: 0}),
    ],
)
def test_plateau_oracle(band, values):
    low, high, ramp = band
    for win_rate, wanted in values.items():
        assert plateau(win_rate, low=low, high=high, ramp=ramp) == pytest.approx(wanted, abs=1e-12)


@given(win_rates)
def test_plateau_treats_too_easy_and_too_hard_alike(win_rate):
    band = {"low": 0.4, "high": 0.6, "ramp": 0.25}
    assert plateau(win_rate, **band) == pytest.approx(plateau(1 - win_rate, **band), abs=1e-9)


def test_frontier_by_hand():
    assert [frontier_penalty(w) for w in (0.0, 0.25, 0.5, 1.0)] == [0.25, 0.0625, 0.0, 0.25]
    # 1 - 0.0625 / 0.25; beyond the ends of the scale nothing is paid.
    assert [frontier(w) for w in (-0.5, 0.0, 0.25, 0.5, 0.75, 1.0)] == [0, 0, 0.75, 1, 0.75, 0]


@given(any_win_rates, any_win_rates)
def test_the_nearer_to_one_half_the_more_the_frontier_pays_and_the_less_it_costs(one, other):
    near, far = sorted((one, other), key=lambda win_rate: abs(win_rate - 0.5))
    assert frontier(near) >= frontier(far)
    assert frontier_penalty(near) <= frontier_penalty(far)


def test_target_band_by_hand():
    paid = {w: target_band(w, target=0.3, width=0.3) for w in (0.0, 0.15, 0.3, 0.45, 0.6, 0.9, 1.0)}
    assert paid == pytest.approx({0.0: 0, 0.15: 0.5, 0.3: 1, 0.45: 0.5, 0.6: 0, 0.9: 0, 1.0: 0})


@given(st.floats(0, 1), st.floats(0.01, 2))
def test_what_is_always_or_never_won_earns_nothing_however_wide_the_band(target, width):
    assert target_band(0.0, target=target, width=width) == 0
    assert target_band(1.0, target=target, width=width) == 0
    assert target_band(-0.5, target=target, width=width) == 0


@given(any_win_rates, st.floats(0.05, 0.95), st.floats(0.01, 2))
def test_target_band_is_a_tent(win_rate, target, width):
    paid = target_band(win_rate, target=target, width=width)
    assert 0 <= paid <= target_band(target, target=target, width=width) == 1
    if abs(win_rate - target) >= width:
        assert paid == 0


def test_learnability_by_hand():
    # 4 * 8 / 7 * 1/2 * 1/2 and 4 * 4 / 3 * 1/4 * 3/4
    assert learnability(0.5, num_plays=8) == pytest.approx(8 / 7)
    assert learnability(0.25, num_plays=4) == pytest.approx(1.0)
    assert [learnability(w, num_plays=4) for w in (-0.5, 0.0, 1.0)] == [0, 0, 0]
    assert learnability(1.0, num_plays=1) is None


@given(st.integers(2, 12), st.floats(0, 1))
def test_learnability_is_unbiased(num_plays, p):
    """Its mean over all numbers of wins, weighted by the binomial distribution, is 4 p (1 - p)."""
    mean = sum(
        math.comb(num_plays, wins)
        * p**wins
        * (1 - p) ** (num_plays - wins)
        * learnability(wins / num_plays, num_plays=num_plays)
        for wins in range(num_plays + 1)
    )
    assert mean == pytest.approx(4 * p * (1 - p), abs=1e-9)


def test_solver_variance_oracle():
    values = [solver_variance(plays) for plays in ([1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1])]
    assert values == pytest.approx([1.0, 0.822578, 0.043937], abs=1e-6)
    # The population variance of one win in four is 3/16.
    assert values[1] == pytest.approx(math.exp(-((3 / 16 - 1 / 4) ** 2) / 0.02))
    assert solver_variance([1]) is None


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.randoms())
def test_solver_variance_is_bounded_and_blind_to_order_and_sign(plays, random):
    paid = solver_variance(plays)
    assert 0 < paid <= 1
    assert paid == pytest.approx(solver_variance(random.sample(plays, len(plays))))
    assert paid == pytest.approx(solver_variance([-value for value in plays]))


@given(st.integers(2, 20), st.integers(0, 20))
def test_for_wins_and_losses_all_agree_that_a_coin_teaches_most(num_plays, wins):
    wins = min(wins, 2 * num_plays)
    plays = [1.0] * wins + [0.0] * (2 * num_plays - wins)
    win_rate = statistics.fmean(plays)
    for reward, best in (
        (frontier(win_rate), frontier(0.5)),
        (learnability(win_rate, num_plays=len(plays)), learnability(0.5, num_plays=len(plays))),
        (solver_variance(plays), 1.0),
        (plateau(win_rate, low=0.4, high=0.6, ramp=0.25), 1.0),
    ):
        assert reward <= best
