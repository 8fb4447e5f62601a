"""The registry of tool-use families: those of the warm start, and those that only the evaluation sees."""

from spade_jax.warm_start.family import Family
from spade_jax.warm_start.tool_families import (
    api_orchestration,
    data_retrieval,
    error_recovery,
    held_out,
    multi_step_workflows,
    state_modification,
    tool_selection,
)
from spade_jax.warm_start.tool_families.base import DONE, KEYS, NUMBERS, answer, call

TOOL_FAMILIES: dict[str, Family] = {
    family.name: family
    for module in (
        api_orchestration,
        data_retrieval,
        state_modification,
        error_recovery,
        tool_selection,
        multi_step_workflows,
    )
    for family in module.FAMILIES
}

HELD_OUT_TOOL_FAMILIES: dict[str, Family] = {family.name: family for family in held_out.FAMILIES}

# All replies that play these families.
REPLIES = (
    *(call(name, key=key) for name in ("get", "run", "flip", "add", "take") for key in KEYS),
    *(call(name, key=key) for name in ("price", "stock", "desk", "shop") for key in KEYS),
    *(call(name, key=key) for name in ("pick", "pack", "ship") for key in KEYS),
    *(call(name) for name in ("draw", "page", "wait", "most", "least", "head", "tail")),
    *(call("use", ticket=number) for number in NUMBERS),
    *(call("order", count=number) for number in NUMBERS),
    *(call("write", value=number) for number in NUMBERS),
    *map(answer, NUMBERS),
    *map(answer, KEYS),
    DONE,
)
