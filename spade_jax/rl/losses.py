"""Per-token losses, one equation each, pure functions of arrays of one shape.

Where they stand: log-probs come from spade_jax.training, the aggregation from the weights that
spade_jax.rl.packing computes, the choice of each role from spade_jax.rl.objective. Nothing here sums over
tokens but what is of a sequence by its nature: the ratio of GSPO and the KL still to come.

`policy` is the log-prob of a token under the parameters being trained and `behavior` the one that the
sampler recorded, both at the sampling temperature and over the whole vocabulary. Where the sampler drew
from the most likely tokens only (top-k, top-p), their ratio is that of the two policies on the kept tokens
with the mass of these held at what it was: it is 1 for the sampler's own weights, and what it leaves
out of an exact importance weight is the same factor for all tokens that could have been drawn.

Promised: whatever stands where `loss_mask` is False, NaN included, neither the loss nor a gradient
depends on it. Each function replaces its inputs there before it computes (a mask on the output alone
would leave 0 * NaN = NaN in the gradient) and returns 0 there.
"""

from typing import Literal

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
    return _clipped(ratio, advantages, clip_low=clip_low, clip_high=clip_high)


def sequence_surrogate(
    policy_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    advantages: jax.Array,
    *,
    loss_mask: jax.Array,
    segment_ids: jax.Array,
    clip_low: float,
    clip_high: float,
) -> tuple[jax.Array, jax.Array]:
    """The clipped surrogate with one ratio for all tokens of a sequence (GSPO).

        s = exp(mean over the sequence's trained tokens of (policy - behavior))
        r = s * exp(policy - policy), the second policy a constant: s with the gradient of the token
        loss = -min(r * A, clip(r, 1 - clip_low, 1 + clip_high) * A)

    As an advantage is the same for a whole sequence, the mean of these over its tokens has the value and
    the gradient of -min(s * A, clip(s, ...) * A). A mean of log-ratios is close to 0, so the bounds
    are far narrower than a token's: 3e-4 and 4e-4 in the paper. An episode in several sequences has a
    ratio for each.

    Source: Zheng et al. 2025, "Group Sequence Policy Optimization" (arXiv 2507.18071), section 4.3
    (GSPO-token).

    Args:
      policy_logprobs: float32 [..., T], under the parameters being trained.
      behavior_logprobs: float32 [..., T], as the sampler recorded them, at the same temperature.
      advantages: float32 [..., T].
      loss_mask: bool [..., T].
      segment_ids: int32 [..., T], in [0, T]; which sequence of its row a token belongs to.
      clip_low: s is held above 1 - clip_low where A < 0.
      clip_high: s is held below 1 + clip_high where A > 0.

    Returns:
      loss: float32 [..., T].
      clipped: bool [..., T]; where the clip took the gradient away.
    """
    difference = log_ratio(policy_logprobs, behavior_logprobs, loss_mask=loss_mask)
    mean = _segment_sums(difference, segment_ids) / jnp.maximum(_segment_sums(loss_mask, segment_ids), 1)
    policy = _where(loss_mask, policy_logprobs)
    ratio = jax.lax.stop_gradient(jnp.exp(mean)) * jnp.exp(policy - jax.lax.stop_gradient(policy))
    return _clipped(ratio, _where(loss_mask, advantages), clip_low=clip_low, clip_high=clip_high)


def reinforce(policy_logprobs: jax.Array, advantages: jax.Array, *, loss_mask: jax.Array) -> jax.Array:
    """The policy-gradient loss of each token without a ratio: loss = -A * policy.

    Its gradient is that of the expected return for tokens that the policy being trained sampled itself.
    The advantage is a return less a baseline: see `spade_jax.rl.advantage`, whose `leave_one_out` makes
    this RLOO and whose `ema` is a baseline of the past.

    Sources: Williams 1992, "Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning"; Ahmadian et al. 2024, "Back to Basics" (arXiv 2402.14740).

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      advantages: float32 [...].
      loss_mask: bool [...].
    """
    return -_where(loss_mask, advantages) * _where(loss_mask, policy_logprobs)


