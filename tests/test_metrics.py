import json
import math
import resource
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event, SessionLog

from spade_jax.errors import WorkdirError
from spade_jax.metrics import (
    MetricsWriter,
    means,
    rate_with_interval,
    read_rows,
    summarise,
    wilson_interval,
)

counts = st.integers(1, 400).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials)))


def writer(folder, from_cycle=0):
    return MetricsWriter(folder / "metrics.jsonl", folder / "tensorboard", from_cycle=from_cycle)


def points(folder):
    """The points that TensorBoard shows: a session's start takes back its step and later ones."""
    shown = []
    for path in sorted((folder / "tensorboard").iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + length])
            content = content[16 + length :]
            if event.session_log.status == SessionLog.START:
                shown = [point for point in shown if point[0] < event.step]
            shown += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return shown


def test_a_rate_comes_with_its_interval_and_needs_a_trial():
    low, high = wilson_interval(15, 148)
    assert rate_with_interval("won", 15, 148) == {"won": 15 / 148, "won_low": low, "won_high": high}
    with pytest.raises(ValueError, match="won: no trials"):
        rate_with_interval("won", 0, 0)


def test_wilson_interval_oracle():
    # Newcombe 1998, table I.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


@given(counts)
def test_wilson_interval_holds_its_fraction_and_mirrors(count):
    successes, trials = count
    low, high = wilson_interval(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    mirrored_low, mirrored_high = wilson_interval(trials - successes, trials)
    assert (1 - mirrored_high, 1 - mirrored_low) == pytest.approx((low, high), abs=1e-12)
    wider = wilson_interval(10 * successes, 10 * trials)
    assert wider[1] - wider[0] < high - low


def test_wilson_interval_of_nothing_says_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        wilson_interval(3, 2)


def test_means_are_over_the_rows_that_know():
    assert means([{"a": 1.0}, {"a": 3.0, "b": 5.0}, {}]) == {"a": 2.0, "b": 5.0}
    assert means([]) == {}


def test_rows_are_on_disk_when_write_returns(tmp_path):
    with writer(tmp_path) as metrics:
        metrics.write(0, {"design/reward": 0.5})
        metrics.write(3, {"design/reward": math.nan, "play/win_rate": math.inf, "design/regret": 1})
        rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert rows == [
            {"cycle": 0, "design/reward": 0.5},
            {"cycle": 3, "design/reward": None, "play/win_rate": None, "design/regret": 1.0},
        ]
        assert points(tmp_path) == [(0, "design/reward", 0.5), (3, "design/regret", 1.0)]
    assert read_rows(tmp_path / "metrics.jsonl")[1] == {"cycle": 3, "design/regret": 1.0}


@pytest.mark.parametrize("torn", [b"", b'{"cycle": 5, "a', b'{"cycle": 2, "a": 2.0}'])
@pytest.mark.parametrize("from_cycle", [0, 1, 3, 5])
def test_resumed_is_uninterrupted(tmp_path, from_cycle, torn):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for folder in (killed, whole):
        folder.mkdir()
    with writer(killed) as metrics:
        for cycle in range(5):
            metrics.write(cycle, {"a": cycle, "b": -1.0})
    with (killed / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    with writer(killed, from_cycle) as metrics:
        for cycle in range(from_cycle, 8):
            metrics.write(cycle, {"a": cycle})
    with writer(whole) as metrics:
        for cycle in range(8):
            metrics.write(cycle, {"a": cycle} | ({"b": -1.0} if cycle < from_cycle else {}))
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert points(killed) == points(whole)


def test_rows_have_to_be_in_order(tmp_path):
    with writer(tmp_path, 2) as metrics:
        metrics.write(2, {"a": 1})
        metrics.write(2, {"b": 1})
        with pytest.raises(ValueError, match="cycle 1 after cycle 2"):
            metrics.write(1, {"a": 1})


def test_a_file_that_is_not_ours_is_not_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('notes\n{"cycle": 1}\n')
    with pytest.raises(WorkdirError, match=r"line 1 of .* is not a row"):
        writer(tmp_path)
    assert path.read_text() == 'notes\n{"cycle": 1}\n'


def test_a_disk_that_takes_no_more_is_explained(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    metrics = writer(tmp_path)
    metrics.write(0, {"a": 1})
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))
    try:
        with pytest.raises(WorkdirError, match=r"cannot write .*metrics.jsonl: File too large"):
            metrics.write(1, {f"a{index}": 1 for index in range(100)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    metrics.close()
    with writer(tmp_path, 1):
        assert read_rows(tmp_path / "metrics.jsonl") == [{"cycle": 0, "a": 1.0}]


def test_summary_of_a_run():
    rows = [{"cycle": 0, "heldout/solve_rate": 0.2, "heldout/solve_rate_low": 0.1, "seconds/evaluation": 2.0}]
    # A run that was moved in between to a machine without bubblewrap.
    rows += [
        {
            "cycle": i,
            "design/reward": i / 10,
            "seconds/play": 1.0,
            "sandbox/level": 2.0 if 9 < i < 20 else 3.0,
        }
        for i in range(30)
    ]
    rows += [{"cycle": 30, "heldout/solve_rate": 0.5, "heldout/solve_rate_low": 0.4}]
    assert summarise(rows) == pytest.approx(
        {
            "heldout/solve_rate_start": 0.2,
            "heldout/solve_rate_start_low": 0.1,
            "heldout/solve_rate": 0.5,
            "heldout/solve_rate_low": 0.4,
            "design/reward_start": 0.45,
            "design/reward": 2.45,
            "sandbox/level": 2.0,
            "seconds/play": 30.0,
            "seconds/evaluation": 2.0,
        }
    )
    assert summarise([]) == {}
