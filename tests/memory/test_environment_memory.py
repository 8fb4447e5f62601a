import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import MemoryConfig
from spade_jax.memory.environment_memory import EnvironmentMemory, compact
from spade_jax.types import RegretEstimate
from tests.memory.records import memories, record, records

CONFIG = MemoryConfig()


def outcome(win_rate, regret):
    return RegretEstimate(
        environment_id="",
        return_without_hint=win_rate,
        return_with_hint=win_rate + regret,
        win_rate=win_rate,
        win_rate_with_hint=win_rate + regret,
        regret=regret,
        standard_error=0.1,
        num_pairs=8,
    )


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


def test_draws_of_a_seed_stay_as_they_were():
    memory = EnvironmentMemory((), 100).insert(
        [record(i, win_rate=i % 11 / 10, regret=i * 7 % 30 / 30) for i in range(60)]
    )
    rng = random.Random(3)
    shown = memory.positives("Optimization", 3, rng, CONFIG)
    assert [item.source.environment_id for item in shown] == ["e4", "e51", "e29"]
    assert memory.negative("Optimization", rng, CONFIG).source.environment_id == "e32"


@pytest.mark.parametrize(
    ("win_rate", "change"),
    [(0.7, "harder"), (0.6, "different"), (0.5, "different"), (0.4, "different"), (0.3, "easier")],
)
def test_the_change_moves_the_win_rate_to_the_middle(win_rate, change):
    shown = record(0, win_rate=win_rate)
    memory = EnvironmentMemory((), 9).insert([shown, record(1, skill="Logical Deduction")])
    assert memory.parent("Optimization", random.Random(0), CONFIG) == (shown, change)


def test_no_parent_outside_the_band():
    memory = EnvironmentMemory((), 9).insert([record(0, win_rate=0.9), record(1, win_rate=0.1)])
    assert memory.parent("Optimization", random.Random(0), CONFIG) is None


def test_parents_come_from_the_records_with_the_highest_regret():
    memory = EnvironmentMemory((), 100).insert([record(i, regret=i / 100) for i in range(60)])
    drawn = {memory.parent("Optimization", random.Random(seed), CONFIG)[0].regret for seed in range(200)}
    assert drawn == {i / 100 for i in range(50, 60)}


def test_a_played_record_takes_its_new_numbers_in_its_old_place():
    memory = EnvironmentMemory((), 9).insert([record(0), record(1, last_played=2), record(2)])
    after = memory.played({"e1": outcome(0.75, 0.125), "gone": outcome(0.5, 0)}, cycle=7, config=CONFIG)
    assert after.records == (
        record(0),
        record(1, win_rate=0.75, regret=0.125, last_played=7),
        record(2),
    )
    assert memory.records[1].last_played == 2


def test_without_rescoring_a_played_record_is_only_fresh_again():
    memory = EnvironmentMemory((), 9).insert([record(0)])
    after = memory.played({"e0": outcome(0.75, 0.125)}, cycle=7, config=MemoryConfig(rescore=False))
    assert after.records == (record(0, last_played=7),)


def test_a_play_that_told_nothing_leaves_the_numbers():
    config = MemoryConfig(retire_below=0.6)
    after = EnvironmentMemory((), 9).insert([record(0)]).played({"e0": None}, cycle=7, config=config)
    assert after.records == (record(0, last_played=7),)


@pytest.mark.parametrize("rescore", [True, False])
def test_a_played_record_that_is_mastered_or_hopeless_is_forgotten(rescore):
    config = MemoryConfig(retire_below=0.05, retire_above=0.95, rescore=rescore)
    memory = EnvironmentMemory((), 9).insert([record(i) for i in range(4)] + [record(9, win_rate=1.0)])
    outcomes = {f"e{i}": outcome(win_rate, 0) for i, win_rate in enumerate([0.04, 0.05, 0.95, 0.96])}
    after = memory.played(outcomes, cycle=1, config=config)
    # e9 was not played, so that nobody knows whether it is still as easy.
    assert [item.source.environment_id for item in after.records] == ["e1", "e2", "e9"]


@given(memories, st.integers(0, 40), st.integers(0, 5))
def test_replayed_are_distinct_records(memory, num, seed):
    drawn = memory.replay(num, cycle=9, rng=random.Random(seed), config=CONFIG)
    assert len(drawn) == min(num, len(memory.records))
    assert len({item.source.environment_id for item in drawn}) == len(drawn)
    assert all(item in memory.records for item in drawn)
    assert drawn == memory.replay(num, cycle=9, rng=random.Random(seed), config=CONFIG)


@given(memories)
def test_json_there_and_back(memory):
    assert EnvironmentMemory.from_json(json.loads(json.dumps(memory.to_json()))) == memory


def test_json_without_the_cycle_of_the_last_play_is_read():
    values = EnvironmentMemory((), 9).insert([record(0, last_played=4)]).to_json()
    assert values["records"][0].pop("last_played") == 4
    assert EnvironmentMemory.from_json(values).records == (record(0, last_played=0),)


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
