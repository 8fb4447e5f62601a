import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.errors import CheckpointError
from spade_jax.training.checkpoint import Checkpointer
from spade_jax.training.state import TrainState

HOST = {
    "memory": [{"code": "x" * 500 + "λ\ud800", "win_rate": 0.1 + 0.2}],
    "corpus": {"position": 7},
    "none": None,
}


def state_of(cycle, width=40):
    """A state whose arrays are different in every cycle."""
    rng = np.random.default_rng(cycle)
    kernel = jnp.asarray(rng.normal(size=(width, 50)), jnp.float32)
    return TrainState(
        params={"kernel": kernel, "table": kernel[:3].astype(jnp.bfloat16)},
        optimizer_state=({"kernel": kernel**2}, jnp.asarray(cycle, jnp.int32)),
        step=jnp.asarray(cycle, jnp.int32),
    )


def abstract(state):
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state
    )


ABSTRACT = abstract(state_of(0))


def assert_same_bits(got, wanted):
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def saved(directory, *cycles, keep=3):
    with Checkpointer(directory, keep=keep) as checkpointer:
        for cycle in cycles:
            checkpointer.save(cycle, state_of(cycle), {**HOST, "cycle": cycle})


def test_restored_equals_saved_and_only_the_newest_are_kept(tmp_path):
    saved(tmp_path, 5, 10, 15, keep=2)
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        cycle, state, host_state = checkpointer.restore_latest(ABSTRACT)
    assert cycle == 15
    assert_same_bits(state, state_of(15))
    assert host_state == {**HOST, "cycle": 15}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "15"]


def test_some_are_kept_for_good(tmp_path):
    with Checkpointer(tmp_path, keep=2, keep_every=10) as checkpointer:
        for cycle in range(5, 45, 5):
            checkpointer.save(cycle, state_of(cycle), HOST)
    assert {int(path.name) for path in tmp_path.iterdir()} == {10, 20, 30, 35, 40}


def test_a_number_that_is_not_known_stays_unknown(tmp_path):
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        checkpointer.save(1, state_of(1), {"standard_error": float("nan")})
        restored = checkpointer.restore_latest(ABSTRACT)
    assert math.isnan(restored.host_state["standard_error"])


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    with Checkpointer(tmp_path / "new", keep=2) as checkpointer:
        assert checkpointer.restore_latest(ABSTRACT) is None


def test_what_changes_while_a_save_is_in_progress_is_not_in_it(tmp_path):
    """The update donates the state right after the save has started."""
    state, host_state = state_of(1, width=20_000), {"records": list(range(100_000))}
    wanted = jax.tree.map(np.array, state)
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        checkpointer.save(1, state, host_state)
        host_state["records"].clear()
        changed = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf * 2 + 1, state), donate_argnums=0)(
            state
        )
        jax.block_until_ready(changed)
        restored = checkpointer.restore_latest(abstract(changed))
    assert_same_bits(restored.state, wanted)
    assert restored.host_state == {"records": list(range(100_000))}


def test_a_reader_changes_nothing_in_a_folder_that_another_process_saves_to(tmp_path, caplog):
    saved(tmp_path, 1, 2)
    unfinished = tmp_path / "3.orbax-checkpoint-tmp" / "state"
    unfinished.mkdir(parents=True)
    (unfinished / "half").write_text("an array")
    for path in (tmp_path / "2" / "host").iterdir():
        path.write_text("{")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with Checkpointer(tmp_path, keep=None) as checkpointer:
        cycle, state, _ = checkpointer.restore_latest(ABSTRACT)
    assert cycle == 1
    assert_same_bits(state, state_of(1))
    assert "checkpoint of cycle 2 is damaged" in caplog.text
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_reader_makes_no_folder(tmp_path):
    with Checkpointer(tmp_path / "new", keep=None) as checkpointer:
        assert checkpointer.is_empty
        assert checkpointer.restore_latest(ABSTRACT) is None
    assert not (tmp_path / "new").exists()


def test_a_reader_sees_what_was_saved_after_it_had_opened_the_folder(tmp_path):
    saved(tmp_path, 1, 2, keep=2)
    with Checkpointer(tmp_path, keep=None) as checkpointer:
        saved(tmp_path, 3, 4, keep=2)
        assert checkpointer.restore_latest(ABSTRACT).cycle == 4


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    directory = tmp_path_factory.mktemp("two")
    saved(directory, 1, 2)
    return directory


def files_of(directory, cycle):
    return sorted(
        str(path.relative_to(directory / str(cycle)))
        for path in (directory / str(cycle)).rglob("*")
        if path.is_file()
    )


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif data:
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :])


