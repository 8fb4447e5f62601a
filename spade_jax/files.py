"""Writing files so that what was there survives a crash, and a full disk is explained."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from spade_jax.errors import WorkdirError


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
