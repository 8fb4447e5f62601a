"""Families for Spatial Reasoning: a grid with traps, a line with stops in order, lanes to dodge into."""

import random
import re
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    Family,
    by_level,
    cells_after,
    number_after,
    program,
    question,
    shown_letters,
    state,
)

SKILL = "Spatial Reasoning"

Cell = tuple[int, int]

DIRECTIONS = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}


def best_step(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    """A direction on a grid that avoids traps and, where one does, comes nearer without a dead end."""
    text = state(observations)
    [you], [goal] = cells_after(text, "you"), cells_after(text, "goal")
    traps = cells_after(text, "trap")

    def moves(cell: Cell) -> dict[str, Cell]:
        cells = {name: (cell[0] + dx, cell[1] + dy) for name, (dx, dy) in DIRECTIONS.items()}
        return {name: cell for name, cell in cells.items() if cell not in traps}

    def distance(cell: Cell) -> int:
        return abs(cell[0] - goal[0]) + abs(cell[1] - goal[1])

    def nearer(cell: Cell) -> dict[str, Cell]:
        return {name: to for name, to in moves(cell).items() if distance(to) < distance(cell)}

    open_ended = [name for name, to in nearer(you).items() if to == goal or nearer(to)]
    return rng.choice(open_ended or list(nearer(you)) or list(moves(you)) or list(DIRECTIONS))


TRAP_WALK = Family(
    name="trap_walk",
    skill=SKILL,
    parameters=by_level(
        "size traps max_turns",
        [(2, 1, 2), (3, 1, 4), (3, 1, 5)],
        [(3, 2, 4), (3, 2, 5), (4, 1, 6)],
        [(4, 2, 6), (4, 2, 7), (4, 3, 7)],
    ),
    source=program(
        "trap_walk",
        reset="""
            self.cells = [(x, y) for x in range(self.size) for y in range(self.size)]
            self.you, self.goal, *self.pits = self.rng.sample(self.cells, self.traps + 2)
        """,
        observe="""
            text = "find $word up down left right: you %d,%d goal %d,%d" + " trap %d,%d" * self.traps
            return text % sum(self.pits, self.you + self.goal)
        """,
        step="""
            x, y = self.you
            x += (move == "right") - (move == "left")
            y += (move == "up") - (move == "down")
            if (x, y) in self.cells:
                self.you = x, y
            won, lost = self.you == self.goal, self.you in self.pits
        """,
    ),
    hint=lambda parameters: "step towards the goal but never onto a trap",
    actions=lambda observations: list(DIRECTIONS),
    best_action=best_step,
)


def _best_on_line(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    return "right" if number_after(text, "you") < number_after(text, "goal") else "left"


KEY_DOOR = Family(
    name="key_door",
    skill=SKILL,
    parameters=by_level(
        "size stops max_turns",
        [(3, 1, 2), (4, 1, 3), (5, 1, 4)],
        [(4, 2, 6), (5, 2, 6), (6, 1, 5)],
        [(5, 2, 5), (6, 2, 6), (6, 2, 7)],
    ),
    source=program(
        "key_door",
        reset="""
            self.you, *self.todo = self.rng.sample(range(self.size), self.stops + 1)
        """,
        observe="""
            goals = " then ".join(map(str, self.todo))
            return f"find $word left right: you {self.you} goal {goals}"
        """,
        step="""
            x = self.you + (move == "right") - (move == "left")
            if x in range(self.size):
                self.you = x
            if self.you == self.todo[0]:
                self.todo.pop(0)
            won, lost = not self.todo, False
        """,
    ),
    hint=lambda parameters: "step towards the goal, one number at a time",
    actions=lambda observations: ["left", "right"],
    best_action=_best_on_line,
)


def _best_lane(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    return rng.choice([lane for lane in _lanes(observations) if lane not in shown_letters(observations)])


def _lanes(observations: Sequence[str]) -> list[str]:
    return re.findall(r"\b[A-D]\b", question(observations))


LANE_DODGE = Family(
    name="lane_dodge",
    skill=SKILL,
    parameters=by_level(
        "lanes traps rounds max_turns",
        [(2, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (4, 2, 1, 1)],
        [(3, 2, 2, 2), (4, 3, 1, 1), (4, 2, 2, 2)],
        [(4, 2, 3, 3), (3, 2, 3, 3), (4, 3, 2, 2)],
    ),
    source=program(
        "lane_dodge",
        reset="self.dodged = 0",
        observe="""
            lanes = "ABCD"[: self.lanes]
            self.pits = sorted(self.rng.sample(lanes, self.traps))
            return f"dodge $word {' '.join(lanes)}: trap {' '.join(self.pits)}"
        """,
        step="""
            lost = move in self.pits
            self.dodged += not lost and move in list("ABCD")
            won = self.dodged == self.rounds
        """,
    ),
    hint=lambda parameters: "go where no trap is, whichever lane that is",
    actions=_lanes,
    best_action=_best_lane,
)

FAMILIES = (TRAP_WALK, KEY_DOOR, LANE_DODGE)
