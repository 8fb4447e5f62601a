"""Paths that may be local or gs://, and writing files so that what was there survives a crash.

A local path is a `pathlib.Path`, one in Google Cloud Storage an `etils.epath.Path` with the same methods.
"""

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
from etils import epath

from spade_jax.errors import StorageError, WorkdirError


def is_remote(path: str | os.PathLike[str]) -> bool:
    return os.fspath(path).startswith("gs://")


def any_path(path: str | os.PathLike[str]) -> Path:
    """The path object for a local path or a gs:// address.

    Raises:
      StorageError: what reaches gs:// is not installed.
    """
    if not is_remote(path):
        return Path(path)
    if importlib.util.find_spec("gcsfs") is None:
        raise StorageError(f"{os.fspath(path)} needs the gcsfs package: pip install 'spade_jax[gcs]'")
    return epath.Path(path)


def files_below(folder: Path) -> list[Path]:
    """All files in a folder and in those inside it, in the order of their names."""
    if not is_remote(folder):
        return sorted(path for path in folder.rglob("*") if path.is_file())
    files: list[Path] = []
    for path in sorted(folder.iterdir()):
        files += files_below(path) if path.is_dir() else [path]
    return files


def remove_folder(folder: Path) -> None:
    """Removes a folder and all in it."""
    if is_remote(folder):
        epath.Path(folder).rmtree()
    else:
        shutil.rmtree(folder)


@contextlib.contextmanager
def local_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder as one on this machine: itself, or a copy that goes with the end of the block.

    For what can only read local files. A remote folder is copied whole, so there has to be room for it
    where temporary files go.

    Raises:
      StorageError: see `any_path`.
    """
    if not is_remote(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as scratch:
        fsspec.filesystem("gs").get(f"{any_path(path)}/", f"{scratch}/", recursive=True)
        yield Path(scratch)


@contextlib.contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError` inside into a `WorkdirError` about `path`."""
    try:
        yield
    except OSError as error:
        raise WorkdirError(
            f"cannot write {error.filename or path}: {error.strerror or error}. Free space or give "
            f"access there, or choose another --workdir; the run resumes from its newest checkpoint"
        ) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file as a whole: after a crash it has the old content or the new one.

    Raises:
      WorkdirError: if it cannot be written; then the old content is still there.
    """
    if is_remote(path):  # An object is never half written.
        with explain_os_errors(path):
            path.write_bytes(content)
        return
    temporary = path.with_name(f"{path.name}.tmp")
    with explain_os_errors(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
