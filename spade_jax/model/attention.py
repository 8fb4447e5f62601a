"""Attention and its one mask, as pure functions.

Packed training rows attend within themselves (`attend`); prefill and decode attend to a slot's
cache, block by block (`attend_to_cache`). Both ask `attention_mask` who may see whom.
"""

import jax
import jax.numpy as jnp

MASKED = -1e30  # finite, so that a row that sees nothing gives numbers and not NaN


def attention_mask(
    query_positions: jax.Array,
    key_positions: jax.Array,
    *,
    query_segments: jax.Array | None = None,
    key_segments: jax.Array | None = None,
    window: jax.Array | None = None,
) -> jax.Array:
    """Who may see whom: not what comes later, nothing of another segment, and nothing before the window.

    Positions restart at 0 in each segment. A row with segments 1 1 1 2 2 0 (0 is padding):

        query \\ key   1 1 1 2 2 0
            1         x . . . . .
            1         x x . . . .
            1         x x x . . .
            2         . . . x . .
            2         . . . x x .
            0         . . . . . x

    Args:
      query_positions: int32 [B, T].
      key_positions: int32 [B, S].
      query_segments: int32 [B, T], or None where the keys all belong to the query's own sequence, as
        they do in a slot of the cache. There the positions written so far are the query's past.
      key_segments: int32 [B, S] together with query_segments.
      window: int32 [], positions that a query sees, its own included; None or 0 is all.

    Returns:
      bool [B, T, S].
    """
    mask = key_positions[:, None, :] <= query_positions[:, :, None]
    if query_segments is not None and key_segments is not None:
        mask &= key_segments[:, None, :] == query_segments[:, :, None]
    if window is not None:
        distance = query_positions[:, :, None] - key_positions[:, None, :]
        mask &= (distance < window) | (window == 0)
    return mask


def attend(
    queries: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array, *, scale: float
) -> jax.Array:
    """Grouped-query attention with a float32 softmax.

    Args:
      queries: [B, T, N, H].
      keys, values: [B, S, K, H].
      mask: bool [B, T, S].
      scale: multiplies the products of queries and keys.

    Returns:
      [B, T, N, H] in the dtype of the queries.
    """
    num_kv_heads = keys.shape[2]
    batch, length, num_heads, head_width = queries.shape
    grouped = queries.reshape(batch, length, num_kv_heads, num_heads // num_kv_heads, head_width)
    scores = jnp.einsum("btkgh,bskh->bkgts", grouped, keys, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, None], scores * scale, MASKED)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
    return jnp.einsum("bkgts,bskh->btkgh", weights, values).reshape(queries.shape)


def attend_to_cache(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    positions: jax.Array,
    *,
    layer: jax.Array,
    slots: jax.Array,
    block_size: int,
    num_blocks: jax.Array,
    scale: float,
    window: jax.Array | None = None,
) -> jax.Array:
    """Attention of new tokens to the slots that hold their sequences, a block of positions at a time.

    The softmax is accumulated over blocks (Rabe and Staats 2021, section 2), so that one compiled
    program reads only as much of the cache as is in use. A block in which a query sees nothing leaves
    its result unchanged to the last bit: how long the other rows are does not matter.

    Args:
      queries: [B, T, N, H], of tokens whose keys and values are in the cache already.
      keys: of the cache, [layers, slots, K, H, max_context].
      values: of the cache, [layers, slots, K, max_context, H].
      positions: int32 [B, T] of the queries.
      layer: int32 [], the layer of the cache to read.
      slots: int32 [B], the slot of each row.
      block_size: positions read at a time; divides max_context.
      num_blocks: int32 [], blocks to read from position 0; covers the last of the positions.
      scale: multiplies the products of queries and keys.
      window: as in `attention_mask`.

    Returns:
      [B, T, N, H] in the dtype of the queries.
    """
    num_kv_heads, head_width = keys.shape[2:4]
    batch, length, num_heads, _ = queries.shape
    group = num_heads // num_kv_heads
    grouped = queries.reshape(batch, length, num_kv_heads, group, head_width)
    grouped = (grouped.transpose(0, 2, 3, 1, 4).astype(jnp.float32) * scale).astype(queries.dtype)

    def read(cache: jax.Array, start: jax.Array, axis: int) -> jax.Array:
        block = jax.lax.dynamic_slice_in_dim(cache, start, block_size, axis=axis)
        return block[layer, slots]

    def add_block(index: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        highest, total, result = state
        start = index * block_size
        block_keys = read(keys, start, 4)  # [B, K, H, S]
        block_values = read(values, start, 3)  # [B, K, S, H]
        scores = jnp.einsum("bkgth,bkhs->bkgts", grouped, block_keys, preferred_element_type=jnp.float32)
        key_positions = jnp.broadcast_to(start + jnp.arange(block_size), (batch, block_size))
        mask = attention_mask(positions, key_positions, window=window)
        scores = jnp.where(mask[:, None, None], scores, MASKED)
        new_highest = jnp.maximum(highest, scores.max(-1))
        scale = jnp.exp(highest - new_highest)
        weights = jnp.exp(scores - new_highest[..., None])
        weighted = jnp.einsum(
            "bkgts,bksh->bkgth",
            weights.astype(block_values.dtype),
            block_values,
            preferred_element_type=jnp.float32,
        )
        return new_highest, total * scale + weights.sum(-1), result * scale[..., None] + weighted

    statistics = (batch, num_kv_heads, group, length)
    initial = (
        jnp.full(statistics, MASKED, jnp.float32),
        jnp.zeros(statistics, jnp.float32),
        jnp.zeros((*statistics, head_width), jnp.float32),
    )
    _, total, result = jax.lax.fori_loop(0, num_blocks, add_block, initial)
    result = (result / total[..., None]).transpose(0, 3, 1, 2, 4)
    return result.reshape(queries.shape).astype(queries.dtype)
