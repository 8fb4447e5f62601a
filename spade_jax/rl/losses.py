"""Per-token losses, one equation each, pure functions of arrays of one shape.

Where they stand: log-probs come from spade_jax.training, the aggregation from the weights that
spade_jax.rl.packing computes; nothing here sums over tokens.

Promised: whatever stands where `loss_mask` is False, NaN included, neither the loss nor a gradient
depends on it. Each function replaces its inputs there before it computes (a mask on the output alone
would leave 0 * NaN = NaN in the gradient) and returns 0 there.
"""

import jax
import jax.numpy as jnp

# exp(20) is 5e8: a ratio that large is clipped or hopeless, and an infinite one would make NaN gradients.
MAX_LOG_RATIO = 20.0


def log_ratio(
    numerator_logprobs: jax.Array, denominator_logprobs: jax.Array, *, loss_mask: jax.Array
) -> jax.Array:
    """The difference of two log-probs, limited to [-20, 20]; 0 where loss_mask is False."""
    difference = _where(loss_mask, numerator_logprobs) - _where(loss_mask, denominator_logprobs)
    return jnp.clip(difference, -MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_surrogate(
    policy_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    advantages: jax.Array,
    *,
    loss_mask: jax.Array,
    clip_low: float,
    clip_high: float,
) -> tuple[jax.Array, jax.Array]:
    """The clipped policy-gradient loss of each token, with a bound for each side.

        r = exp(policy - behavior)
        loss = -min(r * A, clip(r, 1 - clip_low, 1 + clip_high) * A)

    Sources: Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7; the two
    bounds: Yu et al. 2025, "DAPO", equation 10.

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      behavior_logprobs: float32 [...], as the sampler recorded them, at the same temperature.
      advantages: float32 [...].
      loss_mask: bool [...].
      clip_low: r is held above 1 - clip_low where A < 0.
      clip_high: r is held below 1 + clip_high where A > 0.

    Returns:
      loss: float32 [...].
      clipped: bool [...]; where the clip took the gradient away.
    """
    ratio = jnp.exp(log_ratio(policy_logprobs, behavior_logprobs, loss_mask=loss_mask))
    advantages = _where(loss_mask, advantages)
    unclipped = ratio * advantages
    bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
    return -jnp.minimum(unclipped, bounded), bounded < unclipped


def truncated_importance(
    policy_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    advantages: jax.Array,
    *,
    loss_mask: jax.Array,
    truncate_ratio: float,
) -> tuple[jax.Array, jax.Array]:
    """The policy-gradient loss of each token, weighted by a truncated importance ratio.

        w = min(truncate_ratio, exp(policy - behavior)), a constant
        loss = -w * A * policy

    Unlike the clipped surrogate it takes no token's gradient away: what became much likelier than it was
    still counts, with the weight of `truncate_ratio`.

    Sources: Ionides 2008, "Truncated Importance Sampling"; for log-probs of a sampler that is not the
    trainer, Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training";
    arXiv 2608.19197, which cuts at 2.

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      behavior_logprobs: float32 [...], as the sampler recorded them, at the same temperature.
      advantages: float32 [...].
      loss_mask: bool [...].
      truncate_ratio: the largest weight; positive.

    Returns:
      loss: float32 [...].
      truncated: bool [...]; where the weight was cut.
    """
    ratio = jnp.exp(log_ratio(policy_logprobs, behavior_logprobs, loss_mask=loss_mask))
    weights = jax.lax.stop_gradient(jnp.minimum(ratio, truncate_ratio))
    loss = -weights * _where(loss_mask, advantages) * _where(loss_mask, policy_logprobs)
    return loss, (ratio > truncate_ratio) & loss_mask


def cross_entropy(policy_logprobs: jax.Array, *, loss_mask: jax.Array) -> jax.Array:
    """The negative log-likelihood of each token: loss = -policy.

    Args:
      policy_logprobs: float32 [...].
      loss_mask: bool [...].
    """
    return -_where(loss_mask, policy_logprobs)


def kl_penalty(
    policy_logprobs: jax.Array, reference_logprobs: jax.Array, *, loss_mask: jax.Array
) -> jax.Array:
    """KL(policy || reference) of each token, for tokens sampled from the policy.

        d = reference - policy
        value = exp(d) - d - 1          (k3)
        gradient = that of d^2 / 2      (k2)

    k3 is unbiased, never negative and has a low variance, but its gradient is in expectation that of
    KL(reference || policy). The gradient of k2 is in expectation that of KL(policy || reference), so
    the value is the one's and the gradient the other's.

    Sources: Schulman 2020, "Approximating KL Divergence"; the gradients: Tang and Munos 2025, "On a
    few pitfalls in KL divergence gradient estimation for RL".

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      reference_logprobs: float32 [...], under the frozen reference; no gradient flows into it.
      loss_mask: bool [...].
    """
    d = log_ratio(jax.lax.stop_gradient(reference_logprobs), policy_logprobs, loss_mask=loss_mask)
    k2 = d**2 / 2
    k3 = jnp.exp(d) - d - 1
    return k2 + jax.lax.stop_gradient(k3 - k2)


def _where(loss_mask: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.where(loss_mask, values, 0)
