"""What later cycles make of earlier ones: environments played again, scored again, forgotten, changed."""

import pytest

from spade_jax.roles.designer import design_reply
from tests.cycle.stage import CONFIG, Lap, changed, unpacked
from tests.scripted import game

ONE = design_reply(game("One"), "obey One")
OTHER = design_reply(game("Two", turns=2), "obey Two")
OUTCOMES = {
    # memory settings, and what is remembered of the replayed environment: win rate, regret.
    "scored again": ({}, (0.75, 0.5)),
    "not scored again": ({"rescore": False}, (0.25, 1.5)),
    "retired": ({"retire_above": 0.7}, None),
    "not retired": ({"retire_above": 0.8}, (0.75, 0.5)),
    "retired whatever the score": ({"retire_below": 0.8, "rescore": False}, None),
}


@pytest.mark.parametrize(("memory", "wanted"), OUTCOMES.values(), ids=OUTCOMES)
def test_a_remembered_environment_is_played_again(stage, memory, wanted):
    config = changed(
        CONFIG,
        memory={"replay": 0.5, **memory},
        designer={"environments": 2, "interval": 2},
        agent={"episodes": 4},
    )
    laps = [
        Lap([ONE, "nothing"], ["wlll|wwww"]),
        Lap(plays=["llll"]),
        Lap([OTHER], ["wwwl|wwww", "wlll|llll"]),
        Lap(plays=["llll", "llll"]),
    ]
    show = stage(laps, config=config)
    first, again = show.self_plays[0], show.self_plays[2]
    (record,) = first.memory.records
    assert (record.win_rate, record.regret, record.cycle, record.last_played) == (0.25, 1.5, 0, 0)
    assert first.replayed == frozenset()

    assert [source.environment_id for source in again.pool] == ["c00000-e000", "c00002-e000"]
    assert again.replayed == {"c00000-e000"}
    remembered = {item.source.environment_id: item for item in again.memory.records}
    assert remembered["c00002-e000"].last_played == 2
    if wanted is None:
        assert "c00000-e000" not in remembered
    else:
        old = remembered["c00000-e000"]
        assert (old.win_rate, old.regret, old.cycle, old.last_played) == (*wanted, 0, 2)
        assert show.self_play.memory.records[0].last_played == 3
    assert show.records[2].metrics["memory/num_records"] == len(remembered)

    # Playing it again is no design: it earns its designer nothing more, and the agent learns from it.
    assert list(show.records[2].rewards) == ["c00002-e000"]
    assert show.records[2].metrics["design/num_designs"] == 1
    assert set(show.records[2].estimates) == {"c00000-e000", "c00002-e000"}
    assert len(unpacked(show.batches[2], "designer")) == 1
    assert len(unpacked(show.batches[2], "agent")) == 8
    seeds = {item.instance_seed for record in show.records for item in record.trajectories}
    assert len(seeds) == 4 * 6


@pytest.mark.parametrize(
    ("plays", "win_rate", "change", "difficulty"),
    [
        ("wwwl", 0.75, "harder", "hard"),
        ("wlll", 0.25, "easier", "easy"),
        ("wwll", 0.5, "different", "medium"),
    ],
)
def test_a_remembered_environment_is_changed(stage, plays, win_rate, change, difficulty):
    config = changed(
        CONFIG,
        memory={"mutate": 0.5, "positives": 0},
        designer={"environments": 2, "difficulty": "adaptive"},
        validation={"rungs": ("extract", "novelty", "load")},
        agent={"episodes": 4},
    )
    # The same program again is a change of its parent, and no new design.
    laps = [Lap([ONE, "nothing"], [f"{plays}|wwww"]), Lap([ONE, ONE], ["llll|wwww"])]
    show = stage(laps, config=config)
    mutated, fresh = show.record.designs
    assert (mutated.context.parent.source.environment_id, mutated.context.change) == ("c00000-e000", change)
    assert (fresh.context.parent, fresh.context.change) == (None, "")
    assert (mutated.report.rejected_by, fresh.report.rejected_by) == ("", "novelty")
    before, after = show.prompts("designs")[:2], show.prompts("designs")[2:]
    assert all("Difficulty: medium\n" in prompt and "Make " not in prompt for prompt in before)
    assert all(f"Difficulty: {difficulty}\n" in prompt for prompt in after)
    line = f"Make {change}: OneEnv turns = 1 | win {win_rate:.1f} regret {2 - 2 * win_rate:.1f}\n"
    assert [line in prompt for prompt in after] == [True, False]
    # Of equal programs the newest is remembered.
    assert [item.source.environment_id for item in show.self_play.memory.records] == ["c00001-e000"]
