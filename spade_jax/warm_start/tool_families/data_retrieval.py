"""Families for Data Retrieval: paging until it is there, adding up, finding the most."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.family import Family, by_level
from spade_jax.warm_start.tool_families.base import (
    GET,
    answer,
    call,
    found,
    keys_asked,
    numbers_told,
    possible_sums,
    question_program,
    tool,
)

SKILL = "Data Retrieval"


def _best_page(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    told = found(observations[1:], rf"{keys_asked(observations)[0]} (\d)")
    return answer(told[0]) if told else call("page")


SCAN_PAGES = Family(
    name="scan_pages",
    skill=SKILL,
    levels=by_level(
        "pages max_turns",
        [(1, 2), (2, 3)],
        [(3, 4), (4, 5), (5, 6)],
        [(6, 7), (7, 8)],
    ),
    source=question_program(
        "scan_pages",
        tools=[tool("page", "Reads the next page.")],
        reset="""
            wanted, *others = self.rng.sample("ABCD", 4)
            self._expected_answer = self.rng.randint(1, 9)
            rest = self.rng.choices(others, k=self.pages)[1:]
            self._state = {"pages": [f"{key} {self.rng.randint(1, 9)}" for key in rest]}
            self._state["pages"].insert(self.rng.randint(0, len(rest)), f"{wanted} {self._expected_answer}")
        """,
        question="$word number of {wanted}",
        methods="""
            def tool_page(self):
                return self._state["pages"].pop(0) if self._state["pages"] else "no more"
        """,
    ),
    hint=lambda parameters: "turn pages until the one asked for is there, and answer its number",
    actions=lambda observations: [call("page"), *map(answer, numbers_told(observations))],
    best_action=_best_page,
)


def _get_each(observations: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """What `get` told, and the asked keys that are still to read."""
    known = {key: int(number) for key, number in found(observations, r"^([A-D]) (\d)$")}
    return known, [key for key in keys_asked(observations) if key not in known]


def _best_sum(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    known, missing = _get_each(observations)
    return call("get", key=missing[0]) if missing else answer(sum(known.values()))


ADD_UP = Family(
    name="add_up",
    skill=SKILL,
    levels=by_level(
        "terms top max_turns",
        [(1, 9, 3), (1, 9, 2)],
        [(2, 2, 4), (2, 2, 3), (2, 3, 4), (2, 3, 3), (2, 4, 4), (2, 4, 3)],
        [(3, 2, 4), (3, 3, 5), (3, 3, 4)],
    ),
    source=question_program(
        "add_up",
        tools=[GET],
        reset="""
            asked = self.rng.sample("ABCD", self.terms)
            self._state = {key: self.rng.randint(1, self.top) for key in "ABCD"}
            self._expected_answer = sum(self._state[key] for key in asked)
        """,
        question="$word sum of {' '.join(asked)}",
        methods="""
            def tool_get(self, key):
                return f"{key} {self._state.get(key, 'unknown')}"
        """,
    ),
    hint=lambda parameters: "get each one that is asked for, and answer all their numbers together",
    actions=lambda observations: [
        *(call("get", key=key) for key in keys_asked(observations)),
        *map(answer, possible_sums(observations)),
    ],
    best_action=_best_sum,
)


def _best_most(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    known, missing = _get_each(observations)
    return call("get", key=missing[0]) if missing else answer(max(known, key=known.__getitem__))


FIND_MOST = Family(
    name="find_most",
    skill=SKILL,
    levels=by_level(
        "options max_turns",
        [(2, 4), (2, 3)],
        [(3, 6), (3, 5), (3, 4)],
        [(4, 6), (4, 5)],
    ),
    source=question_program(
        "find_most",
        tools=[GET],
        reset="""
            keys = "ABCD"[: self.options]
            self._state = dict(zip(keys, self.rng.sample(range(1, 10), self.options)))
            self._expected_answer = max(keys, key=self._state.get)
        """,
        question="$word most of {' '.join(keys)}",
        methods="""
            def tool_get(self, key):
                return f"{key} {self._state.get(key, 'unknown')}"
        """,
    ),
    hint=lambda parameters: "get each one, and answer the one with the greatest number",
    actions=lambda observations: [
        *(call("get", key=key) for key in keys_asked(observations)),
        *map(answer, keys_asked(observations)),
    ],
    best_action=_best_most,
)

FAMILIES = (SCAN_PAGES, ADD_UP, FIND_MOST)
