import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.config import UpdateConfig
from spade_jax.training.optimizer import decayed, make_optimizer, make_schedule

CONFIG = UpdateConfig(learning_rate=1.0, warmup_steps=3)


def test_self_play_rises_over_the_warmup_and_stays():
    schedule = make_schedule(CONFIG)
    np.testing.assert_allclose([schedule(step) for step in (0, 1, 2, 3, 4, 500)], [0.25, 0.5, 0.75, 1, 1, 1])
    assert make_schedule(UpdateConfig(learning_rate=0.5, warmup_steps=0))(0) == 0.5


def test_a_supervised_run_rises_over_a_tenth_and_falls_to_nothing():
    schedule = make_schedule(CONFIG, num_steps=100)
    rates = np.array([schedule(step) for step in range(101)])
    assert np.argmax(rates) == 10
    assert rates[0] > 0
    assert rates[10] == pytest.approx(1)
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0, abs=1e-6)
    assert np.all(np.diff(rates[:11]) > 0)
    assert np.all(np.diff(rates[10:]) < 0)
    assert np.isfinite([make_schedule(CONFIG, num_steps=1)(step) for step in range(3)]).all()


def test_first_step_of_adamw_by_hand():
    """A first Adam step is the sign of the gradient; the decay adds to it on matrices only."""
    config = UpdateConfig(learning_rate=0.1, weight_decay=0.5, max_grad_norm=1.0)
    optimizer = make_optimizer(config)
    params = {"kernel": jnp.full((2, 2), 2.0), "norm": {"scale": jnp.full((3, 2), 2.0)}}
    gradient = jax.tree.map(lambda leaf: jnp.full_like(leaf, -7.0), params)
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    np.testing.assert_allclose(updates["kernel"], 0.1 * (1 - 0.5 * 2), atol=1e-6)
    np.testing.assert_allclose(updates["norm"]["scale"], 0.1, rtol=1e-5)


def test_the_gradient_is_clipped_by_its_global_norm():
    """The moments see a gradient of norm 1 where the raw one has norm 10."""
    optimizer = make_optimizer(dataclasses.replace(CONFIG, max_grad_norm=1.0, beta1=0.0))
    params = {"a": jnp.zeros(2), "b": jnp.zeros(2)}
    gradient = {"a": jnp.array([6.0, 0.0]), "b": jnp.array([0.0, 8.0])}
    _, state = optimizer.update(gradient, optimizer.init(params), params)
    first_moments = [leaf for leaf in jax.tree.leaves(state) if leaf.shape == (2,)][:2]
    np.testing.assert_allclose(first_moments, [[0.6, 0], [0, 0.8]], rtol=1e-5)


def test_every_matrix_of_the_model_is_decayed_and_no_norm(params):
    flags = jax.tree_util.tree_leaves_with_path(decayed(params))
    names = {jax.tree_util.keystr(path): flag for path, flag in flags}
    assert any(names.values())
    for name, flag in names.items():
        assert flag != ("norm" in name), name
