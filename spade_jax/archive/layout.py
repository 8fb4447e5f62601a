"""How a cycle's episodes lie in an archive: zarr 3 arrays that any reader of the format can open.

    process_00000_of_00001/cycle_00012/tokens/             int32 [N]: all streams, end to end
                                       loss_mask/          bool [N]
                                       behavior_logprobs/  float32 [N]
                                       table/              uint8: JSON text of a `Table`
                                       zarr.json           written last: without it there is no cycle

What there is much of is in arrays, which are read in parts: a file holds up to four million entries in
pieces of 65,536, each compressed and with a checksum of its own. Where the streams begin, whose they are
and what came of them is in the table.
"""

import dataclasses
import json
import os
import re
import urllib.parse
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tensorstore as ts

from spade_jax.files import is_remote
from spade_jax.types import Condition, EnvironmentSource, Role

DTYPES: dict[str, type] = {"tokens": np.int32, "loss_mask": np.bool_, "behavior_logprobs": np.float32}
GROUP = "zarr.json"

_PIECE = 1 << 16
_FILE = 1 << 22
_FOLDER = re.compile(r"process_(\d+)_of_(\d+)/cycle_(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeRow:
    """One episode.

    Attributes:
      rewards: of each answered turn.
      streams: indices of its streams.
      others: as in `spade_jax.types.Trajectory`.
    """

    environment_id: str
    condition: Condition
    instance_seed: int
    rewards: tuple[float, ...]
    episode_return: float
    terminated: bool
    truncated: bool
    failure: str
    streams: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignRow:
    """One reply of the designer.

    Attributes:
      rejected_by: the rung of the validation that rejected it, "" if none did.
      host_fault: the sandbox itself failed, so nothing is known about the design.
      stream: index of its stream.
    """

    environment_id: str
    skill: str
    rejected_by: str
    host_fault: bool
    stream: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceRow:
    """A `spade_jax.types.TrainingSequence`, with the index of its stream."""

    role: Role
    advantage: float
    weight: float
    stream: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamRow:
    """A `spade_jax.types.TokenStream` without its arrays, which hold `length` entries of it."""

    length: int
    temperature: float
    weights_version: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """What a cycle's streams belong to.

    Attributes:
      environments: all that were in play, with their hints.
      designs: written in this cycle.
      rewards: of the designs that were rewarded in this cycle, by environment id.
      sequences: what the update learned from, in the order in which it was packed. The stream of a design
        that waited for its reward is kept here once more.
      streams: in the order of the arrays.
    """

    environments: tuple[EnvironmentSource, ...]
    episodes: tuple[EpisodeRow, ...]
    designs: tuple[DesignRow, ...]
    rewards: dict[str, float]
    sequences: tuple[SequenceRow, ...]
    streams: tuple[StreamRow, ...]

    def to_array(self) -> np.ndarray:
        """uint8 [.], JSON in ASCII, as the texts in it may hold halves of surrogate pairs."""
        return np.frombuffer(json.dumps(msgspec.to_builtins(self)).encode(), np.uint8)

    @classmethod
    def from_array(cls, array: np.ndarray) -> "Table":
        """The inverse of `to_array`.

        Raises:
          ValueError: it is not JSON, or not a table.
        """
        return msgspec.convert(json.loads(array.tobytes()), cls)


def cycle_folder(root: Path, process_index: int, process_count: int, cycle: int) -> Path:
    return root / f"process_{process_index:05d}_of_{process_count:05d}" / f"cycle_{cycle:05d}"


def parse_folder(folder: Path) -> tuple[int, int, int] | None:
    """Process index, process count and cycle of a folder; None if it is something else."""
    match = _FOLDER.fullmatch(f"{folder.parent.name}/{folder.name}")
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def open_array(folder: Path, name: str, **options: Any) -> ts.Future:
    """Starts to open one of a cycle's arrays; takes the options of `tensorstore.open`."""
    store: Any
    if is_remote(folder):
        store = urllib.parse.quote(f"{folder / name}/", safe=":/")
    else:
        store = {"driver": "file", "path": f"{os.path.abspath(folder / name)}/"}
    return ts.open({"driver": "zarr3", "kvstore": store}, **options)


def create_array(folder: Path, name: str, array: np.ndarray) -> ts.Future:
    """Starts to make an array of a cycle, as long as `array` and still empty."""
    pieces = [
        {"name": "bytes", "configuration": {"endian": "little"}} if array.itemsize > 1 else {"name": "bytes"},
        {
            "name": "blosc",
            "configuration": {
                "cname": "zstd",
                "clevel": 5,
                "shuffle": "shuffle",
                "typesize": array.itemsize,
            },
        },
        {"name": "crc32c"},
    ]
    num_pieces = -(-array.size // _PIECE)
    file = {"name": "sharding_indexed", "configuration": {"chunk_shape": [_PIECE], "codecs": pieces}}
    schema = ts.Schema(
        dtype=array.dtype,
        shape=array.shape,
        chunk_layout=ts.ChunkLayout(write_chunk_shape=[min(_FILE, max(1, num_pieces) * _PIECE)]),
        codec=ts.CodecSpec({"driver": "zarr3", "codecs": [file]}),
    )
    return open_array(folder, name, create=True, delete_existing=True, schema=schema)
