"""Flat metrics and where they are written.

A metric is a name such as `design/reward` and a number; a row is the metrics of one cycle. What is
not known in a cycle is missing from its row, never 0. Writers keep one rule on resume: the run starts
again at the cycle of its checkpoint, so whatever was written for that cycle or a later one goes.
"""

import io
import json
import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tensorboardX.event_file_writer import EventsWriter  # type: ignore[import-untyped]
from tensorboardX.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

from spade_jax.errors import WorkdirError
from spade_jax.files import explain_os_errors, is_remote, write_atomically

_Z_95 = statistics.NormalDist().inv_cdf(0.975)


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % score interval of a success fraction (Wilson 1927); (0, 1) without trials.

    Raises:
      ValueError: unless 0 <= successes <= trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"got {successes} successes in {trials} trials")
    if trials == 0:
        return 0.0, 1.0
    fraction, z2 = successes / trials, _Z_95**2 / trials
    center = fraction + z2 / 2
    spread = _Z_95 * math.sqrt(fraction * (1 - fraction) / trials + z2 / (4 * trials))
    low, high = (center - spread) / (1 + z2), (center + spread) / (1 + z2)
    # The bounds of 0 and of all successes are exact; rounding must not push the interval off them.
    return (low if successes else 0.0), (high if successes < trials else 1.0)


def rate_with_interval(name: str, successes: int, trials: int) -> dict[str, float]:
    """A success fraction as `name`, and its Wilson 95 % interval as `name_low` and `name_high`.

    Raises:
      ValueError: unless 0 <= successes <= trials, and trials > 0.
    """
    if not trials:
        raise ValueError(f"{name}: no trials, so that there is no rate")
    low, high = wilson_interval(successes, trials)
    return {name: successes / trials, f"{name}_low": low, f"{name}_high": high}


def means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over the rows that have it; one that no row has is left out."""
    values = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            values[name].append(value)
    return {name: statistics.fmean(each) for name, each in values.items()}


def summarise(rows: Sequence[Mapping[str, float]], *, num_cycles: int = 10) -> dict[str, float]:
    """What a run came to, from all of its rows.

    `heldout/*` metrics are those of the last evaluation, and under `*_start` those of the first (for
    bounds, `heldout/solve_rate_start_low`); `design/*` and `play/*` are means over the last
    `num_cycles` rows that have any, and under `*_start` over the first; `sandbox/*` are the lowest, and
    `seconds/*` are sums.

    Args:
      rows: as `read_rows` returns them.
    """
    evaluations = _section(rows, "heldout/")
    summary: dict[str, float] = {}
    if evaluations:
        summary |= evaluations[-1]
        summary |= {_start(name): value for name, value in evaluations[0].items()}
    for prefix in ("design/", "play/"):
        section = _section(rows, prefix)
        summary |= means(section[-num_cycles:])
        summary |= {_start(name): value for name, value in means(section[:num_cycles]).items()}
    for row in _section(rows, "sandbox/"):
        for name, value in row.items():
            summary[name] = min(summary.get(name, value), value)
    for row in _section(rows, "seconds/"):
        for name, value in row.items():
            summary[name] = summary.get(name, 0.0) + value
    return summary


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics file, without what was not a number; a torn last line is left out.

    Raises:
      WorkdirError: if another line is not a row.
    """
    return [{name: value for name, value in row.items() if value is not None} for row, _ in _parse(path)]


class MetricsWriter:
    """Writes each row to a JSON-lines file and to TensorBoard events.

    Both are on disk, as far as this process can see to it, when `write` returns.
    """

    def __init__(self, jsonl_path: Path, tensorboard_dir: Path, *, from_cycle: int = 0):
        """Opens both for the rows from `from_cycle` on.

        Args:
          jsonl_path: one object a line; lines of `from_cycle` and later and a torn last one are cut.
          tensorboard_dir: event files; readers are told to forget `from_cycle` and later.

        Raises:
          WorkdirError: if they cannot be written, or the file has a line that is not a row.
        """
        self._jsonl = _JsonLines(jsonl_path, from_cycle=from_cycle)
        self._events = _Events(tensorboard_dir, from_cycle=from_cycle)
        self._last_cycle = from_cycle

    def write(self, cycle: int, metrics: Mapping[str, float]) -> None:
        """Adds one row.

        Args:
          cycle: not below that of the row before; the step in TensorBoard.
          metrics: numbers that are not finite become null, and no point in TensorBoard.

        Raises:
          WorkdirError: if the disk does not take it.
        """
        if cycle < self._last_cycle:
            raise ValueError(f"cycle {cycle} after cycle {self._last_cycle}: rows have to be in order")
        self._last_cycle = cycle
        values = {name: float(value) for name, value in metrics.items()}
        self._jsonl.write(cycle, values)
        self._events.write(cycle, values)

    def close(self) -> None:
        self._jsonl.close()
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _JsonLines:
    """A file that grows by a line; in a storage that cannot append, one that is written anew each time."""

    def __init__(self, path: Path, *, from_cycle: int):
        self._path = path
        kept = [line for row, line in _parse(path) if row["cycle"] < from_cycle] if path.exists() else []
        write_atomically(path, b"".join(kept))
        with explain_os_errors(path):
            self._file = io.BytesIO(b"".join(kept)) if is_remote(path) else path.open("rb+")
            self._file.seek(0, os.SEEK_END)

    def write(self, cycle: int, values: Mapping[str, float]) -> None:
        row = {"cycle": cycle} | {
            name: value if math.isfinite(value) else None for name, value in values.items()
        }
        with explain_os_errors(self._path):
            self._file.write(json.dumps(row).encode() + b"\n")
            self._file.flush()
            if isinstance(self._file, io.BytesIO):
                self._path.write_bytes(self._file.getvalue())

    def close(self) -> None:
        with explain_os_errors(self._path):
            self._file.close()


class _Events:
    """One event file, written in this thread.

    `tensorboardX.SummaryWriter` writes in a thread behind a bounded queue: its `flush` does not wait
    for the queue, and on a full disk the thread dies and the run blocks on the queue.
    """

    def __init__(self, folder: Path, *, from_cycle: int):
        self._folder = folder
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # The suffix keeps a run that restarts within a second from writing over its last file.
            self._writer = EventsWriter(str(folder / "events"), filename_suffix=f".{from_cycle:06d}")
            self._add(step=from_cycle, session_log=SessionLog(status=SessionLog.START))

    def write(self, cycle: int, values: Mapping[str, float]) -> None:
        points = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
            if math.isfinite(value)
        ]
        with explain_os_errors(self._folder):
            self._add(step=cycle, summary=Summary(value=points))

    def close(self) -> None:
        with explain_os_errors(self._folder):
            self._writer.close()

    def _add(self, **fields: Any) -> None:
        self._writer.write_event(Event(wall_time=time.time(), **fields))
        self._writer.flush()


def _parse(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """Rows with their lines; the last line is left out if it is torn."""
    with explain_os_errors(path):
        lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("cycle"), int):
            raise WorkdirError(
                f"line {number} of {path} is not a row of metrics; remove the line, or choose another "
                f"--workdir"
            )
        rows.append((row, line))
    return rows


def _section(rows: Sequence[Mapping[str, float]], prefix: str) -> list[dict[str, float]]:
    sections = [{name: value for name, value in row.items() if name.startswith(prefix)} for row in rows]
    return [section for section in sections if section]


def _start(name: str) -> str:
    for bound in ("_low", "_high"):
        if name.endswith(bound):
            return f"{name.removesuffix(bound)}_start{bound}"
    return f"{name}_start"