def cispo(
    policy_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    advantages: jax.Array,
    *,
    loss_mask: jax.Array,
    clip_low: float,
    clip_high: float,
) -> tuple[jax.Array, jax.Array]:
    """The policy-gradient loss of each token, weighted by an importance ratio with bounds (CISPO).

        w = clip(exp(policy - behavior), 1 - clip_low, 1 + clip_high), a constant
        loss = -w * A * policy

    Unlike the clipped surrogate it takes no token's gradient away. The paper sets no lower bound
    (clip_low of 1) and takes the mean over all tokens (`aggregation="token"`).

    Source: MiniMax 2025, "MiniMax-M1" (arXiv 2506.13585), equations 4 and 5.

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      behavior_logprobs: float32 [...], as the sampler recorded them, at the same temperature.
      advantages: float32 [...].
      loss_mask: bool [...].
      clip_low: the smallest weight is 1 - clip_low.
      clip_high: the largest weight is 1 + clip_high.

    Returns:
      loss: float32 [...].
      bounded: bool [...]; where the weight is not the ratio.
    """
    ratio = jnp.exp(log_ratio(policy_logprobs, behavior_logprobs, loss_mask=loss_mask))
    weights = jax.lax.stop_gradient(jnp.clip(ratio, 1 - clip_low, 1 + clip_high))
    loss = weights * reinforce(policy_logprobs, advantages, loss_mask=loss_mask)
    return loss, (ratio != weights) & loss_mask


def truncated_importance(
    policy_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    advantages: jax.Array,
    *,
    loss_mask: jax.Array,
    max_ratio: float,
) -> tuple[jax.Array, jax.Array]:
    """The policy-gradient loss of each token, weighted by a truncated importance ratio.

        w = min(max_ratio, exp(policy - behavior)), a constant
        loss = -w * A * policy

    What became much likelier than it was still counts, with the weight of `max_ratio`.

    Sources: Ionides 2008, "Truncated Importance Sampling"; for log-probs of a sampler that is not the
    trainer, Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training";
    arXiv 2608.19197, which cuts at 2.

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      behavior_logprobs: float32 [...], as the sampler recorded them, at the same temperature.
      advantages: float32 [...].
      loss_mask: bool [...].
      max_ratio: the largest weight; positive.

    Returns:
      loss: float32 [...].
      truncated: bool [...]; where the weight was cut.
    """
    ratio = jnp.exp(log_ratio(policy_logprobs, behavior_logprobs, loss_mask=loss_mask))
    weights = jax.lax.stop_gradient(jnp.minimum(ratio, max_ratio))
    loss = -weights * _where(loss_mask, advantages) * _where(loss_mask, policy_logprobs)
    return loss, (ratio > max_ratio) & loss_mask


def masked_importance(
    policy_logprobs: jax.Array,
    behavior_logprobs: jax.Array,
    advantages: jax.Array,
    *,
    loss_mask: jax.Array,
    min_ratio: float,
    max_ratio: float,
) -> tuple[jax.Array, jax.Array]:
    """The policy-gradient loss of each token, weighted by an importance ratio that is far from 1 nowhere.

        r = exp(policy - behavior), a constant
        w = r if min_ratio <= r <= max_ratio else 0
        loss = -w * A * policy

    Where sampler and trainer disagree that much about a token, one of them is wrong: it trains nothing.

    Source: Ling team 2025, "Every Step Evolves" (arXiv 2510.18855; IcePop, with 0.5 and 5).

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      behavior_logprobs: float32 [...], as the sampler recorded them, at the same temperature.
      advantages: float32 [...].
      loss_mask: bool [...].
      min_ratio: the smallest ratio that trains.
      max_ratio: the largest ratio that trains.

    Returns:
      loss: float32 [...].
      dropped: bool [...]; where the ratio lies outside.
    """
    ratio = jnp.exp(log_ratio(policy_logprobs, behavior_logprobs, loss_mask=loss_mask))
    dropped = loss_mask & ((ratio < min_ratio) | (ratio > max_ratio))
    weights = jax.lax.stop_gradient(jnp.where(dropped, 0, ratio))
    return weights * reinforce(policy_logprobs, advantages, loss_mask=loss_mask), dropped


def cross_entropy(policy_logprobs: jax.Array, *, loss_mask: jax.Array) -> jax.Array:
    """The negative log-likelihood of each token: loss = -policy.

    Args:
      policy_logprobs: float32 [...].
      loss_mask: bool [...].
    """
    return -_where(loss_mask, policy_logprobs)


