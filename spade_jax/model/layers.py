"""The parts of a transformer block as Flax NNX modules.

Every parameter is declared together with the logical names of its axes, which
`spade_jax.model.sharding` maps to the mesh. Kernels are used in the activation dtype; norms are
computed in float32. Module objects stay inside this folder: `transformer.py` splits them once into
a graph definition and a pytree.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jax.typing import DTypeLike

from spade_jax.model.architecture import Architecture
from spade_jax.model.moe import RouterStatistics, apply_experts, route
from spade_jax.model.rotary import rotate

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


def _kernel(
    rngs: nnx.Rngs, shape: tuple[int, ...], axes: tuple[str, ...], *, std: float, dtype: DTypeLike
) -> nnx.Param:
    values = std * jax.random.truncated_normal(rngs.params(), -2.0, 2.0, shape, jnp.float32)
    return nnx.Param(values.astype(dtype), axes=axes)


class RMSNorm(nnx.Module):
    """x / sqrt(mean(x^2) + epsilon) * (scale + offset) over the last axis, in float32."""

    def __init__(self, size: int, architecture: Architecture):
        self.offset = architecture.norm_offset
        self.epsilon = architecture.norm_epsilon
        ones = jnp.ones(size, architecture.param_dtype)
        self.scale = nnx.Param(ones - self.offset if self.offset else ones, axes=("norm",))

    def __call__(self, x: jax.Array) -> jax.Array:
        values = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(values), axis=-1, keepdims=True)
        values = values * jax.lax.rsqrt(mean_square + self.epsilon)
        scale = self.scale.astype(jnp.float32)
        return (values * (scale + self.offset if self.offset else scale)).astype(x.dtype)


class Embedder(nnx.Module):
    """Token ids to vectors, and final hidden vectors to float32 logits."""

    def __init__(self, architecture: Architecture, *, rngs: nnx.Rngs):
        vocab_size, width = architecture.vocab_size, architecture.width
        dtype = architecture.param_dtype
        self.activation_dtype = architecture.activation_dtype
        self.tied = architecture.tie_embeddings
        self.scale = architecture.scale_embeddings
        self.table = _kernel(rngs, (vocab_size, width), ("vocab", "width"), std=width**-0.5, dtype=dtype)
        if not self.tied:
            self.output = _kernel(rngs, (vocab_size, width), ("vocab", "width"), std=width**-0.5, dtype=dtype)

    def encode(self, tokens: jax.Array) -> jax.Array:
        """int32 [B, T] to [B, T, D] in the activation dtype."""
        x = self.table[tokens].astype(self.activation_dtype)
        return x * jnp.asarray(self.table.shape[1] ** 0.5, x.dtype) if self.scale else x

    def decode(self, hidden: jax.Array) -> jax.Array:
        """[..., D] to float32 [..., V]."""
        table = self.table if self.tied else self.output
        return jnp.einsum(
            "...d,vd->...v",
            hidden,
            table.astype(self.activation_dtype),
            preferred_element_type=jnp.float32,
        )


class Experts(nnx.Module):
    """A gated MLP for each expert, and the router that sends tokens to them."""

    def __init__(self, architecture: Architecture, *, rngs: nnx.Rngs):
        width, mlp_width = architecture.width, architecture.mlp_width
        num_experts, dtype = architecture.num_experts, architecture.param_dtype
        fan_in, residual = width**-0.5, (2 * architecture.num_layers) ** -0.5
        shape, axes = (num_experts, width, mlp_width), ("experts", "width", "expert_mlp")
        self.activation_dtype = architecture.activation_dtype
        self.activation = _ACTIVATIONS[architecture.activation]
        self.experts_per_token = architecture.experts_per_token
        self.normalize = architecture.normalize_experts
        self.router = _kernel(rngs, (width, num_experts), ("width", "router"), std=fan_in, dtype=dtype)
        self.gate = _kernel(rngs, shape, axes, std=fan_in, dtype=dtype)
        self.up = _kernel(rngs, shape, axes, std=fan_in, dtype=dtype)
        self.down = _kernel(
            rngs,
            (num_experts, mlp_width, width),
            ("experts", "expert_mlp", "width"),
            std=residual * mlp_width**-0.5,
            dtype=dtype,
        )

    def __call__(
        self, x: jax.Array, *, counted: jax.Array, mesh: Mesh | None
    ) -> tuple[jax.Array, RouterStatistics]:
        """[B, T, D] of x [B, T, D], and statistics of the tokens that are `counted`, bool [B, T]."""
        dtype = self.activation_dtype
        logits = jnp.einsum("btd,de->bte", x, self.router.astype(dtype), preferred_element_type=jnp.float32)
        routing, statistics = route(
            logits, experts_per_token=self.experts_per_token, normalize=self.normalize, counted=counted
        )
        kernels = (kernel.astype(dtype) for kernel in (self.gate, self.up, self.down))
        return apply_experts(x, routing, *kernels, activation=self.activation, mesh=mesh), statistics


class Block(nnx.Module):
    """One pre-norm transformer block: grouped-query attention, then a gated MLP or experts.

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
            return RMSNorm(size, architecture)

        def bias(num: int, axis: str) -> nnx.Param:
            return nnx.Param(jnp.zeros((num, head_width), dtype), axes=(axis, "head_width"))

        self.activation_dtype = architecture.activation_dtype
        self.activation = _ACTIVATIONS[architecture.activation]
        self.qk_norm = architecture.qk_norm
        self.qkv_bias = architecture.qkv_bias
        self.post_norms = architecture.post_norms
        self.has_experts = architecture.num_experts > 0
        self.attention_norm = norm(width)
        query_axes = ("width", "heads", "head_width")
        key_axes = ("width", "kv_heads", "head_width")
        self.query = kernel((width, num_heads, head_width), query_axes, fan_in)
        self.key = kernel((width, num_kv_heads, head_width), key_axes, fan_in)
        self.value = kernel((width, num_kv_heads, head_width), key_axes, fan_in)
        if self.qkv_bias:
            self.query_bias = bias(num_heads, "heads")
            self.key_bias = bias(num_kv_heads, "kv_heads")
            self.value_bias = bias(num_kv_heads, "kv_heads")
        if self.qk_norm:
            self.query_norm = norm(head_width)
            self.key_norm = norm(head_width)
        self.output = kernel(
            (num_heads, head_width, width),
            ("heads", "head_width", "width"),
            residual * (num_heads * head_width) ** -0.5,
        )
        self.mlp_norm = norm(width)
        if self.post_norms:
            self.post_attention_norm = norm(width)
            self.post_mlp_norm = norm(width)
        if self.has_experts:
            self.experts = Experts(architecture, rngs=rngs)
            return
        self.gate = kernel((width, mlp_width), ("width", "mlp"), fan_in)
        self.up = kernel((width, mlp_width), ("width", "mlp"), fan_in)
        self.down = kernel((mlp_width, width), ("mlp", "width"), residual * mlp_width**-0.5)

    def project(
        self, x: jax.Array, rotary: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Rotated queries [B, T, N, H] and keys [B, T, K, H], and values [B, T, K, H], of x [B, T, D]."""
        h = self.attention_norm(x)
        queries, keys, values = (self._product(h, kernel) for kernel in (self.query, self.key, self.value))
        if self.qkv_bias:
            queries += self.query_bias.astype(queries.dtype)
            keys += self.key_bias.astype(keys.dtype)
            values += self.value_bias.astype(values.dtype)
        if self.qk_norm:
            queries, keys = self.query_norm(queries), self.key_norm(keys)
        return rotate(queries, rotary), rotate(keys, rotary), values

    def finish(
        self, x: jax.Array, attended: jax.Array, *, counted: jax.Array, mesh: Mesh | None
    ) -> tuple[jax.Array, RouterStatistics | None]:
        """x [B, T, D] plus the projected attention result [B, T, N, H], plus the MLP of that.

        With experts also their router's statistics of the tokens that are `counted`, bool [B, T].
        """
        h, statistics = self._product(attended, self.output), None
        x = x + (self.post_attention_norm(h) if self.post_norms else h)
        h = self.mlp_norm(x)
        if self.has_experts:
            h, statistics = self.experts(h, counted=counted, mesh=mesh)
        else:
            gate, up = self._product(h, self.gate), self._product(h, self.up)
            h = self._product(self.activation(gate) * up, self.down)
        return x + (self.post_mlp_norm(h) if self.post_norms else h), statistics

    def _product(self, x: jax.Array, kernel: nnx.Param) -> jax.Array:
        """x [B, T, ...] times a kernel whose first axes are the last ones of x.

        As a product of two matrices: for one with two row axes XLA on a CPU copies the activations,
        transposed, to take the gradient of the kernel, which costs more than the product.
        """
        rows, inner = x.shape[:2], x.shape[2:]
        matrix = kernel.astype(self.activation_dtype).reshape(math.prod(inner), -1)
        product = x.reshape(-1, math.prod(inner)) @ matrix
        return product.reshape(*rows, *kernel.shape[len(inner) :])