@pytest.mark.parametrize("how", ["missing", "truncated", "flipped"])
def test_no_damage_to_any_file_is_restored_as_something_else(two_checkpoints, tmp_path, how, caplog, capfd):
    """Whichever file is damaged: the newest comes back as it was saved, or the one before it does."""
    used = {1: 0, 2: 0}
    for index, name in enumerate(files_of(two_checkpoints, 2)):
        directory = tmp_path / str(index)
        shutil.copytree(two_checkpoints, directory)
        damage(directory / "2" / name, how)
        caplog.clear()
        with Checkpointer(directory, keep=3) as checkpointer:
            cycle, state, host_state = checkpointer.restore_latest(ABSTRACT)
            assert_same_bits(state, state_of(cycle))
            assert host_state == {**HOST, "cycle": cycle}
            used[cycle] += 1
            warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
            if cycle == 1:
                assert len(warnings) == 1
                assert "checkpoint of cycle 2 is damaged (" in warnings[0]
                assert "kept as damaged-2, and the one of cycle 1 is used" in warnings[0]
                assert (directory / "damaged-2").is_dir()
                checkpointer.save(2, state_of(2), HOST)
                assert checkpointer.restore_latest(ABSTRACT).cycle == 2
            else:
                assert warnings == []
    assert used[1] >= 3
    assert used[2] >= 3
    assert "Traceback" not in capfd.readouterr().err


def test_a_checkpoint_of_another_shape_is_not_used(tmp_path):
    with Checkpointer(tmp_path, keep=3) as checkpointer:
        checkpointer.save(1, state_of(1), HOST)
        checkpointer.save(2, state_of(2, width=41), HOST)
        assert checkpointer.restore_latest(ABSTRACT).cycle == 1


def test_where_none_is_usable_the_run_does_not_start_anew(tmp_path):
    saved(tmp_path, 1, 2)
    for cycle in (1, 2):
        (host,) = (tmp_path / str(cycle) / "host").glob("metadata")
        host.write_text("{")
    with (
        Checkpointer(tmp_path, keep=3) as checkpointer,
        pytest.raises(
            CheckpointError, match=r"none of the checkpoints .*\n  cycle 2: .*\n  cycle 1: .*\nRestore"
        ),
    ):
        checkpointer.restore_latest(ABSTRACT)
    assert {path.name for path in tmp_path.iterdir()} == {"1", "2"}


def test_host_state_that_is_not_json_is_refused_at_once(tmp_path):
    with Checkpointer(tmp_path, keep=3) as checkpointer:
        with pytest.raises(TypeError):
            checkpointer.save(1, state_of(1), {"array": np.zeros(2)})
        assert checkpointer.restore_latest(ABSTRACT) is None


def child(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs a script with the names of this module."""
    code = f"import runpy, sys; globals().update(runpy.run_path({__file__!r}))\n{textwrap.dedent(script)}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_full_disk_is_explained_and_leaves_earlier_checkpoints(tmp_path):
    """A limit on file size stands for the full disk: writes fail in the middle of a save."""
    process = child(
        """
        import resource
        with Checkpointer(sys.argv[1], keep=3) as checkpointer:
            checkpointer.save(1, state_of(1), HOST)
            checkpointer.wait()
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, unlimited[1]))
            try:
                checkpointer.save(2, state_of(2), HOST)
                time.sleep(1)  # so that most of it fails before anybody waits for it
                checkpointer.wait()
            except CheckpointError as error:
                print(error)
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            assert checkpointer.restore_latest(ABSTRACT).cycle == 1
            checkpointer.save(3, state_of(3), HOST)
            checkpointer.wait()
            assert checkpointer.restore_latest(ABSTRACT).cycle == 3
        """,
        str(tmp_path),
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "could not be saved for cycle 2" in out
    assert "File too large" in out
    assert "Earlier checkpoints are intact; check free space" in out
    assert "Traceback" not in err


def test_a_process_killed_while_saving_leaves_the_checkpoint_before(tmp_path):
    """Killed in its third save, at a moment when that save has begun to write."""
    process = child(
        """
        with Checkpointer(sys.argv[1], keep=3) as checkpointer:
            for cycle in range(1, 1000):
                checkpointer.save(cycle, state_of(cycle, width=40_000), {**HOST, "cycle": cycle})
        """,
        str(tmp_path),
    )
    deadline = time.monotonic() + 300
    while not any(tmp_path.glob("3*/state*/*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    whole = {int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal()}
    with Checkpointer(tmp_path, keep=3) as checkpointer:
        cycle, state, host_state = checkpointer.restore_latest(abstract(state_of(0, width=40_000)))
        assert cycle == max(whole) >= 2
        assert_same_bits(state, state_of(cycle, width=40_000))
        assert host_state["cycle"] == cycle
        checkpointer.save(cycle + 1, state, host_state)
    assert (tmp_path / str(cycle + 1)).is_dir()
    assert not list(tmp_path.glob("*tmp*"))


def test_checkpoints_are_readable_json_where_they_hold_host_state(tmp_path):
    saved(tmp_path, 1)
    assert json.loads((tmp_path / "1" / "host" / "metadata").read_text()) == {**HOST, "cycle": 1}
