"""One checkpoint of everything that a run must remember, written asynchronously and atomically.

A checkpoint is the device state (parameters, optimizer, step) and the host state (memory, cursors,
pools: anything JSON), committed together by orbax under the number of the cycle: a process killed at
any moment leaves either the whole checkpoint or none of it.

Promised: what is restored is what was saved, bit for bit, onto any mesh of any number of processes,
all of which call the same methods at the same points and hold the same host state. Checksums of every
array and of the host state are part of the checkpoint; one that does not load or does not match is named
in a warning and the one before it is used. Not promised: that the newest saved cycle survives a damaged
disk, nor that a save has ended before `wait` or the next `save` returns.
"""

import contextlib
import hashlib
import json
import logging
import os
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from spade_jax.errors import CheckpointError
from spade_jax.files import any_path, is_remote, remove_folder
from spade_jax.training.processes import any_process, on_all_processes
from spade_jax.training.state import TrainState

_LOG = logging.getLogger(__name__)
_ITEMS = ("state", "host", "checksums")
_ORBAX = os.path.dirname(ocp.__file__)


class Restored(NamedTuple):
    """What a checkpoint held."""

    cycle: int
    state: TrainState
    host_state: dict[str, Any]


class Checkpointer:
    """The checkpoints of one run.

    Args:
      directory: local or gs://; made if it does not exist; one folder a checkpoint, named by cycle.
      keep: newest checkpoints that are kept; None only reads, and makes and changes nothing, as another
        process may be saving there.
      keep_every: those of cycles that are multiples of this stay for good; 0 keeps none of them.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int | None, keep_every: int = 0):
        directory = any_path(directory)
        self._directory = directory if is_remote(directory) else directory.absolute()
        self._read_only = keep is None
        self._saving: int | None = None
        options = (
            ocp.CheckpointManagerOptions(read_only=True, create=False, save_interval_steps=0)
            if self._read_only
            else ocp.CheckpointManagerOptions(
                max_to_keep=keep, keep_period=keep_every or None, cleanup_tmp_directories=True
            )
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(_orbax_quiet())
            with self._explained("opened"):
                self._manager = ocp.CheckpointManager(self._directory, item_names=_ITEMS, options=options)
            self._stack = stack.pop_all()

    def save(self, cycle: int, state: TrainState, host_state: dict[str, Any]) -> None:
        """Starts to save; returns when both states have been copied, so that both may change at once.

        Args:
          cycle: larger than that of any checkpoint so far.
          state: device state.
          host_state: JSON-able; comes back as JSON gives it back (tuples as lists, keys as strings).

        Raises:
          CheckpointError: this save could not be started, or the one before it failed.
        """
        self.wait()
        text = json.dumps(host_state)
        checksums = {"arrays": _array_checksums(state), "host": _text_checksum(text)}
        with self._explained(f"saved for cycle {cycle}"):
            self._manager.save(
                cycle,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    host=ocp.args.JsonSave(json.loads(text)),
                    checksums=ocp.args.JsonSave(checksums),
                ),
                force=True,
            )
        self._saving = cycle

    @property
    def is_empty(self) -> bool:
        """Whether there is no checkpoint at all, usable or not."""
        return not self._cycles()

    def restore_latest(self, abstract_state: TrainState) -> Restored | None:
        """The newest usable checkpoint, or None if there is no checkpoint at all.

        Newer ones that are not usable are renamed to `damaged-<cycle>`, so that those cycles can be
        saved again, unless the folder is only read. The caller must not hold another state: two do not
        always fit on a device.

        Args:
          abstract_state: shapes, dtypes and shardings (`spade_jax.training.state.abstract_state`).

        Raises:
          CheckpointError: there are checkpoints and none is usable; nothing has been renamed.
        """
        self.wait()
        damaged: dict[int, str] = {}
        for cycle in sorted(self._cycles(), reverse=True):
            try:
                restored = self._restore(cycle, abstract_state)
            # Whatever a damaged file makes the readers below raise, the checkpoint is not usable.
            except Exception as error:
                damaged[cycle] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                continue
            for bad, reason in damaged.items():
                kept_as = "it is" if self._read_only else self._set_aside(bad).name
                _LOG.warning(
                    "checkpoint of cycle %d is damaged (%s); kept as %s, and the one of cycle %d is used",
                    bad,
                    reason,
                    kept_as,
                    cycle,
                )
            return restored
        if damaged:
            reasons = "\n".join(f"  cycle {cycle}: {reason}" for cycle, reason in damaged.items())
            raise CheckpointError(
                f"none of the checkpoints in {self._directory} can be used:\n{reasons}\n"
                "Restore the folder from a copy, or move it away to start the run anew."
            )
        return None

    def wait(self) -> None:
        """Blocks until the save in progress, if any, is on disk.

        Raises:
          CheckpointError: it failed; earlier checkpoints are intact.
        """
        cycle, self._saving = self._saving, None
        with self._explained(f"saved for cycle {cycle}"):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then ends the background threads."""
        try:
            self.wait()
        finally:
            with self._stack:
                self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cycles(self) -> Sequence[int]:
        """Of all checkpoints, also those that another process has saved since this was opened."""
        if self._read_only:
            self._manager.reload()
        return self._manager.all_steps()

    def _restore(self, cycle: int, abstract_state: TrainState) -> Restored:
        def read_small() -> Any:
            args = ocp.args.Composite(host=ocp.args.JsonRestore(), checksums=ocp.args.JsonRestore())
            small = self._manager.restore(cycle, args=args)
            if _text_checksum(json.dumps(small.host)) != small.checksums["host"]:
                raise ValueError("the host state differs from what was saved")
            return small

        def read_state() -> TrainState:
            args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract_state))
            return self._manager.restore(cycle, args=args).state

        small = on_all_processes(read_small)
        state = on_all_processes(read_state)
        if _array_checksums(state) != small.checksums["arrays"]:
            raise ValueError("arrays differ from what was saved")
        return Restored(cycle, state, small.host)

    def _set_aside(self, cycle: int) -> Path:
        target = self._directory / f"damaged-{cycle}"
        if jax.process_index() == 0:
            if target.exists():
                remove_folder(target)
            (self._directory / str(cycle)).rename(target)
        any_process(False)  # The others wait for the first.
        self._manager.reload()
        return target

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"a checkpoint in {self._directory} could not be {what}: {error}. Earlier checkpoints are "
                "intact; check free space and permissions there, then run the same command again."
            ) from error


