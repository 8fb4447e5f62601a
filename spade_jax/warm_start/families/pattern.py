"""Families for Pattern Recognition: cycles of letters, the missing one, count-ups, filling a row."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    DIGITS,
    asked_letters,
    program,
    question_levels,
    question_program,
    shown_items,
    shown_letters,
    state,
)
from spade_jax.warm_start.family import Family, by_level

SKILL = "Pattern Recognition"


def _best_next(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    shown = state(observations).split()
    return shown[shown.index(shown[-1]) + 1]


CYCLE_NEXT = Family(
    name="cycle_next",
    skill=SKILL,
    levels=question_levels,
    source=question_program(
        "cycle_next",
        observe="""
            cycle = self.rng.sample("ABCD"[: self.options], self.options)
            shown = cycle + cycle[: self.rng.randint(1, self.options - 1)]
            self.answer = cycle[len(shown) - self.options]
            return "next $word: " + " ".join(shown)
        """,
    ),
    hint=lambda parameters: "pick what came next the last time",
    actions=shown_letters,
    best_action=_best_next,
)


def _best_missing(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    [missing] = set(asked_letters(observations)) - set(shown_letters(observations))
    return missing


FIND_MISSING = Family(
    name="find_missing",
    skill=SKILL,
    levels=question_levels,
    source=question_program(
        "find_missing",
        observe="""
            names = "ABCD"[: self.options]
            self.answer, *shown = self.rng.sample(names, self.options)
            return f"missing $word of {' '.join(names)}: {' '.join(shown)}"
        """,
    ),
    hint=lambda parameters: "pick the one that is not there",
    actions=asked_letters,
    best_action=_best_missing,
)


def _best_count(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    *_, before, last = map(int, state(observations).split())
    return str(last + last - before)


COUNT_UP = Family(
    name="count_up",
    skill=SKILL,
    levels=by_level(
        "stride rounds spare max_turns",
        [(1, 1, 0, 1), (2, 1, 0, 1), (3, 1, 0, 1)],
        [(stride, rounds, 0, rounds) for rounds in (2, 3, 4, 5) for stride in (1, 2, 3)],
        [(stride, rounds, 0, rounds) for rounds in (6, 7) for stride in (2, 3)],
    ),
    source=question_program(
        "count_up",
        observe="""
            stride = self.rng.randint(1, self.stride)
            start = self.rng.randrange(10 - 3 * stride)
            *shown, answer = range(start, start + 4 * stride, stride)
            self.answer = str(answer)
            return "count $word: " + " ".join(map(str, shown))
        """,
    ),
    hint=lambda parameters: "add the same step to the last number",
    actions=lambda observations: DIGITS,
    best_action=_best_count,
)


def _empty(observations: Sequence[str]) -> list[str]:
    items = shown_items(observations)
    return [name for name in items if not items[name]]


FILL_ROW = Family(
    name="fill_row",
    skill=SKILL,
    levels=by_level(
        "options empty max_turns",
        [(2, 1, 1), (3, 1, 1), (4, 1, 1), (3, 2, 3)],
        [(3, 2, 2), (4, 2, 3), (4, 2, 2), (4, 3, 4)],
        [(4, 3, 3), (4, 4, 4), (4, 4, 5)],
    ),
    source=program(
        "fill_row",
        reset="""
            self.row = dict.fromkeys("ABCD"[: self.options], 1)
            for name in self.rng.sample(list(self.row), self.empty):
                self.row[name] = 0
        """,
        observe="""
            return "fill $word: " + " ".join(f"{name}{self.row[name]}" for name in self.row)
        """,
        step="""
            if move in self.row:
                self.row[move] = 1
            won, lost = all(self.row.values()), False
        """,
    ),
    hint=lambda parameters: "pick one that has a 0, until all have a 1",
    actions=shown_letters,
    best_action=lambda observations, hint, rng: rng.choice(_empty(observations)),
)

FAMILIES = (CYCLE_NEXT, FIND_MISSING, COUNT_UP, FILL_ROW)
