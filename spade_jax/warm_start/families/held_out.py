"""Two families that no training sees: they recombine what the others teach, in the same words."""

from spade_jax.warm_start.families.base import Family, by_level, program, shown_letters
from spade_jax.warm_start.families.optimization import best_most
from spade_jax.warm_start.families.spatial import DIRECTIONS, best_step

# The stops in order of key_door, on the grid with traps of trap_walk.
COURIER = Family(
    name="courier",
    skill="Spatial Reasoning",
    parameters=by_level(
        "size traps max_turns",
        [(2, 1, 5), (3, 1, 9)],
        [(3, 1, 8), (3, 2, 9)],
        [(3, 1, 7), (4, 1, 9)],
    ),
    source=program(
        "courier",
        reset="""
            self.cells = [(x, y) for x in range(self.size) for y in range(self.size)]
            self.you, *self.todo = self.rng.sample(self.cells, self.traps + 3)
            self.pits = [self.todo.pop() for trap in range(self.traps)]
        """,
        observe="""
            goals = " then ".join("%d,%d" % cell for cell in self.todo)
            traps = "".join(" trap %d,%d" % cell for cell in self.pits)
            return "find $word up down left right: you %d,%d goal " % self.you + goals + traps
        """,
        step="""
            x, y = self.you
            x += (move == "right") - (move == "left")
            y += (move == "up") - (move == "down")
            if (x, y) in self.cells:
                self.you = x, y
            if self.you == self.todo[0]:
                self.todo.pop(0)
            won, lost = not self.todo, self.you in self.pits
        """,
    ),
    hint=lambda parameters: "step towards the goal but never onto a trap",
    actions=lambda observations: list(DIRECTIONS),
    best_action=best_step,
)

# The greatest number of pick_most, summed up towards a goal.
MARKET = Family(
    name="market",
    skill="Optimization",
    parameters=by_level(
        "options share rounds max_turns",
        [(3, 6, 1, 1), (4, 7, 1, 1)],
        [(3, 6, 2, 2), (4, 7, 2, 2)],
        [(3, 6, 3, 3), (4, 7, 3, 3)],
    ),
    source=program(
        "market",
        reset="self.need = self.share * self.rounds",
        observe="""
            self.items = dict(zip("ABCD"[: self.options], self.rng.sample(range(10), self.options)))
            items = " ".join(f"{name} {self.items[name]}" for name in self.items)
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
