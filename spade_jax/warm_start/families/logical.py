"""Families for Logical Deduction: bisection, looking up, waiting until only one is left."""

import random
import re
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    DIGITS,
    number_after,
    program,
    question_levels,
    question_program,
    shown_letters,
    state,
)
from spade_jax.warm_start.family import Family, by_level

SKILL = "Logical Deduction"


def _best_guess(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    low, high = number_after(text, "between"), number_after(text, "and")
    for told_low, told_high in re.findall(r"from (\d) to (\d)", hint):
        low, high = max(low, int(told_low)), min(high, int(told_high))
    return str((low + high) // 2)


# The secret is always from a part of the range: that is what its hint may tell.
HIGHER_LOWER = Family(
    name="higher_lower",
    skill=SKILL,
    levels=by_level(
        "low high max_turns",
        [(low, low + width, 3) for width in (2, 3) for low in range(1, 10 - width)],
        [
            (low, low + width, turns)
            for width, turns in ((4, 3), (5, 3), (2, 2), (3, 2))
            for low in range(1, 10 - width)
        ],
        [(1, 9, 3), (1, 8, 3), (2, 9, 3)],
    ),
    source=program(
        "higher_lower",
        reset="""
            self.least, self.most = 1, 9
            self.secret = self.rng.randint(self.low, self.high)
        """,
        observe="""
            return f"guess $word: between {self.least} and {self.most}"
        """,
        step="""
            guess = int(move) if move in list("123456789") else 0
            if guess < self.secret:
                self.least = max(self.least, guess + 1)
            if guess > self.secret:
                self.most = min(self.most, guess - 1)
            won, lost = guess == self.secret, False
        """,
    ),
    hint=lambda parameters: (
        f"it is from {parameters['low']} to {parameters['high']}, so guess the middle of that"
    ),
    actions=lambda observations: DIGITS[1:],
    best_action=_best_guess,
)


def _best_door(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    return re.findall(rf"{number_after(text, 'key')}([A-D])", text)[0]


RULE_DOORS = Family(
    name="rule_doors",
    skill=SKILL,
    levels=question_levels,
    source=question_program(
        "rule_doors",
        observe="""
            items = dict(zip("ABCD"[: self.options], self.rng.sample(range(10), self.options)))
            self.answer = self.rng.choice(list(items))
            doors = " ".join(f"{items[name]}{name}" for name in items)
            return f"door $word: {doors} key {items[self.answer]}"
        """,
    ),
    hint=lambda parameters: "pick the one that has the number of the key",
    actions=shown_letters,
    best_action=_best_door,
)


def _best_naming(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    left = set(shown_letters(observations)) - set(re.findall(r"not (\w)", state(observations)))
    return left.pop() if len(left) == 1 else "wait"


LAST_LEFT = Family(
    name="last_left",
    skill=SKILL,
    levels=by_level(
        "options clues max_turns",
        [(2, 0, 2), (3, 1, 2), (4, 2, 2)],
        [(3, 0, 3), (4, 2, 3), (4, 1, 4)],
        [(4, 1, 3), (4, 0, 4), (4, 0, 5)],
    ),
    source=program(
        "last_left",
        reset="""
            self.answer, *self.others = self.rng.sample("ABCD"[: self.options], self.options)
        """,
        observe="""
            known = self.others[: self.clues + self.turn_count]
            names = " ".join("ABCD"[: self.options])
            return f"wait or name $word: {names}" + "".join(f" not {name}" for name in known)
        """,
        step="won, lost = move == self.answer, move in self.others",
    ),
    hint=lambda parameters: "wait until only one is left, then name it",
    actions=lambda observations: ["wait", *shown_letters(observations)],
    best_action=_best_naming,
)

FAMILIES = (HIGHER_LOWER, RULE_DOORS, LAST_LEFT)
