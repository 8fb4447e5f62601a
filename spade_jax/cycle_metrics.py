"""What a cycle's designs and plays come to, as flat metrics; a mean over nothing is left out."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from spade_jax.types import Design, RegretEstimate, Trajectory


def design_metrics(
    designs: Sequence[Design],
    estimates: Mapping[str, RegretEstimate],
    rewards: Mapping[str, float],
    *,
    diversity: Callable[[Sequence[str]], float],
) -> dict[str, float]:
    """Counts by rung, and means over what is known.

    Args:
      designs: of this cycle; none in a cycle that asks for none.
      estimates: of the environments whose hints were tried in this cycle.
      rewards: of the designs that were rewarded in this cycle.
      diversity: of a set of programs.
    """
    metrics: dict[str, float] = {}
    if designs:
        metrics |= _validity(designs, diversity)
    if rewards:
        metrics["design/reward"] = float(np.mean(list(rewards.values())))
    if estimates:
        metrics |= _regret(list(estimates.values()))
    return metrics


def _validity(designs: Sequence[Design], diversity: Callable[[Sequence[str]], float]) -> dict[str, float]:
    accepted = [design.source for design in designs if design.source is not None]
    num_valid = sum(design.report.valid for design in designs)
    metrics = {
        "design/num_designs": float(len(designs)),
        "design/num_valid": float(num_valid),
        "design/valid_rate": num_valid / len(designs),
        "design/num_repaired": float(len(accepted) - num_valid),
        "design/num_host_faults": float(sum(design.report.host_fault for design in designs)),
    }
    rejected = Counter(design.report.rejected_by for design in designs if design.report.rejected_by)
    metrics |= {f"design/rejected/{rung}": float(count) for rung, count in rejected.items()}
    unhinted = Counter(design.hint_failure for design in designs if design.hint_failure)
    metrics |= {f"design/no_hint/{kind}": float(count) for kind, count in unhinted.items()}
    if accepted:
        metrics["design/distinct_rate"] = len({source.code for source in accepted}) / len(accepted)
        metrics["design/diversity"] = diversity([source.code for source in accepted])
    return metrics


def _regret(estimates: Sequence[RegretEstimate]) -> dict[str, float]:
    metrics = {"design/regret": float(np.mean([item.regret for item in estimates]))}
    spreads = [item.standard_error for item in estimates if not math.isnan(item.standard_error)]
    if spreads:
        metrics["design/regret_standard_error"] = float(np.mean(spreads))
    metrics["design/learnable_rate"] = float(np.mean([0.2 <= item.win_rate <= 0.8 for item in estimates]))
    return metrics


def play_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Win rates over good episodes in each condition, and failures by kind."""
    failed = Counter(trajectory.failure for trajectory in trajectories if trajectory.failure)
    metrics = {
        "play/num_episodes": float(len(trajectories)),
        "play/num_failed": float(failed.total()),
        **{f"play/failed/{kind}": float(count) for kind, count in failed.items()},
    }
    good = [trajectory for trajectory in trajectories if not trajectory.failure]
    for condition, name in (("without_hint", "play/win_rate"), ("with_hint", "play/win_rate_with_hint")):
        wins = [trajectory.episode_return > 0 for trajectory in good if trajectory.condition == condition]
        if wins:
            metrics[name] = float(np.mean(wins))
    if good:
        turns = [turn for trajectory in good for turn in trajectory.turns]
        metrics["play/num_turns"] = len(turns) / len(good)
        metrics["play/truncated_rate"] = float(np.mean([trajectory.truncated for trajectory in good]))
        if turns:
            metrics["play/malformed_rate"] = float(np.mean([turn.malformed for turn in turns]))
    return metrics
