import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.memory.difficulty import difficulty_for
from spade_jax.memory.environment_memory import EnvironmentMemory
from tests.memory.records import record

ORDER = ["easy", "medium", "hard"]


def asked_for(*win_rates):
    memory = EnvironmentMemory((), 100).insert(
        [record(index, win_rate=win_rate) for index, win_rate in enumerate(win_rates)]
    )
    return difficulty_for(memory, "Optimization")


@pytest.mark.parametrize(
    ("win_rates", "difficulty"),
    [
        ((), "medium"),
        ((0.61,), "hard"),
        ((0.5, 0.7), "medium"),  # 0.6
        ((0.5, 0.75), "hard"),  # 0.625
        ((0.4,), "medium"),
        ((0.39,), "easy"),
        ((1.0, 0.0, 0.125), "easy"),  # 0.375
        ((0.0, 0.0, *[0.75] * 8), "hard"),  # only the newest 8
        ((1.0, *[0.5] * 4, *[0.25] * 4), "easy"),  # 0.375
    ],
)
def test_numbers_by_hand(win_rates, difficulty):
    assert asked_for(*win_rates) == difficulty


def test_skills_are_apart():
    memory = EnvironmentMemory((), 9).insert([record(0, win_rate=1.0, skill="Logical Deduction"), record(1)])
    assert difficulty_for(memory, "Logical Deduction") == "hard"
    assert difficulty_for(memory, "Optimization") == "medium"
    assert difficulty_for(memory, "Causal Inference") == "medium"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0, 1))
def test_winning_more_never_makes_it_easier(win_rates, more):
    higher = [win_rate + (1 - win_rate) * more for win_rate in win_rates]
    assert ORDER.index(asked_for(*higher)) >= ORDER.index(asked_for(*win_rates))
