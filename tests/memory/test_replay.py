import collections
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import MemoryConfig
from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.memory.replay import draw_without_replacement, replay_probabilities
from tests.memory.records import memories, record

# Ranks 3, 1, 2; in cycle 10 stale for 4, 0 and 1 cycles.
RECORDS = [
    record(0, regret=0.1, last_played=6),
    record(1, regret=0.5, last_played=10),
    record(2, regret=0.3, last_played=9),
]


def probabilities(records=RECORDS, *, cycle=10, temperature=1.0, weight=0.0):
    config = MemoryConfig(rank_temperature=temperature, staleness_weight=weight)
    return replay_probabilities(records, cycle=cycle, config=config)


def test_numbers_by_hand():
    # 1/3, 1, 1/2 over 11/6.
    assert probabilities() == pytest.approx([2 / 11, 6 / 11, 3 / 11])
    # 1/9, 1, 1/4 over 49/36.
    assert probabilities(temperature=0.5) == pytest.approx([4 / 49, 36 / 49, 9 / 49])
    # 4, 0, 1 over 5.
    assert probabilities(weight=1.0) == pytest.approx([0.8, 0, 0.2])
    # 0.75 and 0.25 of them: 0.136364 + 0.2, 0.409091, 0.204545 + 0.05.
    assert probabilities(weight=0.25) == pytest.approx([0.336364, 0.409091, 0.254545], abs=1e-6)


def test_of_equal_regrets_the_newest_ranks_first():
    assert probabilities([record(0), record(1)]) == pytest.approx([1 / 3, 2 / 3])


def test_where_nothing_is_stale_the_score_decides():
    fresh = [record(i, regret=-i, last_played=10) for i in range(2)]
    assert probabilities(fresh, weight=1.0) == pytest.approx([2 / 3, 1 / 3])


def test_a_cycle_before_the_last_play_is_an_error():
    with pytest.raises(ValueError, match=r"e1 was last played in cycle 10, after the present cycle 9"):
        probabilities(cycle=9)


@given(memories, st.floats(0.01, 10), st.floats(0, 1), st.integers(9, 99))
def test_probabilities_add_up_and_follow_the_regret(memory, temperature, weight, cycle):
    values = probabilities(memory.records, cycle=cycle, temperature=temperature, weight=weight)
    assert min(values, default=0) >= 0
    assert sum(values) == pytest.approx(1 if memory.records else 0)
    scores = probabilities(memory.records, cycle=cycle, temperature=temperature)
    best_first = sorted(zip(scores, memory.records, strict=True), key=lambda pair: -pair[0])
    regrets = [item.regret for score, item in best_first if score > 0]
    assert regrets == sorted(regrets, reverse=True)


def test_draws_follow_the_probabilities_without_replacement():
    rng, num = random.Random(0), 5000
    drawn = collections.Counter(tuple(draw_without_replacement([0.5, 0.3, 0.2], 2, rng)) for _ in range(num))
    # First i with p_i, then j with p_j / (1 - p_i).
    by_hand = {(0, 1): 0.3, (0, 2): 0.2, (1, 0): 0.2143, (1, 2): 0.0857, (2, 0): 0.125, (2, 1): 0.075}
    assert {pair: count / num for pair, count in drawn.items()} == pytest.approx(by_hand, abs=0.02)


def test_what_has_no_probability_comes_last():
    assert draw_without_replacement([0.0, 1.0, 0.0], 1, random.Random(0)) == [1]
    assert draw_without_replacement([0.0, 1e-300, 0.0], 3, random.Random(0))[0] == 1


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_memory_draws_by_regret_or_by_staleness(weight):
    memory = EnvironmentMemory(tuple(RECORDS), 9)
    config = MemoryConfig(rank_temperature=0.01, staleness_weight=weight)
    rng = random.Random(0)
    first = collections.Counter(
        memory.replay(1, cycle=10, rng=rng, config=config)[0].source.environment_id for _ in range(500)
    )
    if weight:
        assert first["e0"] == pytest.approx(400, abs=30)
        assert first["e1"] == 0
    else:
        assert first == {"e1": 500}
