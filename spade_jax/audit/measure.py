"""What is found out about an environment without a policy, by looking at it and by playing it blindly.

Each measure has a child of its own and the instances 0, 1, ... of the environment. One that fails leaves
its figures unknown and the others as they are.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from spade_jax.audit.levels import LevelParameter, at_level
from spade_jax.environments.validation.candidate import MAX_SECONDS as RUNG_SECONDS
from spade_jax.environments.validation.candidate import MAX_TURNS as RUNG_TURNS
from spade_jax.environments.validation.candidate import Candidate, Rejection, Surroundings
from spade_jax.environments.validation.chance import guessing, play_instance
from spade_jax.environments.validation.tasks import solve
from spade_jax.errors import EnvironmentFailure, HostFault

# For each measure of each environment; the figures are then those of fewer instances.
MAX_SECONDS = 120.0

_Found = TypeVar("_Found")


class Instances(NamedTuple):
    """What the instances look like before anything is done.

    Attributes:
      observations: the first of each.
      max_turns: that the environment states.
      seconds_load: to make a child, run the source in it and construct its class.
      seconds_reset: mean.
    """

    observations: tuple[str, ...]
    max_turns: int | None
    num_tools: int
    seconds_load: float
    seconds_reset: float


class BlindPlay(NamedTuple):
    """Episodes of random actions made of what is seen.

    Attributes:
      won: whether each was.
      transcripts: all that was said in further episodes, whose draws are the same in each instance, so
        that they differ only where the instances do.
      seconds_step: mean.
    """

    won: tuple[bool, ...]
    transcripts: tuple[tuple[str, ...], ...]
    seconds_step: float


class OwnSolution(NamedTuple):
    """What the environment says solves its instances, and how that fares.

    Attributes:
      texts: of each instance, None where it says nothing.
      won: whether each episode was, of those instances whose solution can be played.
      turns: of each such episode; calls of tools count.
    """

    texts: tuple[str | None, ...]
    won: tuple[bool, ...]
    turns: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measures:
    """All that was measured of one program; None is unknown.

    Attributes:
      failure: of the first measure that failed, "" where none did.
    """

    instances: Instances | None
    blind: BlindPlay | None
    own_solution: OwnSolution | None
    failure: str


class Level(NamedTuple):
    """A program at one value of its level parameter."""

    value: Any
    measures: Measures


async def measure(code: str, surroundings: Surroundings, *, num_seeds: int) -> Measures:
    """Measures one program on its first `num_seeds` instances."""
    attempt = functools.partial(_attempt, code, surroundings, num_seeds)
    instances, no_instances = await attempt(_look)
    blind, no_blind = await attempt(_play_blindly)
    own_solution, no_solution = await attempt(_play_solution)
    return Measures(
        instances=instances,
        blind=blind,
        own_solution=own_solution,
        failure=no_instances or no_blind or no_solution,
    )


async def measure_levels(
    code: str, parameter: LevelParameter | None, surroundings: Surroundings, *, num_seeds: int
) -> list[Level]:
    """Measures one program at each value of its level parameter; nothing where it has none."""
    if parameter is None:
        return []
    return [
        Level(value, await measure(at_level(code, parameter, value), surroundings, num_seeds=num_seeds))
        for value in parameter.values
    ]


async def _attempt(
    code: str,
    surroundings: Surroundings,
    num_seeds: int,
    measure_one: Callable[[Candidate, int], Awaitable[_Found]],
) -> tuple[_Found | None, str]:
    """What a measure finds in a new child, or None and why it failed."""
    try:
        async with Candidate(surroundings, code=code) as candidate:
            return await measure_one(candidate, num_seeds), ""
    except (EnvironmentFailure, Rejection) as error:
        return None, str(error)
    except HostFault as error:
        return None, f"the sandbox failed: {error}"


async def _look(candidate: Candidate, num_seeds: int) -> Instances:
    environment, seconds_load = await _timed(candidate.environment())
    resets = [await _timed(environment.reset(seed)) for seed in _seeds(num_seeds)]
    return Instances(
        observations=tuple(reset.observation for reset, _ in resets),
        max_turns=environment.max_turns,
        num_tools=len(environment.tools),
        seconds_load=seconds_load,
        seconds_reset=statistics.fmean(seconds for _, seconds in resets),
    )


async def _play_blindly(candidate: Candidate, num_seeds: int) -> BlindPlay:
    won, transcripts = [], []
    num_turns, seconds = 0, 0.0
    for seed in _seeds(num_seeds):
        candidate.begin_rung()
        episode = await play_instance(candidate, seed, guessing(seed))
        won.append(episode.won)
        transcripts.append(await _transcript(candidate, seed))
        num_turns += RUNG_TURNS - candidate.turns_left
        seconds += RUNG_SECONDS - candidate.seconds_left
    return BlindPlay(tuple(won), tuple(transcripts), seconds / num_turns)


async def _transcript(candidate: Candidate, seed: int) -> tuple[str, ...]:
    policy = guessing(0)
    episode = await candidate.start(seed, max_turns=candidate.surroundings.max_turns)
    said = [episode.observation]
    while episode.goes_on:
        await episode.take(policy(episode))
        said.append(episode.observation)
    return tuple(said)


async def _play_solution(candidate: Candidate, num_seeds: int) -> OwnSolution:
    texts, won, turns = [], [], []
    environment = await candidate.environment()
    for seed in _seeds(num_seeds):
        candidate.begin_rung()
        await environment.reset(seed)
        texts.append(await environment.solution())
        episode = await solve(candidate, seed)
        if episode is not None:
            won.append(episode.won)
            turns.append(len(episode.actions))
    return OwnSolution(tuple(texts), tuple(won), tuple(turns))


def _seeds(num: int) -> Iterator[int]:
    """0, 1, ...: as many as there is time for, at least one."""
    end = time.monotonic() + MAX_SECONDS
    for seed in range(num):
        if seed and time.monotonic() > end:
            return
        yield seed


async def _timed(work: Awaitable[_Found]) -> tuple[_Found, float]:
    started = time.monotonic()
    found = await work
    return found, time.monotonic() - started
