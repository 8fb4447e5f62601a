"""The agent's advantage: an episode against the others of the same environment, or against its past.

    z_score:        (r_i - mean) / population standard deviation
    mean:           r_i - mean
    leave_one_out:  r_i - mean of the others
    ema:            r_i - baseline, a moving mean of the environment's earlier groups

Sources: z_score is that of Shao et al. 2024, "DeepSeekMath" (GRPO), and of arXiv 2608.19197; mean, of Liu
et al. 2025, "Understanding R1-Zero-Like Training"; leave_one_out, of Ahmadian et al. 2024, "Back to
Basics" (RLOO); ema, of arXiv 2608.19197, whose implementation forgets the baseline between cycles
(`baseline_decay` 1 keeps it at 0, which is the same).
"""

from collections.abc import Sequence

import numpy as np

from spade_jax.config import AgentConfig

# Returns are at most 1 in size. What differs by less than this differs by rounding, and dividing by a
# deviation that small would blow the rounding up to a full-sized advantage.
_SAME_RETURN = 1e-6


def group_advantages(
    returns: Sequence[float], config: AgentConfig, *, baseline: float = 0.0
) -> np.ndarray | None:
    """The advantages of one environment's good episodes without hint, by `config.advantage`.

    An equal group has nothing to learn from: all of its returns are the same, as a single one always is.
    Under `ema` they also have to be the same as the baseline; a group that agrees on another return than
    its past does teach.

    Args:
      returns: G numbers in [-1, 1]; failed episodes left out by the caller.
      config: of the agent.
      baseline: of the environment under `ema`; 0 for its first group.

    Returns:
      float32 [G]. An equal group gives None under `drop_equal_groups`, so that the caller drops and counts
      it instead of giving it weight in the mean, else zeros. A group without episodes gives None.

    Raises:
      ValueError: if a return is not finite.
    """
    values = np.asarray(returns, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"returns have to be finite numbers, got {values.tolist()}")
    if values.size == 0:
        return None
    compared = np.append(values, baseline) if config.advantage == "ema" else values
    if np.ptp(compared) < _SAME_RETURN:
        return None if config.drop_equal_groups else np.zeros(values.size, np.float32)
    match config.advantage:
        case "z_score":
            advantages = (values - values.mean()) / values.std()
        case "mean":
            advantages = values - values.mean()
        case "leave_one_out":
            advantages = values - (values.sum() - values) / (values.size - 1)
        case "ema":
            advantages = values - baseline
    return advantages.astype(np.float32)


def updated_baseline(baseline: float, returns: Sequence[float], config: AgentConfig) -> float:
    """The environment's baseline after a group: decay * baseline + (1 - decay) * mean return, from 0.

    To be called once a group, after its advantages were taken, so that no return is compared with itself.
    A group without episodes leaves the baseline as it was.

    Source: arXiv 2608.19197, ema baseline (decay 0.5).
    """
    if not returns:
        return baseline
    return config.baseline_decay * baseline + (1 - config.baseline_decay) * float(np.mean(returns))
