"""Plays many episodes side by side through one engine and one sandbox."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from spade_jax.config import AgentConfig
from spade_jax.rollout.episode import EpisodePlan, play_episode
from spade_jax.sampling.engine import Engine, Session
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_seed
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.types import EnvironmentSource, Trajectory


def plan_pairs(
    sources: Sequence[EnvironmentSource], *, episodes: int, run_seed: int, cycle: int
) -> list[EpisodePlan]:
    """Both conditions of every environment on the same instance seeds, `episodes` times each."""
    return [
        EpisodePlan(
            source=source,
            condition=condition,
            instance_seed=derive_seed(run_seed, "instance", cycle, index, play),
            sampling_seed=derive_seed(run_seed, condition, cycle, index, play),
        )
        for index, source in enumerate(sources)
        for condition in ("without_hint", "with_hint")
        for play in range(episodes)
    ]


async def play_all(
    plans: Sequence[EpisodePlan],
    *,
    engine: Engine,
    sandbox: SandboxPool,
    tokenizer: Tokenizer,
    config: AgentConfig,
    max_context: int,
    advance: Callable[[], None],
) -> list[Trajectory]:
    """One trajectory for each plan, in the order of the plans.

    Args:
      advance: called as each episode ends.
    """

    async def play(plan: EpisodePlan, session: Session) -> Trajectory:
        with session:
            trajectory = await play_episode(
                plan,
                session,
                sandbox=sandbox,
                tokenizer=tokenizer,
                config=config,
                max_context=max_context,
            )
        advance()
        return trajectory

    trajectories: list[Trajectory] = []
    # As many at a time as keep their place in the cache between turns.
    for start in range(0, len(plans), engine.num_slots):
        batch = plans[start : start + engine.num_slots]
        with contextlib.ExitStack() as stack:
            sessions = [stack.enter_context(engine.session((index,))) for index in range(len(batch))]
            trajectories += await asyncio.gather(*map(play, batch, sessions))
    return trajectories
