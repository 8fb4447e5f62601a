import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import MemoryConfig
from spade_jax.memory.environment_memory import EnvironmentMemory, compact
from spade_jax.memory.novelty import normalise_code
from spade_jax.types import EnvironmentSource, MemoryRecord

CONFIG = MemoryConfig()


def record(number, *, skill="Optimization", win_rate=0.5, regret=0.0, cycle=0, code=None):
    code = f"class WalkEnv:\n    size = {number}\n" if code is None else code
    source = EnvironmentSource(environment_id=f"e{number}", skill=skill, code=code, hint="walk")
    return MemoryRecord(source=source, win_rate=win_rate, regret=regret, cycle=cycle)


records = st.builds(
    record,
    st.integers(0, 20),
    skill=st.sampled_from(["Optimization", "Logical Deduction"]),
    win_rate=st.floats(0, 1),
    regret=st.floats(-1, 1),
    cycle=st.integers(0, 9),
)
memories = st.builds(lambda items: EnvironmentMemory((), 40).insert(items), st.lists(records, max_size=30))


def test_the_oldest_records_go_first():
    memory = EnvironmentMemory((), 3).insert([record(0), record(1)])
    memory = memory.insert([record(2), record(3), record(4)])
    assert [item.source.environment_id for item in memory.records] == ["e2", "e3", "e4"]


def test_inserting_leaves_the_memory_before_as_it_was():
    before = EnvironmentMemory((record(0),), 1)
    before.insert([record(1)])
    assert before.records == (record(0),)


def test_of_equal_programs_the_newest_record_stays():
    again = record(9, code="# a note\nclass WalkEnv:\n\n    size=1", win_rate=0.9, cycle=7)
    memory = EnvironmentMemory((), 5).insert([record(1), record(2)]).insert([again])
    assert memory.records == (record(2), again)


@given(st.lists(records, max_size=20), st.integers(0, 20), st.integers(1, 8))
def test_inserting_in_parts_is_inserting_at_once(items, cut, capacity):
    memory = EnvironmentMemory((), capacity)
    assert memory.insert(items) == memory.insert(items[:cut]).insert(items[cut:])
    assert len(memory.insert(items).records) <= capacity


@given(memories, st.integers(0, 4), st.integers(0, 5))
def test_positives_are_distinct_records_of_the_skill_from_the_band(memory, num_records, seed):
    shown = memory.positives("Optimization", num_records, random.Random(seed), CONFIG)
    candidates = [
        item
        for item in memory.records
        if item.source.skill == "Optimization" and 0.15 <= item.win_rate <= 0.85
    ]
    assert len(shown) == min(num_records, len(candidates))
    assert len({item.source.environment_id for item in shown}) == len(shown)
    assert all(item in candidates for item in shown)
    assert [item.regret for item in shown] == sorted((item.regret for item in shown), reverse=True)
    assert shown == memory.positives("Optimization", num_records, random.Random(seed), CONFIG)


def test_positives_come_from_the_records_with_the_highest_regret():
    memory = EnvironmentMemory((), 100).insert([record(i, regret=i / 100) for i in range(60)])
    drawn = {
        item.regret
        for seed in range(200)
        for item in memory.positives("Optimization", 2, random.Random(seed), CONFIG)
    }
    assert drawn == {i / 100 for i in range(50, 60)}
    many = memory.positives("Optimization", 5, random.Random(0), CONFIG)
    assert all(item.regret >= 0.45 for item in many)


@given(memories, st.integers(0, 5))
def test_the_negative_is_too_hard_or_too_easy(memory, seed):
    shown = memory.negative("Optimization", random.Random(seed), CONFIG)
    failures = [
        item
        for item in memory.records
        if item.source.skill == "Optimization" and (item.win_rate > 0.9 or item.win_rate < 0.1)
    ]
    assert shown in failures if failures else shown is None


@given(memories)
def test_json_there_and_back(memory):
    assert EnvironmentMemory.from_json(json.loads(json.dumps(memory.to_json()))) == memory


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x = 1", "x=1  # one\n\n", True),
        ("print('a')", 'print("a")', True),
        ("x = 1", "x = 2", False),
        ("print('a')", "print('b')", False),
        ("if x:\n  y()", "if x:\n    y()", True),
        ("not python (", "not python (   \n", True),
        ("not python (", "not python [", False),
        ("\0", "\0\n", True),
    ],
)
def test_programs_are_equal_up_to_layout(one, other, same):
    assert (normalise_code(one) == normalise_code(other)) is same


def test_compact_line():
    code = """
import random

class Helper:
    depth = 3

class TrapWalkEnv:
    size, traps = 4, 2
    goal = (1,
            2)
    def __init__(self):
        self.turns = 9
"""
    line = compact(record(0, code=code, win_rate=0.375, regret=-0.04))
    assert line == "TrapWalkEnv size, traps = 4, 2; goal = (1, 2) | win 0.4 regret 0.0"


def test_compact_line_without_a_class_statement_or_with_a_long_one():
    assert compact(record(0, code="Env = make()\n")) == "Env = make() | win 0.5 regret 0.0"
    long = compact(record(0, code=f"class MapEnv:\n    grid = {list(range(500))}\n"))
    assert long.startswith("MapEnv grid = [0, 1, 2")
    assert len(long) < 110
