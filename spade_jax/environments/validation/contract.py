"""Rungs that hold an environment to its contract: load, play, replay, ends."""

import random
from typing import NamedTuple

from spade_jax.environments.validation.actions import Action, take
from spade_jax.environments.validation.candidate import Candidate, Rejection, Transcript
from spade_jax.environments.validation.policies import (
    random_action,
    random_answer,
    random_call,
    random_word,
)
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.protocol import Reset, Step, Tool

PROBE_TURNS = 4
MAX_PROBED_TOOLS = 16
# The reference implementation's bound. A return is clipped to [-1, 1], so more is a mistake of scale.
MAX_REWARD = 10.0


class Beginning(NamedTuple):
    """An answer to reset and the tools that came with it."""

    reset: Reset
    tools: list[Tool]


async def load(candidate: Candidate) -> None:
    """The source runs and its class constructs."""
    await candidate.environment()


async def play(candidate: Candidate) -> None:
    """`num_seeds` instances reset and answer some turns within the contract.

    The sandbox itself checks types, sizes and that numbers are finite, at this and every other answer.
    """
    candidate.transcript = await _probe(candidate, await candidate.environment())
    for _, answer in candidate.transcript:
        if isinstance(answer, Beginning):
            if not answer.reset.observation.strip():
                raise Rejection("the first observation is blank")
            if candidate.surroundings.setting == "tool_use" and not answer.tools:
                raise Rejection("no tools after reset; _tools lists what the agent may call")
        elif isinstance(answer, Step) and abs(answer.reward) > MAX_REWARD:
            raise Rejection(
                f"a reward of {answer.reward:g}; want 1 for a win and nothing beyond +-{MAX_REWARD:g}"
            )


async def replay(candidate: Candidate) -> None:
    """The same seeds and actions in another child, of another fork server in turn, have the same answers."""
    first = candidate.transcript or await _probe(candidate, await candidate.environment())
    async with await candidate.surroundings.sandbox.open(candidate.code) as environment:
        again = await _probe(candidate, environment, actions=[action for action, _ in first])
    if again != first:
        raise Rejection(_first_difference(first, again))


async def ends(candidate: Candidate) -> None:
    """Random answers come to an end within the stated turns, or within the agent's if none are stated.

    Answers, since only `step` takes turns of an environment with tools.
    """
    environment = await candidate.environment()
    limit = environment.max_turns or candidate.surroundings.max_turns
    for seed in range(candidate.config.num_seeds):
        rng = random.Random(seed)
        episode = await candidate.start(seed, max_turns=limit)
        while episode.goes_on:
            await episode.take(random_answer(episode.observation, rng, has_tools=episode.has_tools))
        if not episode.ended and len(episode.actions) >= limit:
            whose = "its own max_turns" if environment.max_turns else "the agent's, as it states no max_turns"
            raise Rejection(f"instance {seed} had not ended after {limit} turns, {whose}")


async def _probe(
    candidate: Candidate, environment: SandboxedEnvironment, *, actions: list[Action] | None = None
) -> Transcript:
    """Plays the first instances; actions are random, or those of an earlier probe.

    Where there are tools, each is called once before the random turns.
    """
    transcript: Transcript = []
    for seed in range(candidate.config.num_seeds):
        rng = random.Random(seed)
        reset = await environment.reset(seed)
        observation, tools = reset.observation, environment.tools
        transcript.append(("", Beginning(reset, tools)))
        probed = tools[:MAX_PROBED_TOOLS]
        for turn in range(len(probed) + PROBE_TURNS):
            action: Action
            if actions is not None and len(transcript) < len(actions):
                action = actions[len(transcript)]
            elif turn < len(probed):
                action = random_call(probed[turn], observation, rng)
            elif tools:
                action = random_action(observation, tools, rng)
            else:
                action = random_word(observation, rng)
            step = await take(environment, action)
            transcript.append((action, step))
            if step.terminated or step.truncated:
                break
            observation = step.observation
    return transcript


def _first_difference(first: Transcript, second: Transcript) -> str:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return f"answer {index} was {one[1]!r} and then {other[1]!r}"[:500]
    return f"{len(first)} answers and then {len(second)}"
