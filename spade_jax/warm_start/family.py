"""What a family of environments is.

The warm start turns families into programs, hints and demonstrations of play; self-play starts from
what the tiny model learned of them. Everything in a family serves that: programs repeat whole lines, so
that a tokenizer trained on them needs few pieces for one, and every number that makes an environment
easier or harder is one digit in the text.

Programs made here run in the sandbox alone. Nothing in this folder executes them.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence

Parameters = dict[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A generator of environment programs of one kind, with a scripted player for them.

    The player sees what the agent sees: the texts of the observations so far, latest last, and the hint
    where there is one. What an action is depends on the setting, whose `Syllabus.reply` plays it.

    Attributes:
      name: in snake case; the program's class is `class_name(name)`.
      skill: one of the setting's in `spade_jax.types`.
      levels: the numbers that a program may have, at level 1 (easy), 2 (medium) and 3 (harder than any
        text of the warm start); within a level from easy to hard. No level shares a combination of
        numbers with another.
      source: (parameters, word of the document) to the program's text.
      hint: parameters to a short sentence that helps in every instance and answers none.
      actions: observations to the legal actions that they show.
      best_action: (observations, hint, rng) to the best of them; the hint is "" in an episode without one.
    """

    name: str
    skill: str
    levels: tuple[Sequence[Parameters], Sequence[Parameters], Sequence[Parameters]]
    source: Callable[[Parameters, str], str]
    hint: Callable[[Parameters], str]
    actions: Callable[[Sequence[str]], list[str]]
    best_action: Callable[[Sequence[str], str, random.Random], str]

    @property
    def taught(self) -> list[Parameters]:
        """What the warm start's designs may have, from easy to hard: levels 1 and 2."""
        return [*self.levels[0], *self.levels[1]]


def by_level(
    names: str,
    easy: Sequence[tuple[int, ...]],
    medium: Sequence[tuple[int, ...]],
    hard: Sequence[tuple[int, ...]],
) -> tuple[list[Parameters], list[Parameters], list[Parameters]]:
    """For each level, the values that `names` may take together."""

    def named(level: Sequence[tuple[int, ...]]) -> list[Parameters]:
        return [dict(zip(names.split(), values, strict=True)) for values in level]

    return named(easy), named(medium), named(hard)


def class_name(name: str) -> str:
    """The class that a family's programs define: `trap_walk` gives `TrapWalkEnv`."""
    return "".join(part.title() for part in name.split("_")) + "Env"
