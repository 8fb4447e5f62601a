"""Attention over packed rows by the kernel of the platform.

`xla` and `cudnn` are given the mask of `attention_mask` as an array. `splash` builds the same mask in its
kernel from causality, window and segments. What a kernel cannot do is refused.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from spade_jax.errors import ConfigError
from spade_jax.model.architecture import Architecture
from spade_jax.model.attention import attend, attention_mask
from spade_jax.model.platform import platform_of
from spade_jax.model.splash import BLOCK, splash_attention

# Of queries [B, T, N, H], keys and values [B, T, K, H] and the layer's kind, int32 [].
PackedAttention = Callable[[jax.Array, jax.Array, jax.Array, jax.Array | None], jax.Array]


def packed_attention(
    architecture: Architecture, positions: jax.Array, segment_ids: jax.Array, *, mesh: Mesh | None
) -> PackedAttention:
    """What each layer computes its attention with.

    Args:
      positions, segment_ids: int32 [B, T]; within a segment columns and positions advance together.
      mesh: on which rows lie over data and fsdp and heads over tensor.

    Raises:
      ConfigError: the backend that `architecture.attention` names cannot do what the model needs.
    """
    backend = choose_backend(architecture, platform=platform_of(mesh), row_length=positions.shape[1])
    scale = architecture.attention_scale
    if backend == "splash":

        def attend_splash(
            queries: jax.Array, keys: jax.Array, values: jax.Array, kind: jax.Array | None
        ) -> jax.Array:
            return splash_attention(
                queries,
                keys,
                values,
                segment_ids,
                windows=architecture.windows,
                kind=kind,
                scale=scale,
                mesh=mesh,
            )

        return attend_splash

    def mask(window: jax.Array | None) -> jax.Array:
        return attention_mask(
            positions, positions, query_segments=segment_ids, key_segments=segment_ids, window=window
        )

    windows = jnp.asarray(architecture.windows, jnp.int32)
    one_mask = mask(windows[0] if architecture.sliding_windows else None) if len(windows) == 1 else None

    def attend_masked(
        queries: jax.Array, keys: jax.Array, values: jax.Array, kind: jax.Array | None
    ) -> jax.Array:
        seen = mask(windows[kind]) if one_mask is None else one_mask
        if backend == "xla":
            return attend(queries, keys, values, seen, scale=scale)
        return jax.nn.dot_product_attention(
            queries,
            keys,
            values,
            mask=seen[:, None],
            scale=scale,
            is_causal=True,  # says nothing new, and lets the kernel skip half of the work
            implementation="cudnn",
        )

    return attend_masked


def choose_backend(architecture: Architecture, *, platform: str, row_length: int) -> str:
    """The backend that computes attention over packed rows: `xla`, `splash` or `cudnn`.

    `auto` is splash on TPU and cuDNN on GPU for what they can do, and XLA for the rest.

    Args:
      platform: of the devices, `cpu`, `gpu` or `tpu`.

    Raises:
      ConfigError: the backend that the architecture names cannot do what the model needs.
    """
    name = architecture.attention
    if name == "xla" or (name == "auto" and platform not in ("tpu", "gpu")):
        return "xla"
    backend = name if name != "auto" else "splash" if platform == "tpu" else "cudnn"
    if backend == "splash":
        needs = [
            (platform == "tpu", f"a TPU, and the platform is {platform}"),
            (row_length % BLOCK == 0, f"update.row_length in multiples of {BLOCK}, got {row_length}"),
        ]
    else:
        width, dtype = architecture.head_width, architecture.activation_dtype
        needs = [
            (platform == "gpu", f"an NVIDIA GPU, and the platform is {platform}"),
            (dtype == "bfloat16", f"model.activation_dtype=bfloat16, got {dtype}"),
            (width % 8 == 0, f"model.head_width in multiples of 8, got {width}"),
            (width <= 128, f"model.head_width of at most 128, got {width}"),
            (row_length % 2 == 0, f"an even update.row_length, got {row_length}"),
        ]
    missing = [need for met, need in needs if not met]
    if missing and name != "auto":
        raise ConfigError(f"model.attention={name} needs {'; '.join(missing)}. model.attention=xla does")
    return "xla" if missing else backend