@jax.jit
def _word_sums(state: TrainState) -> list[jax.Array]:
    """The sum of each array's words modulo 2^32: the same however the array is sharded."""

    def word_sum(array: jax.Array) -> jax.Array:
        unsigned = jnp.dtype(f"uint{8 * array.dtype.itemsize}")
        return jnp.sum(jax.lax.bitcast_convert_type(array, unsigned), dtype=jnp.uint32)

    return [word_sum(array) for array in jax.tree.leaves(state)]


def _array_checksums(state: TrainState) -> list[int]:
    return [int(value) for value in jax.device_get(_word_sums(state))]


def _text_checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def _orbax_quiet() -> Iterator[None]:
    """Keeps orbax's chatter off the console: its failures come back as exceptions where they matter.

    It reports them too from threads of its own, at any time: in its log, as tasks that nobody awaited or
    ended, and as callbacks to event loops that it has closed.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    hook = sys.unraisablehook

    def is_news(record: logging.LogRecord) -> bool:
        _, _, trace = record.exc_info or (None, None, None)
        return not record.pathname.startswith(_ORBAX) and not _in_orbax(trace)

    def pass_on(unraisable: Any) -> None:
        late_callback = unraisable.object is None and str(unraisable.exc_value) == "Event loop is closed"
        if not late_callback and not _in_orbax(unraisable.exc_traceback):
            hook(unraisable)

    for logger in loggers:
        logger.addFilter(is_news)
    sys.unraisablehook = pass_on
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for logger in loggers:
            logger.removeFilter(is_news)


def _in_orbax(trace: types.TracebackType | None) -> bool:
    return any(frame.f_code.co_filename.startswith(_ORBAX) for frame, _ in traceback.walk_tb(trace))
