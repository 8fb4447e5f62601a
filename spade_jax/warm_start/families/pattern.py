"""Families for Pattern Recognition: cycles of words, the odd one out, count-ups, matching a row."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    DIGITS,
    Family,
    by_level,
    program,
    question_parameters,
    question_program,
    shown_names,
    state,
)

SKILL = "Pattern Recognition"


def _best_next(observations: Sequence[str], rng: random.Random) -> str:
    shown = state(observations).split()
    return shown[shown.index(shown[-1]) + 1]


CYCLE_NEXT = Family(
    name="cycle_next",
    skill=SKILL,
    parameters=question_parameters,
    num_words=4,
    source=question_program(
        "cycle_next",
        observe="""
            cycle = self.rng.sample(self.names[: self.options], self.options)
            shown = cycle + cycle[: self.rng.randint(1, self.options - 1)]
            self.answer = cycle[len(shown) - self.options]
            return "next: " + " ".join(shown)
        """,
    ),
    hint=lambda parameters, words: "pick what came next the last time",
    actions=shown_names,
    best_action=_best_next,
)


def _best_odd(observations: Sequence[str], rng: random.Random) -> str:
    shown = state(observations).split()
    return next(name for name in shown if shown.count(name) == 1)


ODD_ONE_OUT = Family(
    name="odd_one_out",
    skill=SKILL,
    parameters=question_parameters,
    num_words=4,
    source=question_program(
        "odd_one_out",
        observe="""
            self.answer, *pairs = self.rng.sample(self.names[: self.options], self.options)
            shown = [self.answer] + pairs + pairs
            return "odd: " + " ".join(self.rng.sample(shown, len(shown)))
        """,
    ),
    hint=lambda parameters, words: "pick the one that is shown once, not twice",
    actions=shown_names,
    best_action=_best_odd,
)


def _best_count(observations: Sequence[str], rng: random.Random) -> str:
    *_, before, last = map(int, state(observations).split())
    return str(last + last - before)


COUNT_UP = Family(
    name="count_up",
    skill=SKILL,
    parameters=by_level(
        "stride rounds max_turns",
        [(1, 1, 1), (2, 1, 1), (1, 2, 3)],
        [(3, 1, 1), (2, 2, 3), (1, 2, 2)],
        [(2, 2, 2), (3, 2, 2), (3, 3, 4)],
    ),
    num_words=0,
    source=question_program(
        "count_up",
        observe="""
            stride = self.rng.randint(1, self.stride)
            start = self.rng.randrange(10 - 3 * stride)
            *shown, answer = range(start, start + 4 * stride, stride)
            self.answer = str(answer)
            return "next: " + " ".join(map(str, shown))
        """,
    ),
    hint=lambda parameters, words: "add the same step to the last number",
    actions=lambda observations: list(DIGITS),
    best_action=_best_count,
)


def _row(observations: Sequence[str]) -> dict[str, tuple[str, str]]:
    items = state(observations).split()
    return {name: (now, goal) for name, now, goal in zip(items[::3], items[1::3], items[2::3], strict=True)}


def _best_flip(observations: Sequence[str], rng: random.Random) -> str:
    return rng.choice([name for name, (now, goal) in _row(observations).items() if now != goal])


MATCH_ROW = Family(
    name="match_row",
    skill=SKILL,
    parameters=by_level(
        "options flips max_turns",
        [(3, 2, 2), (3, 2, 3)],
        [(4, 2, 3), (4, 2, 2), (3, 3, 3)],
        [(4, 3, 3), (4, 4, 4)],
    ),
    num_words=4,
    source=program(
        "match_row",
        reset="""
            row = self.rng.sample(self.names[: self.options], self.options)
            self.goal = {name: self.rng.randint(0, 1) for name in row}
            self.now = dict(self.goal)
            for name in self.rng.sample(row, self.flips):
                self.now[name] = 1 - self.goal[name]
        """,
        observe="""
            return "flip: " + " ".join(f"{name} {self.now[name]} {self.goal[name]}" for name in self.now)
        """,
        step="""
            if move in self.now:
                self.now[move] = 1 - self.now[move]
            won, lost = self.now == self.goal, False
        """,
    ),
    hint=lambda parameters, words: "pick one whose two numbers are not the same",
    actions=lambda observations: list(_row(observations)),
    best_action=_best_flip,
)

FAMILIES = (CYCLE_NEXT, ODD_ONE_OUT, COUNT_UP, MATCH_ROW)
