"""The device mesh: MeshConfig -> jax.sharding.Mesh with axes data, fsdp and tensor.

Rows of a batch are split over data and fsdp, parameters over fsdp and tensor. The same axes exist on
one CPU device (1 x 1 x 1), so nothing downstream knows how many devices there are.
"""

import math
from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from spade_jax.config import MeshConfig
from spade_jax.errors import MeshError

AXES = ("data", "fsdp", "tensor")
ROWS = PartitionSpec(("data", "fsdp"))


def make_mesh(mesh_config: MeshConfig, *, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh that the config asks for, over all devices unless some are given.

    Raises:
      MeshError: the axis sizes do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = [mesh_config.data, mesh_config.fsdp, mesh_config.tensor]
    given = ", ".join(f"{axis}={size}" for axis, size in zip(AXES, sizes, strict=True))
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise MeshError(f"mesh sizes must be positive, and at most one of them -1; got {given}")
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if math.prod(sizes) != len(devices):
        divisors = [size for size in range(1, len(devices) + 1) if len(devices) % size == 0]
        raise MeshError(
            f"a mesh with {given} does not fit {len(devices)} devices; choose sizes whose product is "
            f"{len(devices)}, each one of {divisors} (-1 takes what the others leave)"
        )
    return jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def num_row_shards(mesh: Mesh) -> int:
    """Shards that the rows of a batch are split into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())
