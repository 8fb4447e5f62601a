"""Families for Mathematical Reasoning: hitting a number, taking the last, differences."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    DIGITS,
    asked_digits,
    number_after,
    program,
    question_program,
    state,
)
from spade_jax.warm_start.family import Family, by_level

SKILL = "Mathematical Reasoning"


def _best_add(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text, adds = state(observations), asked_digits(observations)
    gap = number_after(text, "goal") - number_after(text, "now")
    return max((add for add in adds if int(add) <= gap), default=adds[0])


REACH_GOAL = Family(
    name="reach_goal",
    skill=SKILL,
    levels=by_level(
        "low mid high rounds max_turns",
        [(1, 3, 5, 1, 3), (1, 3, 6, 1, 3), (1, 4, 6, 1, 4)],
        [(1, 3, 5, 2, 6), (1, 2, 5, 2, 6), (1, 3, 5, 3, 9), (1, 2, 5, 3, 8)],
        [(1, 4, 6, 3, 9), (1, 3, 6, 3, 8)],
    ),
    source=program(
        "reach_goal",
        reset="self.now = self.goal = self.right = 0",
        observe="""
            if self.now == self.goal:
                self.now, self.goal = sorted(self.rng.sample(range(10), 2))
            return f"add $word {self.low} {self.mid} {self.high}: now {self.now} goal {self.goal}"
        """,
        step="""
            for add in (self.low, self.mid, self.high):
                self.now += add if move == str(add) else 0
            self.right += self.now == self.goal
            won, lost = self.right == self.rounds, self.now > self.goal
        """,
    ),
    hint=lambda parameters: "add the greatest that does not take now above the goal",
    actions=asked_digits,
    best_action=_best_add,
)


def _best_take(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    takes = asked_digits(observations)
    spare = number_after(state(observations), "now") % (len(takes) + 1)
    return str(spare) if spare else rng.choice(takes)


TAKE_LAST = Family(
    name="take_last",
    skill=SKILL,
    levels=by_level(
        "most rounds max_turns",
        [(2, 1, 4), (3, 1, 4), (4, 1, 4)],
        [(2, 2, 6), (3, 2, 6), (4, 2, 6), (2, 3, 8)],
        [(3, 3, 9), (2, 4, 9), (4, 3, 9)],
    ),
    source=program(
        "take_last",
        reset="""
            self.takes = [str(n) for n in range(1, self.most + 1)]
            self.now = self.right = 0
        """,
        observe="""
            takes = " ".join(self.takes)
            if self.now == 0:
                self.now = self.most + 1 + self.rng.randint(1, self.most)
            return f"take $word {takes}: now {self.now}"
        """,
        step="""
            won = lost = False
            if move in self.takes:
                self.now -= int(move)
                self.right += self.now == 0
                won, lost = self.right == self.rounds, self.now < 0
                if self.now > 0:
                    self.now -= self.now % (self.most + 1) or 1
                    lost = self.now == 0
        """,
    ),
    hint=lambda parameters: f"leave {parameters['most'] + 1} for the other, and take the last",
    actions=asked_digits,
    best_action=_best_take,
)


def _best_gap(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    first, second = map(int, state(observations).split())
    return str(abs(first - second))


COUNT_GAP = Family(
    name="count_gap",
    skill=SKILL,
    levels=by_level(
        "top rounds spare max_turns",
        [(3, 1, 0, 1), (4, 1, 0, 1), (5, 1, 0, 1)],
        [(top, rounds, 0, rounds) for rounds in (2, 3, 4) for top in (3, 4, 5)],
        [(top, 5, 0, 5) for top in (3, 4, 5)],
    ),
    source=question_program(
        "count_gap",
        observe="""
            one, other = self.rng.randint(0, self.top), self.rng.randint(0, self.top)
            self.answer = str(abs(one - other))
            return f"gap $word: {one} {other}"
        """,
    ),
    hint=lambda parameters: "take the smaller number from the greater",
    actions=lambda observations: DIGITS,
    best_action=_best_gap,
)

FAMILIES = (REACH_GOAL, TAKE_LAST, COUNT_GAP)
