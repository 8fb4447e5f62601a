"""Products of sorted rows with the matrix of their group, on every platform.

On TPU this is `jax.lax.ragged_dot`. Elsewhere JAX computes that by multiplying all rows with all matrices,
so a loop over tiles of rows does it here: each tile is multiplied with the matrices of the groups that
have rows in it, and behind the last group nothing is computed.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

_SMALLEST_TILE, _LARGEST_TILE = 8, 256


def grouped_matmul(x: jax.Array, kernels: jax.Array, group_sizes: jax.Array, *, platform: str) -> jax.Array:
    """Row i of the result is row i of x times the matrix of the group that row i is in.

    Args:
      x: [M, D], the first group's rows first; what stands in rows behind the last group has no effect.
      kernels: [E, D, F].
      group_sizes: int32 [E], rows of each group; together M at most.
      platform: of the devices that compute it.

    Returns:
      [M, F] in the dtype of x; rows behind the last group mean nothing.
    """
    if platform == "tpu":
        return jax.lax.ragged_dot(x, kernels, group_sizes)
    precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    return _tiled(x, kernels, group_sizes, precision)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _tiled(x: jax.Array, kernels: jax.Array, group_sizes: jax.Array, precision: str | None) -> jax.Array:
    """`precision` is the one in force, which the gradient, traced later, is to have too."""
    return _product(x, kernels, group_sizes, transpose=False)


def _tiled_forward(
    x: jax.Array, kernels: jax.Array, group_sizes: jax.Array, precision: str | None
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return _tiled(x, kernels, group_sizes, precision), (x, kernels, group_sizes)


def _tiled_backward(
    precision: str | None, saved: tuple[jax.Array, ...], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    x, kernels, group_sizes = saved
    num_rows, tile = _rows_and_tile(x, kernels)
    padded, cotangents = _pad(x, num_rows), _pad(cotangent, num_rows)

    def add(gradient: jax.Array, group: jax.Array, start: jax.Array, inside: jax.Array) -> jax.Array:
        rows = jnp.where(inside, jax.lax.dynamic_slice_in_dim(padded, start, tile), 0)
        of_rows = jnp.where(inside, jax.lax.dynamic_slice_in_dim(cotangents, start, tile), 0)
        return gradient.at[group].add(jnp.matmul(rows.T, of_rows, preferred_element_type=jnp.float32))

    with jax.default_matmul_precision(precision):
        gradient = _for_each_tile(group_sizes, tile, add, jnp.zeros(kernels.shape, jnp.float32))
        of_x = _product(cotangent, kernels, group_sizes, transpose=True)
    return of_x, gradient.astype(kernels.dtype), None


_tiled.defvjp(_tiled_forward, _tiled_backward)


def _product(x: jax.Array, kernels: jax.Array, group_sizes: jax.Array, *, transpose: bool) -> jax.Array:
    """[M, F] of x [M, D] and kernels [E, D, F], or [E, F, D] to be transposed."""
    num_rows, tile = _rows_and_tile(x, kernels)
    padded = _pad(x, num_rows)

    def add(result: jax.Array, group: jax.Array, start: jax.Array, inside: jax.Array) -> jax.Array:
        rows = jnp.where(inside, jax.lax.dynamic_slice_in_dim(padded, start, tile), 0)
        kernel = kernels[group].T if transpose else kernels[group]
        so_far = jax.lax.dynamic_slice_in_dim(result, start, tile)
        return jax.lax.dynamic_update_slice_in_dim(result, so_far + rows @ kernel, start, axis=0)

    width = kernels.shape[1 if transpose else 2]
    result = _for_each_tile(group_sizes, tile, add, jnp.zeros((num_rows, width), x.dtype))
    return result[: x.shape[0]]


def _for_each_tile(
    group_sizes: jax.Array,
    tile: int,
    add: Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array],
    initial: jax.Array,
) -> jax.Array:
    """Folds `add(state, group, first row of the tile, which rows are the group's)` over all groups' tiles.

    Tiles start at multiples of their size, so one that two groups share comes up once for each.
    """
    ends = jnp.cumsum(group_sizes)
    starts = ends - group_sizes
    first_tiles = starts // tile
    num_tiles = jnp.where(group_sizes > 0, -(-ends // tile) - first_tiles, 0)
    tiles_done = jnp.cumsum(num_tiles)

    def visit(index: jax.Array, state: jax.Array) -> jax.Array:
        group = jnp.searchsorted(tiles_done, index, side="right")
        start = (first_tiles[group] + index - (tiles_done - num_tiles)[group]) * tile
        rows = start + jnp.arange(tile)
        inside = (rows >= starts[group]) & (rows < ends[group])
        return add(state, group, start, inside[:, None])

    return jax.lax.fori_loop(0, tiles_done[-1], visit, initial)


def _rows_and_tile(x: jax.Array, kernels: jax.Array) -> tuple[int, int]:
    """Rows rounded up to whole tiles, and rows of a tile: about as many as a group has on average."""
    average = x.shape[0] // kernels.shape[0]
    tile = min(max(_SMALLEST_TILE, 1 << average.bit_length()), _LARGEST_TILE)
    return -(-x.shape[0] // tile) * tile, tile


def _pad(array: jax.Array, num_rows: int) -> jax.Array:
    return jnp.pad(array, [(0, num_rows - array.shape[0]), (0, 0)])
