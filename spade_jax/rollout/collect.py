"""Plays many episodes side by side through one engine and one sandbox."""

import asyncio
import contextlib
from collections.abc import Callable, Container, Sequence

from spade_jax.config import AgentConfig
from spade_jax.rollout.episode import EpisodePlan, play_episode
from spade_jax.sampling.engine import Engine, Session
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_seed
from spade_jax.text.chat import Chat
from spade_jax.types import Condition, EnvironmentSource, Trajectory


def plan_episodes(
    sources: Sequence[EnvironmentSource],
    *,
    hinted: Container[str],
    config: AgentConfig,
    run_seed: int,
    cycle: int,
) -> list[EpisodePlan]:
    """A cycle's plays of each environment, in both conditions where its hint is to be tried.

    Both conditions play the same instance seeds, the same number of times, unless the config says
    otherwise. An environment without a hint is played without one alone.

    Args:
      hinted: ids of the environments whose hints are tried in this cycle.
    """

    def plan(source: EnvironmentSource, index: int, condition: Condition, play: int) -> EpisodePlan:
        purpose = "instance" if config.paired or condition == "without_hint" else "instance_with_hint"
        return EpisodePlan(
            source=source,
            condition=condition,
            instance_seed=derive_seed(run_seed, purpose, cycle, index, play),
            sampling_seed=derive_seed(run_seed, condition, cycle, index, play),
        )

    plans = []
    for index, source in enumerate(sources):
        plans += [plan(source, index, "without_hint", play) for play in range(config.episodes)]
        if source.hint and source.environment_id in hinted:
            num_hinted = config.hint_episodes or config.episodes
            plans += [plan(source, index, "with_hint", play) for play in range(num_hinted)]
    return plans


async def play_all(
    plans: Sequence[EpisodePlan],
    *,
    engine: Engine,
    sandbox: SandboxPool,
    chat: Chat,
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
                chat=chat,
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
