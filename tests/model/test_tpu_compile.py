"""The training forward and its gradient compile for a TPU, without one: `pip install jax[tpu]`."""

import os
import subprocess
import sys

import pytest

_COMPILE = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from spade_jax.model.architecture import Architecture
from spade_jax.model.sharding import param_shardings
from spade_jax.model.transformer import hidden_states, init_params

devices = topologies.get_topology_desc(platform="tpu", topology_name="v5p:2x2x1").devices
mesh = Mesh(np.array(devices).reshape(1, 2, 2), ("data", "fsdp", "tensor"))
architecture = Architecture(
    vocab_size=512, num_layers=2, width=256, num_heads=4, num_kv_heads=2, head_width=128, mlp_width=256,
    num_experts=8, experts_per_token=2, sliding_windows=(128, 0), activation_dtype="bfloat16",
    attention="splash",
)
params = jax.tree.map(
    lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding),
    jax.eval_shape(lambda: init_params(architecture, 0)),
    param_shardings(architecture, mesh),
)
rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
ids = jax.ShapeDtypeStruct((4, 1024), jnp.int32, sharding=rows)


def loss(params, *ids):
    return jnp.sum(jnp.square(hidden_states(params, architecture, *ids, mesh=mesh).astype(jnp.float32)))


text = jax.jit(jax.grad(loss)).lower(params, ids, ids, ids).compile().as_text()
assert "splash" in text, "attention is not splash's kernel"
assert "ragged" in text, "the experts' products are not the compiler's own"
"""


@pytest.mark.slow
def test_splash_and_experts_compile_for_a_tpu():
    pytest.importorskip("libtpu", reason="pip install jax[tpu]")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    result = subprocess.run(
        [sys.executable, "-c", _COMPILE], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
