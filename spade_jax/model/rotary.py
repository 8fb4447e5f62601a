"""Rotary positions: frequencies, their scaling to longer contexts, and the rotation.

All of it is float32 whatever the activations are: bfloat16 would merge positions past 256.
"""

import math

import jax
import jax.numpy as jnp

from spade_jax.config import RopeScaling


def rotary_frequencies(*, head_width: int, theta: float, scaling: RopeScaling | None = None) -> jax.Array:
    """Radians per position of each pair of numbers, float32 [H / 2]."""
    exponents = jnp.arange(0, head_width, 2, dtype=jnp.float32) / head_width
    frequencies = theta**-exponents
    if scaling is None:
        return frequencies
    kept = _kept_share(frequencies, scaling, head_width=head_width, theta=theta)
    return frequencies * (kept + (1 - kept) / scaling.factor)


def rotary_tables(
    positions: jax.Array, frequencies: jax.Array, *, factor: float = 1.0
) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines times a factor, float32 [B, T, 1, H / 2], of int32 positions [B, T]."""
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    if factor == 1:
        return jnp.cos(angles), jnp.sin(angles)
    return factor * jnp.cos(angles), factor * jnp.sin(angles)


def rotate(x: jax.Array, tables: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Rotary position embedding (Su et al. 2021, eq. 34) of x [B, T, heads, H], pairing its two halves."""
    cos, sin = tables
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


def _kept_share(
    frequencies: jax.Array, scaling: RopeScaling, *, head_width: int, theta: float
) -> jax.Array | float:
    """How much of each frequency stays as it is; the rest is divided by the factor."""
    if scaling.kind == "linear":
        return 0.0
    if scaling.kind == "llama3":
        rotations = scaling.original_context * frequencies / (2 * math.pi)
        low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
        return jnp.clip((rotations - low) / (high - low), 0, 1)

    # Peng et al. 2023, equations 17 and 18, with a ramp over the index of the pair.
    def index_of(rotations: float) -> float:
        return (
            head_width
            * math.log(scaling.original_context / (rotations * 2 * math.pi))
            / (2 * math.log(theta))
        )

    first, last = index_of(scaling.beta_fast), index_of(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_width - 1)
    ramp = (jnp.arange(head_width // 2, dtype=jnp.float32) - first) / max(last - first, 1e-3)
    return 1 - jnp.clip(ramp, 0, 1)
