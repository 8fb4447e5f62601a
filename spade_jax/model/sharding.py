"""How parameters and cache lie on a mesh with axes data, fsdp and tensor.

One table maps the logical axes that `layers.py` and `init_cache` declare to mesh axes. Rows of a
batch are spread over data and fsdp by whoever makes them; jit does the rest.
"""

import math

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spade_jax.errors import MeshError
from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import Params, logical_axes

RULES: dict[str, str | tuple[str, ...] | None] = {
    "layers": None,
    "norm": None,
    "head_width": None,
    "width": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "experts": "tensor",
    "expert_mlp": None,
    "router": None,
    "slots": ("data", "fsdp"),
}

_CACHE_AXES = ("layers", "slots", "kv_heads")  # the first ones, which keys and values have in common


def param_specs(architecture: Architecture) -> Params:
    """A PartitionSpec for each parameter, in the structure of `params`."""
    return jax.tree.map(_spec, logical_axes(architecture), is_leaf=lambda leaf: isinstance(leaf, tuple))


def param_shardings(architecture: Architecture, mesh: Mesh) -> Params:
    """A NamedSharding for each parameter, in the structure of `params`.

    Raises:
      MeshError: where a mesh axis does not divide the model.
    """
    sizes = {
        "vocab_size": ("vocab", architecture.vocab_size),
        "model.num_heads": ("heads", architecture.num_heads),
        "model.num_kv_heads": ("kv_heads", architecture.num_kv_heads),
        **(
            {"model.num_experts": ("experts", architecture.num_experts)}
            if architecture.num_experts
            else {"model.mlp_width": ("mlp", architecture.mlp_width)}
        ),
        "model.width": ("width", architecture.width),
    }
    for mesh_axis in ("fsdp", "tensor"):
        split = {name: size for name, (axis, size) in sizes.items() if RULES[axis] == mesh_axis}
        _check_divides(mesh, mesh_axis, split)
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), param_specs(architecture))


def cache_sharding(mesh: Mesh, *, num_slots: int) -> NamedSharding:
    """Of both arrays of a cache: slots over data and fsdp, heads over tensor.

    Raises:
      MeshError: where data and fsdp together do not divide the slots.
    """
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    if num_slots % shards:
        raise MeshError(
            f"sampling.num_slots={num_slots} cannot be spread over mesh.data x mesh.fsdp = {shards} "
            f"shards; use a multiple of {shards}, such as {-(-num_slots // shards) * shards}"
        )
    return NamedSharding(mesh, _spec(_CACHE_AXES))


def _spec(axes: tuple[str, ...]) -> PartitionSpec:
    return PartitionSpec(*(RULES[axis] for axis in axes))


def _check_divides(mesh: Mesh, mesh_axis: str, sizes: dict[str, int]) -> None:
    shards = mesh.shape[mesh_axis]
    if any(size % shards for size in sizes.values()):
        common = math.gcd(*sizes.values())
        choices = [number for number in range(1, common + 1) if common % number == 0]
        described = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise MeshError(
            f"mesh.{mesh_axis}={shards} does not divide all of {described}; "
            f"choices that do: {', '.join(map(str, choices))}"
        )
