"""The decoder as pure functions over one pytree of parameters.

    tokens -> hidden_states (packed training rows)      -> unembed -> float32 logits
    tokens -> forward_with_cache (prefill and decode)   -> unembed -> float32 logits

`params` is a nested dict of arrays, {"embedder", "blocks", "final_norm"}, with the blocks stacked on
a leading layer axis and scanned. Designer, agent, reference and trainee differ only in the params
passed in. Logits are never made here: whoever needs them asks for the positions that it needs.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from spade_jax.model.architecture import Architecture
from spade_jax.model.attention import attend, attend_to_cache, attention_mask, rotary_tables
from spade_jax.model.layers import Block, Embedder, RMSNorm

Params = dict[str, Any]

CACHE_BLOCK = 32  # positions of the cache that attention reads at a time; a CPU prefers it to 64 by a fifth


class Cache(NamedTuple):
    """Keys and values of the sequences being sampled, in the activation dtype.

    Attributes:
      keys: [layers, slots, K, H, max_context], rotated; positions lie last, as the product with queries
        wants them (on a CPU it takes twice the time otherwise).
      values: [layers, slots, K, max_context, H].
    """

    keys: jax.Array
    values: jax.Array

    @property
    def max_context(self) -> int:
        return self.values.shape[3]


def _parts(architecture: Architecture, key: jax.Array) -> dict[str, nnx.Module]:
    """The modules that the three parts of `params` belong to, with one block for all."""
    rngs = nnx.Rngs(params=key)
    return {
        "embedder": Embedder(architecture, rngs=rngs),
        "blocks": Block(architecture, rngs=rngs),
        "final_norm": RMSNorm(
            architecture.width, epsilon=architecture.norm_epsilon, dtype=architecture.param_dtype
        ),
    }


@functools.cache
def _definitions(architecture: Architecture) -> dict[str, nnx.GraphDef]:
    parts = nnx.eval_shape(lambda: _parts(architecture, jax.random.key(0)))
    return {name: nnx.split(module)[0] for name, module in parts.items()}


def logical_axes(architecture: Architecture) -> Params:
    """The names of each parameter's axes, as `layers.py` declares them, in the structure of `params`."""
    parts = nnx.eval_shape(lambda: _parts(architecture, jax.random.key(0)))
    axes = {
        name: nnx.to_pure_dict(jax.tree.map(_axes, nnx.state(module), is_leaf=_is_variable))
        for name, module in parts.items()
    }
    axes["blocks"] = jax.tree.map(
        lambda names: ("layers", *names), axes["blocks"], is_leaf=lambda leaf: isinstance(leaf, tuple)
    )
    return axes


def init_params(architecture: Architecture, seed: jax.typing.ArrayLike) -> Params:
    """Parameters drawn from a seed, which may be traced: jit it with shardings to make them in place."""

    def draw(key: jax.Array) -> Params:
        parts = _parts(architecture, key)
        return {name: nnx.to_pure_dict(nnx.state(module)) for name, module in parts.items()}

    keys = jax.random.split(jax.random.key(seed), 1 + architecture.num_layers)
    return {**draw(keys[0]), "blocks": jax.vmap(lambda key: draw(key)["blocks"])(keys[1:])}


def hidden_states(
    params: Params,
    architecture: Architecture,
    tokens: jax.Array,
    positions: jax.Array,
    segment_ids: jax.Array,
) -> jax.Array:
    """Final hidden states of packed rows.

    Args:
      tokens: int32 [B, T].
      positions: int32 [B, T], restarting at 0 in each segment.
      segment_ids: int32 [B, T]; 0 is padding. Attention never crosses segments.

    Returns:
      [B, T, D], normalised, in the activation dtype; what `unembed` takes.
    """
    modules = _definitions(architecture)
    rotary = _rotary(architecture, positions)
    mask = attention_mask(positions, positions, query_segments=segment_ids, key_segments=segment_ids)

    def apply_block(x: jax.Array, block_params: Params) -> tuple[jax.Array, None]:
        block = nnx.merge(modules["blocks"], block_params)
        queries, keys, values = block.project(x, rotary)
        return block.finish(x, attend(queries, keys, values, mask)), None

    x = _merge(params, architecture, "embedder").encode(tokens)
    x, _ = jax.lax.scan(apply_block, x, params["blocks"])
    return _merge(params, architecture, "final_norm")(x)


