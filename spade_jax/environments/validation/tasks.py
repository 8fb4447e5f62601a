"""Rungs about what is to be done: criteria that are still to be met, a solution that alone wins."""

from spade_jax.environments.validation.actions import Action, read_solution, spoil
from spade_jax.environments.validation.candidate import MAX_TURNS, Candidate, Episode, Rejection


async def criteria(candidate: Candidate) -> None:
    """After reset every criterion can be evaluated, and neither the first nor most of them hold.

    A later one may hold for now: "open the door" may be followed by "close it".
    """
    environment = await candidate.environment()
    for seed in range(candidate.config.num_seeds):
        await environment.reset(seed)
        found = await environment.check_criteria()
        for number, holds in enumerate(found, start=1):
            if isinstance(holds, str):
                raise Rejection(f"instance {seed}: criterion {number} fails after reset: {holds}")
        if found and found[0]:
            raise Rejection(f"instance {seed}: the first criterion already holds after reset")
        if 2 * sum(map(bool, found)) > len(found):
            raise Rejection(
                f"instance {seed}: {sum(map(bool, found))} of {len(found)} criteria already hold after reset"
            )


async def solution(candidate: Candidate) -> None:
    """The environment's own solution, where it has one that can be played, wins; spoilt, it does not.

    Spoilt means another last action. It rejects only if each of two kinds wins: a near miss may well be
    another right answer, but nonsense too?
    """
    for seed in range(candidate.config.num_seeds):
        episode = await solve(candidate, seed)
        if episode is None or not candidate.turns_left:
            continue
        if not episode.won:
            played = ", ".join(map(str, episode.actions))
            raise Rejection(f"instance {seed}: its own solution does not win: {played[:400]}")
        *before, last = episode.actions
        assert isinstance(last, str), "a call of a tool wins nothing"
        wrong = spoil(last)
        if all([(await _follow(candidate, seed, [*before, action])).won for action in wrong]):
            raise Rejection(f"instance {seed}: {wrong} win as well as its own solution, {last}")


async def solve(candidate: Candidate, seed: int) -> Episode | None:
    """The best episode that plays the environment's own solution; None where it cannot be played.

    A game whose solution is over before the episode is asked for it again: it may give one round's.
    """
    environment = await candidate.environment()
    await environment.reset(seed)
    ways = read_solution(await environment.solution() or "", environment.tools)
    episode = None
    for index, actions in enumerate(ways):
        episode = await _follow(candidate, seed, actions)
        while episode.goes_on and not environment.tools:
            more = read_solution(await environment.solution() or "", environment.tools)
            if index >= len(more):
                break
            await _continue(episode, more[index])
        if episode.won:
            break
    return episode


async def _follow(candidate: Candidate, seed: int, actions: list[Action]) -> Episode:
    """An episode of fixed actions; calls of tools are as many as it takes, moves as the agent has turns."""
    environment = await candidate.environment()
    limit = MAX_TURNS if environment.tools else candidate.surroundings.max_turns
    episode = await candidate.start(seed, max_turns=limit)
    await _continue(episode, actions)
    return episode


async def _continue(episode: Episode, actions: list[Action]) -> None:
    for action in actions:
        if not episode.goes_on:
            break
        await episode.take(action)
