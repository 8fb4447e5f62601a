import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.rl.losses import clipped_surrogate, cross_entropy, kl_penalty, truncated_importance

EVERYWHERE = jnp.ones(4, bool)


def surrogate(policy, behavior, advantages, loss_mask=EVERYWHERE):
    return clipped_surrogate(policy, behavior, advantages, loss_mask=loss_mask, clip_low=0.2, clip_high=0.28)


def test_surrogate_by_hand():
    ratio = jnp.array([1.5, 1.5, 0.5, 0.5])
    advantages = jnp.array([2.0, -2.0, 2.0, -2.0])
    loss, clipped = surrogate(jnp.log(ratio) - 3, jnp.full(4, -3.0), advantages)
    # Too likely and good: held at 1.28. Too unlikely and bad: held at 0.8. The others are pulled back.
    np.testing.assert_allclose(loss, [-2 * 1.28, 2 * 1.5, -2 * 0.5, 2 * 0.8], rtol=1e-6)
    np.testing.assert_array_equal(clipped, [True, False, False, True])


def test_surrogate_gradient_is_the_policy_gradient_at_ratio_one_and_none_where_clipped():
    def total(policy, behavior, advantages):
        return surrogate(policy, behavior, advantages)[0].sum()

    advantages = jnp.array([2.0, -2.0, 0.5, 0.0])
    behavior = jnp.array([-1.0, -2.0, -3.0, -4.0])
    np.testing.assert_allclose(jax.grad(total)(behavior, behavior, advantages), -advantages)
    far = behavior + jnp.array([1.0, -1.0, 1.0, 1.0])
    np.testing.assert_array_equal(jax.grad(total)(far, behavior, advantages), np.zeros(4))


def test_surrogate_stays_finite_for_any_difference():
    policy, behavior = jnp.array([-1.0, -1.0, -900.0, -900.0]), jnp.array([-900.0, -900.0, -1.0, -1.0])
    advantages = jnp.array([1.0, -1.0, 1.0, -1.0])
    value, gradient = jax.value_and_grad(lambda p: surrogate(p, behavior, advantages)[0].sum())(policy)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def truncated(policy, behavior, advantages, loss_mask=EVERYWHERE, truncate_ratio=2.0):
    return truncated_importance(
        policy, behavior, advantages, loss_mask=loss_mask, truncate_ratio=truncate_ratio
    )


def test_truncated_importance_by_hand():
    ratio = jnp.array([3.0, 3.0, 0.5, 2.0 - 1e-3])
    policy = jnp.array([-1.0, -2.0, -3.0, -4.0])
    behavior, advantages = policy - jnp.log(ratio), jnp.array([2.0, -2.0, 2.0, 1.0])
    loss, cut = truncated(policy, behavior, advantages)
    # -w A policy with the weights 2, 2, 0.5 and 1.999.
    np.testing.assert_allclose(loss, [2 * 2 * 1, 2 * -2 * 2, 0.5 * 2 * 3, 1.999 * 4], rtol=1e-5)
    np.testing.assert_array_equal(cut, [True, True, False, False])
    gradient = jax.grad(lambda policy: truncated(policy, behavior, advantages)[0].sum())(policy)
    np.testing.assert_allclose(gradient, [-4.0, 4.0, -1.0, -1.999], rtol=1e-5)


def test_truncated_importance_is_the_policy_gradient_at_ratio_one():
    behavior, advantages = jnp.array([-1.0, -2.0, -3.0, -4.0]), jnp.array([2.0, -2.0, 0.5, 0.0])
    gradient = jax.grad(lambda policy: truncated(policy, behavior, advantages)[0].sum())(behavior)
    np.testing.assert_allclose(gradient, -advantages)


def test_untruncated_importance_has_the_gradient_of_the_expected_advantage():
    """Weighted by the behavior that sampled: sum_b b * grad = -grad sum_p p A, for any behavior."""
    rng = np.random.default_rng(0)
    logits, advantages = jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.normal(size=7))
    behavior = jax.nn.log_softmax(jnp.asarray(rng.normal(size=7)))

    def expected_loss(logits):
        policy = jax.nn.log_softmax(logits)
        loss, _ = truncated(policy, behavior, advantages, jnp.ones(7, bool), truncate_ratio=1e6)
        return jnp.sum(jnp.exp(behavior) * loss)

    def expected_advantage(logits):
        return jnp.sum(jax.nn.softmax(logits) * advantages)

    np.testing.assert_allclose(
        jax.grad(expected_loss)(logits), -jax.grad(expected_advantage)(logits), rtol=1e-4, atol=1e-6
    )


