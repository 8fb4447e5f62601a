"""Which past environments are played again: Prioritized Level Replay (Jiang et al. 2021).

The score is the regret, as in robust PLR (Jiang et al. 2021, "Replay-Guided Adversarial Environment
Design"). Ranks, not sizes, of the scores count, so that the scale of the regret does not matter.
"""

import math
import random
from collections.abc import Sequence

from spade_jax.config import MemoryConfig
from spade_jax.types import MemoryRecord


def replay_probabilities(records: Sequence[MemoryRecord], *, cycle: int, config: MemoryConfig) -> list[float]:
    """P_i = (1 - w) * h_i / sum_j h_j + w * s_i / sum_j s_j of each record to be drawn first.

    h_i = rank_i^(-1 / temperature), rank 1 for the highest regret and of equal ones for the newest;
    s_i = cycle - last_played, the staleness; w is `staleness_weight`. Where nothing is stale, the score
    decides alone.

    Args:
      records: oldest first.
      cycle: the present one.

    Raises:
      ValueError: for a record that was last played after `cycle`.
    """
    for record in records:
        if record.last_played > cycle:
            raise ValueError(
                f"{record.source.environment_id} was last played in cycle {record.last_played}, after the "
                f"present cycle {cycle}; give the cycle that is about to be played"
            )
    best_first = sorted(range(len(records)), key=lambda index: (records[index].regret, index), reverse=True)
    scores = [0.0] * len(records)
    for rank, index in enumerate(best_first, 1):
        scores[index] = rank ** (-1 / config.rank_temperature)
    staleness = [cycle - record.last_played for record in records]
    weight = config.staleness_weight if any(staleness) else 0.0
    score_sum, staleness_sum = sum(scores), max(1, sum(staleness))
    return [
        (1 - weight) * score / score_sum + weight * stale / staleness_sum
        for score, stale in zip(scores, staleness, strict=True)
    ]


def draw_without_replacement(probabilities: Sequence[float], num: int, rng: random.Random) -> list[int]:
    """At most `num` distinct indices, each drawn in proportion to its probability among those left.

    As the first arrivals of exponential clocks with these rates (Efraimidis and Spirakis 2006), which
    takes one number of `rng` for each index. What has probability 0 comes last.
    """
    clocks = [rng.expovariate(1.0) for _ in probabilities]
    arrivals = [
        clock / probability if probability > 0 else math.inf
        for clock, probability in zip(clocks, probabilities, strict=True)
    ]
    return sorted(range(len(arrivals)), key=arrivals.__getitem__)[:num]
