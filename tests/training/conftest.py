"""A small real model, its updater and a ragged batch of both roles, shared so that little compiles twice."""

import numpy as np
import pytest

from spade_jax.config import MeshConfig, UpdateConfig
from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import init_params
from spade_jax.training.mesh import make_mesh
from spade_jax.training.update import Updater
from spade_jax.types import TokenStream, TrainingSequence

ARCHITECTURE = Architecture(
    vocab_size=48, num_layers=2, width=16, num_heads=4, num_kv_heads=2, head_width=4, mlp_width=24
)


@pytest.fixture(scope="session")
def architecture():
    return ARCHITECTURE


@pytest.fixture(scope="session")
def mesh():
    return make_mesh(MeshConfig())


@pytest.fixture(scope="session")
def update_config():
    return UpdateConfig(row_length=24, rows_per_microbatch=2, logprob_chunk=8, learning_rate=1e-2)


@pytest.fixture(scope="session")
def params(architecture):
    return init_params(architecture, 0)


@pytest.fixture(scope="session")
def updater(architecture, update_config, mesh):
    return Updater(architecture, update_config, mesh)


@pytest.fixture(scope="session")
def sequences():
    return ragged_sequences()


def ragged_sequences():
    """Eleven sequences of 3 to 24 tokens at two temperatures, with observations inside the agent's."""
    rng = np.random.default_rng(0)
    result = []
    for index, length in enumerate([24, 3, 9, 13, 20, 5, 17, 8, 11, 4, 15]):
        mask = np.arange(length) > length // 3 if index < 4 else rng.random(length) < 0.5
        mask[0], mask[-1] = False, True
        result.append(
            TrainingSequence(
                role="designer" if index < 4 else "agent",
                stream=TokenStream(
                    tokens=rng.integers(1, 48, length).astype(np.int32),
                    loss_mask=mask,
                    behavior_logprobs=np.where(mask, rng.normal(-3.9, 0.3, length), 0).astype(np.float32),
                    temperature=1.0 if index < 4 else 0.7,
                ),
                advantage=float(rng.normal()),
                weight=2.0 if index == 5 else 1.0,
            )
        )
    return result
