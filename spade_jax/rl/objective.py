"""The loss of each token as its role's config says: LossConfig and arrays -> losses and what to report.

Entropy bonus and KL penalty come on top of the policy-gradient loss; all of them by token, so that the
weights of spade_jax.rl.packing aggregate them alike.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from spade_jax.config import LossConfig
from spade_jax.rl.losses import (
    cispo,
    clipped_surrogate,
    kl_penalty,
    kl_to_go,
    log_ratio,
    masked_importance,
    reinforce,
    sequence_surrogate,
    truncated_importance,
)


class Tokens(NamedTuple):
    """What the losses know of each token, of packed rows; only what the mask names is looked at.

    Attributes:
      policy_logprobs: float32 [B, T], under the parameters being trained.
      entropies: float32 [B, T], of the distribution that predicts the token.
      reference_logprobs: float32 [B, T], under the frozen reference; None without one.
      behavior_logprobs: float32 [B, T], as the sampler recorded them.
      advantages: float32 [B, T].
      segment_ids: int32 [B, T]; the tokens of a sequence in order and not mixed with others.
    """

    policy_logprobs: jax.Array
    entropies: jax.Array
    reference_logprobs: jax.Array | None
    behavior_logprobs: jax.Array
    advantages: jax.Array
    segment_ids: jax.Array


class TokenLosses(NamedTuple):
    """Of the tokens of one role; 0 at all others.

    Attributes:
      losses: float32 [B, T].
      clipped: bool [B, T]; where the loss's bounds took the gradient away or changed the weight.
      kl: float32 [B, T], the estimate of the KL divergence to the reference; None without one.
    """

    losses: jax.Array
    clipped: jax.Array
    kl: jax.Array | None


def token_losses(tokens: Tokens, config: LossConfig, *, loss_mask: jax.Array) -> TokenLosses:
    """Policy gradient, KL penalty and entropy bonus of the tokens of one role.

        loss = policy_gradient(A - kl_coefficient * kl_to_go if kl is a reward else A)
               + kl_coefficient * kl_penalty if it is a loss
               - entropy_coefficient * entropy

    Args:
      config: of the role.
      loss_mask: bool [B, T]; the role's trained tokens.
    """
    kl = None
    coefficient, reference = config.kl_coefficient, tokens.reference_logprobs
    if reference is not None:
        estimator = "k1" if config.kl == "reward" else config.kl
        kl = kl_penalty(tokens.policy_logprobs, reference, loss_mask=loss_mask, estimator=estimator)
        if coefficient and config.kl == "reward":
            to_go = kl_to_go(
                tokens.policy_logprobs, reference, loss_mask=loss_mask, segment_ids=tokens.segment_ids
            )
            tokens = tokens._replace(advantages=tokens.advantages - coefficient * to_go)
    losses, clipped = _policy_gradient(tokens, config, loss_mask)
    if kl is not None and coefficient and config.kl != "reward":
        losses += coefficient * kl
    if config.entropy_coefficient:
        losses -= config.entropy_coefficient * jnp.where(loss_mask, tokens.entropies, 0)
    return TokenLosses(losses=losses, clipped=clipped, kl=kl)


def ratio_metrics(tokens: Tokens, *, loss_mask: jax.Array) -> dict[str, jax.Array]:
    """float32 [B, T] each: the ratio of policy to behavior, and by how much their log-probs differ."""
    difference = log_ratio(tokens.policy_logprobs, tokens.behavior_logprobs, loss_mask=loss_mask)
    return {
        "ratio": jnp.where(loss_mask, jnp.exp(difference), 0),
        "logprob_difference": jnp.abs(difference),
    }


def _policy_gradient(tokens: Tokens, config: LossConfig, loss_mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    arrays = (tokens.policy_logprobs, tokens.behavior_logprobs, tokens.advantages)
    low, high = config.clip_low, config.clip_high
    match config.kind:
        case "clipped":
            return clipped_surrogate(*arrays, loss_mask=loss_mask, clip_low=low, clip_high=high)
        case "gspo":
            segment_ids = tokens.segment_ids
            return sequence_surrogate(
                *arrays, loss_mask=loss_mask, segment_ids=segment_ids, clip_low=low, clip_high=high
            )
        case "cispo":
            return cispo(*arrays, loss_mask=loss_mask, clip_low=low, clip_high=high)
        case "reinforce":
            losses = reinforce(tokens.policy_logprobs, tokens.advantages, loss_mask=loss_mask)
            return losses, jnp.zeros_like(loss_mask)
        case "truncated":
            return truncated_importance(*arrays, loss_mask=loss_mask, max_ratio=config.max_ratio)
        case "masked":
            return masked_importance(
                *arrays, loss_mask=loss_mask, min_ratio=config.min_ratio, max_ratio=config.max_ratio
            )
