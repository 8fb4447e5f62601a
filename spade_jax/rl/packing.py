"""From training sequences of unlike length to fixed rows: TrainingSequence -> PackedBatch.

Sequences share rows, as few as first-fit decreasing needs, and the data shards of a microbatch get rows
that cost about the same, so that none waits long for another. Inside a row each sequence is a segment
(1, 2, ...; 0 is padding) with positions that restart at 0, so that a model which attends within segments
computes the same for a packed sequence as for the sequence alone. The loss weights of all tokens are
fixed here, over the whole batch, so that the update only ever sums: any split into microbatches gives the
same gradient. Host numpy throughout; arrays go to the device in the updater.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import get_args

import numpy as np

from spade_jax.config import Aggregation
from spade_jax.types import Role, TrainingSequence

ROLES: tuple[Role, ...] = get_args(Role)
EQUAL_ROLES: Mapping[Role, float] = MappingProxyType(dict.fromkeys(ROLES, 1.0))
BY_SEQUENCE: Mapping[Role, Aggregation] = MappingProxyType(dict.fromkeys(ROLES, "sequence"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """Fixed-size rows that hold many sequences; entry t of every array describes `tokens[:, t]`.

    Attributes:
      tokens: int32 [B, T].
      positions: int32 [B, T]; index of the token in its own sequence.
      segment_ids: int32 [B, T]; 1, 2, ... within a row, 0 for padding.
      role_ids: int32 [B, T]; index into ROLES, 0 for padding.
      loss_mask: bool [B, T]; whether the prediction of this token from those before it is trained.
      behavior_logprobs: float32 [B, T]; 0 where loss_mask is False.
      advantages: float32 [B, T]; 0 where loss_mask is False.
      weights: float32 [B, T]; sum of `weights * loss` over all tokens is the loss of the batch.
      temperatures: float32 [B, T]; 1 where loss_mask is False.
    """

    tokens: np.ndarray
    positions: np.ndarray
    segment_ids: np.ndarray
    role_ids: np.ndarray
    loss_mask: np.ndarray
    behavior_logprobs: np.ndarray
    advantages: np.ndarray
    weights: np.ndarray
    temperatures: np.ndarray

    @property
    def num_rows(self) -> int:
        return self.tokens.shape[0]

    @property
    def fill_rate(self) -> float:
        """Share of the positions that hold a token; 0 for a batch without rows."""
        return float(np.mean(self.segment_ids > 0)) if self.num_rows else 0.0


def pack(
    sequences: Sequence[TrainingSequence],
    *,
    row_length: int,
    rows_multiple: int,
    pad_id: int,
    role_weights: Mapping[Role, float] | None = EQUAL_ROLES,
    aggregation: Mapping[Role, Aggregation] = BY_SEQUENCE,
    num_shards: int = 1,
) -> PackedBatch:
    """Packs sequences into rows of `row_length` tokens, first-fit decreasing, ties in input order.

    With several shards the same number of rows is filled and ordered so that the shards' costs are alike.

    The weights aggregate the per-token losses l of a role, with n_s trained tokens in sequence s:

        sequence:  sum_s w_s / W * mean_{t in s} l_{s,t},    W = sum_s w_s over the s with n_s > 0
        sample:    the same with W over all s of the role
        token:     sum_{s,t} l_{s,t} / sum_s n_s
        constant:  sum_{s,t} l_{s,t} / (W * row_length),     W as for `sequence`

    and the batch's loss is sum_r role_weights[r] * (that of role r). Without role weights the roles are
    pooled: W and the number of tokens are those of both roles together.

    An episode in several sequences counts as one where each has for its w_s the share of the episode's
    trained tokens that it holds: then w_s * mean_{t in s} l is the sum over s, divided by the number of
    trained tokens of the whole episode.

    A sequence without trained tokens or weight is not packed; that of `sample` is counted.

    Sources: `sequence` is that of Shao et al. 2024, "DeepSeekMath" (GRPO); `sample` that of the reference
    implementation of arXiv 2608.19197, where episodes that are masked make the others count less; `token`
    of Yu et al. 2025, "DAPO" (arXiv 2503.14476); `constant` of Liu et al. 2025, "Understanding
    R1-Zero-Like Training" (Dr.GRPO, arXiv 2503.20783), so that no token counts less in a longer sequence.

    Args:
      sequences: what to pack; none gives a batch without rows.
      row_length: T.
      rows_multiple: rows of a microbatch; empty rows are added up to a multiple of this many.
      pad_id: token id of padding.
      role_weights: weight of each role in the loss, None to pool the roles.
      aggregation: of each role.
      num_shards: equal parts, one after the other, that the rows of a microbatch are split into.

    Raises:
      ValueError: a sequence is longer than a row or empty, its arrays differ in length, its first token,
        which nothing predicts, is trained, or rows_multiple is not a multiple of num_shards.
    """
    for index, sequence in enumerate(sequences):
        _check(index, sequence, row_length)
    if rows_multiple % num_shards:
        raise ValueError(f"rows_multiple={rows_multiple} is not a multiple of num_shards={num_shards}")
    shares = _token_weights(sequences, role_weights, aggregation, row_length)
    packed = [
        index
        for index, sequence in enumerate(sequences)
        if sequence.weight and sequence.stream.loss_mask.any()
    ]
    rows = _rows(
        [len(sequences[index].stream.tokens) for index in packed],
        row_length,
        rows_multiple=rows_multiple,
        num_shards=num_shards,
    )
    num_rows = len(rows)

    def full(fill: float, dtype: type) -> np.ndarray:
        return np.full((num_rows, row_length), fill, dtype)

    batch = PackedBatch(
        tokens=full(pad_id, np.int32),
        positions=full(0, np.int32),
        segment_ids=full(0, np.int32),
        role_ids=full(0, np.int32),
        loss_mask=full(False, np.bool_),
        behavior_logprobs=full(0, np.float32),
        advantages=full(0, np.float32),
        weights=full(0, np.float32),
        temperatures=full(1, np.float32),
    )
    for row, members in enumerate(rows):
        start = 0
        for segment, index in enumerate((packed[member] for member in members), start=1):
            sequence, stream = sequences[index], sequences[index].stream
            mask = stream.loss_mask
            at = np.s_[row, start : start + len(stream.tokens)]
            batch.tokens[at] = stream.tokens
            batch.positions[at] = np.arange(len(stream.tokens))
            batch.segment_ids[at] = segment
            batch.role_ids[at] = ROLES.index(sequence.role)
            batch.loss_mask[at] = mask
            batch.behavior_logprobs[at] = np.where(mask, stream.behavior_logprobs, 0)
            batch.advantages[at] = np.where(mask, sequence.advantage, 0)
            batch.weights[at] = np.where(mask, shares[index], 0)
            batch.temperatures[at] = np.where(mask, stream.temperature, 1)
            start += len(stream.tokens)
    return batch


def _check(index: int, sequence: TrainingSequence, row_length: int) -> None:
    stream = sequence.stream
    name = f"sequence {index} ({sequence.role})"
    length = len(stream.tokens)
    if not 0 < length <= row_length:
        raise ValueError(
            f"{name} has {length} tokens and a row holds 1 to {row_length}; raise update.row_length or "
            "shorten the sequence where it is made"
        )
    if not length == len(stream.loss_mask) == len(stream.behavior_logprobs):
        raise ValueError(
            f"{name} has {length} tokens, {len(stream.loss_mask)} loss_mask entries and "
            f"{len(stream.behavior_logprobs)} behavior_logprobs; all three must be equally long"
        )
    if stream.loss_mask[0]:
        raise ValueError(f"{name} trains its first token, which nothing predicts; clear loss_mask[0]")


def _token_weights(
    sequences: Sequence[TrainingSequence],
    role_weights: Mapping[Role, float] | None,
    aggregation: Mapping[Role, Aggregation],
    row_length: int,
) -> list[float]:
    """The weight of one trained token of each sequence; 0 for a sequence without trained tokens."""
    num_trained = [
        int(np.count_nonzero(sequence.stream.loss_mask)) if sequence.weight else 0 for sequence in sequences
    ]
    totals, num_tokens = dict.fromkeys(ROLES, 0.0), dict.fromkeys(ROLES, 0)
    for sequence, count in zip(sequences, num_trained, strict=True):
        counts = count or aggregation[sequence.role] == "sample"
        totals[sequence.role] += sequence.weight if counts else 0.0
        num_tokens[sequence.role] += count
    if role_weights is None:
        totals = dict.fromkeys(ROLES, sum(totals.values()))
        num_tokens = dict.fromkeys(ROLES, sum(num_tokens.values()))
        role_weights = EQUAL_ROLES

    def weight(sequence: TrainingSequence, count: int) -> float:
        role = sequence.role
        match aggregation[role]:
            case "sequence" | "sample":
                return role_weights[role] * sequence.weight / (totals[role] * count)
            case "token":
                return role_weights[role] / num_tokens[role]
            case "constant":
                return role_weights[role] / (totals[role] * row_length)

    return [
        weight(sequence, count) if count else 0.0
        for sequence, count in zip(sequences, num_trained, strict=True)
    ]


def _rows(lengths: Sequence[int], row_length: int, *, rows_multiple: int, num_shards: int) -> list[list[int]]:
    """The indices in each row: as few rows as first-fit decreasing needs, up to a multiple.

    With several shards the rows of a microbatch, which wait for each other, should cost about the same.
    What differs between rows is the attention, which costs the square of each sequence's length. First-fit
    decreasing puts the long sequences together; where all find room they are also spread over all rows, and
    what waits less is taken. On one shard nothing waits.
    """
    rows = _first_fit_decreasing(lengths, row_length)
    rows += [[] for _ in range(-len(rows) % rows_multiple)]
    if num_shards == 1:
        return rows
    spread = _spread(lengths, row_length, num_rows=len(rows))
    dealt = [
        _dealt(candidate, lengths, rows_multiple=rows_multiple, num_shards=num_shards)
        for candidate in ([rows] if spread is None else [rows, spread])
    ]
    return min(dealt, key=lambda pair: pair[1])[0]


def _first_fit_decreasing(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """The indices in each row: longest first, each into the first row with room for it."""
    rows: list[list[int]] = []
    room = np.zeros(len(lengths), np.int64)
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        fits = room[: len(rows)] >= lengths[index]
        row = int(fits.argmax()) if fits.any() else len(rows)
        if row == len(rows):
            rows.append([])
            room[row] = row_length
        rows[row].append(index)
        room[row] -= lengths[index]
    return rows


def _spread(lengths: Sequence[int], row_length: int, *, num_rows: int) -> list[list[int]] | None:
    """The indices in each row: longest first, each into the row of least attention that has room for it.

    None where a sequence finds no room.
    """
    rows: list[list[int]] = [[] for _ in range(num_rows)]
    room, costs = np.full(num_rows, row_length), np.zeros(num_rows)
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = int(np.where(room >= lengths[index], costs, np.inf).argmin())
        if room[row] < lengths[index]:
            return None
        rows[row].append(index)
        room[row] -= lengths[index]
        costs[row] += lengths[index] ** 2
    return rows


def _dealt(
    rows: list[list[int]], lengths: Sequence[int], *, rows_multiple: int, num_shards: int
) -> tuple[list[list[int]], int]:
    """The rows in an order in which the shards of each microbatch cost about the same, and their cost.

    Rows of similar cost come into one microbatch; there the costliest row that is left goes to the
    shard that has the least so far. A microbatch costs what its costliest shard does.
    """
    costs = [sum(lengths[index] ** 2 for index in row) for row in rows]
    costliest_first = sorted(range(len(rows)), key=lambda row: -costs[row])

    def cost(shard: list[int]) -> int:
        return sum(costs[row] for row in shard)

    dealt: list[list[int]] = []
    total = 0
    for start in range(0, len(rows), rows_multiple):
        shards: list[list[int]] = [[] for _ in range(num_shards)]
        for row in costliest_first[start : start + rows_multiple]:
            min((shard for shard in shards if len(shard) < rows_multiple // num_shards), key=cost).append(row)
        dealt += [rows[row] for shard in shards for row in shard]
        total += max(map(cost, shards))
    return dealt, total
