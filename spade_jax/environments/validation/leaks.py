"""Rungs against answers that are given away: by what is observed, by the hint.

Many honest tasks show their answer among others ("which of 3, 12 and 7 is the largest?"), and many honest
hints name moves. So that something is there proves little; these rungs ask whether who understands nothing
wins with it. The answer is what the environment's solution says, where that can be played.
"""

import collections
import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from spade_jax.environments.validation.actions import Action, read_solution, said, say
from spade_jax.environments.validation.candidate import Candidate, Episode, Rejection
from spade_jax.environments.validation.chance import (
    Policy,
    always,
    saying,
    wins_always,
    wins_too_often,
)
from spade_jax.sandbox.protocol import Tool
from spade_jax.text.extract import MAX_HINT_CHARACTERS

# Instances whose observations and answers are compared: by chance, an answer that is one of three stands
# at the same place in all of them once in two thousand times.
NUM_INSTANCES = 8
# An answer of so many words or numbers is no move that a hint names by the way.
LONG_ANSWER = 4
# Longer ones are no answers that anybody reads off.
MAX_ANSWER = 64
MAX_PLACES = 8
# Turns in which what a hint names must win.
HINT_TURNS = 3

_TOKEN = re.compile(r"(?<!\w)-\d+|\w+")


class Instance(NamedTuple):
    """The first observation of an instance and its answer, move by move."""

    observation: str
    moves: list[str]

    @property
    def answer(self) -> list[str]:
        """The answer's words and numbers."""
        return _tokens(" ".join(self.moves))


class Place(NamedTuple):
    """Where an answer stands in an observation.

    Attributes:
      kind: `start` or `end`, from which `number` tokens are counted to where the answer starts or ends;
        or `after`, the `number`th time that `word` comes.
    """

    kind: str
    word: str
    number: int


async def answer_hidden(candidate: Candidate) -> None:
    """No one place of the observations gives the answer away.

    That is one which holds the answer in the first observations of all instances, answers being different,
    and from which whoever reads it, turn by turn, wins more than `max_random_win_rate` of them.
    """
    instances = await _instances(candidate)
    if len({tuple(instance.answer) for instance in instances.values()}) < 2:
        return
    shared = set.intersection(*map(_places, instances.values()))
    for place in sorted(shared)[:MAX_PLACES]:
        if await wins_too_often(candidate, functools.partial(_reading, place, instances)):
            shown = next(iter(instances.values()))
            raise Rejection(
                f"the observation gives the answer away, always at the same place: {' '.join(shown.moves)!r} "
                f"in {shown.observation[:300]!r}"
            )


async def hint(candidate: Candidate) -> None:
    """The hint has no answer in it, and saying it, its actions or one of its words does not win.

    It has the answer in it if that has at least `LONG_ANSWER` words, or if it wins every instance: a hint
    that names moves among which the answer varies says nothing about any one.
    """
    text = candidate.hint
    if not 0 < len(text) <= MAX_HINT_CHARACTERS:
        raise Rejection(f"a hint of {len(text)} characters; want 1 to {MAX_HINT_CHARACTERS}")
    instances = await _instances(candidate)
    tools = (await candidate.environment()).tools
    for moves in {" ".join(instance.moves): instance.moves for instance in instances.values()}.values():
        answer = _tokens(" ".join(moves))
        if not _occurrences(_tokens(text), answer):
            continue
        policy = _reciting([say(move, has_tools=bool(tools)) for move in moves])
        if len(answer) >= LONG_ANSWER or await wins_always(candidate, policy, max_turns=HINT_TURNS):
            raise Rejection(f"the hint contains the answer: {' '.join(moves)!r}")
    for name, actions in _recitals(text, tools).items():
        if await wins_too_often(candidate, always(_reciting(actions))):
            raise Rejection(f"{name} wins; a hint may help to find the answer, and not be it")
    for word in dict.fromkeys(re.findall(r"[\w-]+", text)):
        if await wins_always(candidate, saying(word), max_turns=HINT_TURNS):
            raise Rejection(f"a word of the hint, {word!r}, wins every instance")


async def _instances(candidate: Candidate) -> dict[int, Instance]:
    """By seed, the first instances whose solution can be played and has an answer in it."""
    environment = await candidate.environment()
    instances = {}
    for seed in range(max(candidate.config.num_seeds, NUM_INSTANCES)):
        observation = (await environment.reset(seed)).observation
        ways = read_solution(await environment.solution() or "", environment.tools)
        moves = [said(action) for action in ways[0] if isinstance(action, str)] if ways else []
        # "done" is what every instance of a multi-step task ends with.
        if environment.tools and moves == ["done"]:
            continue
        if 0 < len(_tokens(" ".join(moves))) <= MAX_ANSWER:
            instances[seed] = Instance(observation, moves)
    return instances


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text.lower())


def _occurrences(tokens: list[str], answer: list[str]) -> list[int]:
    """Where an answer begins in a text."""
    return [
        start
        for start in range(len(tokens) - len(answer) + 1)
        if tokens[start] == answer[0] and tokens[start : start + len(answer)] == answer
    ]


def _places(instance: Instance) -> set[Place]:
    """All places of the answer in the first observation."""
    tokens, answer = _tokens(instance.observation), instance.answer
    starts = set(_occurrences(tokens, answer))
    counts: collections.Counter[str] = collections.Counter()
    places = set()
    for start, token in enumerate(tokens):
        if start in starts:
            places |= {Place("start", "", start), Place("end", "", len(tokens) - start - len(answer))}
            if start:
                places.add(Place("after", tokens[start - 1], counts[tokens[start - 1]]))
        counts[token] += 1
    return places


def _reading(place: Place, instances: dict[int, Instance], seed: int) -> Policy:
    """Says what stands at a place, as many moves of as many words as the answer has; then reads again."""
    sizes = [len(_tokens(move)) for move in instances[seed].moves] if seed in instances else [1]
    pending: list[str] = []

    def policy(episode: Episode) -> Action:
        if not pending:
            pending.extend(_read(place, episode.observation, sizes))
        return say(pending.pop(0) if pending else "", has_tools=episode.has_tools)

    return policy


def _read(place: Place, observation: str, sizes: list[int]) -> list[str]:
    """Pieces of so many tokens one after the other from a place on; none where there is no such place."""
    found = list(_TOKEN.finditer(observation))
    match place.kind:
        case "start":
            start = place.number
        case "end":
            start = len(found) - place.number - sum(sizes)
        case _:
            words = [number for number, token in enumerate(found) if token[0].lower() == place.word]
            start = words[place.number - 1] + 1 if len(words) >= place.number else len(found)
    if start < 0 or start + sum(sizes) > len(found):
        return []
    pieces = []
    for size in sizes:
        if size:
            pieces.append(observation[found[start].start() : found[start + size - 1].end()])
        start += size
    return pieces


def _recitals(text: str, tools: Sequence[Tool]) -> dict[str, list[Action]]:
    """The hint as an action, as it is and as a move, and the actions that it spells out."""
    recitals: dict[str, list[Action]] = {
        "saying the hint": [text],
        "saying the hint as a move": [say(text, has_tools=bool(tools))],
    }
    ways = read_solution(text, tools)
    if ways:
        recitals["doing what the hint spells out"] = ways[0]
    return recitals


def _reciting(actions: list[Action]) -> Policy:
    """Takes the actions in order and the last one again and again."""
    return lambda episode: actions[min(len(episode.actions), len(actions) - 1)]
