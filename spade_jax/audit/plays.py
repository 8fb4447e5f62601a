"""What a run's policy makes of environments: solve rates in both conditions, regret, cost of a play."""

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import scipy.special

from spade_jax.cycle import Machinery, Plays, group_plays
from spade_jax.errors import CheckpointError
from spade_jax.metrics import rate_with_interval
from spade_jax.reporting import Reporter
from spade_jax.rl.regret import estimate_regret
from spade_jax.rollout.collect import plan_episodes
from spade_jax.train import build, start
from spade_jax.training.checkpoint import Checkpointer
from spade_jax.training.state import abstract_state
from spade_jax.types import EnvironmentSource, Trajectory
from spade_jax.user_cache import user_cache_dir
from spade_jax.workdir import read_config

# From which instances and sampled tokens derive: an environment's figures depend on nothing else in its set.
SEED = 20260819


async def load_policy(workdir: Path, stack: contextlib.AsyncExitStack, reporter: Reporter) -> Machinery:
    """A run's machinery with the weights of its newest usable checkpoint; the run may be going on.

    Args:
      stack: closes what has to be closed.

    Raises:
      SpadeError: of the boundary that was crossed; there may be no run, or no checkpoint yet.
    """
    config = read_config(workdir)
    jax.config.update("jax_compilation_cache_dir", str(user_cache_dir() / "xla"))
    checkpoints = workdir / "checkpoints"
    # Before the checkpointer, which reaches for the devices.
    sandbox, mesh = await start(config, stack, say=reporter.say)
    no_checkpoint = CheckpointError(f"no checkpoint in {checkpoints}; wait for the run's first one")
    with Checkpointer(checkpoints, keep=None) as checkpointer:
        # Asked first: a run that is still in its warm start would have it done here too.
        if checkpointer.is_empty:
            raise no_checkpoint
        machinery, _ = await build(config, stack, sandbox=sandbox, mesh=mesh, track=reporter.track)
        restored = checkpointer.restore_latest(
            abstract_state(machinery.architecture, machinery.updater.optimizer, machinery.mesh)
        )
    if restored is None:
        raise no_checkpoint
    reporter.say(f"policy of {workdir} before cycle {restored.cycle}")
    machinery.engine.load_weights(restored.state.params, version=restored.cycle)
    machinery.engine.warm_up()
    return machinery


async def play_environments(
    machinery: Machinery,
    sources: Sequence[EnvironmentSource],
    *,
    num_episodes: int,
    advance: Callable[[], None],
) -> dict[str, dict[str, float | None]]:
    """Figures of each environment by its id, from `num_episodes` plays in each condition.

    Both conditions play the same instances; without a hint there is one condition.

    Args:
      sources: with ids that are unique among them.
      advance: called as each episode ends.
    """
    config = dataclasses.replace(machinery.config.agent, episodes=num_episodes, hint_episodes=0, paired=True)
    plans = [
        plan
        for source in sources
        for plan in plan_episodes(
            [source], hinted={source.environment_id}, config=config, run_seed=SEED, cycle=0
        )
    ]
    started = time.monotonic()
    trajectories = await machinery.play(plans, advance=advance)
    seconds = time.monotonic() - started
    num_tokens = sum(map(_num_tokens, trajectories))
    return {
        environment_id: _figures(plays, seconds_per_token=seconds / max(1, num_tokens))
        for environment_id, plays in group_plays(sources, trajectories).items()
    }


def regret_interval(regret: float, standard_error: float, num_pairs: int) -> tuple[float, float] | None:
    """Student's 95 % interval of a mean of paired differences.

    None for fewer than two pairs, and where all differences are the same, which says nothing of their
    spread.
    """
    if num_pairs < 2 or not standard_error:
        return None
    half = scipy.special.stdtrit(num_pairs - 1, 0.975) * standard_error
    return regret - half, regret + half


def _figures(plays: Plays, *, seconds_per_token: float) -> dict[str, float | None]:
    trajectories = [*plays.without_hint, *plays.with_hint]
    without_hint, with_hint, good = map(_good, (plays.without_hint, plays.with_hint, trajectories))
    figures: dict[str, float | None] = {
        "num_episodes": len(trajectories),
        "num_failed": len(trajectories) - len(good),
        "num_without_room": sum(not _num_tokens(one) for one in good),
    }
    for name, group in (("solve_rate", without_hint), ("solve_rate_with_hint", with_hint)):
        if group:
            figures |= rate_with_interval(name, sum(one.episode_return > 0 for one in group), len(group))
    estimate = estimate_regret(plays.without_hint, plays.with_hint)
    if estimate is not None:
        error = estimate.standard_error
        figures |= {
            "regret": estimate.regret,
            "regret_standard_error": None if math.isnan(error) else error,
            "num_pairs": estimate.num_pairs,
        }
        interval = regret_interval(estimate.regret, error, estimate.num_pairs)
        if interval is not None:
            figures |= {"regret_low": interval[0], "regret_high": interval[1]}
    if good:
        num_tokens = statistics.fmean(map(_num_tokens, good))
        figures |= {
            "truncated": statistics.fmean(one.truncated for one in good),
            "turns": statistics.fmean(len(one.turns) for one in good),
            "tokens": num_tokens,
            "tokens_sampled": statistics.fmean(map(_num_sampled, good)),
            "seconds_episode": num_tokens * seconds_per_token,
        }
    return figures


def _good(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    return [trajectory for trajectory in trajectories if not trajectory.failure]


def _num_tokens(trajectory: Trajectory) -> int:
    return sum(len(stream.tokens) for stream in trajectory.streams)


def _num_sampled(trajectory: Trajectory) -> int:
    return sum(int(stream.loss_mask.sum()) for stream in trajectory.streams)
