import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh

from spade_jax.errors import MeshError
from spade_jax.model.architecture import Architecture
from spade_jax.model.sharding import cache_sharding, param_shardings, param_specs
from spade_jax.model.transformer import init_params

AXES = ("data", "fsdp", "tensor")
ARCHITECTURE = Architecture(
    vocab_size=64, num_layers=2, width=32, num_heads=4, num_kv_heads=2, head_width=8, mlp_width=48
)


def _one_device_mesh():
    return Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), AXES)


def test_every_parameter_has_a_spec_of_its_rank():
    shapes = jax.eval_shape(lambda: init_params(ARCHITECTURE, 0))
    ranks = jax.tree.map(lambda shape, spec: len(shape.shape) == len(spec), shapes, param_specs(ARCHITECTURE))
    assert all(jax.tree.leaves(ranks))


def test_parameters_are_made_where_they_belong():
    shardings = param_shardings(ARCHITECTURE, _one_device_mesh())
    params = jax.jit(lambda: init_params(ARCHITECTURE, 0), out_shardings=shardings)()
    placed = jax.tree.map(lambda array, sharding: array.sharding == sharding, params, shardings)
    assert all(jax.tree.leaves(placed))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((1, 1, 4), r"mesh.tensor=4 does not divide .*num_kv_heads=2.*choices that do: 1, 2$"),
        ((1, 3, 1), r"mesh.fsdp=3 does not divide .*width=32.*choices that do: 1, 2, 4, 8, 16, 32$"),
    ],
)
def test_an_axis_that_does_not_divide_names_those_that_do(sizes, message):
    with pytest.raises(MeshError, match=message):
        param_shardings(ARCHITECTURE, AbstractMesh(sizes, AXES))


def test_slots_that_cannot_be_spread_are_refused():
    with pytest.raises(MeshError, match="such as 12"):
        cache_sharding(AbstractMesh((2, 2, 1), AXES), num_slots=10)


_EIGHT_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from spade_jax.model.architecture import Architecture
from spade_jax.model.sharding import cache_sharding, param_shardings
from spade_jax.model.transformer import forward_with_cache, hidden_states, init_cache, init_params, unembed

architecture = Architecture(
    vocab_size=64, num_layers=2, width=32, num_heads=4, num_kv_heads=2, head_width=8, mlp_width=48
)
params = jax.jit(init_params, static_argnums=0)(architecture, 0)
rng = np.random.default_rng(0)
tokens = rng.integers(0, 64, (8, 12)).astype(np.int32)
positions = np.tile(np.r_[np.arange(7), np.arange(5)].astype(np.int32), (8, 1))
segment_ids = np.tile(np.r_[np.full(7, 1), np.full(5, 2)].astype(np.int32), (8, 1))
slots = np.array([3, 1, 7, 0, 2, 6, 5, 4], np.int32)


def everything(params, cache, tokens, positions, segment_ids, slots):
    def loss(params):
        hidden = hidden_states(params, architecture, tokens, positions, segment_ids)
        logits = unembed(params, architecture, hidden)
        return jnp.mean(jnp.square(logits)), logits

    (_, packed), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    places = jnp.broadcast_to(jnp.arange(12), (8, 12))
    _, cache = forward_with_cache(params, architecture, tokens[:, :9], places[:, :9], cache, slots=slots)
    hidden, cache = forward_with_cache(params, architecture, tokens[:, 9:], places[:, 9:], cache, slots=slots)
    return packed, gradient, unembed(params, architecture, hidden), cache


cache = init_cache(architecture, num_slots=8, max_context=16)
expected = jax.jit(everything)(params, cache, tokens, positions, segment_ids, slots)
assert len(jax.devices()) == 8
for sizes in ((1, 4, 2), (2, 2, 2)):
    mesh = Mesh(np.array(jax.devices()).reshape(sizes), ("data", "fsdp", "tensor"))
    rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
    found = jax.jit(everything)(
        jax.device_put(params, param_shardings(architecture, mesh)),
        jax.device_put(cache, cache_sharding(mesh, num_slots=8)),
        *jax.device_put((tokens, positions, segment_ids), rows),
        slots,
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), found, expected)
"""


def test_every_mesh_computes_what_one_device_does():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    command = [sys.executable, "-c", _EIGHT_DEVICES]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
