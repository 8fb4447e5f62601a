"""Two families that no training sees: they recombine what the others teach, in the same words."""

from spade_jax.warm_start.family import Family, by_level
from spade_jax.warm_start.tool_families.api_orchestration import DRAW_LINKS, GET_LINK, best_link
from spade_jax.warm_start.tool_families.base import (
    GET,
    KEYS,
    answer,
    call,
    instruction_program,
    lines,
    numbers_told,
    question_program,
)
from spade_jax.warm_start.tool_families.error_recovery import WAIT, WAIT_TOOL, best_when_busy
from spade_jax.warm_start.tool_families.multi_step_workflows import (
    WRITE_TOOL,
    WRITE_VALUE,
    best_copy,
    copy_actions,
)

# The numbers of copy_values, at the end of the links of follow_links.
RELAY = Family(
    name="relay",
    skill="Multi-Step Workflows",
    levels=by_level(
        "links max_turns",
        [(1, 5), (1, 4)],
        [(2, 7), (2, 6)],
        [(2, 5), (3, 7)],
    ),
    source=instruction_program(
        "relay",
        tools=[GET, WRITE_TOOL],
        reset=lines(
            DRAW_LINKS,
            """
            self._state["written"] = []
            self._user_messages = [f"write {keys[0]}"]
            self._message_criteria = [lambda state: state["written"][:1] == [int(links[-1][-1])]]
            """,
        ),
        methods=lines(GET_LINK, WRITE_VALUE),
    ),
    hint=lambda parameters: "get what you are told to see, and write the number that it is",
    actions=copy_actions,
    best_action=lambda observations, hint, rng: best_copy(observations),
)

# The busy line of wait_free, at the start of the links of follow_links.
BUSY_LINKS = Family(
    name="busy_links",
    skill="Error Recovery",
    levels=by_level(
        "busy links max_turns",
        [(1, 1, 7), (1, 1, 6)],
        [(2, 1, 7), (1, 2, 7)],
        [(2, 1, 6), (2, 2, 7), (3, 2, 8)],
    ),
    source=question_program(
        "busy_links",
        tools=[GET, WAIT_TOOL],
        reset=lines(
            DRAW_LINKS,
            """
            self._state["busy"] = self.rng.randint(1, self.busy)
            self._expected_answer = links[-1][-1]
            """,
        ),
        question="$word read {keys[0]}",
        methods=lines(
            """
            def tool_get(self, key):
                return "busy" if self._state["busy"] else self._follow(key)
            """,
            GET_LINK.replace("tool_get", "_follow"),
            WAIT,
        ),
    ),
    hint=lambda parameters: "wait while it is busy, then get what you are told to see",
    actions=lambda observations: [
        *(call("get", key=key) for key in KEYS),
        call("wait"),
        *map(answer, numbers_told(observations)),
    ],
    best_action=lambda observations, hint, rng: best_when_busy(observations) or best_link(observations),
)

FAMILIES = (RELAY, BUSY_LINKS)
