"""Bad input ends in a clear error or a clear recovery, and nothing that was there is lost."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from spade_jax import config as config_lib
from spade_jax.errors import CorpusError, WorkdirError
from spade_jax.train import train
from tests.sandbox.test_pool import NO_SECCOMP
from tests.train.command import CONFIG, ROOT, arguments, differences, run

BRIEF = ["num_cycles=1", "designer.environments=4", "evaluation.environments=1", "evaluation.episodes=1"]


def tiny(*overrides):
    return config_lib.with_overrides(config_lib.load(str(CONFIG)), overrides)


def files(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


CORPORA = {
    "missing": (None, r"no corpus at .*\. Give a \.jsonl file"),
    "empty": ("", "not one usable document .*it is empty"),
    "broken in every line": ('{"text": \n[1]\n{"other": "x"}\n', "not one usable document .*:1 is not JSON"),
}


@pytest.mark.parametrize(("content", "message"), CORPORA.values(), ids=CORPORA)
def test_a_corpus_that_gives_nothing(tmp_path, content, message):
    path = tmp_path / "documents.jsonl"
    if content is not None:
        path.write_text(content)
    config = tiny(f"corpus.path={path}", f"warm_start.cache_dir={tmp_path / 'cache'}")
    with pytest.raises(CorpusError, match=message):
        train(config, workdir=tmp_path / "run")
    # Before a minute of work was spent on it.
    assert not (tmp_path / "cache").exists()


def test_a_corpus_with_broken_lines_is_used_and_they_are_reported(cache_dir, tmp_path):
    path = tmp_path / "documents.jsonl"
    lines = [json.dumps({"text": f"The fox sold drum number {number}."}) for number in range(6)]
    lines[2:2] = ["{not json", '{"title": "no text"}', b"\xff".decode("latin-1")]
    path.write_bytes("\n".join(lines).encode("latin-1"))
    done = run(arguments(tmp_path / "run", cache_dir, f"corpus.path={path}", *BRIEF))
    assert "6 documents, skipped 3" in done.stderr
    for number in (3, 4, 5):
        assert f"documents.jsonl:{number} " in done.stderr
    about = [json.loads(file.read_text()) for file in (tmp_path / "run/environments").rglob("*.json")]
    drawn = {item["document_id"] for item in about}
    assert len(about) == len(drawn) == 4
    assert drawn <= {f"documents.jsonl:{number}" for number in (1, 2, 6, 7, 8, 9)}


OVERRIDES = {
    "an unknown field": (
        "agent.temprature=1",
        "unknown config field 'agent.temprature'. Did you mean 'temperature'? Known fields there: ",
    ),
    "a value of the wrong type": ("agent.episodes=many", "config field agent.episodes: "),
}


@pytest.mark.parametrize(("override", "message"), OVERRIDES.values(), ids=OVERRIDES)
def test_a_config_that_cannot_be(tmp_path, override, message):
    failed = run(arguments(tmp_path / "run", tmp_path / "cache", override), code=1)
    assert failed.stderr.startswith(f"error: {message}")
    assert len(failed.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_workdir_of_another_config(reference, cache_dir):
    before = files(reference)
    config = tiny(f"warm_start.cache_dir={cache_dir}", "seed=5", "agent.temperature=0.7")
    with pytest.raises(
        WorkdirError, match=r"(?s)agent\.temperature: 1\.0 -> 0\.7.*seed: 0 -> 5.*another --workdir"
    ):
        train(config, workdir=reference)
    assert files(reference) == before


def test_a_longer_run_goes_on_where_a_shorter_one_ended(reference, cache_dir, tmp_path):
    run(arguments(tmp_path / "run", cache_dir, "num_cycles=2"))
    flags = arguments(tmp_path / "run", cache_dir)
    refused = run(flags, code=1)
    assert "num_cycles: 2 -> 4" in refused.stderr
    run([*flags, "--allow_changed_config"])
    assert differences(tmp_path / "run", reference) == {}


def test_a_damaged_newest_checkpoint(reference, cache_dir, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(reference, workdir)
    newest = max(
        (path for path in (workdir / "checkpoints/4").rglob("*") if path.is_file()), key=os.path.getsize
    )
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)

    done = run(arguments(workdir, cache_dir))
    assert "checkpoint of cycle 4 is damaged" in done.stderr
    assert "the one of cycle 2 is used" in done.stderr
    assert "resuming at cycle 2 of 4" in done.stdout
    assert (workdir / "checkpoints/damaged-4").is_dir()
    assert differences(workdir, reference) == {}


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a disk of a size, and can give it another one."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size: int, *, again: bool = False) -> pathlib.Path:
        options = f"{'remount,' if again else ''}size={size}"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True
        )
        if mounted.returncode:
            pytest.skip(f"cannot mount a small disk here: {mounted.stderr.strip()}")
        return folder

    yield mount
    subprocess.run(["umount", folder], capture_output=True)


def size_on_disk(folder: pathlib.Path) -> int:
    """Of a tmpfs: each file takes whole pages, and each folder counts as one."""
    return sum(
        -(-path.stat().st_size // 4096) * 4096 if path.is_file() else 4096 for path in folder.rglob("*")
    )


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="mounting a disk needs root")
def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_goes_on_when_there_is_room(
    reference, cache_dir, small_disk
):
    checkpoint = size_on_disk(reference / "checkpoints/4")
    disk = small_disk(size_on_disk(reference) - checkpoint // 2)
    flags = arguments(disk / "run", cache_dir)

    failed = run(flags, code=1)
    assert failed.stderr.startswith(
        f"error: a checkpoint in {disk}/run/checkpoints could not be saved for cycle 4"
    )
    assert "Earlier checkpoints are intact; check free space" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert (disk / "run/checkpoints/2").is_dir()

    small_disk(10 * size_on_disk(reference), again=True)
    done = run(flags)
    assert "resuming at cycle 2 of 4" in done.stdout
    assert differences(disk / "run", reference) == {}


def test_without_seccomp_nothing_is_run(tmp_path):
    command = (
        f"{NO_SECCOMP}\nimport runpy\nrunpy.run_path({str(ROOT / 'launch/train.py')!r}, run_name='__main__')"
    )
    failed = subprocess.run(
        [sys.executable, "-c", command, *arguments(tmp_path / "run", tmp_path / "cache")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: need sandbox level L2 or stronger and none works here")
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "run/metrics.jsonl").exists()
