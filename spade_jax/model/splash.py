"""Block-sparse attention on TPU: JAX's Pallas kernel "splash", for packed rows on a mesh."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import (
    BlockSizes,
    CausalMask,
    LocalMask,
    MultiHeadMask,
    SegmentIds,
    make_splash_mha,
)
from jax.sharding import Mesh, PartitionSpec

BLOCK = 128  # the kernel works on tiles of as many columns, or a multiple


def splash_attention(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    segment_ids: jax.Array,
    *,
    windows: tuple[int, ...],
    kind: jax.Array | None,
    scale: float,
    mesh: Mesh | None = None,
    interpret: bool = False,
) -> jax.Array:
    """Causal attention within segments and windows; blocks in which nobody sees anybody cost nothing.

    Args:
      queries: [B, T, N, H]; T is a multiple of `BLOCK`.
      keys, values: [B, T, K, H].
      segment_ids: int32 [B, T].
      windows: columns that a query sees, its own included, by kind of layer; 0 is all.
      kind: int32 [], of this layer; None where there is one kind.
      scale: multiplies the products of queries and keys.
      mesh: on which rows lie over data and fsdp and heads over tensor.
      interpret: computes what the kernel would, on any platform and slowly.

    Returns:
      [B, T, N, H] in the dtype of the queries.
    """

    def attend(
        queries: jax.Array, keys: jax.Array, values: jax.Array, segment_ids: jax.Array, kind: jax.Array | None
    ) -> jax.Array:
        branches: list[Callable[..., jax.Array]] = [
            jax.vmap(functools.partial(_attend_row, window=window, interpret=interpret)) for window in windows
        ]
        scaled = (queries.astype(jnp.float32) * scale).astype(queries.dtype)
        heads_first = [array.swapaxes(1, 2) for array in (scaled, keys, values)]
        if kind is None:
            attended = branches[0](*heads_first, segment_ids)
        else:
            attended = jax.lax.switch(kind, branches, *heads_first, segment_ids)
        return attended.swapaxes(1, 2)

    if mesh is None or mesh.size == 1:
        return attend(queries, keys, values, segment_ids, kind)
    rows, heads = PartitionSpec(("data", "fsdp")), PartitionSpec(("data", "fsdp"), None, "tensor")
    sharded = jax.shard_map(
        attend,
        mesh=mesh,
        in_specs=(heads, heads, heads, rows, PartitionSpec()),
        out_specs=heads,
        check_vma=False,  # the kernel does not say over which axes its results vary
    )
    return sharded(queries, keys, values, segment_ids, kind)


def _attend_row(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    segment_ids: jax.Array,
    *,
    window: int,
    interpret: bool,
) -> jax.Array:
    """One row, heads first: queries [N, T, H], keys and values [K, T, H]."""
    num_heads, length, _ = queries.shape
    shape = (length, length)
    mask = LocalMask(shape, (window - 1, 0), 0) if window else CausalMask(shape)
    block = max(size for size in (BLOCK, 2 * BLOCK, 4 * BLOCK) if length % size == 0)
    kernel = make_splash_mha(
        MultiHeadMask([mask] * num_heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=BlockSizes(
            block_q=block,
            block_kv=block,
            block_q_dkv=block,
            block_kv_dkv=block,
            block_q_dq=block,
            block_kv_dq=block,
        ),
        interpret=interpret,
    )
    return kernel(queries, keys, values, segment_ids=SegmentIds(segment_ids, segment_ids))
