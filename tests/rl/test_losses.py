import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.rl.losses import (
    cispo,
    clipped_surrogate,
    cross_entropy,
    kl_penalty,
    kl_to_go,
    masked_importance,
    reinforce,
    sequence_surrogate,
    truncated_importance,
)

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


def truncated(policy, behavior, advantages, loss_mask=EVERYWHERE, max_ratio=2.0):
    return truncated_importance(policy, behavior, advantages, loss_mask=loss_mask, max_ratio=max_ratio)


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


def bounded(policy, behavior, advantages, loss_mask=EVERYWHERE, clip_low=0.2, clip_high=0.28):
    return cispo(policy, behavior, advantages, loss_mask=loss_mask, clip_low=clip_low, clip_high=clip_high)


def masked(policy, behavior, advantages, loss_mask=EVERYWHERE, min_ratio=0.5, max_ratio=2.0):
    return masked_importance(
        policy, behavior, advantages, loss_mask=loss_mask, min_ratio=min_ratio, max_ratio=max_ratio
    )


@pytest.mark.parametrize(
    ("loss", "weights", "changed"),
    [
        (bounded, [1.28, 0.8, 0.8, 1.1], [True, True, True, False]),
        (masked, [0.0, 0.6, 0.0, 1.1], [True, False, True, False]),
    ],
)
def test_weighted_policy_gradients_by_hand(loss, weights, changed):
    ratio = jnp.array([3.0, 0.6, 0.1, 1.1])
    policy = jnp.array([-1.0, -2.0, -3.0, -4.0])
    behavior, advantages = policy - jnp.log(ratio), jnp.array([2.0, -2.0, 2.0, 1.0])
    value, flagged = loss(policy, behavior, advantages)
    wanted = np.asarray(weights) * [2, -2, 2, 1]
    np.testing.assert_allclose(value, wanted * [1, 2, 3, 4], rtol=1e-5)
    np.testing.assert_array_equal(flagged, changed)
    gradient = jax.grad(lambda policy: loss(policy, behavior, advantages)[0].sum())(policy)
    np.testing.assert_allclose(gradient, -wanted, rtol=1e-5)


