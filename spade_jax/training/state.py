"""TrainState, what one update changes, and how it comes to lie on the mesh.

A state is made by one jitted function with output shardings, so that no device ever holds more than
its share. The optimizer's moments lie like the parameters that they belong to.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from spade_jax.model.architecture import Architecture
from spade_jax.model.sharding import param_shardings
from spade_jax.model.transformer import init_params
from spade_jax.training.mesh import replicated


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Everything on the device that an update changes.

    Attributes:
      params: the policy.
      optimizer_state: of the optimizer that the updater owns.
      step: int32 []; updates applied so far.
    """

    params: Any
    optimizer_state: Any
    step: jax.Array


def create_state(
    architecture: Architecture, optimizer: optax.GradientTransformation, mesh: Mesh, *, seed: int
) -> TrainState:
    """A new state with parameters drawn from a seed."""

    def create() -> TrainState:
        return _start(init_params(architecture, seed), optimizer)

    return jax.jit(create, out_shardings=state_shardings(architecture, optimizer, mesh))()


def state_from_params(
    architecture: Architecture, optimizer: optax.GradientTransformation, mesh: Mesh, *, params: Any
) -> TrainState:
    """A new state that starts from a copy of `params`, which stay the caller's."""

    def create(params: Any) -> TrainState:
        return _start(jax.tree.map(jnp.copy, params), optimizer)

    return jax.jit(create, out_shardings=state_shardings(architecture, optimizer, mesh))(params)


def abstract_state(
    architecture: Architecture, optimizer: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
    """Shapes, dtypes and shardings of a state, without its arrays."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        _shapes(architecture, optimizer),
        state_shardings(architecture, optimizer, mesh),
    )


def abstract_params(architecture: Architecture, mesh: Mesh) -> Any:
    """Shapes, dtypes and shardings of the parameters, without their arrays."""
    return abstract_state(architecture, optax.identity(), mesh).params


def state_shardings(
    architecture: Architecture, optimizer: optax.GradientTransformation, mesh: Mesh
) -> TrainState:
    """A NamedSharding for each array of a state.

    Raises:
      MeshError: a mesh axis does not divide the model.
    """
    params = param_shardings(architecture, mesh)
    everywhere: Any = replicated(mesh)
    optimizer_state = optax.tree.map_params(
        optimizer,
        lambda _, sharding: sharding,
        _shapes(architecture, optimizer).optimizer_state,
        params,
        transform_non_params=lambda _: everywhere,
    )
    return TrainState(params=params, optimizer_state=optimizer_state, step=everywhere)


def _start(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    return TrainState(params=params, optimizer_state=optimizer.init(params), step=jnp.zeros((), jnp.int32))


def _shapes(architecture: Architecture, optimizer: optax.GradientTransformation) -> TrainState:
    return jax.eval_shape(lambda: _start(init_params(architecture, 0), optimizer))
