"""Families for Optimization: the most of some, the most that fits, buying low and selling high."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
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

SKILL = "Optimization"


def best_most(observations: Sequence[str], rng: random.Random) -> str:
    """The name with the greatest number."""
    numbers = named_numbers(state(observations))
    return max(numbers, key=numbers.__getitem__)


PICK_MOST = Family(
    name="pick_most",
    skill=SKILL,
    parameters=question_parameters,
    num_words=4,
    source=question_program(
        "pick_most",
        observe="""
            names = self.rng.sample(self.names[: self.options], self.options)
            items = dict(zip(names, self.rng.sample(range(6), self.options)))
            self.answer = max(items, key=items.get)
            return "most: " + " ".join(f"{name} {items[name]}" for name in items)
        """,
    ),
    hint=lambda parameters, words: "pick the one with the greatest number",
    actions=shown_names,
    best_action=best_most,
)


def _best_fit(observations: Sequence[str], rng: random.Random) -> str:
    numbers = named_numbers(state(observations))
    room = number_after(question(observations), "room")
    return max((name for name in numbers if numbers[name] <= room), key=numbers.__getitem__)


BEST_FIT = Family(
    name="best_fit",
    skill=SKILL,
    parameters=question_parameters,
    num_words=4,
    source=question_program(
        "best_fit",
        observe="""
            names = self.rng.sample(self.names[: self.options], self.options)
            items = dict(zip(names, self.rng.sample(range(6), self.options)))
            room = self.rng.randint(min(items.values()), 6)
            self.answer = max((name for name in items if items[name] <= room), key=items.get)
            return f"room {room}: " + " ".join(f"{name} {items[name]}" for name in items)
        """,
    ),
    hint=lambda parameters, words: "pick the greatest number that is not above the room",
    actions=shown_names,
    best_action=_best_fit,
)


def _best_trade(observations: Sequence[str], rng: random.Random) -> str:
    text = state(observations)
    paid, price = number_after(text, "paid"), number_after(text, "price")
    gain = number_after(question(observations), "gain")
    if paid:
        return "sell" if price - paid >= gain else "wait"
    return "buy" if price <= 3 else "wait"


TRADE = Family(
    name="trade",
    skill=SKILL,
    parameters=by_level(
        "gain max_turns",
        [(3, 7), (3, 8), (3, 9)],
        [(4, 8), (4, 9)],
        [(5, 8), (5, 9)],
    ),
    num_words=1,
    source=program(
        "trade",
        reset="self.paid = 0",
        observe="""
            self.price = self.rng.randint(1, 9)
            return f"buy sell wait $word gain {self.gain}: paid {self.paid} price {self.price}"
        """,
        step="""
            sold = move == "sell" and self.paid > 0
            won = sold and self.price - self.paid >= self.gain
            lost = sold and not won
            if move == "buy" and self.paid == 0:
                self.paid = self.price
        """,
    ),
    hint=lambda parameters, words: (
        f"buy when the price is low, sell when it is {parameters['gain']} above paid"
    ),
    actions=lambda observations: ["buy", "sell", "wait"],
    best_action=_best_trade,
)

FAMILIES = (PICK_MOST, BEST_FIT, TRADE)
