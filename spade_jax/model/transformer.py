"""The decoder as pure functions over one pytree of parameters.

    tokens -> hidden_states (packed training rows)      -> unembed -> float32 logits
    tokens -> forward_with_cache (prefill and decode)   -> unembed -> float32 logits

`params` is a nested dict of arrays, {"embedder", "blocks", "final_norm"}, with the blocks stacked on
a leading layer axis and scanned. Designer, agent, reference and trainee differ only in the params
passed in. Logits are never made here: whoever needs them asks for the positions that it needs.
"""

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from spade_jax.model.architecture import Architecture
from spade_jax.model.attention import attend_to_cache
from spade_jax.model.layers import Block, Embedder, RMSNorm
from spade_jax.model.moe import RouterStatistics
from spade_jax.model.packed_attention import packed_attention
from spade_jax.model.rotary import rotary_frequencies, rotary_tables

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
        "final_norm": RMSNorm(architecture.width, architecture),
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
    *,
    mesh: Mesh | None = None,
) -> jax.Array:
    """Final hidden states of packed rows; the first result of `hidden_states_and_routers`."""
    return hidden_states_and_routers(params, architecture, tokens, positions, segment_ids, mesh=mesh)[0]


def hidden_states_and_routers(
    params: Params,
    architecture: Architecture,
    tokens: jax.Array,
    positions: jax.Array,
    segment_ids: jax.Array,
    *,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, RouterStatistics | None]:
    """Final hidden states of packed rows, and what the routers did with their tokens.

    Args:
      tokens: int32 [B, T].
      positions: int32 [B, T], restarting at 0 in each segment.
      segment_ids: int32 [B, T]; 0 is padding. Attention never crosses segments.
      mesh: where params and rows lie, for what is not left to jit: experts and attention kernels.

    Returns:
      Hidden states [B, T, D], normalised, in the activation dtype, which `unembed` takes; and with experts
      the statistics of each layer, padding left out.
    """
    modules = _definitions(architecture)
    rotary = _rotary(architecture, positions)
    attend = packed_attention(architecture, positions, segment_ids, mesh=mesh)

    def apply_block(
        x: jax.Array, inputs: tuple[jax.Array | None, Params]
    ) -> tuple[jax.Array, RouterStatistics | None]:
        kind, block_params = inputs
        block = nnx.merge(modules["blocks"], block_params)
        queries, keys, values = block.project(x, _of_kind(rotary, kind))
        attended = attend(queries, keys, values, kind)
        return block.finish(x, attended, counted=segment_ids != 0, mesh=mesh)

    with _precision(architecture):
        x = _merge(params, architecture, "embedder").encode(tokens)
        x, statistics = jax.lax.scan(apply_block, x, (_kinds(architecture), params["blocks"]))
        return _merge(params, architecture, "final_norm")(x), statistics


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
    mesh: Mesh | None = None,
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
      mesh: where params and cache lie, for what is not left to jit: experts.

    Returns:
      Hidden states [B, T, D], normalised, in the activation dtype, and the cache with the new tokens.
    """
    modules = _definitions(architecture)
    rotary = _rotary(architecture, positions)
    max_context = cache.max_context
    last = jnp.max(jnp.where(positions < max_context, positions, 0))
    num_blocks = last // CACHE_BLOCK + 1
    windows = jnp.asarray(architecture.windows, jnp.int32)

    def apply_block(
        carry: tuple[jax.Array, Cache], inputs: tuple[jax.Array, jax.Array | None, Params]
    ) -> tuple[tuple[jax.Array, Cache], None]:
        x, cache = carry
        layer, kind, block_params = inputs
        block = nnx.merge(modules["blocks"], block_params)
        queries, keys, values = block.project(x, _of_kind(rotary, kind))
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
            scale=architecture.attention_scale,
            window=windows[0 if kind is None else kind] if architecture.sliding_windows else None,
        )
        x, _ = block.finish(x, attended, counted=positions < max_context, mesh=mesh)
        return (x, cache), None

    with _precision(architecture):
        x = _merge(params, architecture, "embedder").encode(tokens)
        layers = jnp.arange(architecture.num_layers)
        inputs = (layers, _kinds(architecture), params["blocks"])
        (x, cache), _ = jax.lax.scan(apply_block, (x, cache), inputs)
        return _merge(params, architecture, "final_norm")(x), cache


def unembed(params: Params, architecture: Architecture, hidden: jax.Array) -> jax.Array:
    """Float32 logits [..., V] of hidden states [..., D]."""
    with _precision(architecture):
        return _merge(params, architecture, "embedder").decode(hidden)


def _merge(params: Params, architecture: Architecture, part: str) -> Any:
    return nnx.merge(_definitions(architecture)[part], params[part])


def _precision(architecture: Architecture) -> AbstractContextManager[None]:
    precision = architecture.matmul_precision
    return jax.default_matmul_precision(precision) if precision != "default" else nullcontext()


def _kinds(architecture: Architecture) -> jax.Array | None:
    """int32 [layers], which of its windows each layer has; None where all have the same."""
    if len(architecture.windows) == 1:
        return None
    return jnp.asarray(architecture.layer_kinds, jnp.int32)


def _rotary(architecture: Architecture, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Tables for each kind of layer, on a leading axis where there are several."""
    tables = []
    for window in architecture.windows:
        theta, scaling = architecture.rope_theta, architecture.rope_scaling
        if window and architecture.sliding_rope_theta:
            theta, scaling = architecture.sliding_rope_theta, None
        frequencies = rotary_frequencies(head_width=architecture.head_width, theta=theta, scaling=scaling)
        factor = scaling.attention_factor if scaling else 1.0
        tables.append(rotary_tables(positions, frequencies, factor=factor))
    return tables[0] if len(tables) == 1 else jax.tree.map(lambda *arrays: jnp.stack(arrays), *tables)


def _of_kind(rotary: tuple[jax.Array, jax.Array], kind: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    return rotary if kind is None else (rotary[0][kind], rotary[1][kind])


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)


def _axes(variable: nnx.Variable) -> tuple[str, ...]:
    return variable.get_metadata("axes")
