"""What the agent's return in each skill was so far: two moving means, one fast and one slow.

They follow the plays of all environments whose designs are rewarded, once a batch, and are the baseline
of the learning potential. A value like the environment memory: `updated` returns a new one.
"""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from spade_jax.config import RewardConfig
from spade_jax.types import PlayHistory


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningTrackers:
    """Moving means of the return without hint, by skill; a skill never played has none.

    Attributes:
      fast: follow the last batch closely.
      slow: follow less closely; the baseline.
    """

    fast: Mapping[str, float] = dataclasses.field(default_factory=dict)
    slow: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def updated(self, histories: Sequence[PlayHistory], config: RewardConfig) -> "LearningTrackers":
        """The trackers after one more batch: mean += rate * (r - mean) in each of its skills.

        r is the mean over all plays of the skill in the batch, and the first r of a skill is both of its
        means. A skill without a good play stays as it was.

        Source: arXiv 2608.19197, learning potential; a rate is the weight of the new value.
        """
        returns: dict[str, list[float]] = defaultdict(list)
        for history in histories:
            returns[history.skill] += [value for cycle in history.returns for value in cycle]
        means = {skill: statistics.fmean(values) for skill, values in returns.items() if values}
        return LearningTrackers(
            fast=_moved(self.fast, means, config.fast_rate), slow=_moved(self.slow, means, config.slow_rate)
        )

    def potential(self, skill: str, config: RewardConfig) -> float:
        """|fast - slow| / (2 (fast_rate - slow_rate)) of a skill that was played, to look at.

        Source: arXiv 2608.19197, learning potential.

        Raises:
          KeyError: for a skill never played.
        """
        return abs(self.fast[skill] - self.slow[skill]) / (2 * (config.fast_rate - config.slow_rate))

    def to_json(self) -> dict[str, Any]:
        """The trackers as JSON-ready builtins."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "LearningTrackers":
        """The inverse of `to_json`.

        Raises:
          msgspec.ValidationError: naming the field that does not fit.
        """
        return msgspec.convert(values, cls)


def _moved(old: Mapping[str, float], new: Mapping[str, float], rate: float) -> dict[str, float]:
    moved = {skill: old.get(skill, mean) for skill, mean in new.items()}
    return {**old, **{skill: mean + rate * (new[skill] - mean) for skill, mean in moved.items()}}
