"""How one token is drawn from logits: temperature, top-k, top-p, a seed and a position.

All of it is traced, one value a row, so that new settings never compile anything. The key of each
draw depends on its sequence's seed and its position alone: neither the slot nor the batch matters.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

MAX_STOP_IDS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one reply is sampled.

    Attributes:
      max_tokens: longest reply, the stop token included.
      temperature: divides the logits.
      seed: of the sequence, in [0, 2**31).
      stop_ids: tokens that end the reply; the one that did is part of it.
      top_k: sample among the k most likely tokens; 0 is off.
      top_p: sample among the most likely tokens that together reach this probability, after top_k;
        1 is off.

    Raises:
      ValueError: a value is out of range.
    """

    max_tokens: int
    temperature: float
    seed: int
    stop_ids: tuple[int, ...]
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens={self.max_tokens}; ask for at least one token")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature}; it must be positive (top_k=1 is greedy)")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed={self.seed} is not in [0, 2**31); use spade_jax.seeding.derive_seed")
        if len(self.stop_ids) > MAX_STOP_IDS:
            raise ValueError(f"{len(self.stop_ids)} stop_ids; at most {MAX_STOP_IDS} are supported")
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k}; it must be positive, or 0 for off")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}; it must be in (0, 1]")


class RowSampling(NamedTuple):
    """`SamplingParams` of many rows as arrays.

    Attributes:
      seed: int32 [B].
      temperature: float32 [B].
      top_k: int32 [B].
      top_p: float32 [B].
      stop_ids: int32 [B, MAX_STOP_IDS], filled up with -1.
    """

    seed: jax.Array
    temperature: jax.Array
    top_k: jax.Array
    top_p: jax.Array
    stop_ids: jax.Array


def sample(
    logits: jax.Array, positions: jax.Array, rows: RowSampling
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draws one token a row by the Gumbel-max trick.

    Args:
      logits: float32 [B, V].
      positions: int32 [B], of the tokens to draw in their sequences.
      rows: how each row is sampled.

    Returns:
      tokens int32 [B]; their log-probs float32 [B] after temperature, but among all tokens: top-k and
      top-p decide what is drawn, not what its log-prob is, so that a trainer which knows nothing of them
      computes the same number with the same weights; and bool [B], whether each is one of its row's
      stop ids.
    """
    scaled = logits / rows.temperature[:, None]
    filtered = jax.lax.cond(
        jnp.any((rows.top_k > 0) | (rows.top_p < 1)),
        lambda: _keep_most_likely(scaled, rows.top_k, rows.top_p),
        lambda: scaled,
    )
    vocab_size = logits.shape[-1]

    def noise(seed: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), position), (vocab_size,))

    tokens = _argmax(filtered + jax.vmap(noise)(rows.seed, positions))
    chosen = jnp.take_along_axis(scaled, tokens[:, None], axis=-1)[:, 0]
    logprobs = chosen - jax.nn.logsumexp(scaled, axis=-1)
    return tokens, logprobs, jnp.any(tokens[:, None] == rows.stop_ids, axis=-1)


def _argmax(values: jax.Array) -> jax.Array:
    """int32 [B] of values [B, V], the first of equals; as two plain reductions, which XLA:CPU vectorises."""
    indices = jnp.arange(values.shape[-1], dtype=jnp.int32)
    highest = values.max(axis=-1, keepdims=True)
    return jnp.where(values == highest, indices, values.shape[-1]).min(axis=-1)


def _keep_most_likely(logits: jax.Array, top_k: jax.Array, top_p: jax.Array) -> jax.Array:
    """Logits [B, V] with -inf outside the top k and, of those, outside the top p."""
    order = jnp.argsort(-logits, axis=-1)
    ranks = jnp.arange(logits.shape[-1])
    in_top_k = (top_k == 0)[:, None] | (ranks < top_k[:, None])
    ranked = jnp.where(in_top_k, jnp.take_along_axis(logits, order, axis=-1), -jnp.inf)
    probabilities = jax.nn.softmax(ranked, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    # The most likely token always stays: nothing comes before it.
    keep = in_top_k & ((before < top_p[:, None]) | (ranks == 0))
    rows = jnp.arange(logits.shape[0])[:, None]
    return jnp.full_like(logits, -jnp.inf).at[rows, order].set(jnp.where(keep, ranked, -jnp.inf))
