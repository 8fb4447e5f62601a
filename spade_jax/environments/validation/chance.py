"""Rungs against wins that ask for nothing: constant answers, a random policy."""

import random
from collections.abc import Callable

from spade_jax.environments.validation.actions import Action, say
from spade_jax.environments.validation.candidate import Candidate, Episode, Rejection
from spade_jax.environments.validation.policies import random_action, words

# What is said again and again, whatever is observed.
ANSWERS = ("", "1", "test", "yes", "no", "done")

Policy = Callable[[Episode], Action]


async def constant(candidate: Candidate) -> None:
    """No constant answer, nor the first or last word of what is observed, wins too often."""
    policies = {f"{answer!r} whatever happens": saying(answer) for answer in ANSWERS}
    policies["the first word of each observation"] = _repeating(0)
    policies["the last word of each observation"] = _repeating(-1)
    for name, policy in policies.items():
        if await wins_too_often(candidate, always(policy)):
            raise Rejection(f"saying {name} wins {_share(candidate)}")


async def random_policy(candidate: Candidate) -> None:
    """A policy that understands nothing does not win too often."""
    if await wins_too_often(candidate, guessing):
        raise Rejection(f"random actions, made of what is seen, win {_share(candidate)}")


async def wins_too_often(candidate: Candidate, policy: Callable[[int], Policy]) -> bool:
    """Whether a policy wins more than `max_random_win_rate` of the first `random_episodes` instances.

    Plays until that is settled.

    Args:
      policy: instance seed to the player of that instance.
    """
    num_episodes = candidate.config.random_episodes
    allowed = candidate.config.max_random_win_rate * num_episodes
    num_won = 0
    for seed in range(num_episodes):
        if num_won + num_episodes - seed <= allowed:
            break
        num_won += (await play_instance(candidate, seed, policy(seed))).won
        if num_won > allowed:
            return True
    return False


async def wins_always(candidate: Candidate, policy: Policy, *, max_turns: int) -> bool:
    """Whether a policy wins each of the first `random_episodes` instances."""
    for seed in range(candidate.config.random_episodes):
        if not (await play_instance(candidate, seed, policy, max_turns=max_turns)).won:
            return False
    return True


def always(policy: Policy) -> Callable[[int], Policy]:
    """The same player for every instance."""
    return lambda _: policy


def saying(answer: str) -> Policy:
    """Gives one answer again and again."""
    return lambda episode: say(answer, has_tools=episode.has_tools)


def _share(candidate: Candidate) -> str:
    config = candidate.config
    return f"more than {config.max_random_win_rate:.0%} of {config.random_episodes} instances"


def _repeating(index: int) -> Policy:
    return lambda episode: say(words(episode.observation)[index], has_tools=episode.has_tools)


def guessing(seed: int) -> Policy:
    """Takes random actions made of what is seen."""
    rng = random.Random(seed)
    return lambda episode: random_action(episode.observation, episode.environment.tools, rng)


async def play_instance(
    candidate: Candidate, seed: int, policy: Policy, *, max_turns: int | None = None
) -> Episode:
    """One episode of a policy, by default of as many turns as the agent has."""
    episode = await candidate.start(seed, max_turns=max_turns or candidate.surroundings.max_turns)
    while episode.goes_on:
        await episode.take(policy(episode))
    return episode