def kl_penalty(
    policy_logprobs: jax.Array,
    reference_logprobs: jax.Array,
    *,
    loss_mask: jax.Array,
    estimator: Literal["k1", "k2", "k3"] = "k3",
) -> jax.Array:
    """KL(policy || reference) of each token as a loss, for tokens sampled from the policy.

        d = reference - policy
        value: k1 = -d,  k2 = d^2 / 2  or  k3 = exp(d) - d - 1
        gradient: that of k2, whichever the value

    k1 and k3 are unbiased, k3 is never negative and varies less; k2 is biased. But of the three only k2 has
    in expectation the gradient of KL(policy || reference): that of k1 is 0 and that of k3 is the one of
    KL(reference || policy). So the value is the one's and the gradient the other's.

    Sources: Schulman 2020, "Approximating KL Divergence"; the gradients: Tang and Munos 2025, "On a
    few pitfalls in KL divergence gradient estimation for RL" (arXiv 2506.09477).

    Args:
      policy_logprobs: float32 [...], under the parameters being trained.
      reference_logprobs: float32 [...], under the frozen reference; no gradient flows into it.
      loss_mask: bool [...].
      estimator: of the value.
    """
    # Without the limits of log_ratio, which would take the gradient away where it is needed most.
    d = _where(loss_mask, jax.lax.stop_gradient(reference_logprobs)) - _where(loss_mask, policy_logprobs)
    k2 = d**2 / 2
    value = {"k1": -d, "k2": k2, "k3": jnp.exp(jnp.minimum(d, MAX_LOG_RATIO)) - d - 1}[estimator]
    return k2 + jax.lax.stop_gradient(value - k2)


def kl_to_go(
    policy_logprobs: jax.Array,
    reference_logprobs: jax.Array,
    *,
    loss_mask: jax.Array,
    segment_ids: jax.Array,
) -> jax.Array:
    """What a token costs where the KL penalty is a reward: a constant to take off its advantage.

        k1 = policy - reference
        cost of token t = sum of k1 over the trained tokens from t to the end of its sequence

    With this as a negative advantage the policy gradient is in expectation that of the KL divergence of
    whole sequences, which also counts where a token leads to; `kl_penalty` counts each token in the
    context that it happened to have. k2 and k3 are no rewards: the expectations of their own gradients,
    which a reward leaves out, are not 0.

    Source: Tang and Munos 2025, "On a few pitfalls in KL divergence gradient estimation for RL"
    (arXiv 2506.09477).

    Args:
      policy_logprobs: float32 [..., T], under the parameters being trained; no gradient flows into it.
      reference_logprobs: float32 [..., T], under the frozen reference; no gradient flows into it.
      loss_mask: bool [..., T].
      segment_ids: int32 [..., T]; which sequence of its row a token belongs to, its tokens in order and
        with no other sequence's trained token between them.
    """
    k1 = jax.lax.stop_gradient(_where(loss_mask, policy_logprobs) - _where(loss_mask, reference_logprobs))
    ends = jnp.diff(segment_ids, axis=-1, append=-1) != 0

    def add(later: tuple, earlier: tuple) -> tuple:
        (later_sum, later_end), (earlier_sum, earlier_end) = later, earlier
        return jnp.where(earlier_end, earlier_sum, earlier_sum + later_sum), earlier_end | later_end

    sums, _ = jax.lax.associative_scan(add, (k1, ends), reverse=True, axis=k1.ndim - 1)
    return _where(loss_mask, sums)


def _clipped(
    ratio: jax.Array, advantages: jax.Array, *, clip_low: float, clip_high: float
) -> tuple[jax.Array, jax.Array]:
    unclipped = ratio * advantages
    bounded = jnp.clip(ratio, 1 - clip_low, 1 + clip_high) * advantages
    return -jnp.minimum(unclipped, bounded), bounded < unclipped


def _segment_sums(values: jax.Array, segment_ids: jax.Array) -> jax.Array:
    """Of [..., T], at each entry, the sum over those of its row with the same id in [0, T]."""

    def of_row(values: jax.Array, ids: jax.Array) -> jax.Array:
        sums = jnp.zeros(values.size + 1, jnp.float32).at[ids].add(values)
        return sums[ids]

    return jnp.vectorize(of_row, signature="(t),(t)->(t)")(values, segment_ids)


def _where(loss_mask: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.where(loss_mask, values, 0)
