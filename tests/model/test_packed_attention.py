import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.errors import ConfigError
from spade_jax.model import packed_attention as module
from spade_jax.model.architecture import Architecture
from spade_jax.model.packed_attention import choose_backend, packed_attention
from spade_jax.model.splash import splash_attention

B, T, N, K, H = 2, 256, 4, 2, 16
SHAPE = {"num_heads": N, "num_kv_heads": K, "head_width": H, "query_scale": 0.3}


def _architecture(**fields):
    return Architecture(vocab_size=7, num_layers=2, width=8, mlp_width=8, **{**SHAPE, **fields})


def _rows():
    lengths = [(90, 40, 100), (150, 103)]
    segment_ids, positions = np.zeros((2, B, T), np.int32)
    for row, of_row in enumerate(lengths):
        ends = np.cumsum(of_row)
        segment_ids[row, : ends[-1]] = np.repeat(np.arange(1, len(of_row) + 1), of_row)
        positions[row, : ends[-1]] = np.concatenate([np.arange(length) for length in of_row])
    keys = jax.random.split(jax.random.key(0), 3)
    arrays = [jax.random.normal(key, (B, T, heads, H)) for key, heads in zip(keys, (N, K, K), strict=True)]
    return arrays, jnp.asarray(positions), jnp.asarray(segment_ids)


def _value_and_gradient(attend, arrays, segment_ids):
    """Of the tokens that are not padding, whose result means nothing."""

    @jax.jit
    def compute(*arrays):
        def total(*arrays):
            attended = jnp.where((segment_ids != 0)[..., None, None], attend(*arrays), 0)
            return jnp.sum(jnp.sin(attended)), attended

        (_, attended), gradient = jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)(*arrays)
        return attended, gradient

    return compute(*arrays)


def _assert_close(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize("kind", [0, 1])
def test_splash_masks_as_xla_does(kind):
    arrays, positions, segment_ids = _rows()
    architecture = _architecture(sliding_windows=(0, 70))
    kind = jnp.array(kind)
    xla = packed_attention(architecture, positions, segment_ids, mesh=None)
    expected = _value_and_gradient(lambda *arrays: xla(*arrays, kind), arrays, segment_ids)
    splash = functools.partial(
        splash_attention,
        segment_ids=segment_ids,
        windows=architecture.windows,
        kind=kind,
        scale=architecture.attention_scale,
        interpret=True,
    )
    _assert_close(_value_and_gradient(splash, arrays, segment_ids), expected)


def test_cudnn_is_asked_for_what_xla_computes(monkeypatch):
    """JAX's own XLA implementation of the same call stands in for cuDNN, which needs a GPU."""
    arrays, positions, segment_ids = _rows()
    architecture = _architecture(sliding_windows=(33, 33))
    xla = packed_attention(architecture, positions, segment_ids, mesh=None)
    expected = _value_and_gradient(lambda *arrays: xla(*arrays, None), arrays, segment_ids)
    call = jax.nn.dot_product_attention
    asked = []

    def stand_in(*args, implementation, **kwargs):
        asked.append(implementation)
        return call(*args, implementation="xla", **kwargs)

    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    monkeypatch.setattr(module, "choose_backend", lambda *_, **__: "cudnn")
    cudnn = packed_attention(architecture, positions, segment_ids, mesh=None)
    _assert_close(_value_and_gradient(lambda *arrays: cudnn(*arrays, None), arrays, segment_ids), expected)
    assert set(asked) == {"cudnn"}


BFLOAT16 = {"activation_dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("platform", "row_length", "fields", "backend"),
    [
        ("cpu", 256, BFLOAT16, "xla"),
        ("tpu", 256, {}, "splash"),
        ("tpu", 200, {}, "xla"),
        ("gpu", 256, BFLOAT16, "cudnn"),
        ("gpu", 256, {}, "xla"),
        ("gpu", 256, {**BFLOAT16, "head_width": 256}, "xla"),
        ("gpu", 256, {**BFLOAT16, "attention": "xla"}, "xla"),
    ],
)
def test_auto_takes_the_kernel_of_the_platform_for_what_it_can_do(platform, row_length, fields, backend):
    architecture = _architecture(**fields)
    assert choose_backend(architecture, platform=platform, row_length=row_length) == backend


@pytest.mark.parametrize(
    ("platform", "row_length", "fields", "message"),
    [
        ("cpu", 256, {"attention": "splash"}, "needs a TPU, and the platform is cpu"),
        ("tpu", 200, {"attention": "splash"}, "multiples of 128, got 200"),
        ("tpu", 256, {"attention": "cudnn", **BFLOAT16}, "needs an NVIDIA GPU"),
        ("gpu", 256, {"attention": "cudnn"}, "activation_dtype=bfloat16, got float32"),
    ],
)
def test_a_backend_that_cannot_is_refused(platform, row_length, fields, message):
    with pytest.raises(ConfigError, match=message):
        choose_backend(_architecture(**fields), platform=platform, row_length=row_length)
