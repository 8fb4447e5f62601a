"""Rewards of a designer that look at how often the agent wins, and at nothing else.

Each is a pure function of one win rate, or of the plays it comes from, highest for an environment that
is neither solved nor hopeless. Which win rate that is (success fraction or mean outcome) and over which
plays is up to spade_jax.rl.designer_reward. A mean outcome can be negative: such an environment is taken
for too hard.
"""

import math
import statistics
from collections.abc import Sequence


def plateau(win_rate: float, *, low: float, high: float, ramp: float) -> float:
    """1 for a win rate in [low, high], falling linearly to 0 at a distance of `ramp` outside.

    Source: arXiv 2608.19197, deployed reward.
    """
    distance = max(low - win_rate, win_rate - high, 0.0)
    return max(0.0, 1.0 - distance / ramp)


def frontier_penalty(win_rate: float) -> float:
    """(w - 1/2)^2: 0 at a win rate of 1/2, 1/4 for what is always or never won.

    Source: arXiv 2608.19197, the blend's frontier term.
    """
    return (win_rate - 0.5) ** 2


def frontier(win_rate: float) -> float:
    """max(0, 1 - (w - 1/2)^2 / (1/4)): the frontier penalty as a reward, 1 at a win rate of 1/2.

    For a win rate in [0, 1] this is 4 w (1 - w), with 0 at both ends.
    """
    return max(0.0, 1.0 - frontier_penalty(win_rate) / 0.25)


def target_band(win_rate: float, *, target: float, width: float) -> float:
    """1 at the target, falling linearly to 0 at a distance of `width`; 0 unless 0 < w < 1.

    What is always or never won is worth nothing, however near the target lies.

    Source: "EvoEnv", arXiv 2605.14392, whose target is 0.3.
    """
    if not 0 < win_rate < 1:
        return 0.0
    return max(0.0, 1.0 - abs(win_rate - target) / width)


def learnability(win_rate: float, *, num_plays: int) -> float | None:
    """4 n / (n - 1) w (1 - w), from 0 to 1 + 1 / (n - 1): n plays' unbiased estimate of 4 p (1 - p).

    The plain w (1 - w) is too small by (n - 1) / n in expectation, so that more plays would pay. The 4
    is ours: it makes p = 1/2 worth 1, as in the other rewards. Unbiased for the success fraction; below
    a mean outcome of 0 it is 0.

    Source: Rutherford et al. 2024, "No Regrets: Investigating and Improving Regret Approximations for
    Curriculum Discovery" (sampling for learnability).

    Returns:
      The estimate, None for a single play, of which nothing can be said.
    """
    if num_plays < 2:
        return None
    return max(0.0, 4.0 * num_plays / (num_plays - 1) * win_rate * (1.0 - win_rate))


def solver_variance(returns: Sequence[float]) -> float | None:
    """exp(-(v - 1/4)^2 / 0.02) with the population variance v of the returns: 1 for a fair coin's.

    Source: "SPICE", arXiv 2510.24684; arXiv 2608.19197, the variance bonus.

    Returns:
      The reward, None for fewer than two returns.
    """
    if len(returns) < 2:
        return None
    return math.exp(-((statistics.pvariance(returns) - 0.25) ** 2) / 0.02)
