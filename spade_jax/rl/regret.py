"""Returns, and the regret of an environment from episodes in both conditions.

Episodes of the two conditions share their instance seeds, so that the difference is taken on equal
instances; the reference implementation draws them independently, in different numbers, which adds the
spread between instances to its noise. `paired=False` is the estimate for such episodes. Nothing here is
floored or scaled: that is the designer reward's business.
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
    without_hint: Sequence[Trajectory], with_hint: Sequence[Trajectory], *, paired: bool = True
) -> RegretEstimate | None:
    """Regret of one environment: mean return with hint minus mean return without.

        paired:    mean_s [ R(with hint, s) - R(without hint, s) ] over instance seeds s,
                   error sqrt(v / n) from the sample variance v of the n differences
        unpaired:  mean_i R(with hint, i) - mean_j R(without hint, j) over episodes i and j,
                   error sqrt(v_i / n_i + v_j / n_j) from the sample variances of the two conditions

    Failed trajectories are left out; a truncated one is a good one whose return is 0. In the paired
    estimate R is the mean return over the good episodes on one instance seed, and s runs over the seeds
    that have some in both conditions, so that a seed lost in one condition does not tilt the comparison.
    Win rates are over all good episodes of their condition.

    Args:
      without_hint: episodes of one environment without the hint.
      with_hint: episodes of the same environment with it.
      paired: whether the two conditions played the same instance seeds.

    Returns:
      The estimate, or None where nothing can be compared, which is not a regret of 0: paired, no
      instance seed has a good episode in both conditions; unpaired, a condition has none at all.
      `standard_error` is NaN for a single pair, or for a single episode in a condition.

    Raises:
      ValueError: if the trajectories are of several environments or in the wrong condition.
    """
    _check(without_hint, with_hint)
    plain, hinted = _good_returns(without_hint), _good_returns(with_hint)
    seeds = sorted(plain.keys() & hinted.keys()) if paired else []
    if paired:
        without = [statistics.fmean(plain[seed]) for seed in seeds]
        with_it = [statistics.fmean(hinted[seed]) for seed in seeds]
        error = _standard_error([high - low for low, high in zip(without, with_it, strict=True)])
    else:
        without, with_it = _flat(plain), _flat(hinted)
        error = math.hypot(_standard_error(without), _standard_error(with_it))
    if not without or not with_it:
        return None
    return_without_hint, return_with_hint = statistics.fmean(without), statistics.fmean(with_it)
    return RegretEstimate(
        environment_id=without_hint[0].environment_id,
        return_without_hint=return_without_hint,
        return_with_hint=return_with_hint,
        win_rate=_win_rate(plain),
        win_rate_with_hint=_win_rate(hinted),
        regret=return_with_hint - return_without_hint,
        standard_error=error,
        num_pairs=len(seeds),
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


def _flat(returns: dict[int, list[float]]) -> list[float]:
    return [value for values in returns.values() for value in values]


def _win_rate(returns: dict[int, list[float]]) -> float:
    return statistics.fmean(value > 0 for value in _flat(returns))


def _standard_error(values: Sequence[float]) -> float:
    """Of their mean; NaN for fewer than two."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
