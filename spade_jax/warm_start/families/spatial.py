"""Families for Spatial Reasoning: a grid with traps, a line with stops in order, lanes to dodge into."""

import random
from collections.abc import Callable, Sequence

from spade_jax.warm_start.families.base import (
    asked_letters,
    number_after,
    program,
    shown_letters,
    state,
)
from spade_jax.warm_start.family import Family, Parameters, by_level

SKILL = "Spatial Reasoning"

DIRECTIONS = ("up", "down", "left", "right")


def best_step(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    """A direction that leads to the goal and onto no trap, or else one that only avoids the traps."""
    goal, traps = (part.split() for part in state(observations).removeprefix("goal ").split(" trap"))
    safe = [way for way in DIRECTIONS if way not in traps]
    return rng.choice([way for way in goal if way in safe] or safe or DIRECTIONS)


def walk_program(name: str, *, stops: int, shown: str) -> Callable[[Parameters, str], str]:
    """The source of a walk on a grid: the walker sees which ways lead to its goal and which onto a trap.

    Args:
      stops: goals to reach, one after the other.
      shown: the question, the text before the colon.
    """
    return program(
        name,
        reset=f"""
            self.cells = [(x, y) for x in range(self.size) for y in range(self.size)]
            self.you, *cells = self.rng.sample(self.cells, self.traps + {stops + 1})
            self.goals, self.pits = cells[:{stops}], cells[{stops}:]
        """,
        observe=f"""
            x, y = self.you
            to_x, to_y = self.goals[0] if self.goals else self.you
            self.ways = {{"up": (x, y + 1), "down": (x, y - 1), "left": (x - 1, y), "right": (x + 1, y)}}
            leads = {{"up": y < to_y, "down": y > to_y, "left": x > to_x, "right": x < to_x}}
            goal = " ".join(way for way in leads if leads[way])
            trap = " ".join(way for way in self.ways if self.ways[way] in self.pits)
            return f"{shown} up down left right: goal {{goal}} trap {{trap}}"
        """,
        step="""
            cell = self.ways.get(move)
            if cell in self.cells:
                self.you = cell
            if self.you == self.goals[0]:
                self.goals.pop(0)
            won, lost = not self.goals, self.you in self.pits
        """,
    )


TRAP_WALK = Family(
    name="trap_walk",
    skill=SKILL,
    levels=by_level(
        "size traps max_turns",
        [(2, 1, 2), (3, 1, 4), (3, 2, 5)],
        [(3, 3, 5), (4, 2, 6), (4, 3, 6), (5, 3, 8), (5, 4, 8), (5, 5, 9)],
        [(5, 6, 9), (6, 6, 9), (6, 7, 9)],
    ),
    source=walk_program("trap_walk", stops=1, shown="find $word"),
    hint=lambda parameters: "go a way that leads to the goal, but never onto a trap",
    actions=lambda observations: list(DIRECTIONS),
    best_action=best_step,
)


def _best_on_line(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    return "right" if number_after(text, "you") < number_after(text, "goal") else "left"


KEY_DOOR = Family(
    name="key_door",
    skill=SKILL,
    levels=by_level(
        "size stops max_turns",
        [(3, 1, 2), (4, 1, 3), (5, 1, 4)],
        [(6, 1, 5), (4, 2, 6), (5, 2, 7), (6, 2, 8), (4, 3, 8)],
        [(6, 2, 7), (5, 3, 8), (6, 3, 9)],
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
    return rng.choice(
        [lane for lane in asked_letters(observations) if lane not in shown_letters(observations)]
    )


LANE_DODGE = Family(
    name="lane_dodge",
    skill=SKILL,
    levels=by_level(
        "lanes traps rounds max_turns",
        [(2, 1, 1, 1), (3, 2, 1, 1), (4, 3, 1, 1)],
        [(lanes, lanes - 1, rounds, rounds) for rounds in (2, 3, 4, 5, 6) for lanes in (2, 3, 4)],
        [(lanes, lanes - 1, rounds, rounds) for rounds in (7, 8) for lanes in (2, 3, 4)],
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
    actions=asked_letters,
    best_action=_best_lane,
)

FAMILIES = (TRAP_WALK, KEY_DOOR, LANE_DODGE)
