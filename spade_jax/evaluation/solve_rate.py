"""How many held-out instances the agent solves without hints."""

from collections.abc import Awaitable, Callable, Sequence

from spade_jax.evaluation.held_out import held_out_plans
from spade_jax.metrics import rate_with_interval
from spade_jax.rollout.episode import EpisodePlan
from spade_jax.types import EnvironmentSource, Trajectory
from spade_jax.warm_start.syllabus import GAMES, TOOL_USE

_UNSEEN = (*GAMES.held_out, *TOOL_USE.held_out)


async def evaluate(
    sources: Sequence[EnvironmentSource],
    *,
    episodes: int,
    play: Callable[[Sequence[EpisodePlan]], Awaitable[list[Trajectory]]],
) -> dict[str, float]:
    """Plays the held-out set with the weights that the engine holds.

    The 95 % interval is Wilson's over all episodes. The instances are the same each time, so that the
    chance in an episode is the sampling of its tokens; episodes of unlike instances vary less in sum
    than equal ones would, which makes the interval a cautious one.

    Args:
      sources: the held-out environments.
      episodes: instances of each.
      play: plays episodes with the policy to be measured.
    """
    trajectories = await play(held_out_plans(sources, episodes=episodes))
    unseen = {
        source.environment_id
        for source in sources
        if any(source.environment_id.endswith(f"-{name}") for name in _UNSEEN)
    }
    good = [trajectory for trajectory in trajectories if not trajectory.failure]
    groups = {
        "heldout": good,
        "heldout/harder": [item for item in good if item.environment_id not in unseen],
        "heldout/unseen": [item for item in good if item.environment_id in unseen],
    }
    metrics = {"heldout/num_failed": float(len(trajectories) - len(good))}
    for name, group in groups.items():
        if group:
            solved = sum(trajectory.episode_return > 0 for trajectory in group)
            metrics |= rate_with_interval(f"{name}/solve_rate", solved, len(group))
    return metrics
