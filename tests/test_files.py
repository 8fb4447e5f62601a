"""Local paths and gs:// addresses do the same; the storage is a fake one on this machine."""

import importlib.util
import json
import pathlib
import re

import numpy as np
import pytest

from spade_jax.archive.read import open_archive
from spade_jax.archive.write import ArchiveWriter, discard_from
from spade_jax.config import Config, ModelConfig, to_dict, with_overrides
from spade_jax.errors import StorageError, WorkdirError
from spade_jax.files import any_path, files_below, local_folder, remove_folder, write_atomically
from spade_jax.grounding.corpus import read_documents
from spade_jax.metrics import MetricsWriter, read_rows
from spade_jax.types import Design, DesignContext, EnvironmentSource, TokenStream, ValidationReport
from spade_jax.workdir import Workdir
from tests.gcs import bucket

__all__ = ["bucket"]

CONFIG = Config(
    num_cycles=3,
    model=ModelConfig(num_layers=1, width=8, num_heads=1, num_kv_heads=1, head_width=8, mlp_width=8),
)
SOURCE = EnvironmentSource(environment_id="c00001-e000", skill="Optimization", code="x = 'λ'\n", hint="up")
STREAM = TokenStream(
    tokens=np.arange(5, dtype=np.int32),
    loss_mask=np.arange(5) > 2,
    behavior_logprobs=np.linspace(-1, 0, 5, dtype=np.float32),
    temperature=0.5,
)
DESIGN = Design(
    context=DesignContext(environment_id="c00001-e000", skill="Optimization", document=None),
    reply="half \ud83d",
    stream=STREAM,
    source=SOURCE,
    report=ValidationReport(environment_id="c00001-e000", verdicts=()),
)


@pytest.fixture(params=["local", "remote"])
def root(request, tmp_path):
    if request.param == "local":
        return tmp_path
    return any_path(f"{request.getfixturevalue('bucket')}/{tmp_path.name} and more")


def names(folder):
    return [path.relative_to(folder).as_posix() for path in files_below(folder)]


def test_files_are_replaced_listed_in_order_and_removed(root):
    for name in ("b/a.txt", "b.txt", "b/c/d.txt", "a.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(root / name, b"old")
        write_atomically(root / name, name.encode())
    assert names(root) == ["a.txt", "b/a.txt", "b/c/d.txt", "b.txt"]
    assert (root / "b/c/d.txt").read_bytes() == b"b/c/d.txt"
    remove_folder(root / "b")
    assert names(root) == ["a.txt", "b.txt"]


def test_a_folder_for_what_reads_local_files_only(root):
    for name in ("model-1.bin", "deep/config.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())
    with local_folder(root) as folder:
        assert names(folder) == ["deep/config.json", "model-1.bin"]
        assert (pathlib.Path(str(folder)) / "deep/config.json").read_bytes() == b"deep/config.json"
    assert names(root) == ["deep/config.json", "model-1.bin"]
    assert folder == root or not folder.exists()


def test_a_corpus(root):
    (root / "deep").mkdir(parents=True)
    (root / "deep/a.jsonl").write_text('{"text": "two"}\n{"text": "three"}\n')
    (root / "b.txt").write_text("one")
    read = [document.document_id for document in read_documents(str(root))]
    assert read == ["b.txt#1", "deep/a.jsonl:1", "deep/a.jsonl:2"]
    assert [document.text for document in read_documents(f"{root}/deep/a.jsonl")] == ["two", "three"]


def test_a_workdir_is_written_taken_up_again_and_cut(root):
    values = to_dict(CONFIG)
    with Workdir.open(root / "run", values) as workdir:
        for cycle in (1, 2):
            workdir.write_environment(DESIGN, cycle=cycle, estimate=None, reward=None)
        workdir.write_rewards({"c00001-e000": 0.5}, cycle=2)
        with MetricsWriter(workdir.metrics_path, workdir.tensorboard_dir) as writer:
            for cycle in (1, 2):
                writer.write(cycle, {"play/win_rate": cycle / 4})
    with pytest.raises(WorkdirError, match="belongs to a run with another config"):
        Workdir.open(root / "run", to_dict(with_overrides(CONFIG, ["seed=4"])))
    with Workdir.open(root / "run", values) as workdir:
        workdir.discard_from(2)
        with MetricsWriter(workdir.metrics_path, workdir.tensorboard_dir, from_cycle=2) as writer:
            writer.write(3, {"play/win_rate": 1.0})
        rows = read_rows(workdir.metrics_path)
        workdir.write_summary({"play/win_rate": 1.0})
    assert [(row["cycle"], row["play/win_rate"]) for row in rows] == [(1, 0.25), (3, 1.0)]
    found = [name for name in names(root / "run") if not name.startswith(("tensorboard/", ".lock"))]
    stem = "environments/cycle_00001/c00001-e000_optimization"
    assert found == ["config.json", f"{stem}.json", f"{stem}.py", "metrics.jsonl", "summary.json"]
    assert (root / "run" / f"{stem}.py").read_text(encoding="utf-8") == SOURCE.code
    assert json.loads((root / "run" / f"{stem}.json").read_bytes())["reward"] is None
    assert len(list((root / "run/tensorboard").iterdir())) == 2


def test_an_archive(root):
    directory = str(root / "archive")
    parts = {"environments": [SOURCE], "trajectories": [], "rewards": {}, "sequences": []}
    with ArchiveWriter(directory) as writer:
        for cycle in (1, 2):
            writer.write(cycle, designs=[DESIGN], **parts)
    discard_from(directory, 2)
    archive = open_archive(directory)
    assert list(archive) == [1]
    assert archive[1].stream(archive[1].designs[0].stream).tokens.tobytes() == STREAM.tokens.tobytes()
    assert archive[1].environments == {SOURCE.environment_id: SOURCE}


def test_without_what_reaches_it_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StorageError, match=re.escape("gs://b/c needs the gcsfs package: pip install")):
        any_path("gs://b/c")
    any_path("b/c")
