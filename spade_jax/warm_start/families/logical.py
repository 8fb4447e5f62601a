"""Families for Logical Deduction: bisection, looking up, waiting until one is left, order from pairs."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    DIGITS,
    Family,
    by_level,
    named_numbers,
    number_after,
    program,
    question,
    question_parameters,
    question_program,
    shown_names,
    state,
)

SKILL = "Logical Deduction"


def _best_guess(observations: Sequence[str], rng: random.Random) -> str:
    text = state(observations)
    return str((number_after(text, "between") + number_after(text, "and")) // 2)


HIGHER_LOWER = Family(
    name="higher_lower",
    skill=SKILL,
    parameters=by_level(
        "top rounds max_turns",
        [(5, 1, 3), (7, 1, 4), (9, 1, 5)],
        [(6, 1, 3), (8, 1, 4), (9, 1, 4)],
        [(7, 2, 6), (8, 2, 7), (9, 2, 8)],
    ),
    num_words=1,
    source=program(
        "higher_lower",
        reset="self.guess = self.secret = self.right = 0",
        observe="""
            if self.guess == self.secret:
                self.low, self.high, self.secret = 1, self.top, self.rng.randint(1, self.top)
            return f"guess $word: between {self.low} and {self.high}"
        """,
        step="""
            self.guess = int(move) if move in list("123456789") else 0
            if self.guess < self.secret:
                self.low = max(self.low, self.guess + 1)
            if self.guess > self.secret:
                self.high = min(self.high, self.guess - 1)
            self.right += self.guess == self.secret
            won, lost = self.right == self.rounds, False
        """,
    ),
    hint=lambda parameters, words: "guess the number in the middle between the two",
    actions=lambda observations: DIGITS[1:],
    best_action=_best_guess,
)


def _best_opener(observations: Sequence[str], rng: random.Random) -> str:
    numbers = named_numbers(state(observations))
    wanted = number_after(question(observations), "opens")
    return next(name for name in numbers if numbers[name] == wanted)


RULE_DOORS = Family(
    name="rule_doors",
    skill=SKILL,
    parameters=question_parameters,
    num_words=4,
    source=question_program(
        "rule_doors",
        observe="""
            names = self.rng.sample(self.names[: self.options], self.options)
            items = dict(zip(names, self.rng.sample(range(6), self.options)))
            self.answer = self.rng.choice(names)
            return f"opens {items[self.answer]}: " + " ".join(f"{name} {items[name]}" for name in items)
        """,
    ),
    hint=lambda parameters, words: "pick the one whose number is the number that opens",
    actions=shown_names,
    best_action=_best_opener,
)


def _suspects(observations: Sequence[str]) -> list[str]:
    return state(observations).split(" not ")[0].split()


def _best_naming(observations: Sequence[str], rng: random.Random) -> str:
    left = set(_suspects(observations)) - set(state(observations).split(" not ")[1:])
    return left.pop() if len(left) == 1 else "wait"


LAST_LEFT = Family(
    name="last_left",
    skill=SKILL,
    parameters=by_level(
        "options clues max_turns",
        [(3, 0, 4), (3, 1, 3)],
        [(3, 0, 3), (4, 1, 4), (4, 1, 3)],
        [(4, 0, 4), (4, 0, 5)],
    ),
    num_words=4,
    source=program(
        "last_left",
        reset="self.answer, *self.others = self.rng.sample(self.names[: self.options], self.options)",
        observe="""
            names = " ".join(sorted([self.answer, *self.others]))
            known = self.others[: self.clues + self.turn_count]
            return f"wait or name: {names}" + "".join(f" not {name}" for name in known)
        """,
        step="won, lost = move == self.answer, move in self.others",
    ),
    hint=lambda parameters, words: "wait until only one is left, then name it",
    actions=lambda observations: ["wait", *_suspects(observations)],
    best_action=_best_naming,
)


def _stacked(observations: Sequence[str]) -> tuple[list[str], list[str]]:
    pairs = [pair.split(" over ") for pair in state(observations).split(", ")]
    return [upper for upper, _ in pairs], [lower for _, lower in pairs]


def _best_top(observations: Sequence[str], rng: random.Random) -> str:
    uppers, lowers = _stacked(observations)
    return next(name for name in uppers if name not in lowers)


TOP_OF_STACK = Family(
    name="top_of_stack",
    skill=SKILL,
    parameters=question_parameters,
    num_words=4,
    source=question_program(
        "top_of_stack",
        observe="""
            stack = self.rng.sample(self.names[: self.options], self.options)
            self.answer = stack[0]
            pairs = [f"{upper} over {lower}" for upper, lower in zip(stack, stack[1:])]
            return "top: " + ", ".join(self.rng.sample(pairs, len(pairs)))
        """,
    ),
    hint=lambda parameters, words: "pick the one that is over another and under none",
    actions=lambda observations: sorted({name for names in _stacked(observations) for name in names}),
    best_action=_best_top,
)

FAMILIES = (HIGHER_LOWER, RULE_DOORS, LAST_LEFT, TOP_OF_STACK)
