"""Families for State Modification: switching all on, bringing counters to their goals."""

import random
import re
from collections.abc import Sequence

from spade_jax.warm_start.family import Family, by_level
from spade_jax.warm_start.tool_families.base import (
    DONE,
    KEYS,
    all_done,
    call,
    found,
    instruction_program,
    tool,
)

SKILL = "State Modification"


def _shown_switches(observations: Sequence[str]) -> dict[str, str]:
    return dict(re.findall(r"([A-D])(\d)", observations[-1]))


def _best_flip(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    if all_done(observations):
        return DONE
    switches = _shown_switches(observations)
    return call("flip", key=rng.choice([key for key in switches if switches[key] == "0"]))


FLIP_ALL = Family(
    name="flip_all",
    skill=SKILL,
    levels=by_level(
        "options off max_turns",
        [(2, 1, 3), (2, 1, 2), (3, 1, 2), (4, 1, 2)],
        [(3, 2, 4), (3, 2, 3), (4, 2, 4), (4, 2, 3)],
        [(4, 3, 5), (4, 3, 4)],
    ),
    source=instruction_program(
        "flip_all",
        tools=[tool("flip", "Switches one on or off.", key="string")],
        reset="""
            keys = "ABCD"[: self.options]
            self._state = dict.fromkeys(keys, 1) | dict.fromkeys(self.rng.sample(keys, self.off), 0)
            self._user_messages = [f"all on {self._show()}"]
            self._message_criteria = [lambda state: all(state.values())]
        """,
        methods="""
            def _show(self):
                return " ".join(f"{key}{self._state[key]}" for key in self._state)
            def tool_flip(self, key):
                if key in self._state:
                    self._state[key] ^= 1
                return self._show() + self._advance_if_done()
        """,
    ),
    hint=lambda parameters: "flip each one that has a 0, never one that has a 1",
    actions=lambda observations: [
        *(call("flip", key=key) for key in _shown_switches(observations)),
        DONE,
    ],
    best_action=_best_flip,
)


def _best_change(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    if all_done(observations):
        return DONE
    key, start, goal = found(observations, r"([A-D]) from (\d) to (\d)")[-1]
    _, _, since = "\n".join(observations).rpartition(f"{key} from")
    [*_, now] = [start, *re.findall(rf"^{key} (\d)", since, re.MULTILINE)]
    return call("add" if now < goal else "take", key=key)


SET_LEVELS = Family(
    name="set_levels",
    skill=SKILL,
    levels=by_level(
        "steps far max_turns",
        [(1, 1, 3), (1, 1, 2), (1, 2, 4), (1, 2, 3)],
        [(2, 1, 4), (2, 1, 3), (1, 3, 4), (3, 1, 5), (3, 1, 4), (2, 2, 6), (2, 2, 5)],
        [(3, 2, 8), (3, 2, 7), (2, 3, 7)],
    ),
    source=instruction_program(
        "set_levels",
        tools=[tool("add", "Adds one.", key="string"), tool("take", "Takes one.", key="string")],
        reset="""
            keys = self.rng.sample("ABCD", self.steps)
            self._state = {key: self.rng.randint(4, 6) for key in "ABCD"}
            goals = {key: self._state[key] + self.rng.choice([-self.far, self.far]) for key in keys}
            self._user_messages = [f"{key} from {self._state[key]} to {goals[key]}" for key in keys]
            self._message_criteria = [lambda state, key=key: state[key] == goals[key] for key in keys]
        """,
        methods="""
            def tool_add(self, key):
                return self._change(key, 1)
            def tool_take(self, key):
                return self._change(key, -1)
            def _change(self, key, by):
                self._state[key] += by
                return f"{key} {self._state[key]}" + self._advance_if_done()
        """,
    ),
    hint=lambda parameters: "add to the one named while it is below its goal, take while above",
    actions=lambda observations: [
        *(call(name, key=key) for name in ("add", "take") for key in KEYS if key in "".join(observations)),
        DONE,
    ],
    best_action=_best_change,
)

FAMILIES = (FLIP_ALL, SET_LEVELS)
