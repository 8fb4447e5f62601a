"""How hard the next environments should be: a controller on the agent's win rate.

RLVE (arXiv 2511.07317) raises an environment's level once its success rate passes a bound, SCALER
(arXiv 2601.04809) moves a level by the success rate's distance from a target. A designer takes no
level, it takes a word, so this controller has three settings. It keeps no state of its own: the
memory is its state, and what was asked for shows in the win rates of what was made.
"""

import statistics
from typing import Literal

from spade_jax.memory.environment_memory import AIM_HIGH, AIM_LOW, EnvironmentMemory

_NUM_RECORDS = 8


def difficulty_for(memory: EnvironmentMemory, skill: str) -> Literal["easy", "medium", "hard"]:
    """What to ask a designer for, from the mean win rate of the skill's newest records, 8 at most.

    Above `AIM_HIGH` it is hard, below `AIM_LOW` easy, else, and without records, medium.
    """
    win_rates = [record.win_rate for record in memory.records if record.source.skill == skill]
    if not win_rates:
        return "medium"
    win_rate = statistics.fmean(win_rates[-_NUM_RECORDS:])
    if win_rate > AIM_HIGH:
        return "hard"
    if win_rate < AIM_LOW:
        return "easy"
    return "medium"
