"""What an environment earns its designer, and the designer's advantage.

    PlayHistory -> designer_rewards -> designer_advantages [-> balance_factor]

Every kind of `RewardConfig.kind` reads the plays of the whole window, from the design's first cycle to
the last before its update. Two things come before all of them:

- The win rate is the success fraction (episodes without hint with a positive return), where the
  reference implementation takes the mean outcome. The mean confuses what a band is about: an
  environment that pays everyone 0.5 for partial progress, or wins 1 against losses -1 in three of four,
  lands on a mean that says nothing of how often the agent succeeds. For outcomes 0 and 1 they agree.
- A regret counts as 0 where no episode without hint ever succeeds. Otherwise an environment that hides
  a password, which nobody can guess and the hint gives away, would be the best of all.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from spade_jax.config import RewardConfig
from spade_jax.rl.learning_progress import slope, two_bucket
from spade_jax.rl.learning_trackers import LearningTrackers
from spade_jax.rl.win_rate_rewards import (
    frontier,
    frontier_penalty,
    learnability,
    plateau,
    solver_variance,
    target_band,
)
from spade_jax.types import PlayHistory


def designer_rewards(
    histories: Sequence[PlayHistory], config: RewardConfig, trackers: LearningTrackers
) -> tuple[dict[str, float], LearningTrackers]:
    """The reward of each environment of which something is known, not centred.

        blend:               plateau_weight * plateau + regret_weight * regret / regret_scale
                             + micro_lp_weight * progress / micro_lp_scale
                             - frontier_weight * (win rate - 1/2)^2 / frontier_scale,
                             with regret / regret_scale clipped to [0, 1] under `regret_floor`
        regret:              max(0, regret)
        regret_lower_bound:  max(0, regret - confidence * its standard error)
        micro_lp:            max(0, progress)
        learning_potential:  |mean return - slow mean of the skill|
        plateau, frontier, learnability, solver_variance, target_band: see spade_jax.rl.win_rate_rewards

    An environment that was silent past its time limit has `timeout_penalty` added, whatever the kind;
    where nothing else is known of it, the penalty is its reward. The others of which the kind's figure
    is not known are left out, never given a neutral number: without a good play, without an estimate of
    the regret, with too few plays or cycles. A term of the blend whose weight is 0 need not be known.

    With `mask_negative` a negative reward leaves its environment out as well, unless it timed out: to be
    left out is no worse than the average, and the penalty is there to be learnt from.

    Source: arXiv 2608.19197, deployed reward (blend, 0.6 plateau and 0.4 regret) and its alternatives.

    Args:
      histories: of one batch of designs, each environment once.
      config: kind and numbers.
      trackers: as of the last batch; this one's plays enter before the slow mean is read.

    Returns:
      Rewards by environment_id, and the trackers after this batch.
    """
    trackers = trackers.updated(histories, config)
    rewards = {}
    for history in histories:
        reward = _reward(history, config, trackers)
        if history.timed_out:
            rewards[history.environment_id] = config.timeout_penalty + (0.0 if reward is None else reward)
        elif reward is not None and not (config.mask_negative and reward < 0):
            rewards[history.environment_id] = reward
    return rewards, trackers


def designer_advantages(rewards: Sequence[float], skills: Sequence[str]) -> list[float]:
    """Each reward minus the mean of its skill: skills differ in difficulty, designs are compared within one.

    Not divided by a standard deviation: with two or three designs a skill it would turn every small
    difference into a full-sized advantage. A design alone in its skill gets 0.

    Args:
      rewards: of the designs of one cycle.
      skills: the skill of each, as long as `rewards`.
    """
    by_skill = defaultdict(list)
    for reward, skill in zip(rewards, skills, strict=True):
        by_skill[skill].append(reward)
    baselines = {skill: statistics.fmean(members) for skill, members in by_skill.items()}
    return [reward - baselines[skill] for reward, skill in zip(rewards, skills, strict=True)]


def balance_factor(num_designer: int, num_agent: int, *, interval: int, cap: float) -> float:
    """By how much designer advantages grow where both roles share one mean over sequences.

        min(cap, num_agent / num_designer * interval)

    The agent has more sequences in each update and `interval` times as many updates. 1 where either
    role has no sequence. Where each role has a mean of its own there is nothing to balance.

    Source: arXiv 2608.19197, scale of the designer's advantage (cap 50).

    Args:
      num_designer: sequences of the designer in this update.
      num_agent: sequences of the agent in it.
      interval: cycles from one set of designs to the next.
      cap: the largest factor.
    """
    if not num_designer or not num_agent:
        return 1.0
    return min(cap, num_agent / num_designer * interval)


def _reward(history: PlayHistory, config: RewardConfig, trackers: LearningTrackers) -> float | None:
    """The figure of one environment before penalty and mask, None where it is not known."""
    plays = _plays(history)
    if not plays:
        return None
    win_rate = _win_rate(plays, config)
    match config.kind:
        case "blend":
            return _blend(history, config)
        case "regret":
            regret = _regret(history, config)
            return None if regret is None else max(0.0, regret)
        case "regret_lower_bound":
            return _regret_lower_bound(history, config)
        case "micro_lp":
            progress = _progress(history, config)
            return None if progress is None else max(0.0, progress)
        case "learning_potential":
            return abs(statistics.fmean(plays) - trackers.slow[history.skill])
        case "plateau":
            return _plateau(win_rate, config)
        case "frontier":
            return frontier(win_rate)
        case "learnability":
            return learnability(win_rate, num_plays=len(plays))
        case "solver_variance":
            return solver_variance(plays)
        case "target_band":
            return target_band(win_rate, target=config.target, width=config.target_width)


def _blend(history: PlayHistory, config: RewardConfig) -> float | None:
    win_rate = _win_rate(_plays(history), config)
    regret, progress = _regret(history, config), _progress(history, config)
    if regret is not None:
        regret /= config.regret_scale
        if config.regret_floor:
            regret = min(1.0, max(0.0, regret))
    if progress is not None:
        progress /= config.micro_lp_scale
    terms = (
        (config.plateau_weight, _plateau(win_rate, config)),
        (config.regret_weight, regret),
        (config.micro_lp_weight, progress),
        (-config.frontier_weight, frontier_penalty(win_rate) / config.frontier_scale),
    )
    total = 0.0
    for weight, value in terms:
        if weight == 0:
            continue
        if value is None:
            return None
        total += weight * value
    return total


def _regret(history: PlayHistory, config: RewardConfig) -> float | None:
    """Not floored; 0 under the password guard, None without an estimate."""
    if history.estimate is None:
        return None
    plays = _plays(history)
    if config.password_guard and not any(value > 0 for value in plays):
        return 0.0
    if config.regret_plays == "first":
        return history.estimate.regret
    return history.estimate.return_with_hint - statistics.fmean(plays)


def _regret_lower_bound(history: PlayHistory, config: RewardConfig) -> float | None:
    """None without an estimate or, for a single pair, without its error."""
    regret = _regret(history, config)
    if regret is None or history.estimate is None or math.isnan(history.estimate.standard_error):
        return None
    return max(0.0, regret - config.confidence * history.estimate.standard_error)


def _progress(history: PlayHistory, config: RewardConfig) -> float | None:
    estimator = {"slope": slope, "two_bucket": two_bucket}[config.micro_lp]
    return estimator(history.returns)


def _plateau(win_rate: float, config: RewardConfig) -> float:
    return plateau(win_rate, low=config.plateau_low, high=config.plateau_high, ramp=config.plateau_ramp)


def _win_rate(plays: Sequence[float], config: RewardConfig) -> float:
    if config.win_rate == "success":
        return statistics.fmean(value > 0 for value in plays)
    return statistics.fmean(plays)


def _plays(history: PlayHistory) -> list[float]:
    return [value for cycle in history.returns for value in cycle]
