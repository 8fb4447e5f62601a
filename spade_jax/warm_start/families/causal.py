"""Families for Causal Inference: chains of lights, levers of unknown effect, the cause from two trials."""

import random
import re
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    LETTERS,
    asked_letters,
    program,
    question_levels,
    question_program,
    shown_letters,
    state,
)
from spade_jax.warm_start.family import Family, by_level

SKILL = "Causal Inference"


def _best_light(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    return dict(re.findall(r"([A-D])([A-D])", text))[text[-1]]


LIGHTS_CHAIN = Family(
    name="lights_chain",
    skill=SKILL,
    levels=by_level(
        "options max_turns",
        [(2, 1), (3, 2), (3, 3), (4, 5)],
        [(4, 4)],
        [(4, 3)],
    ),
    source=program(
        "lights_chain",
        reset="""
            self.lit, *self.todo = row = self.rng.sample("ABCD"[: self.options], self.options)
            self.pairs = [cause + effect for cause, effect in zip(row, self.todo)]
            self.rng.shuffle(self.pairs)
        """,
        observe="""
            return "light $word: " + " ".join(self.pairs) + f" lit {self.lit}"
        """,
        step="""
            if move == self.todo[0]:
                self.lit = self.todo.pop(0)
            won, lost = not self.todo, False
        """,
    ),
    hint=lambda parameters: "each pair is a cause and its effect: pick what the lit one lights",
    actions=shown_letters,
    best_action=_best_light,
)


def _best_lever(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    levers, wanted = asked_letters(observations), text.split()[1]
    known = dict(re.findall(r"(up|down) ([A-D])", f"{hint} {text}"))
    tried = re.findall(r"(?:up|down|no) ([A-D])", text)
    return known.get(wanted) or next(lever for lever in levers if lever not in tried)


# The same levers do the same in all instances of a program: that is what its hint may tell.
HIDDEN_LEVERS = Family(
    name="hidden_levers",
    skill=SKILL,
    levels=by_level(
        "options up down far max_turns",
        [(2, up, 1 - up, far, turns) for up in range(2) for far, turns in ((1, 1), (1, 2), (2, 4))],
        [(3, up, down, 2, 4) for up in range(3) for down in range(3) if up != down],
        [(3, up, down, 2, 3) for up in range(3) for down in range(3) if up != down],
    ),
    source=program(
        "hidden_levers",
        reset="""
            self.known = {}
            self.way, self.more = self.rng.choice(["up", "down"]), self.far
        """,
        observe="""
            known = "".join(f" {self.known[name]} {name}" for name in self.known)
            return f"pull $word {' '.join('ABCD'[: self.options])}: {self.more} {self.way}{known}"
        """,
        step="""
            if move in list("ABCD"[: self.options]):
                effects = {self.up: "up", self.down: "down"}
                self.known[move] = effects.get("ABCD".index(move), "no")
                self.more -= (self.known[move] == self.way) - (self.known[move] not in (self.way, "no"))
            won, lost = self.more == 0, self.more > 9
        """,
    ),
    hint=lambda parameters: f"up {LETTERS[parameters['up']]} and down {LETTERS[parameters['down']]}, always",
    actions=asked_letters,
    best_action=_best_lever,
)


def _best_cause(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    on, off = state(observations).removesuffix(" off").split(" on ")
    return next(name for name in on.split() if name not in off.split())


FIND_CAUSE = Family(
    name="find_cause",
    skill=SKILL,
    levels=question_levels,
    source=question_program(
        "find_cause",
        observe="""
            names = "ABCD"[: self.options]
            self.answer = self.rng.choice(names)
            return f"cause $word: {' '.join(names)} on {' '.join(names.replace(self.answer, ''))} off"
        """,
    ),
    hint=lambda parameters: "pick the one that is in on but not in off",
    actions=shown_letters,
    best_action=_best_cause,
)

FAMILIES = (LIGHTS_CHAIN, HIDDEN_LEVERS, FIND_CAUSE)
