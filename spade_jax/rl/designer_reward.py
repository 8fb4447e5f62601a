"""What an environment earns its designer, and the designer's advantage.

The plateau is fed with the success fraction (episodes without hint with a positive return), where
the reference implementation takes the mean outcome. The mean confuses what the band is about: an
environment that pays everyone 0.5 for partial progress, or wins 1 against losses -1 in three of four,
lands on a mean that says nothing of how often the agent succeeds. For outcomes 0 and 1 they agree.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from spade_jax.config import DesignerConfig
from spade_jax.types import RegretEstimate


def plateau(win_rate: float, *, low: float, high: float, ramp: float) -> float:
    """1 for a win rate in [low, high], falling linearly to 0 at a distance of `ramp` outside.

    Source: arXiv 2608.19197, deployed reward.
    """
    distance = max(low - win_rate, win_rate - high, 0.0)
    return max(0.0, 1.0 - distance / ramp)


def designer_reward(estimate: RegretEstimate, config: DesignerConfig) -> float:
    """The reward of one environment that was played in both conditions.

        regret:   max(0, regret)
        plateau:  plateau(win rate)
        blend:    plateau_weight * plateau(win rate) + regret_weight * clip(regret / regret_scale, 0, 1)

    Source: arXiv 2608.19197, deployed reward (blend, 0.6 and 0.4) and equation of the regret.
    """
    in_band = plateau(
        estimate.win_rate,
        low=config.plateau_low,
        high=config.plateau_high,
        ramp=config.plateau_ramp,
    )
    match config.reward:
        case "regret":
            return max(0.0, estimate.regret)
        case "plateau":
            return in_band
        case "blend":
            regret_term = min(1.0, max(0.0, estimate.regret / config.regret_scale))
            return config.plateau_weight * in_band + config.regret_weight * regret_term


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
