"""Families for Multi-Step Workflows: stages in their order, copying from one place to another."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.family import Family, by_level
from spade_jax.warm_start.tool_families.api_orchestration import pointed_to
from spade_jax.warm_start.tool_families.base import (
    DONE,
    GET,
    KEYS,
    all_done,
    call,
    found,
    instruction_program,
    lines,
    numbers_told,
    tool,
)

SKILL = "Multi-Step Workflows"

_NEXT = {"new": "pick", "picked": "pack", "packed": "ship"}


def _best_stage(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    if all_done(observations):
        return DONE
    key, stage = found(observations, r"([A-D]) (new|picked|packed)")[-1]
    return call(_NEXT[stage], key=key)


SHIP_ITEMS = Family(
    name="ship_items",
    skill=SKILL,
    levels=by_level(
        "items far max_turns",
        [(1, 1, 3), (1, 1, 2), (1, 2, 4), (1, 2, 3)],
        [(1, 3, 5), (1, 3, 4), (2, 1, 3), (2, 2, 6), (2, 2, 5), (3, 1, 4)],
        [(2, 3, 8), (2, 3, 7), (3, 2, 7), (4, 1, 5)],
    ),
    source=instruction_program(
        "ship_items",
        tools=[
            tool("pick", "Picks a new one.", key="string"),
            tool("pack", "Packs a picked one.", key="string"),
            tool("ship", "Ships a packed one.", key="string"),
        ],
        reset="""
            keys = self.rng.sample("ABCD", self.items)
            stage = ["packed", "picked", "new"][self.far - 1]
            self._state = {key: stage for key in keys}
            self._user_messages = [f"ship {key} {stage}" for key in keys]
            self._message_criteria = [lambda state, key=key: state[key] == "shipped" for key in keys]
        """,
        methods="""
            def tool_pick(self, key):
                return self._move(key, "new", "picked")
            def tool_pack(self, key):
                return self._move(key, "picked", "packed")
            def tool_ship(self, key):
                return self._move(key, "packed", "shipped")
            def _move(self, key, before, after):
                if self._state.get(key) == before:
                    self._state[key] = after
                return f"{key} {self._state.get(key, 'unknown')}" + self._advance_if_done()
        """,
    ),
    hint=lambda parameters: "pick what is new, pack what is picked, ship what is packed",
    actions=lambda observations: [
        *(
            call(name, key=key)
            for name in _NEXT.values()
            for key in sorted(set(found(observations, r"\b([A-D])\b")))
        ),
        DONE,
    ],
    best_action=_best_stage,
)


def best_copy(observations: Sequence[str]) -> str:
    """Reads what is to be written, or what that points to, and writes the number that it finds."""
    if all_done(observations):
        return DONE
    told = pointed_to(observations)
    return call("write", value=int(told)) if told.isdigit() else call("get", key=told)


WRITE_TOOL = tool("write", "Writes a number.", value="integer")


def copy_actions(observations: Sequence[str]) -> list[str]:
    """Reading any key, writing any number that was told, and being done."""
    return [
        *(call("get", key=key) for key in KEYS),
        *(call("write", value=number) for number in numbers_told(observations)),
        DONE,
    ]


WRITE_VALUE = """
    def tool_write(self, value):
        self._state["written"].append(value)
        return f"wrote {value}" + self._advance_if_done()
"""

COPY_VALUES = Family(
    name="copy_values",
    skill=SKILL,
    levels=by_level(
        "rounds max_turns",
        [(1, 4), (1, 3)],
        [(2, 6), (2, 5)],
        [(3, 8), (3, 7)],
    ),
    source=instruction_program(
        "copy_values",
        tools=[GET, WRITE_TOOL],
        reset="""
            keys = self.rng.sample("ABCD", self.rounds)
            values = {key: self.rng.randint(1, 9) for key in "ABCD"}
            self._state = {key: f"is {values[key]}" for key in values} | {"written": []}
            self._user_messages = [f"write {key}" for key in keys]
            rows = [[values[key] for key in keys[: index + 1]] for index in range(self.rounds)]
            self._message_criteria = [lambda state, to=row: state["written"][: len(to)] == to for row in rows]
        """,
        methods=lines(
            """
            def tool_get(self, key):
                return self._state.get(key, "unknown")
            """,
            WRITE_VALUE,
        ),
    ),
    hint=lambda parameters: "get the one that is named, and write the number that it is",
    actions=copy_actions,
    best_action=lambda observations, hint, rng: best_copy(observations),
)

FAMILIES = (SHIP_ITEMS, COPY_VALUES)
