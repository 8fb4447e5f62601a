"""The registry of families: those of the warm start, and those that only the evaluation sees."""

from spade_jax.warm_start.families import (
    causal,
    held_out,
    logical,
    mathematical,
    optimization,
    pattern,
    spatial,
)
from spade_jax.warm_start.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for module in (mathematical, logical, spatial, pattern, optimization, causal)
    for family in module.FAMILIES
}

HELD_OUT_FAMILIES: dict[str, Family] = {family.name: family for family in held_out.FAMILIES}
