"""The agent's advantage: an episode against the others of the same environment."""

from collections.abc import Sequence

import numpy as np

# Returns are at most 1 in size. What differs by less than this differs by rounding, and dividing by a
# deviation that small would blow the rounding up to a full-sized advantage.
_SAME_RETURN = 1e-6


def group_advantages(returns: Sequence[float]) -> np.ndarray | None:
    """(r - mean) / population standard deviation over one environment's good episodes without hint.

    Args:
      returns: G numbers in [-1, 1]; failed episodes left out by the caller.

    Returns:
      float32 [G], or None for a group with nothing to learn from (empty, or all returns the same): the
      caller drops and counts it instead of giving it weight in the mean.

    Raises:
      ValueError: if a return is not finite.
    """
    values = np.asarray(returns, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"returns have to be finite numbers, got {values.tolist()}")
    if values.size == 0 or np.ptp(values) < _SAME_RETURN:
        return None
    return ((values - values.mean()) / values.std()).astype(np.float32)
