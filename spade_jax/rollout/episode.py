"""The only play loop: one episode of one environment by the agent.

With and without hint, in training and in evaluation, games and tool use: an episode differs in its
arguments and in what its environment offers. An environment with tools is played by calling them and
by answers; any other by actions.
"""

import dataclasses
from typing import Any, Literal

from spade_jax.config import AgentConfig
from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.rl.regret import episode_return
from spade_jax.roles.agent import first_message, next_message
from spade_jax.rollout.conversation import Conversation
from spade_jax.sampling.engine import Session
from spade_jax.sampling.methods import SamplingParams
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.sandbox.protocol import Tool
from spade_jax.text.chat import Chat, Message
from spade_jax.text.extract import action_for_environment
from spade_jax.text.tool_calls import ToolCall, format_reminder, read_action
from spade_jax.types import Condition, EnvironmentSource, Setting, Trajectory, Turn


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one reply did: the turn that it made, and what the agent is told next."""

    turn: Turn
    messages: tuple[Message, ...]
    terminated: bool = False
    truncated: bool = False


async def play_episode(
    plan: EpisodePlan,
    session: Session,
    *,
    sandbox: SandboxPool,
    chat: Chat,
    config: AgentConfig,
    max_context: int,
) -> Trajectory:
    """Plays until the environment ends the episode or a limit truncates it.

    A reply that does not end with a stop token, a full context and the turn limit truncate. A failure of
    the environment or of the sandbox is recorded in the trajectory, never raised.
    """
    turns: list[Turn] = []
    observation = ""
    terminated = truncated = False
    failure = ""
    conversation = None
    try:
        async with await sandbox.open(plan.source.code) as environment:
            observation = (await environment.reset(plan.instance_seed)).observation
            tools = environment.tools
            conversation = Conversation(
                session,
                chat,
                sampling=_sampling(plan, config, chat),
                max_context=max_context,
                tools=[function_schema(tool) for tool in tools],
                thinking=config.thinking,
            )
            hint = plan.source.hint if plan.condition == "with_hint" else None
            messages: tuple[Message, ...] = (
                opening(observation, environment, hint=hint, prompt=config.prompt),
            )
            max_turns = turn_limit(config.max_turns, environment)
            while not (terminated or truncated):
                reply = await conversation.ask(messages)
                if reply is None or not reply.finished:
                    truncated = True
                    break
                act = use_tools if tools else take_action
                outcome = await act(environment, observation, reply.text)
                turns.append(outcome.turn)
                if outcome.turn.malformed and config.mask_malformed:
                    conversation.leave_out_last_reply()
                messages = outcome.messages
                observation = "\n".join(message.content for message in messages)
                terminated = outcome.terminated
                truncated = outcome.truncated or len(turns) >= max_turns
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
        streams=conversation.streams() if conversation is not None else (),
        episode_return=episode_return([turn.reward for turn in turns], terminated),
        terminated=terminated,
        truncated=truncated and not terminated,
        failure=failure,
    )


def opening(
    observation: str,
    environment: SandboxedEnvironment,
    *,
    hint: str | None,
    prompt: Literal["compact", "full"] = "compact",
) -> Message:
    """The first message; what an environment offers says what it asks for."""
    setting: Setting = "tool_use" if environment.tools else "games"
    return first_message(observation, hint=hint, prompt=prompt, setting=setting)


async def take_action(environment: SandboxedEnvironment, observation: str, reply: str) -> Outcome:
    """A turn of a game: one action."""
    step = await environment.step(action_for_environment(reply))
    return Outcome(
        turn=Turn(observation=observation, reply=reply, reward=step.reward),
        messages=(next_message(step.observation),),
        terminated=step.terminated,
        truncated=step.truncated,
    )


async def use_tools(environment: SandboxedEnvironment, observation: str, reply: str) -> Outcome:
    """A turn of tool use: an answer, or calls in order, each with a message of its own in reply.

    What is neither goes to the environment, which says what it makes of it. Where one call cannot be
    read none is made, and the agent is reminded of the format too.
    """
    action = read_action(reply, {tool.name: tool.parameters for tool in environment.tools})
    if action.calls and not action.malformed:
        results = [await _call(environment, call) for call in action.calls]
        return Outcome(
            turn=Turn(observation=observation, reply=reply, reward=0.0),
            messages=tuple(Message(role="tool", content=result) for result in results),
        )
    step = await environment.step(action.action)
    told = step.observation
    if action.malformed:
        told += format_reminder(action.malformed)
    return Outcome(
        turn=Turn(observation=observation, reply=reply, reward=step.reward, malformed=bool(action.malformed)),
        messages=(next_message(told),),
        terminated=step.terminated,
        truncated=step.truncated,
    )


def turn_limit(max_turns: int, environment: SandboxedEnvironment) -> int:
    """Replies after which an episode is truncated.

    Calls of tools take no turn of the environment's own, which would never end an episode of calls: so
    the limit that it states holds for them too. A game counts its turns itself.
    """
    if environment.tools and environment.max_turns is not None:
        return min(max_turns, environment.max_turns)
    return max_turns


def function_schema(tool: Tool) -> dict[str, Any]:
    """A tool in the form that chat templates take."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


async def _call(environment: SandboxedEnvironment, call: ToolCall) -> str:
    try:
        return (await environment.call_tool(call.name, call.arguments)).output
    except ValueError as error:
        return str(error)


def _sampling(plan: EpisodePlan, config: AgentConfig, chat: Chat) -> SamplingParams:
    return SamplingParams(
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        seed=plan.sampling_seed,
        stop_ids=chat.stop_ids,
    )