@given(st.floats(0.1, 10), st.lists(st.floats(-30, 0), min_size=2, max_size=2), st.floats(-5, 5))
def test_no_weight_is_above_the_cut_and_what_is_masked_is_not_counted(cut, logprobs, advantage):
    policy, behavior = (jnp.full(2, value) for value in logprobs)
    mask = jnp.array([True, False])

    def total(policy):
        loss, cut_at = truncated(policy, behavior, jnp.full(2, advantage), mask, truncate_ratio=cut)
        return loss.sum(), cut_at

    gradient, cut_at = jax.grad(total, has_aux=True)(policy)
    assert abs(gradient[0]) <= cut * abs(advantage) * (1 + 1e-5)
    assert gradient[1] == 0
    assert not cut_at[1]


def test_cross_entropy_by_hand():
    probabilities = jnp.array([0.5, 0.25, 1.0, 0.1])
    np.testing.assert_allclose(
        cross_entropy(jnp.log(probabilities), loss_mask=jnp.array([True, True, True, False])),
        [np.log(2), np.log(4), 0, 0],
        atol=1e-7,
    )


def test_kl_by_hand():
    # exp(d) - d - 1 with reference / policy = 2 and 1 / 2
    value = kl_penalty(
        jnp.log(jnp.array([0.2, 0.4])), jnp.log(jnp.array([0.4, 0.2])), loss_mask=EVERYWHERE[:2]
    )
    np.testing.assert_allclose(value, [2 - np.log(2) - 1, 0.5 + np.log(2) - 1], rtol=1e-5)


def test_kl_has_the_value_and_the_gradient_of_the_divergence_in_expectation():
    rng = np.random.default_rng(0)
    logits, reference = jnp.asarray(rng.normal(size=7)), jax.nn.log_softmax(jnp.asarray(rng.normal(size=7)))

    def divergence(logits):
        policy = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(policy) * (policy - reference))

    def expected_penalty(logits):
        policy = jax.nn.log_softmax(logits)
        sampled_with = jax.lax.stop_gradient(jnp.exp(policy))
        return jnp.sum(sampled_with * kl_penalty(policy, reference, loss_mask=jnp.ones(7, bool)))

    np.testing.assert_allclose(expected_penalty(logits), divergence(logits), rtol=1e-5)
    np.testing.assert_allclose(
        jax.grad(expected_penalty)(logits), jax.grad(divergence)(logits), rtol=1e-4, atol=1e-6
    )


LOSSES = {
    "surrogate": lambda p, b, a, mask: surrogate(p, b, a, mask)[0],
    "truncated": lambda p, b, a, mask: truncated(p, b, a, mask)[0],
    "cross_entropy": lambda p, b, a, mask: cross_entropy(p, loss_mask=mask),
    "kl": lambda p, b, a, mask: kl_penalty(p, b, loss_mask=mask),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_masked_reaches_neither_loss_nor_gradient(name, poison):
    loss = LOSSES[name]
    mask = jnp.array([True, False, True, False])
    clean = tuple(
        jnp.array(x) for x in ([-1.0, -2.0, -0.5, -3.0], [-1.2, -1.8, -0.6, -2.0], [1.0, -1.0, -2.0, 1.0])
    )
    dirty = tuple(jnp.where(mask, values, poison) for values in clean)
    subset = tuple(values[mask] for values in clean)

    def total(arrays, mask):
        return loss(*arrays, mask).sum()

    value, gradient = jax.value_and_grad(total)(dirty, mask)
    wanted_value, wanted_gradient = jax.value_and_grad(total)(subset, jnp.ones(2, bool))
    np.testing.assert_allclose(value, wanted_value, rtol=1e-6)
    for got, wanted in zip(gradient, wanted_gradient, strict=True):
        np.testing.assert_allclose(got[mask], wanted, rtol=1e-6)
        np.testing.assert_array_equal(got[~mask], 0)
