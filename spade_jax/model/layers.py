"""The parts of a transformer block as Flax NNX modules.

Every parameter is declared together with the logical names of its axes, which
`spade_jax.model.sharding` maps to the mesh. Kernels are used in the activation dtype; norms are
computed in float32. Module objects stay inside this folder: `transformer.py` splits them once into
a graph definition and a pytree.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from spade_jax.model.architecture import Architecture
from spade_jax.model.attention import rotate


def _kernel(
    rngs: nnx.Rngs, shape: tuple[int, ...], axes: tuple[str, ...], *, std: float, dtype: DTypeLike
) -> nnx.Param:
    values = std * jax.random.truncated_normal(rngs.params(), -2.0, 2.0, shape, jnp.float32)
    return nnx.Param(values.astype(dtype), axes=axes)


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + epsilon) * scale over the last axis, in float32."""

    def __init__(self, size: int, *, epsilon: float, dtype: DTypeLike):
        self.scale = nnx.Param(jnp.ones(size, dtype), axes=("norm",))
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        values = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(values), axis=-1, keepdims=True)
        values = values * jax.lax.rsqrt(mean_square + self.epsilon)
        return (values * self.scale.astype(jnp.float32)).astype(x.dtype)


class Embedder(nnx.Module):
    """Token ids to vectors, and final hidden vectors to float32 logits."""

    def __init__(self, architecture: Architecture, *, rngs: nnx.Rngs):
        vocab_size, width = architecture.vocab_size, architecture.width
        dtype = architecture.param_dtype
        self.activation_dtype = architecture.activation_dtype
        self.tied = architecture.tie_embeddings
        self.table = _kernel(rngs, (vocab_size, width), ("vocab", "width"), std=width**-0.5, dtype=dtype)
        if not self.tied:
            self.output = _kernel(rngs, (vocab_size, width), ("vocab", "width"), std=width**-0.5, dtype=dtype)

    def encode(self, tokens: jax.Array) -> jax.Array:
        """int32 [B, T] to [B, T, D] in the activation dtype."""
        return self.table[tokens].astype(self.activation_dtype)

    def decode(self, hidden: jax.Array) -> jax.Array:
        """[..., D] to float32 [..., V]."""
        table = self.table if self.tied else self.output
        return jnp.einsum(
            "...d,vd->...v",
            hidden,
            table.astype(self.activation_dtype),
            preferred_element_type=jnp.float32,
        )


class Block(nnx.Module):
    """One pre-norm transformer block: grouped-query attention, then a gated MLP.

    The two halves of attention are apart, so that one block serves both packed training rows and
    the cache: `project` gives queries, keys and values, the caller attends, `finish` does the rest.
    """

    def __init__(self, architecture: Architecture, *, rngs: nnx.Rngs):
        width, head_width = architecture.width, architecture.head_width
        num_heads, num_kv_heads = architecture.num_heads, architecture.num_kv_heads
        mlp_width = architecture.mlp_width
        dtype = architecture.param_dtype
        fan_in = width**-0.5
        # Each block adds twice to the residual stream; this keeps its variance near 1 at any depth.
        residual = (2 * architecture.num_layers) ** -0.5

        def kernel(shape: tuple[int, ...], axes: tuple[str, ...], std: float) -> nnx.Param:
            return _kernel(rngs, shape, axes, std=std, dtype=dtype)

        def norm(size: int) -> RMSNorm:
            return RMSNorm(size, epsilon=architecture.norm_epsilon, dtype=dtype)

        self.activation_dtype = architecture.activation_dtype
        self.qk_norm = architecture.qk_norm
        self.attention_norm = norm(width)
        query_axes = ("width", "heads", "head_width")
        key_axes = ("width", "kv_heads", "head_width")
        self.query = kernel((width, num_heads, head_width), query_axes, fan_in)
        self.key = kernel((width, num_kv_heads, head_width), key_axes, fan_in)
        self.value = kernel((width, num_kv_heads, head_width), key_axes, fan_in)
        if self.qk_norm:
            self.query_norm = norm(head_width)
            self.key_norm = norm(head_width)
        self.output = kernel(
            (num_heads, head_width, width),
            ("heads", "head_width", "width"),
            residual * (num_heads * head_width) ** -0.5,
        )
        self.mlp_norm = norm(width)
        self.gate = kernel((width, mlp_width), ("width", "mlp"), fan_in)
        self.up = kernel((width, mlp_width), ("width", "mlp"), fan_in)
        self.down = kernel((mlp_width, width), ("mlp", "width"), residual * mlp_width**-0.5)

    def project(
        self, x: jax.Array, rotary: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Rotated queries [B, T, N, H] and keys [B, T, K, H], and values [B, T, K, H], of x [B, T, D]."""
        h = self.attention_norm(x)
        queries, keys, values = (self._product(h, kernel) for kernel in (self.query, self.key, self.value))
        if self.qk_norm:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        return rotate(queries, rotary), rotate(keys, rotary), values

    def finish(self, x: jax.Array, attended: jax.Array) -> jax.Array:
        """x [B, T, D] plus the projected attention result [B, T, N, H], plus the MLP of that."""
        x = x + self._product(attended, self.output)
        h = self.mlp_norm(x)
        gate, up = self._product(h, self.gate), self._product(h, self.up)
        return x + self._product(jax.nn.silu(gate) * up, self.down)

    def _product(self, x: jax.Array, kernel: nnx.Param) -> jax.Array:
        """x [B, T, ...] times a kernel whose first axes are the last ones of x.

        As a product of two matrices: for one with two row axes XLA on a CPU copies the activations,
        transposed, to take the gradient of the kernel, which costs more than the product.
        """
        rows, inner = x.shape[:2], x.shape[2:]
        matrix = kernel.astype(self.activation_dtype).reshape(math.prod(inner), -1)
        product = x.reshape(-1, math.prod(inner)) @ matrix
        return product.reshape(*rows, *kernel.shape[len(inner) :])
