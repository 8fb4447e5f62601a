"""What of a cycle's episodes enters the update, and with which weight."""

import dataclasses

import numpy as np
import pytest

from spade_jax.config import AgentConfig, Config, ModelConfig
from spade_jax.cycle import Plays, agent_sequences
from spade_jax.rl.packing import ROLES, pack
from spade_jax.types import TokenStream, Trajectory

CONFIG = Config(
    num_cycles=1,
    model=ModelConfig(num_layers=1, width=8, num_heads=1, num_kv_heads=1, head_width=8, mlp_width=8),
    agent=AgentConfig(mask_truncated=True),
)


def stream(*mask):
    return TokenStream(
        tokens=np.arange(len(mask), dtype=np.int32),
        loss_mask=np.array(mask, bool),
        behavior_logprobs=np.zeros(len(mask), np.float32),
        temperature=1.0,
    )


def episode(episode_return, *streams, truncated=False):
    return Trajectory(
        environment_id="e",
        condition="without_hint",
        instance_seed=0,
        turns=(),
        last_observation="",
        streams=streams,
        episode_return=episode_return,
        terminated=not truncated,
        truncated=truncated,
    )


EPISODES = [
    episode(1.0, stream(0, 1, 1), stream(0, 0, 1), stream(0, 0)),
    episode(0.0, stream(0, 1), truncated=True),
    episode(-1.0, stream(0, 0, 0), stream(0, 0)),  # of malformed replies alone
    episode(0.0, stream(0, 1, 1, 1)),
]


@pytest.mark.parametrize("mask_truncated", [True, False])
def test_every_episode_weighs_one_over_its_trained_tokens(mask_truncated):
    agent = dataclasses.replace(CONFIG.agent, mask_truncated=mask_truncated)
    config = dataclasses.replace(CONFIG, agent=agent)
    plays = {"e": Plays(without_hint=EPISODES, with_hint=[])}
    sequences, _ = agent_sequences(plays, config, {})
    found = [(int(item.stream.loss_mask.sum()), item.weight) for item in sequences]
    truncated = (0 if mask_truncated else 1, 1.0)
    assert found == [(2, 2 / 3), (1, 1 / 3), truncated, (0, 1 / 2), (0, 1 / 2), (3, 1.0)]


@pytest.mark.parametrize(("aggregation", "num_counted"), [("sequence", 2), ("sample", 4)])
def test_masked_episodes_count_where_the_aggregation_is_by_sample(aggregation, num_counted):
    sequences, _ = agent_sequences({"e": Plays(without_hint=EPISODES, with_hint=[])}, CONFIG, {})
    batch = pack(
        sequences,
        row_length=8,
        rows_multiple=1,
        pad_id=0,
        aggregation=dict.fromkeys(ROLES, aggregation),
    )
    weights = batch.weights[batch.loss_mask]
    np.testing.assert_allclose(weights, np.full(6, 1 / 3 / num_counted), rtol=1e-6)
