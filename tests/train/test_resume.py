"""A run that is killed at any moment and started again says what an undisturbed one says, exactly."""

import json
import random
import shutil
import signal
import time

import jax
import pytest

from spade_jax import config as config_lib
from spade_jax.train import train
from spade_jax.training.checkpoint import Checkpointer
from tests.train.command import arguments, differences, killed, run, start

EPISODES_WRITTEN = {"function": "spade_jax.workdir:Workdir.write_episodes", "after": True}
ROW_WRITTEN = {"function": "spade_jax.metrics:MetricsWriter.write", "after": True}
SAVE_STARTED = {"function": "spade_jax.training.checkpoint:Checkpointer.save", "after": True}
UPDATE_DUE = {"function": "spade_jax.training.update:Updater.update"}
WARM_START_DUE_TO_BE_KEPT = {"function": "spade_jax.warm_start.pretrain:_store"}


def test_the_undisturbed_run_really_plays(reference):
    """What the tests here compare is not empty: designs hold, games are won, weights change."""
    rows = [json.loads(line) for line in (reference / "metrics.jsonl").read_text().splitlines()]
    assert [row["cycle"] for row in rows] == [0, 1, 2, 3, 4]
    assert sum(row["design/num_valid"] for row in rows[:4]) >= 8
    assert any(row["play/win_rate"] > 0 for row in rows[:4] if "play/win_rate" in row)
    assert any(not row["update/skipped_empty"] for row in rows[:4])
    assert ["heldout/solve_rate" in row for row in rows] == [True, False, True, False, True]
    assert len(list((reference / "environments").rglob("*.json"))) == 4 * 6
    assert {path.name for path in (reference / "checkpoints").iterdir() if path.name.isdigit()} == {"2", "4"}


def test_killed_in_a_cycle_before_a_checkpoint_and_during_one(reference, cache_dir, tmp_path):
    flags = arguments(tmp_path / "run", cache_dir)
    killed(flags, at={**EPISODES_WRITTEN, "call": 1})
    assert (tmp_path / "run/environments/cycle_00000").exists()
    killed(flags, at={**ROW_WRITTEN, "call": 2})
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 2
    killed(flags, at={**SAVE_STARTED, "call": 1})
    run(flags)
    assert differences(tmp_path / "run", reference) == {}


def test_killed_in_the_warm_start_and_run_under_another_hash_seed(reference, tmp_path):
    """The reference ran with PYTHONHASHSEED=1; neither its text nor its numbers depend on it."""
    flags = arguments(tmp_path / "run", tmp_path / "cache")
    killed(flags, at={**UPDATE_DUE, "call": 20})
    run(flags, hash_seed="2")
    assert differences(tmp_path / "run", reference) == {}


def test_a_finished_run_says_the_same_again(reference, cache_dir, tmp_path):
    shutil.copytree(reference, tmp_path / "run")
    done = run(arguments(reference, cache_dir)[:1] + arguments(tmp_path / "run", cache_dir)[1:])
    assert "resuming at cycle 4 of 4" in done.stdout
    assert differences(tmp_path / "run", reference) == {}


def test_the_weights_of_the_start_are_gone_before_those_of_the_checkpoint_come(
    reference, tmp_path, monkeypatch
):
    """Two sets do not always fit on a device."""
    shutil.copytree(reference, tmp_path / "run")
    config = config_lib.from_dict(json.loads((reference / "config.json").read_text()))
    before = {id(array) for array in jax.live_arrays()}

    class Seen(Exception):
        pass

    def restore_latest(self, abstract_state):
        shapes = {leaf.shape for leaf in jax.tree.leaves(abstract_state.params)}
        assert len(shapes) > 5
        raise Seen(
            [array.shape for array in jax.live_arrays() if id(array) not in before and array.shape in shapes]
        )

    monkeypatch.setattr(Checkpointer, "restore_latest", restore_latest)
    with pytest.raises(Seen) as seen:
        train(config, workdir=tmp_path / "run")
    assert seen.value.args == ([],)


@pytest.mark.slow
def test_killed_as_the_warm_start_is_kept(reference, tmp_path):
    flags = arguments(tmp_path / "run", tmp_path / "cache")
    killed(flags, at={**WARM_START_DUE_TO_BE_KEPT, "call": 1, "after": True})
    run(flags)
    assert differences(tmp_path / "run", reference) == {}


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4])
def test_killed_at_some_moment_of_a_save(reference, cache_dir, tmp_path, delay):
    flags = arguments(tmp_path / "run", cache_dir)
    for _ in range(2):
        killed(flags, at={**SAVE_STARTED, "call": 1, "delay": delay})
    run(flags)
    assert differences(tmp_path / "run", reference) == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_at_any_moment(reference, cache_dir, tmp_path, seed):
    rng = random.Random(seed)
    flags = arguments(tmp_path / "run", cache_dir)
    began = time.monotonic()
    run(arguments(tmp_path / "timed", cache_dir))
    seconds = time.monotonic() - began
    for _ in range(8):
        process = start(flags)
        time.sleep(rng.uniform(0.2, 1.0) * seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    run(flags)
    assert differences(tmp_path / "run", reference) == {}
