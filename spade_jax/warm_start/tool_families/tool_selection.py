"""Families for Tool Selection: the tool that is named by what it does, price or stock, whom to trust."""

import random
import re
from collections.abc import Sequence

from spade_jax.warm_start.family import Family, by_level
from spade_jax.warm_start.tool_families.base import (
    DONE,
    all_done,
    answer,
    call,
    found,
    instruction_program,
    keys_asked,
    possible_sums,
    question_program,
    tool,
)

SKILL = "Tool Selection"

_ASKED = {"greatest": "most", "smallest": "least", "first": "head", "last": "tail"}


def _best_kind(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    if all_done(observations):
        return DONE
    return call(_ASKED[observations[-1].split()[-1]])


CHOOSE_TOOL = Family(
    name="choose_tool",
    skill=SKILL,
    levels=by_level(
        "options rounds max_turns",
        [(options, 1, 2) for options in (2, 3, 4)],
        [(options, rounds, rounds + 1) for rounds in (2, 3, 4) for options in (2, 3, 4)],
        [(options, rounds, rounds + 1) for rounds in (5, 6) for options in (3, 4)],
    ),
    source=instruction_program(
        "choose_tool",
        tools=[tool(name, f"Tells the {asked} one.") for asked, name in _ASKED.items()],
        reset="""
            asked = self.rng.choices(["greatest", "smallest", "first", "last"][: self.options], k=self.rounds)
            self._state = {"told": []}
            self._user_messages = [f"tell the {which}" for which in asked]
            rows = [asked[: index + 1] for index in range(self.rounds)]
            self._message_criteria = [lambda state, to=row: state["told"][: len(to)] == to for row in rows]
        """,
        methods="""
            def tool_most(self):
                return self._tell("greatest")
            def tool_least(self):
                return self._tell("smallest")
            def tool_head(self):
                return self._tell("first")
            def tool_tail(self):
                return self._tell("last")
            def _tell(self, which):
                self._state["told"].append(which)
                return f"the {which}" + self._advance_if_done()
        """,
    ),
    hint=lambda parameters: "read what each tool tells, and call the one that tells what is asked",
    actions=lambda observations: [*map(call, _ASKED.values()), DONE],
    best_action=_best_kind,
)

_SHOWN = r"(price|stock) ([A-D])"


def _best_source(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    known = dict(found(observations, r"^((?:price|stock) [A-D]) (\d)$"))
    for name, key in re.findall(_SHOWN, observations[0]):
        if f"{name} {key}" not in known:
            return call(name, key=key)
    return answer(sum(int(known[" ".join(asked)]) for asked in re.findall(_SHOWN, observations[0])))


PRICE_STOCK = Family(
    name="price_stock",
    skill=SKILL,
    levels=by_level(
        "terms top max_turns",
        [(1, 9, 3), (1, 9, 2)],
        [(2, 2, 4), (2, 2, 3), (2, 3, 4), (2, 3, 3), (2, 4, 4), (2, 4, 3)],
        [(3, 2, 4), (3, 3, 5), (3, 3, 4)],
    ),
    source=question_program(
        "price_stock",
        tools=[tool("price", "Tells a price.", key="string"), tool("stock", "Counts a stock.", key="string")],
        reset="""
            names = [f"{kind} {key}" for kind in ("price", "stock") for key in "ABCD"]
            asked = self.rng.sample(names, self.terms)
            self._state = {name: self.rng.randint(1, self.top) for name in names}
            self._expected_answer = sum(self._state[name] for name in asked)
        """,
        question="$word sum of {' '.join(asked)}",
        methods="""
            def tool_price(self, key):
                return f"price {key} {self._state.get(f'price {key}', 'unknown')}"
            def tool_stock(self, key):
                return f"stock {key} {self._state.get(f'stock {key}', 'unknown')}"
        """,
    ),
    hint=lambda parameters: "call the tool that is named before each one, and answer all together",
    actions=lambda observations: [
        *(call(name, key=key) for name in ("price", "stock") for key in keys_asked(observations)),
        *map(answer, possible_sums(observations)),
    ],
    best_action=_best_source,
)


def _best_trusted(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    known = dict(found(observations, r"([A-D]) (\d)"))
    missing = [key for key in keys_asked(observations) if key not in known]
    if not missing:
        return answer(sum(map(int, known.values())))
    unsure = found(observations, r"(desk|shop) [A-D] unsure")
    trusted = found(observations, r"(desk|shop) [A-D] \d") or re.findall("ask the (desk|shop)", hint)
    return call(rng.choice(trusted or [name for name in _SOURCES if name not in unsure]), key=missing[0])


_SOURCES = ("desk", "shop")

# In all instances of a program the same source knows: that is what its hint may tell.
TRUST_SOURCE = Family(
    name="trust_source",
    skill=SKILL,
    levels=by_level(
        "good terms max_turns",
        [(good, 1, turns) for turns in (4, 3) for good in range(2)],
        [(good, terms, turns) for terms, turns in ((1, 2), (2, 4)) for good in range(2)],
        [(good, terms, turns) for terms, turns in ((2, 3), (3, 5)) for good in range(2)],
    ),
    source=question_program(
        "trust_source",
        tools=[tool("desk", "Tells a price.", key="string"), tool("shop", "Tells a price.", key="string")],
        reset="""
            asked = self.rng.sample("ABCD", self.terms)
            self._state = {key: self.rng.randint(1, 3) for key in "ABCD"}
            self._expected_answer = sum(self._state[key] for key in asked)
        """,
        question="$word sum of {' '.join(asked)}",
        methods="""
            def tool_desk(self, key):
                return f"desk {key} {'unsure' if self.good else self._state.get(key, 'unknown')}"
            def tool_shop(self, key):
                return f"shop {key} {self._state.get(key, 'unknown') if self.good else 'unsure'}"
        """,
    ),
    hint=lambda parameters: f"ask the {_SOURCES[parameters['good']]} alone, and answer all together",
    actions=lambda observations: [
        *(call(name, key=key) for name in _SOURCES for key in keys_asked(observations)),
        *map(answer, possible_sums(observations)),
    ],
    best_action=_best_trusted,
)

FAMILIES = (CHOOSE_TOOL, PRICE_STOCK, TRUST_SOURCE)
