"""AdamW behind a global-norm clip, and its two learning-rate schedules.

Self-play warms up and stays; the supervised warm start, whose number of steps is known, warms up and
decays. Norms and moments are kept in the dtype of the parameters' gradients, float32.
"""

from typing import Any

import jax
import optax

from spade_jax.config import UpdateConfig


def make_schedule(update_config: UpdateConfig, *, num_steps: int | None = None) -> optax.Schedule:
    """The learning rate of each step, counted from 0.

    Without `num_steps`: a linear rise over `warmup_steps` updates, then constant. With it: a linear
    rise over its first tenth, then a cosine down to 0. Either rise starts above 0, so that no update
    is wasted.
    """
    peak = update_config.learning_rate
    num_warmup = update_config.warmup_steps if num_steps is None else num_steps // 10
    rise = optax.linear_schedule(peak / (num_warmup + 1), peak, num_warmup)
    if num_steps is None:
        return rise
    fall = optax.cosine_decay_schedule(peak, num_steps - num_warmup)
    return optax.join_schedules([rise, fall], [num_warmup])


def make_optimizer(
    update_config: UpdateConfig, *, num_steps: int | None = None
) -> optax.GradientTransformation:
    """Clip by global norm, then AdamW with decay on matrices only (Loshchilov and Hutter 2019).

    Args:
      update_config: rates, betas, decay and clip.
      num_steps: length of a supervised run; see `make_schedule`.
    """
    return optax.chain(
        optax.clip_by_global_norm(update_config.max_grad_norm),
        optax.adamw(
            make_schedule(update_config, num_steps=num_steps),
            b1=update_config.beta1,
            b2=update_config.beta2,
            weight_decay=update_config.weight_decay,
            mask=decayed,
        ),
    )


def decayed(params: Any) -> Any:
    """True for matrices, False for the scales of norms, which are stacked and so have two axes too."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key != "scale", params)
