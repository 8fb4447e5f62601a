"""One warm start and one uninterrupted run for all tests here, whichever worker needs them first."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.train.command import arguments, run


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of this test session that all workers see."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tiny_run"
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def reference(shared_dir: pathlib.Path) -> pathlib.Path:
    """The workdir of a run that nothing disturbed; not to be written to."""
    workdir = shared_dir / "run"
    with locked(shared_dir / "lock"):
        if not (workdir / "summary.json").exists():
            run(arguments(workdir, shared_dir / "cache"), hash_seed="1")
    return workdir


@pytest.fixture
def cache_dir(reference: pathlib.Path) -> pathlib.Path:
    """Holds the finished warm start of the tiny config."""
    return reference.parent / "cache"
