"""Families for Optimization: the most of some, the least, buying low and selling high."""

import random
from collections.abc import Callable, Sequence

from spade_jax.warm_start.families.base import (
    number_after,
    program,
    question_levels,
    question_program,
    shown_items,
    shown_letters,
    state,
)
from spade_jax.warm_start.family import Family, Parameters, by_level

SKILL = "Optimization"


def _pick_program(name: str, *, best: str, asked: str) -> Callable[[Parameters, str], str]:
    return question_program(
        name,
        observe=f"""
            items = dict(zip("ABCD"[: self.options], self.rng.sample(range(1, 6), self.options)))
            self.answer = {best}(items, key=items.get)
            return "{asked} $word: " + " ".join(f"{{name}}{{items[name]}}" for name in items)
        """,
    )


def best_most(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    """The letter with the greatest number."""
    items = shown_items(observations)
    return max(items, key=items.__getitem__)


PICK_MOST = Family(
    name="pick_most",
    skill=SKILL,
    levels=question_levels,
    source=_pick_program("pick_most", best="max", asked="most"),
    hint=lambda parameters: "pick the one with the greatest number",
    actions=shown_letters,
    best_action=best_most,
)


def _best_least(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    items = shown_items(observations)
    return min(items, key=items.__getitem__)


PICK_LEAST = Family(
    name="pick_least",
    skill=SKILL,
    levels=question_levels,
    source=_pick_program("pick_least", best="min", asked="least"),
    hint=lambda parameters: "pick the one with the smallest number",
    actions=shown_letters,
    best_action=_best_least,
)


SAFE_GAIN = 4


def _best_trade(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    paid, price = number_after(text, "paid"), number_after(text, "price")
    gain = number_after(hint, "is") if hint else SAFE_GAIN
    if paid:
        return "sell" if price - paid >= gain else "wait"
    return "buy" if price <= 3 else "wait"


# The observation does not tell the gain that is asked for: that is what the hint may tell.
TRADE = Family(
    name="trade",
    skill=SKILL,
    levels=by_level(
        "gain max_turns",
        [(2, 6), (2, 7), (3, 8)],
        [(3, 7), (3, 6), (4, 8), (4, 7), (4, 6)],
        [(5, 9), (5, 8)],
    ),
    source=program(
        "trade",
        reset="self.paid = 0",
        observe="""
            self.price = self.rng.randint(1, 9)
            return f"buy sell wait $word: paid {self.paid} price {self.price}"
        """,
        step="""
            sold = move == "sell" and self.paid > 0
            won = sold and self.price - self.paid >= self.gain
            lost = sold and not won
            if move == "buy" and self.paid == 0:
                self.paid = self.price
        """,
    ),
    hint=lambda parameters: f"buy when the price is low, sell when it is {parameters['gain']} above paid",
    actions=lambda observations: ["buy", "sell", "wait"],
    best_action=_best_trade,
)

FAMILIES = (PICK_MOST, PICK_LEAST, TRADE)
