"""How full packed rows are, and how long data shards wait for each other, on realistic lengths.

    python benchmarks/packing.py

Designs have 1,000 to 8,000 tokens, turns 50 to 500. In one mix an episode is one sequence of all of its
turns, in the other each turn is a sequence of its own, as where a chat template strips earlier thinking.
A microbatch is one row a shard. `filled` is the share of the positions that hold a token, in rows that hold
any and with the empty rows that complete the last microbatch; `busy` the share of the time of attention in
which a shard works, where each microbatch takes as long as its slowest shard: with rows as first-fit
decreasing leaves them, and balanced.
"""

import time

import numpy as np

from spade_jax.rl.packing import PackedBatch, pack
from spade_jax.types import Role, TokenStream, TrainingSequence

NUM_DESIGNS, NUM_EPISODES, MAX_TURNS = 24, 192, 25
ROW_LENGTHS = (8192, 16384, 32768)
SHARDS = (4, 8, 16)


def main() -> None:
    columns = ("mix", "row length", "sequences", "rows", "filled", "with empty rows", "shards", "busy")
    print("| " + " | ".join((*columns, "balanced", "seconds")) + " |")
    print("|---" * (len(columns) + 2) + "|")
    for name, whole_episodes in {"whole episodes": True, "single turns": False}.items():
        for row_length in ROW_LENGTHS:
            sequences = mix(row_length, whole_episodes=whole_episodes, seed=0)
            for num_shards in SHARDS:
                print(line(name, sequences, row_length=row_length, num_shards=num_shards))


def line(name: str, sequences: list[TrainingSequence], *, row_length: int, num_shards: int) -> str:
    start = time.perf_counter()
    in_order, balanced = (
        pack(
            sequences,
            row_length=row_length,
            rows_multiple=num_shards,
            pad_id=0,
            num_shards=shards,
        )
        for shards in (1, num_shards)
    )
    seconds = (time.perf_counter() - start) / 2
    used = int((in_order.segment_ids > 0).any(axis=1).sum())
    filled = in_order.fill_rate * in_order.num_rows / used
    shares = [busy_share(batch, num_shards) for batch in (in_order, balanced)]
    return (
        f"| {name} | {row_length} | {len(sequences)} | {used} | {filled:.3f} | {in_order.fill_rate:.3f} | "
        f"{num_shards} | {shares[0]:.2f} | {shares[1]:.2f} | {seconds:.2f} |"
    )


def mix(row_length: int, *, whole_episodes: bool, seed: int) -> list[TrainingSequence]:
    """One cycle's sequences; an episode that is longer than a row ends there."""
    rng = np.random.default_rng(seed)
    designs = [sequence("designer", length) for length in rng.integers(1000, 8001, NUM_DESIGNS)]
    episodes = [rng.integers(50, 501, rng.integers(1, MAX_TURNS + 1)) for _ in range(NUM_EPISODES)]
    if whole_episodes:
        return designs + [sequence("agent", min(sum(turns), row_length)) for turns in episodes]
    return designs + [sequence("agent", length) for turns in episodes for length in turns]


def sequence(role: Role, length: int) -> TrainingSequence:
    return TrainingSequence(
        role=role,
        stream=TokenStream(
            tokens=np.ones(length, np.int32),
            loss_mask=np.arange(length) >= length // 2,
            behavior_logprobs=np.zeros(length, np.float32),
            temperature=1.0,
        ),
        advantage=1.0,
    )


def busy_share(batch: PackedBatch, num_shards: int) -> float:
    """Mean over maximum of the shards' costs of attention, summed over microbatches."""
    costs = np.array([sum(np.bincount(row)[1:] ** 2) for row in batch.segment_ids])
    by_microbatch = costs.reshape(-1, num_shards)
    return float(by_microbatch.mean(axis=1).sum() / by_microbatch.max(axis=1).sum())


if __name__ == "__main__":
    main()
