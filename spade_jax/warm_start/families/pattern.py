"""Families for Pattern Recognition: cycles of letters, the odd one out, count-ups, matching a row."""

import random
from collections import Counter
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    DIGITS,
    Family,
    by_level,
    program,
    question_parameters,
    question_program,
    shown_items,
    shown_letters,
    state,
)

SKILL = "Pattern Recognition"


def _best_next(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    shown = state(observations).split()
    return shown[shown.index(shown[-1]) + 1]


CYCLE_NEXT = Family(
    name="cycle_next",
    skill=SKILL,
    parameters=question_parameters,
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


def _best_odd(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    items = shown_items(observations)
    counts = Counter(items.values())
    return next(name for name in items if counts[items[name]] == 1)


ODD_ONE_OUT = Family(
    name="odd_one_out",
    skill=SKILL,
    parameters=by_level(
        "options rounds max_turns",
        [(3, 1, 1), (3, 1, 2)],
        [(4, 1, 1), (3, 2, 3)],
        [(3, 2, 2), (4, 2, 3), (3, 3, 4)],
    ),
    source=question_program(
        "odd_one_out",
        observe="""
            same, odd = self.rng.sample(range(10), 2)
            items = dict.fromkeys("ABCD"[: self.options], same)
            self.answer = self.rng.choice(list(items))
            items[self.answer] = odd
            return "odd $word: " + " ".join(f"{name} {items[name]}" for name in items)
        """,
    ),
    hint=lambda parameters: "pick the one whose number is shown once",
    actions=shown_letters,
    best_action=_best_odd,
)


def _best_count(observations: Sequence[str], hint: str, rng: random.Random) -> str:
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


def _row(observations: Sequence[str]) -> dict[str, tuple[str, str]]:
    items = state(observations).split()
    return {name: (now, goal) for name, now, goal in zip(items[::3], items[1::3], items[2::3], strict=True)}


def _best_flip(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    return rng.choice([name for name, (now, goal) in _row(observations).items() if now != goal])


MATCH_ROW = Family(
    name="match_row",
    skill=SKILL,
    parameters=by_level(
        "options flips max_turns",
        [(2, 1, 1), (3, 1, 1), (3, 2, 2), (3, 2, 3)],
        [(4, 2, 3), (4, 2, 2), (3, 3, 3)],
        [(4, 3, 3), (4, 3, 4)],
    ),
    source=program(
        "match_row",
        reset="""
            self.goal = {name: self.rng.randint(0, 1) for name in "ABCD"[: self.options]}
            self.now = dict(self.goal)
            for name in self.rng.sample(list(self.goal), self.flips):
                self.now[name] = 1 - self.goal[name]
        """,
        observe="""
            pairs = [f"{name} {self.now[name]} {self.goal[name]}" for name in self.now]
            return "flip $word: " + " ".join(pairs)
        """,
        step="""
            if move in self.now:
                self.now[move] = 1 - self.now[move]
            won, lost = self.now == self.goal, False
        """,
    ),
    hint=lambda parameters: "pick one whose two numbers are not the same",
    actions=shown_letters,
    best_action=_best_flip,
)

FAMILIES = (CYCLE_NEXT, ODD_ONE_OUT, COUNT_UP, MATCH_ROW)
