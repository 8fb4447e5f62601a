import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.model.grouped_matmul import grouped_matmul


@pytest.mark.parametrize(
    "group_sizes",
    [[9, 0, 3, 21, 8], [0, 0, 41, 0, 0], [0, 0, 0, 0, 0], [16, 8, 8, 4, 4]],
    ids=["tiles shared and skipped", "one group", "nothing", "rows behind the last group"],
)
def test_tiles_compute_what_ragged_dot_does(group_sizes):
    keys = jax.random.split(jax.random.key(0), 3)
    x, kernels = jax.random.normal(keys[0], (41, 6)), jax.random.normal(keys[1], (5, 6, 4))
    group_sizes = jnp.array(group_sizes)
    grouped = (jnp.arange(41) < group_sizes.sum())[:, None]
    cotangent = jnp.where(grouped, jax.random.normal(keys[2], (41, 4)), jnp.nan)

    def product(x, kernels):
        return grouped_matmul(jnp.where(grouped, x, jnp.nan), kernels, group_sizes, platform="cpu")

    def oracle(x, kernels):
        return jax.lax.ragged_dot(jnp.where(grouped, x, 0), kernels, group_sizes)

    found, pullback = jax.vjp(product, x, kernels)
    expected, pullback_of_oracle = jax.vjp(oracle, x, kernels)
    found = [jnp.where(grouped, found, 0), *pullback(cotangent)]
    expected = [expected, *pullback_of_oracle(jnp.where(grouped, cotangent, 0))]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * max(1, np.abs(theirs).max()))


def test_memory_does_not_grow_with_the_number_of_groups():
    def temporary_bytes(num_groups):
        shapes = (1024, 32), (num_groups, 32, 16)
        arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        sizes = jax.ShapeDtypeStruct((num_groups,), jnp.int32)

        def function(x, kernels, sizes):
            return grouped_matmul(x, kernels, sizes, platform="cpu")

        return jax.jit(function).lower(*arguments, sizes).compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(64) < 2 * temporary_bytes(4)
