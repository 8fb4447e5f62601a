"""Families for Causal Inference: chains of lights, levers of unknown effect, the cause from two trials."""

import random
import re
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    LETTERS,
    Family,
    Parameters,
    by_level,
    number_after,
    program,
    question_parameters,
    question_program,
    shown_letters,
    state,
)

SKILL = "Causal Inference"


def _best_light(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    return dict(re.findall(r"(\w) lights (\w)", text))[text[-1]]


LIGHTS_CHAIN = Family(
    name="lights_chain",
    skill=SKILL,
    parameters=by_level(
        "options max_turns",
        [(2, 1), (3, 2), (3, 3), (4, 5)],
        [(4, 4)],
        [(4, 3)],
    ),
    source=program(
        "lights_chain",
        reset="""
            self.lit, *self.todo = row = self.rng.sample("ABCD"[: self.options], self.options)
            self.pairs = [f"{cause} lights {effect}" for cause, effect in zip(row, self.todo)]
            self.rng.shuffle(self.pairs)
        """,
        observe="""
            return "next $word: " + " ".join(self.pairs) + f" lit {self.lit}"
        """,
        step="""
            if move == self.todo[0]:
                self.lit = self.todo.pop(0)
            won, lost = not self.todo, False
        """,
    ),
    hint=lambda parameters: "pick the one that the lit one lights",
    actions=shown_letters,
    best_action=_best_light,
)


def _best_lever(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    text = state(observations)
    wanted = "up" if number_after(text, "now") < number_after(text, "goal") else "down"
    effects = dict(re.findall(r"\b([A-D]) (up|down|no|\?)", text))
    known = [name for name, effect in effects.items() if effect == wanted]
    told = re.findall(rf"\b([A-D]) goes {wanted}", hint)
    untried = [name for name, effect in effects.items() if effect == "?"]
    return (known or told or untried)[0]


def _levers_hint(parameters: Parameters) -> str:
    up, down = LETTERS[parameters["up"]], LETTERS[parameters["down"]]
    return f"{up} goes up and {down} goes down, so pull towards the goal"


# The same levers do the same in all instances of a program: that is what its hint may tell.
HIDDEN_LEVERS = Family(
    name="hidden_levers",
    skill=SKILL,
    parameters=by_level(
        "options up down far max_turns",
        [(2, up, 1 - up, far, turns) for up in range(2) for far, turns in ((1, 1), (1, 2), (2, 4))],
        [(3, up, down, 2, 4) for up in range(3) for down in range(3) if up != down],
        [(3, up, down, 2, 3) for up in range(3) for down in range(3) if up != down],
    ),
    source=program(
        "hidden_levers",
        reset="""
            self.known = dict.fromkeys("ABCD"[: self.options], "?")
            self.now = self.rng.randint(self.far, 9 - self.far)
            self.goal = self.now + self.rng.choice([-self.far, self.far])
        """,
        observe="""
            known = " ".join(f"{name} {self.known[name]}" for name in self.known)
            return f"pull $word: now {self.now} goal {self.goal} {known}"
        """,
        step="""
            if move in self.known:
                by = (move == "ABCD"[self.up]) - (move == "ABCD"[self.down])
                self.known[move] = ("no", "up", "down")[by]
                self.now += by
            won, lost = self.now == self.goal, self.now not in range(10)
        """,
    ),
    hint=_levers_hint,
    actions=shown_letters,
    best_action=_best_lever,
)


def _best_cause(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    on, off = state(observations).removesuffix(" off").split(" on ")
    return next(name for name in on.split() if name not in off.split())


FIND_CAUSE = Family(
    name="find_cause",
    skill=SKILL,
    parameters=question_parameters,
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
