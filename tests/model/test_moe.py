import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.model.moe import apply_experts, route, router_metrics

B, T, D, E, F = 3, 5, 8, 4, 6
COUNTED = jnp.ones((B, T), bool)


def _inputs(seed=0):
    keys = jax.random.split(jax.random.key(seed), 5)
    shapes = [(B, T, D), (B, T, E), (E, D, F), (E, D, F), (E, F, D)]
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def _sorted(x, logits, gate, up, down, *, k, normalize):
    routing, _ = route(logits, experts_per_token=k, normalize=normalize, counted=COUNTED)
    return apply_experts(x, routing, gate, up, down, activation=jax.nn.silu, mesh=None)


def _dense(x, logits, gate, up, down, *, k, normalize):
    """The oracle: every expert sees every token, and what was not asked for is weighted with 0."""
    probabilities = jax.nn.softmax(logits)
    smallest = jnp.sort(probabilities)[..., E - k]
    weights = jnp.where(probabilities >= smallest[..., None], probabilities, 0)
    if normalize:
        weights /= weights.sum(-1, keepdims=True)
    hidden = jax.nn.silu(jnp.einsum("btd,edf->btef", x, gate)) * jnp.einsum("btd,edf->btef", x, up)
    return jnp.einsum("btef,efd,bte->btd", hidden, down, weights)


@pytest.mark.parametrize(("k", "normalize"), [(1, False), (2, True), (E, True)])
def test_sorted_tokens_equal_the_dense_oracle_and_so_does_the_gradient(k, normalize):
    inputs = _inputs()
    cotangent = jax.random.normal(jax.random.key(9), (B, T, D))

    @functools.partial(jax.jit, static_argnums=0)
    def value_and_gradient(function, *inputs):
        value, pullback = jax.vjp(functools.partial(function, k=k, normalize=normalize), *inputs)
        return value, pullback(cotangent)

    found, expected = value_and_gradient(_sorted, *inputs), value_and_gradient(_dense, *inputs)
    for ours, oracle in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, oracle, atol=1e-5 * np.abs(oracle).max())


def test_no_token_is_dropped_where_all_go_to_one_expert():
    x, logits, *kernels = _inputs()
    logits = logits.at[..., 2].set(50.0)
    only = [kernel[2] for kernel in kernels]
    expected = (jax.nn.silu(x @ only[0]) * (x @ only[1])) @ only[2]
    found = _sorted(x, logits, *kernels, k=1, normalize=True)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_statistics_leave_padding_out():
    logits = jax.random.normal(jax.random.key(3), (B, T, E))
    counted = jnp.arange(T) < jnp.array([5, 2, 0])[:, None]
    _, masked = route(logits, experts_per_token=2, normalize=True, counted=counted)
    of_subset = [
        route(logits[row : row + 1, :n], experts_per_token=2, normalize=True, counted=jnp.ones((1, n), bool))[
            1
        ]
        for row, n in ((0, 5), (1, 2))
    ]
    subset = jax.tree.map(jnp.add, *of_subset)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), masked, subset)
    assert masked.counts.sum() == 7 * 2


def test_metrics_tell_an_even_router_from_one_that_knows_one_expert():
    even = jnp.tile(10.0 * jnp.eye(E), (B, 2, 1))
    alone = jnp.zeros((B, 2 * E, E)).at[..., 1].set(50.0)
    metrics = {}
    for name, logits in (("even", even), ("alone", alone)):
        counted = jnp.ones(logits.shape[:2], bool)
        _, statistics = route(logits, experts_per_token=1, normalize=True, counted=counted)
        layers = jax.tree.map(lambda array: jnp.stack([array, array]), statistics)
        metrics[name] = {key: float(value) for key, value in router_metrics(layers).items()}
    assert metrics["even"]["load_balance_loss"] == pytest.approx(1)
    assert metrics["alone"]["load_balance_loss"] == pytest.approx(E)
    assert (metrics["even"]["smallest_share"], metrics["even"]["largest_share"]) == (0.25, 0.25)
    assert (metrics["alone"]["smallest_share"], metrics["alone"]["largest_share"]) == (0, 1)
    assert metrics["alone"]["entropy"] < 1e-6 < metrics["even"]["entropy"]