def init_cache(architecture: Architecture, *, num_slots: int, max_context: int) -> Cache:
    """An empty cache; max_context is rounded up to whole blocks.

    A slot needs no clearing before its next sequence: positions are written in order, and what an
    earlier sequence left behind lies in the future of each token that could look at it.
    """
    num_layers, num_kv_heads = architecture.num_layers, architecture.num_kv_heads
    max_context = -(-max_context // CACHE_BLOCK) * CACHE_BLOCK
    shape = (num_layers, num_slots, num_kv_heads, max_context, architecture.head_width)
    values = jnp.zeros(shape, architecture.activation_dtype)
    return Cache(keys=jnp.zeros_like(values.swapaxes(3, 4)), values=values)


def forward_with_cache(
    params: Params,
    architecture: Architecture,
    tokens: jax.Array,
    positions: jax.Array,
    cache: Cache,
    *,
    slots: jax.Array,
) -> tuple[jax.Array, Cache]:
    """Final hidden states of tokens that continue the sequences in the cache: prefill and decode.

    Keys and values of all rows are written before any row attends, so rows may be pieces of one
    sequence: a long prompt can be spread over the rows of one call.

    Args:
      tokens: int32 [B, T].
      positions: int32 [B, T]; all earlier ones of the slot are in the cache or in this call. A position
        of max_context or more is padding: it is not written, and its result means nothing.
      cache: donate it under jit, and it is updated in place.
      slots: int32 [B], the slot of each row's sequence.

    Returns:
      Hidden states [B, T, D], normalised, in the activation dtype, and the cache with the new tokens.
    """
    modules = _definitions(architecture)
    rotary = _rotary(architecture, positions)
    max_context = cache.max_context
    last = jnp.max(jnp.where(positions < max_context, positions, 0))
    num_blocks = last // CACHE_BLOCK + 1

    def apply_block(
        carry: tuple[jax.Array, Cache], inputs: tuple[jax.Array, Params]
    ) -> tuple[tuple[jax.Array, Cache], None]:
        x, cache = carry
        layer, block_params = inputs
        block = nnx.merge(modules["blocks"], block_params)
        queries, keys, values = block.project(x, rotary)
        rows = slots[:, None]
        cache = Cache(
            keys=cache.keys.at[layer, rows, :, :, positions].set(keys, mode="drop"),
            values=cache.values.at[layer, rows, :, positions].set(values, mode="drop"),
        )
        attended = attend_to_cache(
            queries,
            cache.keys,
            cache.values,
            positions,
            layer=layer,
            slots=slots,
            block_size=CACHE_BLOCK,
            num_blocks=num_blocks,
        )
        return (block.finish(x, attended), cache), None

    x = _merge(params, architecture, "embedder").encode(tokens)
    layers = jnp.arange(architecture.num_layers)
    (x, cache), _ = jax.lax.scan(apply_block, (x, cache), (layers, params["blocks"]))
    return _merge(params, architecture, "final_norm")(x), cache


def unembed(params: Params, architecture: Architecture, hidden: jax.Array) -> jax.Array:
    """Float32 logits [..., V] of hidden states [..., D]."""
    return _merge(params, architecture, "embedder").decode(hidden)


def _merge(params: Params, architecture: Architecture, part: str) -> Any:
    return nnx.merge(_definitions(architecture)[part], params[part])


def _rotary(architecture: Architecture, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    return rotary_tables(positions, head_width=architecture.head_width, theta=architecture.rope_theta)


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)


def _axes(variable: nnx.Variable) -> tuple[str, ...]:
    return variable.get_metadata("axes")
