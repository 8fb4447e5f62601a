"""Families for API Orchestration: what one call returns is what the next one needs."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.family import Family, by_level
from spade_jax.warm_start.tool_families.base import (
    DONE,
    GET,
    KEYS,
    all_done,
    answer,
    call,
    found,
    instruction_program,
    lines,
    numbers_told,
    question_program,
    tool,
)

SKILL = "API Orchestration"

# Lines of a reset and a tool: keys that lead from one to the next and at last to a number. Only what was
# pointed to opens.
DRAW_LINKS = """
    keys = self.rng.sample("ABCD", self.links + 1)
    links = [f"see {key}" for key in keys[1:]] + [f"is {self.rng.randint(1, 9)}"]
    self._state = {"links": dict(zip(keys, links)), "open": keys[0]}
"""
GET_LINK = """
    def tool_get(self, key):
        if key != self._state["open"]:
            return "closed"
        told = self._state["links"][key]
        self._state["open"] = told[-1]
        return told
"""

FOLLOW_LINKS = Family(
    name="follow_links",
    skill=SKILL,
    levels=by_level(
        "links max_turns",
        [(1, 4), (1, 3)],
        [(2, 6), (2, 5), (2, 4)],
        [(3, 6), (3, 5)],
    ),
    source=question_program(
        "follow_links",
        tools=[GET],
        reset=lines(DRAW_LINKS, "self._expected_answer = links[-1][-1]"),
        question="$word read {keys[0]}",
        methods=GET_LINK,
    ),
    hint=lambda parameters: "get what you are told to see, and answer the number that it is",
    actions=lambda observations: [
        *(call("get", key=key) for key in KEYS),
        *map(answer, numbers_told(observations)),
    ],
    best_action=lambda observations, hint, rng: best_link(observations),
)


def best_link(observations: Sequence[str]) -> str:
    """Reads what was pointed to last, or answers with its number."""
    told = pointed_to(observations)
    return answer(told) if told.isdigit() else call("get", key=told)


def pointed_to(observations: Sequence[str]) -> str:
    """The key that is to be read next, or the number that was found."""
    return found(observations, r"(?:read|see|is|write) ([A-D]|\d)$")[-1]


def _best_ticket(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    if all_done(observations):
        return DONE
    drawn = found(observations[-1:], r"ticket (\d)")
    return call("use", ticket=int(drawn[0])) if drawn else call("draw")


USE_TICKETS = Family(
    name="use_tickets",
    skill=SKILL,
    levels=by_level(
        "rounds max_turns",
        [(1, 4), (1, 3)],
        [(2, 7), (2, 6), (2, 5)],
        [(3, 8), (3, 7)],
    ),
    source=instruction_program(
        "use_tickets",
        tools=[tool("draw", "Draws a ticket."), tool("use", "Uses a ticket.", ticket="integer")],
        reset="""
            self._state = {"left": self.rounds, "ticket": None}
            self._user_messages = [f"use {self.rounds}"]
            self._message_criteria = [lambda state: not state["left"]]
        """,
        methods="""
            def tool_draw(self):
                self._state["ticket"] = self.rng.randint(1, 9)
                return f"ticket {self._state['ticket']}"
            def tool_use(self, ticket):
                if ticket != self._state["ticket"]:
                    return "no such ticket"
                self._state = {"left": self._state["left"] - 1, "ticket": None}
                return f"{self._state['left']} left" + self._advance_if_done()
        """,
    ),
    hint=lambda parameters: "draw a ticket, use that one, and again until all are done",
    actions=lambda observations: [
        call("draw"),
        *(call("use", ticket=number) for number in numbers_told(observations)),
        DONE,
    ],
    best_action=_best_ticket,
)

FAMILIES = (FOLLOW_LINKS, USE_TICKETS)
