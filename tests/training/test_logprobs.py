import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.model.transformer import unembed
from spade_jax.training.logprobs import token_statistics, trained_first


@pytest.fixture(scope="module")
def case(architecture):
    rng = np.random.default_rng(0)
    shape = (3, 11)
    return {
        "hidden": jnp.asarray(rng.normal(size=(*shape, architecture.width)), jnp.float32),
        "targets": jnp.asarray(rng.integers(0, 48, shape), jnp.int32),
        "temperatures": jnp.asarray(rng.choice([0.5, 1.0, 1.3], shape), jnp.float32),
        "loss_mask": jnp.asarray(rng.random(shape) < 0.4),
    }


def whole(params, architecture, case):
    """Log-probs and entropies from all logits at once."""
    logits = unembed(params, architecture, case["hidden"]) / case["temperatures"][..., None]
    logprobs = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logprobs, case["targets"][..., None], axis=-1)[..., 0]
    entropies = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)
    return tuple(jnp.where(case["loss_mask"], values, 0) for values in (chosen, entropies))


def chunked(params, architecture, case, chunk, **options):
    fields = {name: case[name] for name in ("targets", "temperatures", "loss_mask")}
    return token_statistics(params, architecture, case["hidden"], **fields, chunk=chunk, **options)


@pytest.mark.parametrize("chunk", [1, 6, 12, 33, 1000])
def test_chunked_equals_unchunked(architecture, params, case, chunk):
    got = jax.jit(lambda params: chunked(params, architecture, case, chunk))(params)
    for values, wanted in zip(got, whole(params, architecture, case), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_gradients_equal_and_none_comes_from_masked_places(architecture, params, case, entropy_gradient):
    weights = jnp.arange(33, dtype=jnp.float32).reshape(3, 11)

    def total(statistics, params, hidden):
        logprobs, entropies = statistics(params, hidden)
        return jnp.sum(weights * (logprobs + 3 * entropies))

    def unchunked(params, hidden):
        logprobs, entropies = whole(params, architecture, {**case, "hidden": hidden})
        return logprobs, entropies if entropy_gradient else jax.lax.stop_gradient(entropies)

    wanted = jax.grad(total, argnums=(1, 2))(unchunked, params, case["hidden"])
    poisoned = jnp.where(case["loss_mask"][..., None], case["hidden"], jnp.nan)
    temperatures = jnp.where(case["loss_mask"], case["temperatures"], 0)
    got = jax.jit(
        jax.grad(
            lambda params, hidden: total(
                lambda params, hidden: chunked(
                    params,
                    architecture,
                    {**case, "hidden": hidden, "temperatures": temperatures},
                    6,
                    entropy_gradient=entropy_gradient,
                ),
                params,
                hidden,
            ),
            argnums=(0, 1),
        )
    )(params, poisoned)
    for values, expected in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        # By the largest number of the array: sums of large terms of either sign come out small.
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_trained_columns_come_first_and_stay_in_order():
    mask = jnp.array([[False, True, False, True], [False, False, False, False]])
    np.testing.assert_array_equal(trained_first(mask), [[1, 3, 0, 2], [0, 1, 2, 3]])


def test_logits_of_a_whole_batch_never_exist(architecture, params):
    """Memory for temporaries follows the chunk, not the rows: 64 x 64 positions x 48 logits are 786 kB."""

    def total(params, hidden):
        shape = hidden.shape[:2]
        return token_statistics(
            params,
            architecture,
            hidden,
            targets=jnp.zeros(shape, jnp.int32),
            temperatures=jnp.ones(shape),
            loss_mask=jnp.ones(shape, bool),
            chunk=chunk,
        ).logprobs.sum()

    sizes = {}
    hidden = jax.ShapeDtypeStruct((64, 64, architecture.width), jnp.float32)
    for chunk in (64, 64 * 64):
        compiled = jax.jit(jax.grad(total, argnums=(0, 1))).lower(params, hidden).compile()
        sizes[chunk] = compiled.memory_analysis().temp_size_in_bytes
    logits = 64 * 64 * architecture.vocab_size * 4
    assert sizes[64 * 64] > logits
    assert sizes[64] < sizes[64 * 64] - logits
