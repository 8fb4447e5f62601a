"""Families for Causal Inference: chains of needs, levers of unknown effect, the cause from two trials."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.families.base import (
    Family,
    by_level,
    number_after,
    program,
    question_parameters,
    question_program,
    state,
)

SKILL = "Causal Inference"


def _needs(observations: Sequence[str]) -> tuple[dict[str, str], str]:
    *pairs, lit = state(observations).split(", ")
    needs = dict(pair.split(" needs ")[::-1] for pair in pairs)
    return needs, lit.removeprefix("lit ")


def _all_lights(observations: Sequence[str]) -> list[str]:
    needs, _ = _needs(observations)
    return sorted({*needs, *needs.values()})


def _best_light(observations: Sequence[str], rng: random.Random) -> str:
    needs, lit = _needs(observations)
    return needs[lit]


NEEDS_CHAIN = Family(
    name="needs_chain",
    skill=SKILL,
    parameters=by_level(
        "options max_turns",
        [(3, 2), (4, 5)],
        [(4, 4)],
        [(4, 3)],
    ),
    num_words=4,
    source=program(
        "needs_chain",
        reset="""
            self.lit, *self.todo = chain = self.rng.sample(self.names[: self.options], self.options)
            self.pairs = [f"{name} needs {need}" for need, name in zip(chain, self.todo)]
            self.rng.shuffle(self.pairs)
        """,
        observe="""
            return "light: " + ", ".join(self.pairs) + f", lit {self.lit}"
        """,
        step="""
            if move == self.todo[0]:
                self.lit = self.todo.pop(0)
            won, lost = not self.todo, False
        """,
    ),
    hint=lambda parameters, words: "light the one that needs the one that is lit",
    actions=_all_lights,
    best_action=_best_light,
)


def _levers(observations: Sequence[str]) -> dict[str, str]:
    items = state(observations).split()[4:]
    return dict(zip(items[::2], items[1::2], strict=True))


def _best_lever(observations: Sequence[str], rng: random.Random) -> str:
    text, levers = state(observations), _levers(observations)
    wanted = "up" if number_after(text, "now") < number_after(text, "goal") else "down"
    untried = [name for name, effect in levers.items() if effect == "?"]
    return rng.choice([name for name, effect in levers.items() if effect == wanted] or untried)


HIDDEN_LEVERS = Family(
    name="hidden_levers",
    skill=SKILL,
    parameters=by_level(
        "options far max_turns",
        [(2, 3, 5), (3, 2, 5), (2, 3, 6)],
        [(3, 3, 6), (2, 4, 6), (4, 2, 6)],
        [(3, 4, 7), (4, 4, 8), (4, 3, 7)],
    ),
    num_words=4,
    source=program(
        "hidden_levers",
        reset="""
            levers = self.rng.sample(self.names[: self.options], self.options)
            self.levers = dict(zip(levers, ("up", "down", "no", "no")))
            self.known = {name: "?" for name in sorted(self.levers)}
            self.now = self.rng.randint(self.far, 9 - self.far)
            self.goal = self.now + self.rng.choice([-self.far, self.far])
        """,
        observe="""
            known = " ".join(f"{name} {self.known[name]}" for name in self.known)
            return f"pull: now {self.now} goal {self.goal} {known}"
        """,
        step="""
            if move in self.levers:
                self.known[move] = self.levers[move]
                self.now += (self.known[move] == "up") - (self.known[move] == "down")
            won, lost = self.now == self.goal, self.now not in range(10)
        """,
    ),
    hint=lambda parameters, words: "try each lever once, then pull the one that moves now to the goal",
    actions=lambda observations: list(_levers(observations)),
    best_action=_best_lever,
)


def _trials(observations: Sequence[str]) -> tuple[list[str], list[str]]:
    on, off = state(observations).split(" on, ")
    return on.split(), off.removesuffix(" off").split()


def _best_cause(observations: Sequence[str], rng: random.Random) -> str:
    on, off = _trials(observations)
    return next(name for name in on if name not in off)


FIND_CAUSE = Family(
    name="find_cause",
    skill=SKILL,
    parameters=question_parameters,
    num_words=4,
    source=question_program(
        "find_cause",
        observe="""
            self.answer, *others = names = self.rng.sample(self.names[: self.options], self.options)
            on = " ".join(sorted(names[:-1]))
            off = " ".join(sorted(others))
            return f"cause: {on} on, {off} off"
        """,
    ),
    hint=lambda parameters, words: "pick the one that is in on but not in off",
    actions=lambda observations: sorted({name for names in _trials(observations) for name in names}),
    best_action=_best_cause,
)

FAMILIES = (NEEDS_CHAIN, HIDDEN_LEVERS, FIND_CAUSE)
