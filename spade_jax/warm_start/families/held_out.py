"""Two families that no training sees: they recombine what the others teach, in the same words."""

from spade_jax.warm_start.families.base import (
    program,
    shown_letters,
)
from spade_jax.warm_start.families.optimization import best_most
from spade_jax.warm_start.families.spatial import DIRECTIONS, best_step, walk_program
from spade_jax.warm_start.family import Family, by_level

# The walk of trap_walk, to two goals in order as in key_door.
COURIER = Family(
    name="courier",
    skill="Spatial Reasoning",
    levels=by_level(
        "size traps max_turns",
        [(3, 1, 8), (3, 1, 9)],
        [(3, 1, 7), (3, 2, 9)],
        [(3, 2, 7), (4, 2, 9), (4, 3, 9)],
    ),
    source=walk_program("courier", stops=2, shown="find $word"),
    hint=lambda parameters: "go a way that leads to the goal, but never onto a trap",
    actions=lambda observations: list(DIRECTIONS),
    best_action=best_step,
)

# The greatest number of pick_most, summed up towards a goal.
MARKET = Family(
    name="market",
    skill="Optimization",
    levels=by_level(
        "options share rounds max_turns",
        [(3, 3, 1, 1), (3, 4, 1, 1)],
        [(3, 4, 2, 2)],
        [(4, 4, 2, 2)],
    ),
    source=program(
        "market",
        reset="self.need = self.share * self.rounds",
        observe="""
            self.items = dict(zip("ABCD"[: self.options], self.rng.sample(range(1, 6), self.options)))
            items = " ".join(f"{name}{self.items[name]}" for name in self.items)
            return f"most $word need {self.need}: {items}"
        """,
        step="""
            self.need = max(self.need - self.items.get(move, 0), 0)
            won, lost = self.need == 0, False
        """,
    ),
    hint=lambda parameters: "pick the one with the greatest number",
    actions=shown_letters,
    best_action=best_most,
)

FAMILIES = (COURIER, MARKET)