def test_cispo_without_lower_bound_is_truncated_importance():
    rng = np.random.default_rng(0)
    policy, behavior, advantages = (jnp.asarray(rng.normal(size=50), jnp.float32) for _ in range(3))
    everywhere = jnp.ones(50, bool)
    arrays = (policy, behavior, advantages, everywhere)
    for one, other in zip(
        bounded(*arrays, clip_low=1.0, clip_high=0.5), truncated(*arrays, max_ratio=1.5), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_reinforce_by_hand():
    policy, advantages = jnp.array([-1.0, -2.0, -3.0, -4.0]), jnp.array([2.0, -2.0, 0.5, 0.0])
    loss, gradient = jax.value_and_grad(
        lambda policy: reinforce(policy, advantages, loss_mask=EVERYWHERE).sum()
    )(policy)
    assert loss == pytest.approx(2 * 1 - 2 * 2 + 0.5 * 3)
    np.testing.assert_array_equal(gradient, -advantages)


SEGMENTS = jnp.array([[1, 1, 1, 2, 2, 0], [1, 2, 2, 2, 2, 3]])
TRAINED = jnp.array([[True, True, False, True, True, False], [True, True, True, False, True, True]])


def sequences_surrogate(policy, behavior, advantages, loss_mask=TRAINED, clip_low=0.2, clip_high=0.28):
    return sequence_surrogate(
        policy,
        behavior,
        advantages,
        loss_mask=loss_mask,
        segment_ids=SEGMENTS,
        clip_low=clip_low,
        clip_high=clip_high,
    )


def test_sequence_surrogate_by_hand():
    """Ratios (2, 1/2), (2, 2); (1/2), (2, 1/2, 2), (1): their geometric means are 1, 2; 1/2, 2^(1/3), 1."""
    ratio = jnp.array([[2, 0.5, 99, 2, 2, 99], [0.5, 2, 0.5, 99, 2, 1]])
    policy = jnp.full((2, 6), -1.5)
    advantages = jnp.array([[3.0, 3, 3, 1, 1, 9], [-4, 2, 2, 2, 2, 5]])
    loss, clipped = sequences_surrogate(policy, policy - jnp.log(ratio), advantages)
    root = 2 ** (1 / 3)
    np.testing.assert_allclose(
        loss,
        [[-3, -3, 0, -1.28, -1.28, 0], [4 * 0.8, -2 * root, -2 * root, 0, -2 * root, -5]],
        rtol=1e-5,
    )
    np.testing.assert_array_equal(
        clipped, [[False, False, False, True, True, False], [True, False, False, False, False, False]]
    )


def test_sequence_surrogate_has_the_gradient_of_the_sequences_ratio():
    """The token's form in the place of -min(s A, clip(s) A), for one advantage a sequence."""
    rng = np.random.default_rng(0)
    policy, behavior = (jnp.asarray(rng.normal(-2, 0.3, (2, 6)), jnp.float32) for _ in range(2))
    advantages = jnp.asarray(rng.normal(size=4), jnp.float32)[SEGMENTS]
    bounds = {"clip_low": 0.05, "clip_high": 0.1}

    def mean_by_token(policy):
        return sequences_surrogate(policy, behavior, advantages, **bounds)[0].sum()

    def by_sequence(policy):
        total = 0.0
        for row, segment in [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]:
            at = np.flatnonzero((SEGMENTS[row] == segment) & TRAINED[row])
            s = jnp.exp(jnp.mean(policy[row, at] - behavior[row, at]))
            A = advantages[row, at[0]]
            total += len(at) * -jnp.minimum(s * A, jnp.clip(s, 1 - 0.05, 1 + 0.1) * A)
        return total

    value, gradient = jax.value_and_grad(mean_by_token)(policy)
    wanted, wanted_gradient = jax.value_and_grad(by_sequence)(policy)
    assert value == pytest.approx(float(wanted), rel=1e-5)
    np.testing.assert_allclose(gradient, wanted_gradient, rtol=1e-4, atol=1e-6)
    assert 0 < np.count_nonzero(gradient) < TRAINED.sum(), "some sequences should be clipped, some not"


@pytest.mark.parametrize(
    "loss",
    [
        lambda *arrays: truncated(*arrays, max_ratio=1e6)[0],
        lambda *arrays: bounded(*arrays, clip_low=1.0, clip_high=1e6)[0],
        lambda *arrays: masked(*arrays, min_ratio=0.0, max_ratio=1e6)[0],
        lambda *arrays: clipped_surrogate(*arrays[:3], loss_mask=arrays[3], clip_low=1.0, clip_high=1e6)[0],
    ],
    ids=["truncated", "cispo", "masked", "clipped"],
)
def test_without_bounds_the_gradient_is_that_of_the_expected_advantage(loss):
    """Weighted by the behavior that sampled: sum_b b * grad = -grad sum_p p A, for any behavior."""
    rng = np.random.default_rng(0)
    logits, advantages = jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.normal(size=7))
    behavior = jax.nn.log_softmax(jnp.asarray(rng.normal(size=7)))

    def expected_loss(logits):
        policy = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(behavior) * loss(policy, behavior, advantages, jnp.ones(7, bool)))

    def expected_advantage(logits):
        return jnp.sum(jax.nn.softmax(logits) * advantages)

    np.testing.assert_allclose(
        jax.grad(expected_loss)(logits), -jax.grad(expected_advantage)(logits), rtol=1e-4, atol=1e-6
    )


