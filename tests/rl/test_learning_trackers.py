"""Oracle vectors are values that the reference implementation produces."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import RewardConfig
from spade_jax.rl.learning_trackers import LearningTrackers
from spade_jax.types import PlayHistory

CONFIG = RewardConfig(fast_rate=0.98, slow_rate=0.85)


def history(skill, *returns):
    return PlayHistory(environment_id="c00000-e00", skill=skill, returns=returns, estimate=None)


def test_the_first_batch_sets_both_means():
    trackers = LearningTrackers().updated([history("a", (1.0, 0.0), (0.0, 0.0))], CONFIG)
    assert trackers == LearningTrackers(fast={"a": 0.25}, slow={"a": 0.25})
    assert trackers.potential("a", CONFIG) == 0


def test_oracle_of_the_reference_implementation():
    trackers = LearningTrackers(fast={"a": 0.3}, slow={"a": 0.3})
    # 28 wins in 64 plays: 0.02 * 0.3 + 0.98 * 0.4375 and 0.15 * 0.3 + 0.85 * 0.4375.
    trackers = trackers.updated([history("a", (1.0,) * 28 + (0.0,) * 36)], CONFIG)
    assert trackers.fast["a"] == pytest.approx(0.434750)
    assert trackers.slow["a"] == pytest.approx(0.416875)
    assert trackers.potential("a", CONFIG) == pytest.approx(0.068750)


def test_a_batch_counts_plays_and_moves_its_own_skills_alone():
    before = LearningTrackers(fast={"a": 0.5, "b": 0.5}, slow={"a": 0.5, "b": 0.5})
    after = before.updated(
        [history("a", (1.0,)), history("a", (0.0, 0.0), (0.0,)), history("b", (), ()), history("c", ())],
        RewardConfig(fast_rate=1.0, slow_rate=0.5),
    )
    assert after.fast == {"a": 0.25, "b": 0.5}
    assert after.slow == {"a": 0.375, "b": 0.5}
    assert before.fast == {"a": 0.5, "b": 0.5}


means = st.dictionaries(st.sampled_from("abc"), st.floats(-1, 1))


@given(means, st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_each_mean_moves_towards_the_batch_and_the_fast_one_further(start, returns):
    before = LearningTrackers(fast=start, slow=start)
    after = before.updated([history("a", tuple(returns))], CONFIG)
    batch = sum(returns) / len(returns)
    old = start.get("a", batch)
    assert abs(after.fast["a"] - batch) <= abs(after.slow["a"] - batch) + 1e-12 <= abs(old - batch) + 2e-12
    assert after.potential("a", CONFIG) == pytest.approx(abs(batch - old) / 2, abs=1e-9)


@given(means)
def test_there_and_back_through_json(start):
    trackers = LearningTrackers(fast=start, slow=start)
    assert LearningTrackers.from_json(json.loads(json.dumps(trackers.to_json()))) == trackers


def test_json_that_holds_something_else_is_refused():
    with pytest.raises(msgspec.ValidationError, match="slow"):
        LearningTrackers.from_json({"fast": {}, "slow": {"a": "much"}})
