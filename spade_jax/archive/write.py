"""Writing an archive in the background: what a cycle did is on disk some time after the next has begun.

Promised: a cycle is in the archive whole or not at all, whenever the process is killed; what `wait` has
returned for is there. Errors of the background come out of the next call.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from spade_jax.archive.layout import (
    DTYPES,
    GROUP,
    DesignRow,
    EpisodeRow,
    SequenceRow,
    StreamRow,
    Table,
    create_array,
    cycle_folder,
    parse_folder,
)
from spade_jax.errors import ArchiveError, WorkdirError
from spade_jax.files import any_path, explain_os_errors, remove_folder, write_atomically
from spade_jax.types import Design, EnvironmentSource, TokenStream, TrainingSequence, Trajectory


class ArchiveWriter:
    """Adds one process's share of each cycle to an archive."""

    def __init__(self, directory: str | Path, *, process_index: int = 0, process_count: int = 1):
        """Starts a thread and touches nothing.

        Args:
          directory: of the archive, the same for all processes; made with the first cycle.
          process_index, process_count: whose share this is.
        """
        self._root = any_path(directory)
        self._process = process_index, process_count
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._writing: Future[None] | None = None

    def write(
        self,
        cycle: int,
        *,
        environments: Sequence[EnvironmentSource],
        designs: Sequence[Design],
        trajectories: Sequence[Trajectory],
        rewards: Mapping[str, float],
        sequences: Sequence[TrainingSequence],
    ) -> None:
        """Waits for the cycle before, then starts to write this one.

        Args:
          cycle: not in the archive yet; what a killed process left of it is written over.
          environments: all that were in play.
          designs, trajectories: of this cycle.
          rewards: settled in this cycle, by environment id.
          sequences: what the update learned from, in the order in which it was packed.

        Raises:
          ArchiveError: the cycle before could not be written.
        """
        self.wait()
        folder = cycle_folder(self._root, *self._process, cycle)
        self._writing = self._thread.submit(
            _write, folder, environments, designs, trajectories, rewards, sequences
        )

    def wait(self) -> None:
        """Blocks until all cycles so far are on disk.

        Raises:
          ArchiveError: one could not be written; those before it are intact.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Waits, then ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def discard_from(
    directory: str | Path, cycle: int, *, process_index: int = 0, process_count: int = 1
) -> None:
    """Removes `cycle` and later from an archive, which a resumed run makes again.

    Each process removes its share of the folders, those of processes that are no more included.

    Raises:
      WorkdirError: it cannot be removed.
    """
    for folder in any_path(directory).glob("process_*/cycle_*"):
        found = parse_folder(folder)
        if found and found[0] % process_count == process_index and found[2] >= cycle:
            with explain_os_errors(folder):
                # First what makes it a cycle, so that no half of one is ever read.
                (folder / GROUP).unlink(missing_ok=True)
                remove_folder(folder)


def _write(
    folder: Path,
    environments: Sequence[EnvironmentSource],
    designs: Sequence[Design],
    trajectories: Sequence[Trajectory],
    rewards: Mapping[str, float],
    sequences: Sequence[TrainingSequence],
) -> None:
    streams = _Streams()
    table = Table(
        environments=tuple(environments),
        episodes=tuple(
            EpisodeRow(
                environment_id=trajectory.environment_id,
                condition=trajectory.condition,
                instance_seed=trajectory.instance_seed,
                rewards=tuple(turn.reward for turn in trajectory.turns),
                episode_return=trajectory.episode_return,
                terminated=trajectory.terminated,
                truncated=trajectory.truncated,
                failure=trajectory.failure,
                streams=tuple(map(streams.add, trajectory.streams)),
            )
            for trajectory in trajectories
        ),
        designs=tuple(
            DesignRow(
                environment_id=design.context.environment_id,
                skill=design.context.skill,
                rejected_by=design.report.rejected_by,
                host_fault=design.report.host_fault,
                stream=streams.add(design.stream),
            )
            for design in designs
        ),
        rewards=dict(rewards),
        sequences=tuple(
            SequenceRow(
                role=sequence.role,
                advantage=sequence.advantage,
                weight=sequence.weight,
                stream=streams.add(sequence.stream),
            )
            for sequence in sequences
        ),
        streams=streams.rows(),
    )
    arrays = {name: streams.joined(name) for name in DTYPES} | {"table": table.to_array()}
    group = {"zarr_format": 3, "node_type": "group"}
    try:
        opening = {name: create_array(folder, name, array) for name, array in arrays.items()}
        writing = [opening[name].result().write(array) for name, array in arrays.items()]
        for each in writing:
            each.result()
        write_atomically(folder / GROUP, json.dumps(group).encode())
    except (OSError, ValueError, WorkdirError) as error:
        raise ArchiveError(
            f"the episodes in {folder} could not be written: {error}. Free space or give access there, then "
            f"run the same command again; archive.enabled=false goes without"
        ) from error


class _Streams:
    """The streams of a cycle, each once, however many rows name it."""

    def __init__(self) -> None:
        self._streams: list[TokenStream] = []
        self._indices: dict[int, int] = {}

    def add(self, stream: TokenStream) -> int:
        if id(stream) not in self._indices:
            self._indices[id(stream)] = len(self._streams)
            self._streams.append(stream)
        return self._indices[id(stream)]

    def rows(self) -> tuple[StreamRow, ...]:
        return tuple(
            StreamRow(
                length=len(stream.tokens),
                temperature=stream.temperature,
                weights_version=stream.weights_version,
            )
            for stream in self._streams
        )

    def joined(self, name: str) -> np.ndarray:
        dtype = DTYPES[name]
        arrays: list[np.ndarray] = [np.asarray(getattr(stream, name), dtype) for stream in self._streams]
        return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