def test_what_a_truncated_sampler_draws_has_the_gradient_of_the_kept_tokens():
    """Drawn from the most likely tokens but recorded with their log-prob among all: at the sampler's own
    weights the ratio is 1, nothing is clipped, and the expected gradient is that of the advantage over the
    kept tokens, divided by their mass."""
    rng = np.random.default_rng(0)
    logits, advantages = jnp.asarray(rng.normal(size=7) * 2), jnp.asarray(rng.normal(size=7))
    kept = jax.nn.softmax(logits) > 0.1
    mass = jnp.sum(jax.nn.softmax(logits), where=kept)
    behavior = jax.nn.log_softmax(logits)
    assert 1 < kept.sum() < 7

    def expected_loss(logits):
        loss, clipped = surrogate(jax.nn.log_softmax(logits), behavior, advantages, jnp.ones(7, bool))
        return jnp.sum(jnp.exp(behavior) / mass * loss, where=kept), clipped

    def advantage_of_kept(logits):
        return jnp.sum(jax.nn.softmax(logits) * advantages, where=kept) / mass

    gradient, clipped = jax.grad(expected_loss, has_aux=True)(logits)
    np.testing.assert_allclose(gradient, -jax.grad(advantage_of_kept)(logits), rtol=1e-4, atol=1e-6)
    assert not clipped.any()


@given(st.floats(0.1, 10), st.lists(st.floats(-30, 0), min_size=2, max_size=2), st.floats(-5, 5))
def test_no_weight_is_above_the_cut_and_what_is_masked_is_not_counted(cut, logprobs, advantage):
    policy, behavior = (jnp.full(2, value) for value in logprobs)
    mask = jnp.array([True, False])

    def total(policy):
        loss, cut_at = truncated(policy, behavior, jnp.full(2, advantage), mask, max_ratio=cut)
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


