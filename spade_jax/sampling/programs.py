"""The two device programs of the engine, as pure functions to be jitted: prefill and decode.

Their rows are whatever sequences the scheduler puts there; everything about a row is traced. Each
program is compiled once for each of a few row counts.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import Cache, Params, forward_with_cache, unembed
from spade_jax.sampling.methods import RowSampling, sample


class PrefillInputs(NamedTuple):
    """Pieces of prompts, and the rows whose prompts end among them.

    Attributes:
      tokens: int32 [pieces, piece length].
      positions: int32 [pieces, piece length]; padding lies at max_context or beyond.
      slots: int32 [pieces].
      last: int32 [B], index of each prompt's last token in the flattened pieces.
      rows: how each row's first token is sampled.
    """

    tokens: jax.Array
    positions: jax.Array
    slots: jax.Array
    last: jax.Array
    rows: RowSampling


class DecodeInputs(NamedTuple):
    """Sequences that go on.

    Attributes:
      tokens: int32 [B], the last token of each sequence, which is not in the cache yet.
      positions: int32 [B], their positions.
      slots: int32 [B].
      remaining: int32 [B], tokens that may still be sampled; 0 for an empty row.
      rows: how each row is sampled.
    """

    tokens: jax.Array
    positions: jax.Array
    slots: jax.Array
    remaining: jax.Array
    rows: RowSampling


class Sampled(NamedTuple):
    """What was drawn, in order.

    Attributes:
      tokens: int32 [B, steps]; -1 after the end of a row.
      logprobs: float32 [B, steps].
    """

    tokens: jax.Array
    logprobs: jax.Array


def prefill(
    params: Params,
    cache: Cache,
    inputs: PrefillInputs,
    *,
    architecture: Architecture,
    mesh: Mesh,
) -> tuple[Cache, Sampled]:
    """Puts pieces of prompts into the cache and samples the first token of those that end there."""
    hidden, cache = forward_with_cache(
        params, architecture, inputs.tokens, inputs.positions, cache, slots=inputs.slots, mesh=mesh
    )
    last_hidden = hidden.reshape(-1, hidden.shape[-1])[inputs.last]
    last_position = inputs.positions.reshape(-1)[inputs.last]
    logits = unembed(params, architecture, last_hidden)
    tokens, logprobs, _ = sample(logits, last_position + 1, inputs.rows)
    return cache, Sampled(tokens=tokens[:, None], logprobs=logprobs[:, None])


def decode(
    params: Params,
    cache: Cache,
    inputs: DecodeInputs,
    *,
    architecture: Architecture,
    num_steps: int,
    mesh: Mesh,
) -> tuple[Cache, Sampled]:
    """Samples up to num_steps tokens a row; ends early when every row has ended."""
    slots, rows = inputs.slots, inputs.rows
    num_rows = inputs.tokens.shape[0]

    def go_on(state: tuple) -> jax.Array:
        step, _, _, _, remaining, _ = state
        return (step < num_steps) & jnp.any(remaining > 0)

    def advance(state: tuple) -> tuple:
        step, cache, tokens, positions, remaining, sampled = state
        active = remaining > 0
        written = jnp.where(active, positions, cache.max_context)
        hidden, cache = forward_with_cache(
            params, architecture, tokens[:, None], written[:, None], cache, slots=slots, mesh=mesh
        )
        logits = unembed(params, architecture, hidden[:, 0])
        tokens, logprobs, stopped = sample(logits, positions + 1, rows)
        sampled = Sampled(
            tokens=sampled.tokens.at[:, step].set(jnp.where(active, tokens, -1)),
            logprobs=sampled.logprobs.at[:, step].set(logprobs),
        )
        return step + 1, cache, tokens, positions + 1, jnp.where(stopped, 0, remaining - 1), sampled

    sampled = Sampled(
        tokens=jnp.full((num_rows, num_steps), -1, jnp.int32),
        logprobs=jnp.zeros((num_rows, num_steps), jnp.float32),
    )
    state = (0, cache, inputs.tokens, inputs.positions, inputs.remaining, sampled)
    _, cache, _, _, _, sampled = jax.lax.while_loop(go_on, advance, state)
    return cache, sampled
