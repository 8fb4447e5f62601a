import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.memory.diversity import diversity
from spade_jax.memory.novelty import similarities
from spade_jax.warm_start.families import FAMILIES

DISTINCT = ["a = 1", "b = 2", "c = 3", "d = 4"]
PROGRAMS = [family.source(family.levels[0][0], "river") for family in FAMILIES.values()]


@pytest.mark.parametrize("num", [1, 2, 5])
def test_identical_programs_amount_to_one(num):
    assert diversity(["a = 1"] * num) == pytest.approx(1 / num)


def test_programs_that_share_nothing_count_each():
    assert diversity(DISTINCT) == pytest.approx(1)


def test_numbers_by_hand():
    # Two and two the same: eigenvalues 1/2, 1/2, 0, 0, so 2 programs of 4.
    assert diversity(["a = 1", "b = 2", "a = 1", "b = 2"]) == pytest.approx(2 / 4)
    # Three and one: 3/4 and 1/4; exp(3/4 log 4/3 + 1/4 log 4) = 1.7548 of 4.
    assert diversity(["a = 1", "a = 1", "b = 2", "a = 1"]) == pytest.approx(1.7548 / 4, abs=1e-4)


def test_two_programs_that_share_a_part():
    # K = [[1, s], [s, 1]] has the eigenvalues 1 + s and 1 - s.
    pair = PROGRAMS[:2]
    s = similarities(pair)[0, 1]
    assert 0.1 < s < 0.9
    entropy = -sum(value * math.log(value) for value in ((1 + s) / 2, (1 - s) / 2))
    assert diversity(pair) == pytest.approx(math.exp(entropy) / 2)


@given(st.lists(st.sampled_from(PROGRAMS + DISTINCT), min_size=1, max_size=8), st.randoms())
def test_between_one_program_and_all(codes, rng):
    value = diversity(codes)
    assert 1 / len(codes) - 1e-9 <= value <= 1 + 1e-9
    shuffled = rng.sample(codes, len(codes))
    assert diversity(shuffled) == pytest.approx(value)
    assert diversity(codes * 2) == pytest.approx(value / 2)


def test_without_programs_nothing_is_known():
    with pytest.raises(ValueError, match="got none"):
        diversity([])