@pytest.mark.parametrize(
    ("estimator", "wanted"),
    [
        ("k1", [-np.log(2), np.log(2)]),
        ("k2", [np.log(2) ** 2 / 2] * 2),
        ("k3", [2 - np.log(2) - 1, 0.5 + np.log(2) - 1]),
    ],
)
def test_kl_by_hand(estimator, wanted):
    """With reference / policy = 2 and 1 / 2."""
    value = kl_penalty(
        jnp.log(jnp.array([0.2, 0.4])),
        jnp.log(jnp.array([0.4, 0.2])),
        loss_mask=EVERYWHERE[:2],
        estimator=estimator,
    )
    np.testing.assert_allclose(value, wanted, rtol=1e-5)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_has_the_gradient_of_the_divergence_in_expectation_and_unless_k2_its_value(estimator):
    rng = np.random.default_rng(0)
    logits, reference = jnp.asarray(rng.normal(size=7)), jax.nn.log_softmax(jnp.asarray(rng.normal(size=7)))

    def divergence(logits):
        policy = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(policy) * (policy - reference))

    def expected_penalty(logits):
        policy = jax.nn.log_softmax(logits)
        sampled_with = jax.lax.stop_gradient(jnp.exp(policy))
        penalty = kl_penalty(policy, reference, loss_mask=jnp.ones(7, bool), estimator=estimator)
        return jnp.sum(sampled_with * penalty)

    if estimator == "k2":
        assert expected_penalty(logits) != pytest.approx(float(divergence(logits)), rel=0.01)
    else:
        np.testing.assert_allclose(expected_penalty(logits), divergence(logits), rtol=1e-5)
    np.testing.assert_allclose(
        jax.grad(expected_penalty)(logits), jax.grad(divergence)(logits), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_pulls_a_token_back_from_any_distance(estimator):
    """Sampled by a policy that is sure of it, while the reference holds it for next to impossible."""
    policy, reference = jnp.zeros(2), jnp.array([-3.0, -70.0])
    gradient = jax.grad(
        lambda policy: kl_penalty(policy, reference, loss_mask=EVERYWHERE[:2], estimator=estimator).sum()
    )(policy)
    np.testing.assert_allclose(gradient, [3, 70])


def costs_to_go(policy, reference, loss_mask=TRAINED):
    return kl_to_go(policy, reference, loss_mask=loss_mask, segment_ids=SEGMENTS)


def test_kl_to_go_by_hand():
    k1 = jnp.array([[1.0, 2, 99, 4, 8, 99], [-1, 2, -4, 99, 8, 5]])
    np.testing.assert_array_equal(
        costs_to_go(jnp.zeros((2, 6)), -k1), [[3, 2, 0, 12, 8, 0], [-1, 6, 4, 0, 8, 5]]
    )


def test_kl_as_a_reward_has_the_gradient_of_the_divergence_of_sequences():
    """All 27 sequences of three tokens out of three, each token's distribution by the ones before it."""
    tokens = np.stack(np.meshgrid(*[np.arange(3)] * 3, indexing="ij"), axis=-1).reshape(27, 3)
    contexts = np.stack([np.zeros(27, int), 1 + tokens[:, 0], 4 + 3 * tokens[:, 0] + tokens[:, 1]], axis=1)
    rng = np.random.default_rng(0)
    logits, reference = (jnp.asarray(rng.normal(size=(13, 3))) for _ in range(2))

    def logprobs(logits):
        return jax.nn.log_softmax(logits)[contexts, tokens]

    def divergence(logits):
        policy = logprobs(logits).sum(axis=1)
        return jnp.sum(jnp.exp(policy) * (policy - logprobs(reference).sum(axis=1)))

    def expected_loss(logits):
        policy, mask = logprobs(logits), jnp.ones((27, 3), bool)
        cost = kl_to_go(policy, logprobs(reference), loss_mask=mask, segment_ids=jnp.ones((27, 3), int))
        sampled_with = jax.lax.stop_gradient(jnp.exp(policy.sum(axis=1)))
        return jnp.sum(sampled_with[:, None] * reinforce(policy, -cost, loss_mask=mask))

    np.testing.assert_allclose(
        jax.grad(expected_loss)(logits), jax.grad(divergence)(logits), rtol=1e-4, atol=1e-6
    )


LOSSES = {
    "surrogate": lambda p, b, a, mask: surrogate(p, b, a, mask)[0],
    "cispo": lambda p, b, a, mask: bounded(p, b, a, mask)[0],
    "reinforce": lambda p, b, a, mask: reinforce(p, a, loss_mask=mask),
    "truncated": lambda p, b, a, mask: truncated(p, b, a, mask)[0],
    "masked": lambda p, b, a, mask: masked(p, b, a, mask)[0],
    "cross_entropy": lambda p, b, a, mask: cross_entropy(p, loss_mask=mask),
    **{
        estimator: lambda p, b, a, mask, estimator=estimator: kl_penalty(
            p, b, loss_mask=mask, estimator=estimator
        )
        for estimator in ("k1", "k2", "k3")
    },
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


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "loss",
    [
        lambda p, b, a: sequences_surrogate(p, b, a)[0],
        lambda p, b, a: reinforce(p, a - costs_to_go(p, b), loss_mask=TRAINED),
    ],
    ids=["gspo", "kl as a reward"],
)
def test_what_is_masked_reaches_no_loss_of_whole_sequences(loss, poison):
    rng = np.random.default_rng(0)
    clean = tuple(jnp.asarray(rng.normal(-1, 0.1, (2, 6)), jnp.float32) for _ in range(3))
    dirty = tuple(jnp.where(TRAINED, values, poison) for values in clean)

    def total(arrays):
        return loss(*arrays).sum()

    value, gradient = jax.value_and_grad(total)(dirty)
    wanted, wanted_gradient = jax.value_and_grad(total)(clean)
    assert value == wanted
    for got, same in zip(gradient, wanted_gradient, strict=True):
        np.testing.assert_array_equal(got, same)
        np.testing.assert_array_equal(got[~TRAINED], 0)
