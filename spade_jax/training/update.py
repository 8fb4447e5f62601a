"""The one jitted update: PackedBatch -> TrainState and metrics.

Self-play and the supervised warm start use the same machinery with another loss. A batch is walked in
microbatches of fixed shape: one compiled step adds up gradients and metrics, one applies them. Loss
weights are fixed over the whole batch when it is packed, so the sums are the full batch's gradient
however it is cut, and any number of rows uses the same two compilations.

Promised: an update whose loss or gradient is not finite leaves the state as it was, and so does a
batch with nothing to learn from; both say so in the metrics. The state passed in is donated: use the
one that comes back.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding

from spade_jax.config import LossConfig, UpdateConfig
from spade_jax.errors import MeshError
from spade_jax.model.architecture import Architecture
from spade_jax.model.moe import RouterStatistics, router_metrics
from spade_jax.model.transformer import hidden_states_and_routers
from spade_jax.rl.losses import cross_entropy
from spade_jax.rl.objective import TokenLosses, Tokens, ratio_metrics, token_losses
from spade_jax.rl.packing import ROLES, PackedBatch
from spade_jax.training.logprobs import TokenStatistics, token_statistics, trained_first
from spade_jax.training.mesh import ROWS, num_row_shards, replicated
from spade_jax.training.optimizer import make_optimizer
from spade_jax.training.state import TrainState, state_shardings
from spade_jax.types import Role

Loss = Literal["policy_gradient", "cross_entropy"]
SAME_LOSSES: Mapping[Role, LossConfig] = MappingProxyType(dict.fromkeys(ROLES, LossConfig()))


class Rows(NamedTuple):
    """Rows of a PackedBatch on the device, each [B, T]."""

    tokens: jax.Array
    positions: jax.Array
    segment_ids: jax.Array
    role_ids: jax.Array
    loss_mask: jax.Array
    behavior_logprobs: jax.Array
    advantages: jax.Array
    weights: jax.Array
    temperatures: jax.Array


class Sums(NamedTuple):
    """What is added up over microbatches.

    Attributes:
      gradient: float32, in the structure of the parameters.
      loss: the weighted loss.
      totals: unweighted sums over trained tokens, by metric.
      role_totals: float32 [roles] each; the same for each role.
      routers: of a policy with experts, over all tokens.
    """

    gradient: Any
    loss: jax.Array
    totals: dict[str, jax.Array]
    role_totals: dict[str, jax.Array]
    routers: RouterStatistics | None


class Updater:
    """The update of one run.

    Args:
      architecture: of the policy.
      update_config: microbatches and optimizer.
      mesh: on which state and batches lie.
      loss: `policy_gradient` (self-play) or `cross_entropy` (supervised).
      num_steps: length of a supervised run, after which the learning rate is 0.
      losses: of each role, in the policy gradient; there is no reference pass where no KL coefficient
        is above 0.

    Attributes:
      optimizer: makes the optimizer state that `update` expects.
      uses_reference: whether the loss has a KL term, for which `update` needs reference_params.

    Raises:
      MeshError: rows_per_microbatch cannot be spread over the mesh, or the mesh does not fit the model.
    """

    def __init__(
        self,
        architecture: Architecture,
        update_config: UpdateConfig,
        mesh: Mesh,
        *,
        loss: Loss = "policy_gradient",
        num_steps: int | None = None,
        losses: Mapping[Role, LossConfig] = SAME_LOSSES,
    ):
        shards, rows = num_row_shards(mesh), update_config.rows_per_microbatch
        if rows % shards:
            raise MeshError(
                f"update.rows_per_microbatch={rows} cannot be spread over mesh.data x mesh.fsdp = {shards} "
                f"shards; use a multiple of {shards}, such as {-(-rows // shards) * shards}"
            )
        self.optimizer = make_optimizer(update_config, num_steps=num_steps)
        self._config = update_config
        self._loss = loss
        self._losses = tuple(losses[role] for role in ROLES)
        self.uses_reference = any(config.kl_coefficient for config in self._losses)
        self._rows_sharding = NamedSharding(mesh, ROWS)
        shardings = state_shardings(architecture, self.optimizer, mesh)
        everywhere: Any = replicated(mesh)
        sums = Sums(shardings.params, everywhere, everywhere, everywhere, everywhere)
        summed = functools.partial(_summed, architecture, update_config, mesh, loss, self._losses)

        def start(*microbatch: Any) -> Sums:
            return jax.tree.map(jnp.zeros_like, jax.eval_shape(summed, *microbatch))

        def accumulate(so_far: Sums, *microbatch: Any) -> Sums:
            return jax.tree.map(jnp.add, so_far, summed(*microbatch))

        self._start = jax.jit(start, out_shardings=sums)
        self._accumulate = jax.jit(accumulate, donate_argnums=0, out_shardings=sums)
        self._apply = jax.jit(
            functools.partial(_applied, self.optimizer),
            donate_argnums=0,
            out_shardings=(shardings, everywhere),
        )

    @property
    def num_compilations(self) -> int:
        """Programs compiled so far; does not grow after the first update."""
        jitted: list[Any] = [self._start, self._accumulate, self._apply]
        return sum(function._cache_size() for function in jitted)

    def update(
        self, state: TrainState, batch: PackedBatch, *, reference_params: Any = None
    ) -> tuple[TrainState, dict[str, float]]:
        """One optimizer step on a whole batch.

        Args:
          state: donated, unless the batch has nothing to learn from.
          batch: rows in a multiple of `rows_per_microbatch`.
          reference_params: needed exactly where the loss has a KL term.

        Returns:
          The new state, and metrics: `loss`, `grad_norm` (before the clip), `entropy/<role>`,
          `num_tokens/<role>` (trained ones), `fill_rate`, `skipped_empty` and `skipped_nonfinite` (0 or
          1); for the policy gradient also `ratio`, `clip_fraction` (of tokens without gradient, or with
          another weight than the ratio), `logprob_difference` (means over trained tokens), with a
          reference `kl`, and `entropy_gap/<role>`: the entropy less the mean of -log-prob, in nats. It is
          0 in expectation for tokens drawn from the policy, and above 0 by what the sampler's top-k and
          top-p left out; of experts `router/...`, see `router_metrics`. A mean over nothing is left out.
        """
        num_tokens = np.array(
            [np.count_nonzero(batch.loss_mask & (batch.role_ids == role)) for role in range(len(ROLES))]
        )
        metrics = {
            "fill_rate": batch.fill_rate,
            "skipped_empty": 0.0,
            "skipped_nonfinite": 0.0,
            **{f"num_tokens/{role}": float(num) for role, num in zip(ROLES, num_tokens, strict=True)},
        }
        if not self._can_learn(batch):
            return state, {**metrics, "skipped_empty": 1.0}

        sums = self.sums(state.params, batch, reference_params=reference_params)
        state, outcome = self._apply(state, sums)

        outcome = jax.device_get(outcome)
        metrics |= {name: float(outcome[name]) for name in ("loss", "grad_norm", "skipped_nonfinite")}
        metrics |= {name: float(total / num_tokens.sum()) for name, total in outcome["totals"].items()}
        metrics |= {
            f"{name}/{role}": float(total / num)
            for name, totals in outcome["role_totals"].items()
            for role, total, num in zip(ROLES, totals, num_tokens, strict=True)
            if num
        }
        metrics |= {f"router/{name}": float(value) for name, value in outcome["routers"].items()}
        return state, metrics

    def sums(self, params: Any, batch: PackedBatch, *, reference_params: Any = None) -> Sums:
        """Loss, gradient and metrics of a whole batch of at least one microbatch, before any step."""
        self._check(batch, reference_params)
        num_rows = self._config.rows_per_microbatch
        sums: Any = None
        for start in range(0, batch.num_rows, num_rows):
            rows = Rows(*(getattr(batch, name)[start : start + num_rows] for name in Rows._fields))
            microbatch = (params, jax.device_put(rows, self._rows_sharding), reference_params)
            sums = self._accumulate(sums or self._start(*microbatch), *microbatch)
        return sums

    def _can_learn(self, batch: PackedBatch) -> bool:
        weights = batch.weights[batch.loss_mask]
        if self._loss == "policy_gradient":
            always = np.array([bool(c.kl_coefficient or c.entropy_coefficient) for c in self._losses])
            weights = weights * (
                always[batch.role_ids[batch.loss_mask]] | (batch.advantages[batch.loss_mask] != 0)
            )
        return bool(np.any(weights))

    def _check(self, batch: PackedBatch, reference_params: Any) -> None:
        step, length = self._config.rows_per_microbatch, self._config.row_length
        if batch.num_rows % step or batch.tokens.shape[1] != length:
            raise ValueError(
                f"a batch of shape {batch.tokens.shape} does not consist of microbatches of shape "
                f"{(step, length)}; pack with row_length={length} and rows_multiple={step}"
            )
        if self.uses_reference != (reference_params is not None):
            raise ValueError(
                f"an update {'with' if self.uses_reference else 'without'} a KL penalty "
                f"{'needs' if self.uses_reference else 'does not use'} reference_params, which "
                f"{'are missing' if self.uses_reference else 'were given'}"
            )


def _summed(
    architecture: Architecture,
    update_config: UpdateConfig,
    mesh: Mesh,
    loss: Loss,
    losses: tuple[LossConfig, ...],
    params: Any,
    rows: Rows,
    reference_params: Any,
) -> Sums:
    """The sums of one microbatch."""
    order = trained_first(rows.loss_mask)

    def reorder(array: jax.Array) -> jax.Array:
        return jnp.take_along_axis(array, order, axis=1)

    trained = Rows(*map(reorder, rows))

    def statistics(params: Any) -> tuple[TokenStatistics, RouterStatistics | None]:
        hidden, routers = hidden_states_and_routers(
            params, architecture, rows.tokens, rows.positions, rows.segment_ids, mesh=mesh
        )
        before = jnp.maximum(order - 1, 0)[..., None]  # a token is predicted where its predecessor stands
        tokens = token_statistics(
            params,
            architecture,
            jnp.take_along_axis(hidden, before, axis=1),
            targets=trained.tokens,
            temperatures=trained.temperatures,
            loss_mask=trained.loss_mask,
            chunk=update_config.logprob_chunk,
            entropy_gradient=any(config.entropy_coefficient for config in losses),
        )
        return tokens, routers

    reference = None if reference_params is None else statistics(reference_params)[0]

    def weighted_loss(params: Any) -> tuple[jax.Array, tuple[Any, ...]]:
        policy, routers = statistics(params)
        per_token: dict[str, jax.Array] = {}
        per_role = {"entropy": policy.entropies}
        if loss == "cross_entropy":
            token_loss = cross_entropy(policy.logprobs, loss_mask=trained.loss_mask)
        else:
            token_loss, per_token = _policy_gradient(losses, trained, policy, reference)
            per_role["entropy_gap"] = policy.entropies + policy.logprobs
        totals = {name: jnp.sum(values, dtype=jnp.float32) for name, values in per_token.items()}
        of_role = trained.role_ids == jnp.arange(len(ROLES))[:, None, None]
        role_totals = {
            name: jnp.sum(jnp.where(of_role, values, 0), axis=(1, 2)) for name, values in per_role.items()
        }
        return jnp.sum(trained.weights * token_loss), (totals, role_totals, routers)

    (value, aside), gradient = jax.value_and_grad(weighted_loss, has_aux=True)(params)
    gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradient)
    return Sums(gradient, value, *aside)


def _policy_gradient(
    losses: tuple[LossConfig, ...], rows: Rows, policy: TokenStatistics, reference: TokenStatistics | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss of each token and, by name, the metrics whose mean over trained tokens is reported."""
    tokens = Tokens(
        policy_logprobs=policy.logprobs,
        entropies=policy.entropies,
        reference_logprobs=None if reference is None else reference.logprobs,
        behavior_logprobs=rows.behavior_logprobs,
        advantages=rows.advantages,
        segment_ids=rows.segment_ids,
    )
    by_role = [
        token_losses(tokens, config, loss_mask=rows.loss_mask & (rows.role_ids == role))
        for role, config in enumerate(losses)
    ]
    both: TokenLosses = jax.tree.map(jnp.add, *by_role)
    metrics = ratio_metrics(tokens, loss_mask=rows.loss_mask)
    metrics["clip_fraction"] = both.clipped
    if both.kl is not None:
        metrics["kl"] = both.kl
    return both.losses, metrics


def _applied(
    optimizer: optax.GradientTransformation, state: TrainState, sums: Sums
) -> tuple[TrainState, dict[str, Any]]:
    """The state after one optimizer step, or as it was where the sums are not finite."""
    grad_norm = optax.tree.norm(sums.gradient)
    finite = jnp.isfinite(sums.loss) & jnp.isfinite(grad_norm)
    updates, optimizer_state = optimizer.update(sums.gradient, state.optimizer_state, state.params)
    stepped = TrainState(
        params=optax.apply_updates(state.params, updates),
        optimizer_state=optimizer_state,
        step=state.step + 1,
    )
    state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), stepped, state)
    return state, {
        "loss": sums.loss,
        "grad_norm": grad_norm,
        "skipped_nonfinite": ~finite,
        "totals": sums.totals,
        "role_totals": sums.role_totals,
        "routers": {} if sums.routers is None else router_metrics(sums.routers),
    }
