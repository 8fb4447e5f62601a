"""Reading an archive: nothing is read before it is asked for, and of a stream only the pieces it lies in.

archive = open_archive("runs/first/archive")
for episode in archive[12].episodes:
    print(episode.environment_id, episode.episode_return, archive[12].stream(episode.streams[0]).tokens)
batch = pack(archive[12].training_sequences(), ...)   # what cycle 12 learned from
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorstore as ts

from spade_jax.archive.layout import (
    DTYPES,
    GROUP,
    DesignRow,
    EpisodeRow,
    StreamRow,
    Table,
    cycle_folder,
    open_array,
    parse_folder,
)
from spade_jax.errors import ArchiveError
from spade_jax.files import any_path
from spade_jax.types import EnvironmentSource, TokenStream, TrainingSequence


class Archive(Mapping[int, "ArchivedCycle"]):
    """The finished cycles of an archive, by number: those that every process has written its share of."""

    def __init__(self, cycles: Mapping[int, "ArchivedCycle"]):
        self._cycles = cycles

    def __getitem__(self, cycle: int) -> "ArchivedCycle":
        return self._cycles[cycle]

    def __iter__(self) -> Iterator[int]:
        return iter(self._cycles)

    def __len__(self) -> int:
        return len(self._cycles)


def open_archive(directory: str | Path) -> Archive:
    """The cycles that are in an archive now; their content is read when it is used.

    Args:
      directory: `archive/` of a workdir, local or gs://.

    Raises:
      ArchiveError: there is no archive.
    """
    root = any_path(directory)
    if not root.exists():
        raise ArchiveError(f"no archive in {root}; give the archive/ folder of a run's workdir")
    shares: dict[tuple[int, int], int] = {}
    for path in root.glob(f"process_*/cycle_*/{GROUP}"):
        found = parse_folder(path.parent)
        if found is not None:
            _, process_count, cycle = found
            shares[cycle, process_count] = shares.get((cycle, process_count), 0) + 1
    return Archive(
        {
            cycle: ArchivedCycle(
                [_Share(cycle_folder(root, index, process_count, cycle)) for index in range(process_count)]
            )
            for (cycle, process_count), num_found in sorted(shares.items())
            if num_found == process_count
        }
    )


class ArchivedCycle:
    """One cycle, of all processes in their order; `ArchiveError` from any of it says what is damaged."""

    def __init__(self, shares: Sequence["_Share"]):
        self._shares = shares

    @functools.cached_property
    def environments(self) -> dict[str, EnvironmentSource]:
        """All that were in play, by id."""
        return {
            source.environment_id: source for share in self._shares for source in share.table.environments
        }

    @functools.cached_property
    def episodes(self) -> list[EpisodeRow]:
        return [
            dataclasses.replace(row, streams=tuple(start + index for index in row.streams))
            for start, share in zip(self._starts, self._shares, strict=True)
            for row in share.table.episodes
        ]

    @functools.cached_property
    def designs(self) -> list[DesignRow]:
        """Those that were written in this cycle."""
        return [
            dataclasses.replace(row, stream=start + row.stream)
            for start, share in zip(self._starts, self._shares, strict=True)
            for row in share.table.designs
        ]

    @functools.cached_property
    def rewards(self) -> dict[str, float]:
        """Of the designs that were rewarded in this cycle, by environment id."""
        return {name: reward for share in self._shares for name, reward in share.table.rewards.items()}

    @functools.cached_property
    def streams(self) -> list[StreamRow]:
        """What is known of each stream without its arrays."""
        return [row for share in self._shares for row in share.table.streams]

    def stream(self, index: int) -> TokenStream:
        """One stream, as it was sampled.

        Args:
          index: as the rows of episodes and designs name it.
        """
        if not 0 <= index < len(self.streams):
            raise IndexError(f"stream {index} of a cycle with {len(self.streams)}")
        for start, share in zip(self._starts, self._shares, strict=True):
            if index - start < len(share.table.streams):
                return share.read(slice(index - start, index - start + 1))[0]
        raise AssertionError("the shares hold all streams")

    def training_sequences(self) -> list[TrainingSequence]:
        """What the update of the cycle learned from, equal to the last bit and in the same order."""
        sequences: list[TrainingSequence] = []
        for share in self._shares:
            streams = share.read(slice(None))
            sequences += [
                TrainingSequence(
                    role=row.role, stream=streams[row.stream], advantage=row.advantage, weight=row.weight
                )
                for row in share.table.sequences
            ]
        return sequences

    @functools.cached_property
    def _starts(self) -> list[int]:
        """The index of each share's first stream."""
        lengths = [len(share.table.streams) for share in self._shares]
        return [sum(lengths[:index]) for index in range(len(lengths))]


class _Share:
    """One process's share of a cycle."""

    def __init__(self, folder: Path):
        self._folder = folder

    @functools.cached_property
    def table(self) -> Table:
        try:
            return Table.from_array(open_array(self._folder, "table", read=True).result().read().result())
        except ValueError as error:
            raise self._damaged(error) from error

    def read(self, which: slice) -> list[TokenStream]:
        """Some neighbouring streams, in one read of each array."""
        rows = self.table.streams[which]
        ends = self._ends[which]
        if not rows:
            return []
        begin, end = ends[0] - rows[0].length, ends[-1]
        try:
            reading = {name: array[begin:end].read() for name, array in self._arrays.items()}
            read = {name: np.asarray(each.result()) for name, each in reading.items()}
        except ValueError as error:
            raise self._damaged(error) from error
        streams = []
        for row, stop in zip(rows, ends, strict=True):
            at = slice(stop - row.length - begin, stop - begin)
            streams.append(
                TokenStream(
                    tokens=read["tokens"][at],
                    loss_mask=read["loss_mask"][at],
                    behavior_logprobs=read["behavior_logprobs"][at],
                    temperature=row.temperature,
                    weights_version=row.weights_version,
                )
            )
        return streams

    @functools.cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(row.length for row in self.table.streams))

    @functools.cached_property
    def _arrays(self) -> dict[str, ts.TensorStore]:
        opening = {name: open_array(self._folder, name, read=True) for name in DTYPES}
        try:
            return {name: each.result() for name, each in opening.items()}
        except ValueError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: ValueError) -> ArchiveError:
        return ArchiveError(
            f"the episodes in {self._folder} cannot be read: {error}. Bring the folder back from a copy, or "
            f"remove it to do without"
        )
