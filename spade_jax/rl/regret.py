"""Returns, and the regret of an environment from episodes in both conditions.

Episodes of the two conditions share their instance seeds, so that the difference is taken on equal
instances; the reference implementation draws them independently, which adds the spread between
instances to its noise. Nothing here is floored or scaled: that is the designer reward's business.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from spade_jax.types import RegretEstimate, Trajectory


def episode_return(rewards: Sequence[float], terminated: bool) -> float:
    """The outcome of one episode: its last reward, if the environment ended it.

    An episode that was truncated is worth 0 whatever it was paid on the way.

    Args:
      rewards: of the steps in order; may be empty.
      terminated: whether the environment said that the episode is over.

    Returns:
      A number in [-1, 1].

    Raises:
      ValueError: if the last reward is not finite; the sandbox boundary has to reject those.
    """
    if not rewards or not terminated:
        return 0.0
    if not math.isfinite(rewards[-1]):
        raise ValueError(f"the last reward is {rewards[-1]}; a finite number is needed")
    return max(-1.0, min(1.0, float(rewards[-1])))


def estimate_regret(
    without_hint: Sequence[Trajectory], with_hint: Sequence[Trajectory]
) -> RegretEstimate | None:
    """Regret of one environment: mean_s [ R(with hint, s) - R(without hint, s) ] over seeds s.

    Failed trajectories are left out. R is the mean return over the good episodes on one instance
    seed, and s runs over the seeds that have some in both conditions, so that a seed lost in one
    condition does not tilt the comparison. Win rates are over all good episodes of their condition.

    Args:
      without_hint: episodes of one environment without the hint.
      with_hint: episodes of the same environment with it.

    Returns:
      The estimate, or None where no instance seed has a good episode in both conditions: then
      nothing is known, which is not a regret of 0. `standard_error` is NaN for a single pair.

    Raises:
      ValueError: if the trajectories are of several environments or in the wrong condition.
    """
    _check(without_hint, with_hint)
    returns_without = _good_returns(without_hint)
    returns_with = _good_returns(with_hint)
    shared = sorted(returns_without.keys() & returns_with.keys())
    if not shared:
        return None
    means_without = [statistics.fmean(returns_without[seed]) for seed in shared]
    means_with = [statistics.fmean(returns_with[seed]) for seed in shared]
    differences = [hinted - plain for plain, hinted in zip(means_without, means_with, strict=True)]
    spread = statistics.stdev(differences) if len(shared) > 1 else math.nan
    return RegretEstimate(
        environment_id=without_hint[0].environment_id,
        return_without_hint=statistics.fmean(means_without),
        return_with_hint=statistics.fmean(means_with),
        win_rate=_win_rate(returns_without),
        win_rate_with_hint=_win_rate(returns_with),
        regret=statistics.fmean(differences),
        standard_error=spread / math.sqrt(len(shared)),
        num_pairs=len(shared),
    )


def _check(without_hint: Sequence[Trajectory], with_hint: Sequence[Trajectory]) -> None:
    for trajectories, condition in ((without_hint, "without_hint"), (with_hint, "with_hint")):
        strays = {trajectory.condition for trajectory in trajectories} - {condition}
        if strays:
            raise ValueError(f"got a trajectory {strays.pop()} among those {condition}")
    environment_ids = {trajectory.environment_id for trajectory in (*without_hint, *with_hint)}
    if len(environment_ids) > 1:
        raise ValueError(f"regret is of one environment, got trajectories of {sorted(environment_ids)}")


def _good_returns(trajectories: Sequence[Trajectory]) -> dict[int, list[float]]:
    returns = defaultdict(list)
    for trajectory in trajectories:
        if not trajectory.failure:
            returns[trajectory.instance_seed].append(trajectory.episode_return)
    return returns


def _win_rate(returns: dict[int, list[float]]) -> float:
    return statistics.fmean(value > 0 for values in returns.values() for value in values)
