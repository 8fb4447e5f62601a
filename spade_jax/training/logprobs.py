"""Log-probs and entropies of trained tokens from hidden states, without logits of shape [B, T, V].

The trained positions of each row are moved to the front; the head then runs over chunks of columns,
its logits are made again in the backward pass, and a chunk in which no row trains a token is skipped.
So memory for logits is bounded by the chunk and time follows the longest row of trained tokens, while
all shapes are fixed and rows stay on their devices.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import unembed


class TokenStatistics(NamedTuple):
    """Of the policy at each token; 0 where nothing is trained.

    Attributes:
      logprobs: float32 [B, T]; log-probability of the token at its temperature.
      entropies: float32 [B, T]; of the distribution that the token was one draw of, in nats.
    """

    logprobs: jax.Array
    entropies: jax.Array


def trained_first(loss_mask: jax.Array) -> jax.Array:
    """int32 [B, T]: the columns of each row, trained ones first, each part in order."""
    return jnp.argsort(~loss_mask, axis=1, stable=True).astype(jnp.int32)


def token_statistics(
    params: Any,
    architecture: Architecture,
    hidden: jax.Array,
    *,
    targets: jax.Array,
    temperatures: jax.Array,
    loss_mask: jax.Array,
    chunk: int,
    entropy_gradient: bool = False,
) -> TokenStatistics:
    """Log-probs of `targets` under softmax(unembed(hidden) / temperature), in float32.

    Entries should be ordered by `trained_first`, so that chunks without trained tokens are whole.

    Args:
      params: of which the head is used.
      hidden: [B, T, D]; entry t predicts `targets[:, t]`.
      targets: int32 [B, T].
      temperatures: float32 [B, T].
      loss_mask: bool [B, T]; what stands elsewhere, NaN included, has no effect.
      chunk: positions, over all rows, whose logits exist at once; at least one column.
      entropy_gradient: whether a gradient flows through the entropies, which costs some.
    """
    num_rows, num_columns = targets.shape
    columns = max(1, min(chunk // num_rows, num_columns))
    num_chunks = -(-num_columns // columns)

    def split(array: jax.Array) -> jax.Array:
        padding = [(0, 0), (0, num_chunks * columns - num_columns)] + [(0, 0)] * (array.ndim - 2)
        padded = jnp.pad(array, padding)
        return jnp.moveaxis(padded.reshape(num_rows, num_chunks, columns, *array.shape[2:]), 1, 0)

    def join(array: jax.Array) -> jax.Array:
        return jnp.moveaxis(array, 0, 1).reshape(num_rows, num_chunks * columns)[:, :num_columns]

    @jax.checkpoint
    def compute(hidden: jax.Array, targets: jax.Array, temperatures: jax.Array) -> TokenStatistics:
        logits = unembed(params, architecture, hidden) / temperatures[..., None]
        normalizer = jax.nn.logsumexp(logits, axis=-1)
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        logprobs = chosen - normalizer
        if not entropy_gradient:
            logits, normalizer = jax.lax.stop_gradient((logits, normalizer))
        mean_logit = jnp.sum(jax.nn.softmax(logits, axis=-1) * logits, axis=-1)
        return TokenStatistics(logprobs, normalizer - mean_logit)

    def step(_: None, inputs: tuple[jax.Array, ...]) -> tuple[None, TokenStatistics]:
        hidden, targets, temperatures, mask = inputs
        zeros = jnp.zeros(mask.shape, jnp.float32)
        statistics = jax.lax.cond(
            jnp.any(mask),
            lambda: compute(jnp.where(mask[..., None], hidden, 0), targets, jnp.where(mask, temperatures, 1)),
            lambda: TokenStatistics(zeros, zeros),
        )
        return None, jax.tree.map(lambda values: jnp.where(mask, values, 0), statistics)

    _, chunks = jax.lax.scan(step, None, tuple(map(split, (hidden, targets, temperatures, loss_mask))))
    return jax.tree.map(join, chunks)
