"""The only play loop: one episode of one environment by the agent.

With and without hint, in training and in evaluation, an episode differs in its arguments alone.
Tokens go in and tokens come out: what was sampled is never decoded and encoded again.
"""

import dataclasses

from spade_jax.config import AgentConfig
from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.rl.regret import episode_return
from spade_jax.roles.agent import first_message, next_message
from spade_jax.sampling.engine import Session
from spade_jax.sampling.methods import SamplingParams
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.text.chat import render_followup, render_prompt
from spade_jax.text.extract import action_for_environment
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.types import Condition, EnvironmentSource, Trajectory, Turn


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodePlan:
    """Which instance is played how.

    Attributes:
      instance_seed: given to `reset`; both conditions of an environment play the same ones.
      sampling_seed: from which the agent's tokens are drawn.
    """

    source: EnvironmentSource
    condition: Condition
    instance_seed: int
    sampling_seed: int


async def play_episode(
    plan: EpisodePlan,
    session: Session,
    *,
    sandbox: SandboxPool,
    tokenizer: Tokenizer,
    config: AgentConfig,
    max_context: int,
) -> Trajectory:
    """Plays until the environment ends the episode or a limit truncates it.

    A reply that does not end with its end token, a full context and the turn limit truncate. A
    failure of the environment or of the sandbox is recorded in the trajectory, never raised.
    """
    turns: list[Turn] = []
    observation = ""
    terminated = truncated = False
    failure = ""
    try:
        async with await sandbox.open(plan.source.code) as environment:
            observation = (await environment.reset(plan.instance_seed)).observation
            hint = plan.source.hint if plan.condition == "with_hint" else None
            new_ids = render_prompt(tokenizer, [first_message(observation, hint=hint)])
            while not (terminated or truncated):
                if session.num_tokens + len(new_ids) + config.max_tokens > max_context:
                    truncated = True
                    break
                completion = await session.generate(
                    new_ids,
                    SamplingParams(
                        max_tokens=config.max_tokens,
                        temperature=config.temperature,
                        seed=plan.sampling_seed,
                        stop_ids=(tokenizer.end_id,),
                    ),
                )
                if completion.finish_reason != "stop":
                    truncated = True
                    break
                reply = tokenizer.decode(completion.tokens[:-1])
                step = await environment.step(action_for_environment(reply))
                turns.append(Turn(observation=observation, reply=reply, reward=step.reward))
                observation = step.observation
                terminated = step.terminated
                truncated = step.truncated or len(turns) >= config.max_turns
                new_ids = render_followup(tokenizer, next_message(observation))
    except EnvironmentFailure as error:
        failure = error.kind
    except HostFault:
        failure = "host_fault"
    return Trajectory(
        environment_id=plan.source.environment_id,
        condition=plan.condition,
        instance_seed=plan.instance_seed,
        turns=tuple(turns),
        last_observation=observation,
        stream=session.stream(config.temperature),
        episode_return=episode_return([turn.reward for turn in turns], terminated),
        terminated=terminated,
        truncated=truncated and not terminated,
        failure=failure,
    )
