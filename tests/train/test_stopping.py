"""The first signal ends the run after its cycle, with everything saved; a second one ends it at once."""

import json
import signal

from tests.train.command import arguments, differences, run

UPDATE_DUE = {"function": "spade_jax.training.update:Updater.update"}


def num_rows(workdir):
    return len((workdir / "metrics.jsonl").read_text().splitlines())


def test_one_signal_then_two_and_the_run_goes_on_as_if_nothing_had_been(reference, cache_dir, tmp_path):
    """The signals reach the sandbox's processes too, as from a terminal."""
    workdir = tmp_path / "run"
    flags = arguments(workdir, cache_dir)

    # In the middle of cycle 0: the cycle ends, and is saved although no checkpoint was due.
    stopped = run(flags, at={**UPDATE_DUE, "call": 1, "signals": ["SIGINT"]}, code=130)
    assert "stopped before cycle 1, which is saved; run the same command again to go on" in stopped.stdout
    assert "Traceback" not in stopped.stderr
    assert num_rows(workdir) == 1
    assert (workdir / "checkpoints/1").is_dir()
    assert not (workdir / "summary.json").exists()

    # In the middle of cycle 1: nothing of it is finished.
    run(flags, at={**UPDATE_DUE, "call": 1, "signals": ["SIGINT", "SIGINT"]}, code=-signal.SIGINT)
    assert num_rows(workdir) == 1

    finished = run(flags)
    assert "resuming at cycle 1 of 4" in finished.stdout
    assert differences(workdir, reference) == {}


def test_a_cycle_that_takes_longer_than_a_machine_waits_is_given_up(reference, cache_dir, tmp_path):
    """SIGTERM in the play of cycle 1, which nothing has saved yet: the state after cycle 0 is kept."""
    workdir = tmp_path / "run"
    at = {"function": "spade_jax.cycle:Machinery.play", "call": 3, "signals": ["SIGTERM"]}
    stopped = run(arguments(workdir, cache_dir, "checkpoint.grace=0"), at=at, code=130)
    assert "cycle 1 did not end within 0 s of SIGTERM and is given up" in stopped.stdout
    assert "stopped before cycle 1, which is saved" in stopped.stdout
    assert "Traceback" not in stopped.stderr
    assert num_rows(workdir) == 1
    assert (workdir / "checkpoints/1").is_dir()
    finished = run([*arguments(workdir, cache_dir), "--allow_changed_config"])
    assert "resuming at cycle 1 of 4" in finished.stdout
    assert differences(workdir, reference) == {}


def test_a_signal_in_the_warm_start_stops_it_with_a_word(tmp_path):
    small = ["warm_start.programs=200", "warm_start.episodes=8"]
    flags = arguments(tmp_path / "run", tmp_path / "cache", *small)
    stopped = run(flags, at={**UPDATE_DUE, "call": 3, "signals": ["SIGTERM"]}, code=130)
    assert "stopped on request; run the same command again" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert not list((tmp_path / "cache").glob("*"))
    assert json.loads((tmp_path / "run/config.json").read_text())["num_cycles"] == 4
