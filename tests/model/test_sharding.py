import json
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
import functools, json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from spade_jax.model.architecture import Architecture
from spade_jax.model.sharding import cache_sharding, param_shardings
from spade_jax.model.transformer import (
    forward_with_cache, hidden_states_and_routers, init_cache, init_params, unembed
)

plain = Architecture(
    vocab_size=64, num_layers=2, width=32, num_heads=4, num_kv_heads=2, head_width=8, mlp_width=48
)
everything = Architecture(
    vocab_size=64, num_layers=3, width=32, num_heads=4, num_kv_heads=2, head_width=8, mlp_width=24,
    num_experts=6, experts_per_token=2, sliding_windows=(3, 0, 3), sliding_rope_theta=100.0, qkv_bias=True,
    post_norms=True, norm_offset=1.0, scale_embeddings=True, tie_embeddings=False,
)
rng = np.random.default_rng(0)
tokens = rng.integers(0, 64, (8, 12)).astype(np.int32)
positions = np.tile(np.r_[np.arange(7), np.arange(5)].astype(np.int32), (8, 1))
segment_ids = np.tile(np.r_[np.full(7, 1), np.full(5, 2)].astype(np.int32), (8, 1))
segment_ids[3, 7:] = 0
slots = np.array([3, 1, 7, 0, 2, 6, 5, 4], np.int32)


@functools.partial(jax.jit, static_argnums=(0, 1))
def compute(architecture, mesh, params, cache, tokens, positions, segment_ids, slots):
    def loss(params):
        hidden, routers = hidden_states_and_routers(
            params, architecture, tokens, positions, segment_ids, mesh=mesh
        )
        logits = unembed(params, architecture, hidden)
        return jnp.mean(jnp.square(logits)), (logits, routers)

    (_, packed), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    places = jnp.broadcast_to(jnp.arange(12), (8, 12))
    forward = functools.partial(forward_with_cache, params, architecture, slots=slots, mesh=mesh)
    _, cache = forward(tokens[:, :9], places[:, :9], cache)
    hidden, cache = forward(tokens[:, 9:], places[:, 9:], cache)
    return packed, gradient, unembed(params, architecture, hidden), cache


def check(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-5 * max(1, np.abs(expected).max()))


assert len(jax.devices()) == 8
for architecture, meshes in zip((plain, everything), json.loads(sys.argv[1])):
    params = jax.jit(init_params, static_argnums=0)(architecture, 0)
    cache = init_cache(architecture, num_slots=8, max_context=16)
    expected = compute(architecture, None, params, cache, tokens, positions, segment_ids, slots)
    for sizes in meshes:
        mesh = Mesh(np.array(jax.devices()).reshape(sizes), ("data", "fsdp", "tensor"))
        rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
        found = compute(
            architecture,
            mesh,
            jax.device_put(params, param_shardings(architecture, mesh)),
            jax.device_put(cache, cache_sharding(mesh, num_slots=8)),
            *jax.device_put((tokens, positions, segment_ids), rows),
            slots,
        )
        jax.tree.map(check, found, expected)
"""


@pytest.mark.parametrize(
    "meshes",
    [
        [[(1, 4, 2)], [(2, 2, 2)]],
        pytest.param(
            [[(8, 1, 1), (1, 8, 1), (2, 2, 2)], [(8, 1, 1), (1, 8, 1), (1, 4, 2)]], marks=pytest.mark.slow
        ),
    ],
    ids=["some", "the others"],
)
def test_every_mesh_computes_what_one_device_does(meshes):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    command = [sys.executable, "-c", _EIGHT_DEVICES, json.dumps(meshes)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
