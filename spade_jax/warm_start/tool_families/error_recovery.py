"""Families for Error Recovery: refused calls that say what is missing, a busy line, a limit."""

import random
from collections.abc import Sequence

from spade_jax.warm_start.family import Family, by_level
from spade_jax.warm_start.tool_families.api_orchestration import best_link
from spade_jax.warm_start.tool_families.base import (
    DONE,
    GET,
    KEYS,
    all_done,
    answer,
    call,
    found,
    instruction_program,
    keys_asked,
    lines,
    numbers_told,
    question_program,
    tool,
)

SKILL = "Error Recovery"


def _best_run(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    told = found(observations, r"\b([A-D]|\d)$")[-1]
    return answer(told) if told.isdigit() else call("run", key=told)


RUN_NEEDS = Family(
    name="run_needs",
    skill=SKILL,
    levels=by_level(
        "depth max_turns",
        [(1, 6), (1, 5)],
        [(1, 4), (2, 8), (2, 7), (2, 6)],
        [(3, 9), (3, 8)],
    ),
    source=question_program(
        "run_needs",
        tools=[tool("run", "Runs one.", key="string")],
        reset="""
            self._state = {"todo": self.rng.sample("ABCD", self.depth + 1)}
            self._expected_answer = self.rng.randint(1, 9)
        """,
        question="$word run {self._state['todo'][0]}",
        methods="""
            def tool_run(self, key):
                *before, last = todo = self._state["todo"]
                if key == last and before:
                    self._state["todo"] = before
                    return f"{key} ran, now {before[-1]}"
                if key in before:
                    return f"{key} needs {todo[todo.index(key) + 1]}"
                return f"{key} ran: {self._expected_answer}" if key == last else "unknown"
        """,
    ),
    hint=lambda parameters: "run what is needed first, then again what needed it, and answer the number",
    actions=lambda observations: [
        *(call("run", key=key) for key in KEYS),
        *map(answer, numbers_told(observations)),
    ],
    best_action=_best_run,
)


def best_when_busy(observations: Sequence[str]) -> str:
    """Waits where it is busy, reads the first key where it is free; "" where it is neither."""
    match observations[-1]:
        case "busy":
            return call("wait")
        case "free":
            return call("get", key=keys_asked(observations)[0])
    return ""


WAIT_TOOL = tool("wait", "Waits a while.")
WAIT = """
    def tool_wait(self):
        self._state["busy"] = max(self._state["busy"] - 1, 0)
        return "busy" if self._state["busy"] else "free"
"""

WAIT_FREE = Family(
    name="wait_free",
    skill=SKILL,
    levels=by_level(
        "busy max_turns",
        [(1, 5), (1, 4)],
        [(2, 6), (2, 5), (3, 6), (4, 7)],
        [(5, 8), (6, 9)],
    ),
    source=question_program(
        "wait_free",
        tools=[GET, WAIT_TOOL],
        reset="""
            asked = self.rng.choice("ABCD")
            self._state = {"busy": self.rng.randint(self.busy - 1, self.busy)}
            self._expected_answer = self.rng.randint(1, 9)
        """,
        question="$word read {asked}",
        methods=lines(
            """
            def tool_get(self, key):
                return "busy" if self._state["busy"] else f"is {self._expected_answer}"
            """,
            WAIT,
        ),
    ),
    hint=lambda parameters: "wait while it is busy, and get it when it is free",
    actions=lambda observations: [
        *(call("get", key=key) for key in keys_asked(observations)),
        call("wait"),
        *map(answer, numbers_told(observations)),
    ],
    best_action=lambda observations, hint, rng: best_when_busy(observations) or best_link(observations),
)


def _best_order(observations: Sequence[str], hint: str, rng: random.Random) -> str:
    if all_done(observations):
        return DONE
    left = [int(number) for number in found(observations, r"(\d) (?:left|wanted)")]
    most = [int(number) for number in found(observations, r"at most (\d)")]
    return call("order", count=min(left[-1], *most, 9))


ORDER_PARTS = Family(
    name="order_parts",
    skill=SKILL,
    levels=by_level(
        "top parts max_turns",
        [(4, 2, 5), (3, 2, 5), (2, 2, 5)],
        [(4, 2, 4), (3, 2, 4), (2, 2, 4), (2, 3, 6), (3, 3, 6)],
        [(2, 3, 5), (3, 3, 5), (2, 4, 7), (2, 4, 6)],
    ),
    source=instruction_program(
        "order_parts",
        tools=[tool("order", "Orders some.", count="integer")],
        reset="""
            self.most = self.rng.randint(1, self.top)
            self._state = {"left": self.most * (self.parts - 1) + self.rng.randint(1, self.most)}
            self._user_messages = [f"order {self._state['left']} wanted"]
            self._message_criteria = [lambda state: not state["left"]]
        """,
        methods="""
            def tool_order(self, count):
                if count > self.most:
                    return f"at most {self.most}"
                self._state["left"] -= min(count, self._state["left"])
                return f"{self._state['left']} left" + self._advance_if_done()
        """,
    ),
    hint=lambda parameters: "order all, then as many as are allowed, until none are left",
    actions=lambda observations: [
        *(call("order", count=int(number)) for number in sorted(set(found(observations, r"\b([1-9])\b")))),
        DONE,
    ],
    best_action=_best_order,
)

FAMILIES = (RUN_NEEDS, WAIT_FREE, ORDER_PARTS)
