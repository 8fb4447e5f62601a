"""Engine and update with a model that has experts, windows, biases and Gemma's norms and scales."""

import asyncio

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.config import MeshConfig, UpdateConfig
from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import hidden_states, init_params, unembed
from spade_jax.rl.packing import pack
from spade_jax.sampling.engine import Engine
from spade_jax.sampling.methods import SamplingParams
from spade_jax.training.mesh import make_mesh
from spade_jax.training.state import state_from_params
from spade_jax.training.update import Updater
from spade_jax.types import TrainingSequence

ARCHITECTURE = Architecture(
    vocab_size=43,
    num_layers=3,
    width=32,
    num_heads=4,
    num_kv_heads=2,
    head_width=8,
    mlp_width=24,
    activation="gelu_tanh",
    num_experts=4,
    experts_per_token=2,
    sliding_windows=(5, 0, 5),
    sliding_rope_theta=100.0,
    query_scale=0.3,
    norm_offset=1.0,
    post_norms=True,
    qkv_bias=True,
    scale_embeddings=True,
)
LENGTH = 32


@pytest.fixture(scope="module")
def params():
    return jax.jit(init_params, static_argnums=0)(ARCHITECTURE, 0)


@pytest.fixture(scope="module")
def streams(params):
    """Four sampled conversations of two turns."""
    engine = Engine(
        ARCHITECTURE, make_mesh(MeshConfig()), num_slots=4, max_context=LENGTH, decode_steps=4, pad_id=0
    )
    engine.load_weights(params, version=0)

    async def converse(session, index):
        with session:
            for turn in range(2):
                prompt = np.random.default_rng((index, turn)).integers(2, 43, 3 + index).tolist()
                sampling = SamplingParams(max_tokens=7, temperature=1.0, seed=index, stop_ids=(1,))
                await session.generate(prompt, sampling)
        return session.stream(1.0)

    async def main():
        sessions = [engine.session((index,)) for index in range(4)]
        return await asyncio.gather(*(converse(session, index) for index, session in enumerate(sessions)))

    return asyncio.run(asyncio.wait_for(main(), timeout=300))


def test_behavior_logprobs_are_those_of_the_training_path(params, streams):
    @jax.jit
    def logprobs(tokens):
        row = jnp.arange(LENGTH)[None]
        hidden = hidden_states(params, ARCHITECTURE, tokens[None], row, jnp.ones_like(row))
        logits = jax.nn.log_softmax(unembed(params, ARCHITECTURE, hidden))[0]
        return jnp.take_along_axis(logits[:-1], tokens[1:, None], axis=-1)[:, 0]

    for stream in streams:
        length = len(stream.tokens)
        assert stream.loss_mask.sum() > 5
        found = np.asarray(logprobs(np.pad(stream.tokens, (0, LENGTH - length))))[: length - 1]
        expected = np.where(stream.loss_mask[1:], found, 0)
        np.testing.assert_allclose(stream.behavior_logprobs[1:], expected, atol=1e-4)


def test_an_update_learns_what_it_is_rewarded_for_and_reports_its_routers(params, streams):
    config = UpdateConfig(row_length=LENGTH, rows_per_microbatch=2, logprob_chunk=32, learning_rate=1e-2)
    mesh = make_mesh(MeshConfig())
    updater = Updater(ARCHITECTURE, config, mesh)
    sequences = [
        TrainingSequence(role=role, stream=stream, advantage=advantage, weight=1.0)
        for role, stream, advantage in zip(("designer", "agent") * 2, streams, (1, 1, -1, -1), strict=True)
    ]
    batch = pack(sequences, row_length=LENGTH, rows_multiple=2, pad_id=0)
    state = state_from_params(ARCHITECTURE, updater.optimizer, mesh, params=params)
    losses = []
    for _ in range(3):
        state, metrics = updater.update(state, batch)
        losses.append(metrics["loss"])
    assert losses[2] < losses[1] < losses[0]
    assert metrics["logprob_difference"] > 1e-3
    assert metrics["router/smallest_share"] < 0.25 < metrics["router/largest_share"] < 1
    assert 0.5 < metrics["router/load_balance_loss"] < 4
    assert 0 < metrics["router/entropy"] < np.log(4)
    assert updater.num_compilations == 3
