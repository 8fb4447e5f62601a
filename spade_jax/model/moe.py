"""Mixture of experts: which experts a token goes to, and what they make of it, as pure functions.

Tokens are sorted by expert and each expert multiplies its own group alone (`grouped_matmul`): no token is
dropped, and no expert sees a token that was not sent to it.

Experts are spread over the mesh axis `tensor`. Between the blocks each device of that axis holds the same
tokens, so each picks those of its own experts, and one sum over the axis, which an MLP split over it
would need too, puts the results together. No token travels.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from spade_jax.model.grouped_matmul import grouped_matmul
from spade_jax.model.platform import platform_of


class Routing(NamedTuple):
    """Where tokens go.

    Attributes:
      experts: int32 [B, T, k], different ones for each token, the most probable first.
      weights: float32 [B, T, k], of what each of them makes.
    """

    experts: jax.Array
    weights: jax.Array


class RouterStatistics(NamedTuple):
    """Sums over tokens, of one layer or with a leading axis of layers; see `router_metrics`.

    Attributes:
      counts: float32 [E], tokens sent to each expert.
      probabilities: float32 [E], summed probability of each expert.
      entropy: float32 [], summed entropy of the router's distributions, in nats.
      tokens: float32 [], how many tokens there were.
    """

    counts: jax.Array
    probabilities: jax.Array
    entropy: jax.Array
    tokens: jax.Array


def route(
    logits: jax.Array, *, experts_per_token: int, normalize: bool, counted: jax.Array
) -> tuple[Routing, RouterStatistics]:
    """The most probable experts of each token.

    Args:
      logits: float32 [B, T, E].
      normalize: whether the weights of a token's experts are made to sum to 1.
      counted: bool [B, T], tokens that the statistics are about.
    """
    num_experts = logits.shape[-1]
    probabilities = jax.nn.softmax(logits, axis=-1)
    weights, experts = jax.lax.top_k(probabilities, experts_per_token)
    if normalize:
        weights /= weights.sum(axis=-1, keepdims=True)
    counted = counted.astype(jnp.float32)
    chosen = jax.nn.one_hot(experts, num_experts).sum(axis=2)
    entropy = -jnp.sum(probabilities * jax.nn.log_softmax(logits, axis=-1), axis=-1)
    statistics = RouterStatistics(
        counts=jnp.einsum("bt,bte->e", counted, chosen),
        probabilities=jnp.einsum("bt,bte->e", counted, probabilities),
        entropy=jnp.sum(counted * entropy),
        tokens=jnp.sum(counted),
    )
    return Routing(experts, weights), jax.lax.stop_gradient(statistics)


def router_metrics(statistics: RouterStatistics) -> dict[str, jax.Array]:
    """Float32 scalars; means over layers where nothing else is said.

    `load_balance_loss` is E * sum_e(share of tokens * mean probability) (Fedus et al. 2021, equation 4),
    1 where the experts are used evenly and E where all tokens go to one; `largest_share` and
    `smallest_share` are the extremes over all layers of an expert's share of its layer's tokens; `entropy`
    is of the router's distributions, in nats.
    """
    num_experts = statistics.counts.shape[-1]
    shares = statistics.counts / jnp.sum(statistics.counts, axis=-1, keepdims=True)
    probabilities = statistics.probabilities / statistics.tokens[..., None]
    return {
        "load_balance_loss": num_experts * jnp.mean(jnp.sum(shares * probabilities, axis=-1)),
        "largest_share": jnp.max(shares),
        "smallest_share": jnp.min(shares),
        "entropy": jnp.mean(statistics.entropy / statistics.tokens),
    }


def apply_experts(
    x: jax.Array,
    routing: Routing,
    gate: jax.Array,
    up: jax.Array,
    down: jax.Array,
    *,
    activation: Callable[[jax.Array], jax.Array],
    mesh: Mesh | None,
) -> jax.Array:
    """Weighted sum of what its experts make of each token: down(activation(gate(x)) * up(x)).

    Args:
      x: [B, T, D].
      gate, up: [E, D, F].
      down: [E, F, D].
      mesh: on which rows lie over data and fsdp and experts over tensor.

    Returns:
      [B, T, D].
    """
    product = functools.partial(grouped_matmul, platform=platform_of(mesh))
    apply = functools.partial(_apply_own_experts, activation=activation, product=product)
    if mesh is None or mesh.size == 1:
        return apply(x, routing, gate, up, down)
    num_row_shards = mesh.shape["data"] * mesh.shape["fsdp"]
    # Rows that cannot be spread evenly are computed by each of their shards.
    rows = PartitionSpec(("data", "fsdp") if x.shape[0] % num_row_shards == 0 else None)
    experts = PartitionSpec("tensor")

    def apply_on_device(x: jax.Array, routing: Routing, *kernels: jax.Array) -> jax.Array:
        first = jax.lax.axis_index("tensor") * kernels[0].shape[0]
        own = Routing(routing.experts - first, routing.weights)
        return jax.lax.psum(apply(x, own, *kernels), "tensor")

    sharded = jax.shard_map(
        apply_on_device,
        mesh=mesh,
        in_specs=(rows, rows, experts, experts, experts),
        out_specs=rows,
        check_vma=False,  # with it JAX 0.10 loses all but one device's part of the gradient of x
    )
    return sharded(x, routing, gate, up, down)


def _apply_own_experts(
    x: jax.Array,
    routing: Routing,
    gate: jax.Array,
    up: jax.Array,
    down: jax.Array,
    *,
    activation: Callable[[jax.Array], jax.Array],
    product: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """As `apply_experts`, where experts outside of 0 ... E - 1 are somebody else's and add nothing."""
    num_experts, experts_per_token = gate.shape[0], routing.experts.shape[-1]
    experts = routing.experts.reshape(-1)
    experts = jnp.where((experts >= 0) & (experts < num_experts), experts, num_experts)
    order = jnp.argsort(experts, stable=True)
    group_sizes = jnp.bincount(experts, length=num_experts)
    own = (experts[order] < num_experts)[:, None]
    # What a product leaves in rows behind the last group means nothing: `where` keeps it out of the result,
    # and out of the gradient.
    inputs = jnp.where(own, x.reshape(-1, x.shape[-1])[order // experts_per_token], 0)
    hidden = activation(product(inputs, gate, group_sizes))
    hidden *= product(inputs, up, group_sizes)
    outputs = jnp.where(own, product(hidden, down, group_sizes), 0)
    outputs = outputs[jnp.argsort(order)].reshape(*routing.experts.shape, -1)
    return jnp.einsum("btkd,btk->btd", outputs, routing.weights.astype(x.dtype))
