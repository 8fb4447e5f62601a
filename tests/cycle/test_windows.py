"""Designs that are played for some cycles and rewarded some cycles later, and a run that stops in between."""

import json

import numpy as np
import pytest

from spade_jax.grounding.corpus import Corpus
from spade_jax.roles.designer import design_reply
from spade_jax.self_play import SelfPlayState
from spade_jax.types import Document
from tests.cycle.stage import CONFIG, Lap, changed, packed_as, unpacked
from tests.scripted import game

GOOD, BAD = design_reply(game("One"), "obey One"), "no program here"
# The plateau of a single point is as high as the win rate.
WIN_RATE = {"kind": "plateau", "plateau_low": 1.0, "plateau_high": 1.0, "plateau_ramp": 1.0}
PLAYS = ["ww", "wl", "ll", "ll", "ww", "wl"]
# designer.interval and delay, and for each cycle the designs that are rewarded in it, by the cycle in which
# they were written, with their share of wins in all plays that count.
WINDOWS = {
    (1, 0): [{0: 1.0}, {1: 0.5}, {2: 0.0}],
    (2, 0): [{0: 1.0}, {}, {2: 0.0}, {}],
    (2, 1): [{}, {0: 1.0}, {}, {2: 0.0}],
    (2, 2): [{}, {}, {0: 0.75}, {}, {2: 0.0, 4: 1.0}],
    (2, 3): [{}, {}, {}, {0: 0.75}, {2: 0.0, 4: 1.0}],
    (1, 3): [{}, {}, {0: 1.0, 1: 0.5, 2: 0.0}],
    (4, 4): [{}, {}, {}, {}, {0: 0.375}, {4: 0.75}],
}


@pytest.mark.parametrize(("window", "wanted"), WINDOWS.items(), ids=map(str, WINDOWS))
def test_defect_12_every_design_is_rewarded_once_for_the_plays_of_its_window(stage, window, wanted):
    interval, delay = window
    config = changed(
        CONFIG,
        num_cycles=len(wanted),
        designer={"environments": 2, "interval": interval, "delay": delay},
        agent={"episodes": 2},
        reward=WIN_RATE,
    )
    laps = [
        Lap([GOOD, BAD], [f"{PLAYS[cycle]}|ww"]) if cycle % interval == 0 else Lap(plays=[PLAYS[cycle]])
        for cycle in range(len(wanted))
    ]
    show = stage(laps, config=config)
    streams = {
        design.context.environment_id: design.stream for cycle in show.records for design in cycle.designs
    }
    num_open = 0
    for cycle, (record, batch, state) in enumerate(
        zip(show.records, show.batches, show.self_plays, strict=True)
    ):
        rewards = {f"c{written:05d}-e000": win_rate for written, win_rate in wanted[cycle].items()}
        rewards |= {f"c{written:05d}-e001": -0.5 for written in wanted[cycle]}
        assert record.rewards == rewards
        mean = sum(rewards.values()) / len(rewards) if rewards else 0.0
        assert len(unpacked(batch, "designer")) == len(rewards)
        for environment_id, reward in rewards.items():
            packed = packed_as(batch, streams[environment_id])
            assert packed.advantage == pytest.approx(reward - mean)
            assert packed.mask == tuple(streams[environment_id].loss_mask)
        assert ("design/num_designs" in record.metrics) == bool(record.designs) == (cycle % interval == 0)
        assert set(record.estimates) == ({f"c{cycle:05d}-e000"} if record.designs else set())
        assert len(unpacked(batch, "agent")) == (2 if PLAYS[cycle] == "wl" else 0)
        num_open += len(record.designs) - len(rewards)
        assert len(state.open_designs) == num_open
    assert num_open == 0


def documents():
    return Corpus([Document(document_id=f"d{index}", text=f"drum{index}") for index in range(9)], seed=4)


@pytest.mark.parametrize("episodes", [1, 2])  # of a single episode the regret's error is not known
def test_a_run_that_stops_with_open_designs_goes_on_as_if_it_had_not(stage, episodes):
    config = changed(
        CONFIG,
        num_cycles=5,
        memory={"replay": 0.5},
        designer={"environments": 2, "interval": 2, "delay": 3},
        agent={"episodes": episodes, "advantage": "ema"},
        reward={"kind": "learning_potential"},
    )
    win, lose = "w" * episodes, "l" * episodes
    laps = [
        Lap([GOOD, BAD], [f"{lose}|{win}"]),
        Lap(plays=[win]),
        Lap([design_reply(game("Two", turns=2), "obey")], [f"{win}|{win}", f"{win}|{lose}"]),
        Lap(plays=[lose, win]),
        Lap([GOOD], [f"{lose}|{win}", f"{win}|{lose}"]),
    ]
    whole = stage(laps, config=config, corpus=documents())
    assert whole.self_plays[2].replayed == {"c00000-e000"}
    assert whole.self_play.trackers.slow
    assert whole.self_play.open_designs == ()
    assert [bool(record.rewards) for record in whole.records] == [False, False, False, True, True]
    for stop in range(1, 5):
        before = stage(laps[:stop], config=config, corpus=documents())
        kept = json.dumps(before.self_play.to_json())
        corpus, restored = documents(), SelfPlayState.from_json(json.loads(kept))
        corpus.restore(restored.corpus)
        assert json.dumps(restored.to_json()) == kept
        after = stage(laps[stop:], config=config, corpus=corpus, self_play=restored, state=before.state)
        assert after.state == whole.state
        assert json.dumps(after.self_play.to_json()) == json.dumps(whole.self_play.to_json())
        for record, wanted in zip(after.records, whole.records[stop:], strict=True):
            assert record.rewards == wanted.rewards
            assert counted(record) == counted(wanted)
        for batch, wanted in zip(after.batches, whole.batches[stop:], strict=True):
            np.testing.assert_equal(vars(batch), vars(wanted))


def counted(record):
    return {name: value for name, value in record.metrics.items() if "second" not in name}
