"""Which platform a computation is compiled for: kernels are chosen by it while a function is traced."""

import jax
from jax.sharding import Mesh


def platform_of(mesh: Mesh | None) -> str:
    """`cpu`, `gpu` or `tpu`: of the mesh's devices, or JAX's own choice where there is no mesh."""
    return mesh.devices.flat[0].platform if isinstance(mesh, Mesh) else jax.default_backend()
