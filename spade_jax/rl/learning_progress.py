"""How much better the agent became at one environment while it was played, cycle after cycle.

Both estimators are the change of the mean return over the window, positive where the agent improves. A
cycle without a good play says nothing; with fewer than two others there is no progress to speak of and
the answer is None, never 0.
"""

import statistics
from collections.abc import Sequence


def two_bucket(returns: Sequence[Sequence[float]]) -> float | None:
    """The mean of the late half's returns minus that of the early half's; an odd middle cycle is late.

    Source: arXiv 2608.19197, micro learning progress.

    Args:
      returns: good ones, cycle by cycle.
    """
    played = [cycle for cycle in returns if cycle]
    if len(played) < 2:
        return None
    middle = len(played) // 2
    early, late = (
        [value for cycle in half for value in cycle] for half in (played[:middle], played[middle:])
    )
    return statistics.fmean(late) - statistics.fmean(early)


def slope(returns: Sequence[Sequence[float]]) -> float | None:
    """The rise from the first to the last cycle of the line through the cycles' mean returns.

        b = sum_o n_o (o - O) (y_o - Y) / sum_o n_o (o - O)^2,    result = b (last o - first o)

    over the cycles o with n_o > 0 plays and mean return y_o; O and Y are the means over all plays, so
    that the line is the least-squares line through the single plays.

    Source: arXiv 2608.19197, micro learning progress by weighted least squares.

    Args:
      returns: good ones, cycle by cycle; an empty cycle leaves its gap in time.
    """
    played = [offset for offset, cycle in enumerate(returns) if cycle]
    if len(played) < 2:
        return None
    points = [(offset, value) for offset in played for value in returns[offset]]
    when = statistics.fmean(offset for offset, _ in points)
    covariance = sum((offset - when) * value for offset, value in points)
    variance = sum((offset - when) ** 2 for offset, _ in points)
    return covariance / variance * (played[-1] - played[0])
