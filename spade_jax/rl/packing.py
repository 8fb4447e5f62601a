"""From training sequences of unlike length to fixed rows: TrainingSequence -> PackedBatch.

Sequences share rows, first-fit decreasing. Inside a row each sequence is a segment (1, 2, ...; 0 is
padding) with positions that restart at 0, so that a model which attends within segments computes the
same for a packed sequence as for the sequence alone. The loss weights of all tokens are fixed here,
over the whole batch, so that the update only ever sums: any split into microbatches gives the same
gradient. Host numpy throughout; arrays go to the device in the updater.

Not promised: rows are filled by count of tokens, not balanced by cost of attention.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import get_args

import numpy as np

from spade_jax.types import Role, TrainingSequence

ROLES: tuple[Role, ...] = get_args(Role)
EQUAL_ROLES: Mapping[Role, float] = MappingProxyType(dict.fromkeys(ROLES, 1.0))


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
) -> PackedBatch:
    """Packs sequences into rows of `row_length` tokens, first-fit decreasing, ties in input order.

    The weights aggregate per-token losses l into a mean over tokens, then a mean over the sequences
    of a role, then a weighted sum over roles:

        loss = sum_r role_weights[r] * sum_{s in r} w_s / W_r * mean_{t in s} l_{s,t},
        W_r = sum_{s in r} w_s

    with s over the sequences that have a trained token; the others have no share and are packed
    without one. Without role weights the roles are pooled in one mean over all sequences:

        loss = sum_s w_s / W * mean_{t in s} l_{s,t},    W = sum_s w_s

    An episode in several sequences counts as one where each has for its w_s the share of the episode's
    trained tokens that it holds: then w_s * mean_{t in s} l is the sum over s, divided by the number of
    trained tokens of the whole episode.

    Args:
      sequences: what to pack; none gives a batch without rows.
      row_length: T.
      rows_multiple: empty rows are added up to a multiple of this many.
      pad_id: token id of padding.
      role_weights: weight of each role in the loss, None to pool the roles.

    Raises:
      ValueError: a sequence is longer than a row or empty, its arrays differ in length, or its first
        token, which nothing predicts, is trained.
    """
    for index, sequence in enumerate(sequences):
        _check(index, sequence, row_length)
    shares = _token_weights(sequences, role_weights)
    rows = _first_fit_decreasing([len(sequence.stream.tokens) for sequence in sequences], row_length)
    num_rows = -(-len(rows) // rows_multiple) * rows_multiple

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
        for segment, index in enumerate(members, start=1):
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
    sequences: Sequence[TrainingSequence], role_weights: Mapping[Role, float] | None
) -> list[float]:
    """The weight of one trained token of each sequence; 0 for a sequence without trained tokens."""
    num_trained = [int(np.count_nonzero(sequence.stream.loss_mask)) for sequence in sequences]
    totals = dict.fromkeys(ROLES, 0.0)
    for sequence, count in zip(sequences, num_trained, strict=True):
        totals[sequence.role] += sequence.weight if count else 0.0
    if role_weights is None:
        totals, role_weights = dict.fromkeys(ROLES, sum(totals.values())), EQUAL_ROLES
    return [
        role_weights[sequence.role] * sequence.weight / (totals[sequence.role] * count)
        if count and sequence.weight
        else 0.0
        for sequence, count in zip(sequences, num_trained, strict=True)
    ]


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
