import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.config import UpdateConfig
from spade_jax.errors import MeshError
from spade_jax.model.transformer import hidden_states, unembed
from spade_jax.rl.packing import pack
from spade_jax.training.state import create_state, state_from_params
from spade_jax.training.update import Updater

ROLE_WEIGHTS = {"designer": 0.5, "agent": 2.0}
KL_COEFFICIENTS = {"designer": 0.3, "agent": 0.1}


def packed(sequences, update_config):
    return pack(
        sequences,
        row_length=update_config.row_length,
        rows_multiple=update_config.rows_per_microbatch,
        pad_id=0,
        role_weights=ROLE_WEIGHTS,
    )


def policy_distributions(params, architecture, sequences):
    """int32 [S, 24] tokens, one sequence a row, and float32 [S, 23, V] log-probs of all next ones."""
    tokens = np.stack([np.pad(item.stream.tokens, (0, 24 - len(item.stream.tokens))) for item in sequences])
    positions = np.broadcast_to(np.arange(24), tokens.shape)
    hidden = hidden_states(params, architecture, tokens, positions, np.ones_like(tokens))
    temperatures = np.array([item.stream.temperature for item in sequences])
    logits = unembed(params, architecture, hidden)[:, :-1] / temperatures[:, None, None]
    return tokens, jax.nn.log_softmax(logits)


def policy_logprobs(params, architecture, sequences):
    """float32 [S, 23]: log-probs of the next tokens that there are."""
    tokens, logprobs = policy_distributions(params, architecture, sequences)
    return jnp.take_along_axis(logprobs, tokens[:, 1:, None], axis=2)[..., 0]


def one_by_one(params, architecture, sequences, *, loss, update_config, reference_params=None):
    """The loss as its definition reads: one sequence after the other, plain means and sums."""
    policy = policy_logprobs(params, architecture, sequences)
    total = 0.0
    for role, role_weight in ROLE_WEIGHTS.items():
        members = [index for index, item in enumerate(sequences) if item.role == role]
        shares = sum(sequences[index].weight for index in members)
        for index in members:
            item, at = sequences[index], np.flatnonzero(sequences[index].stream.loss_mask[1:])
            if loss == "cross_entropy":
                losses = -policy[index, at]
            else:
                ratio = jnp.exp(policy[index, at] - item.stream.behavior_logprobs[1:][at])
                clipped = jnp.clip(ratio, 1 - update_config.clip_low, 1 + update_config.clip_high)
                losses = -jnp.minimum(ratio * item.advantage, clipped * item.advantage)
                if update_config.truncate_ratio:
                    weights = jax.lax.stop_gradient(jnp.minimum(ratio, update_config.truncate_ratio))
                    losses = -weights * item.advantage * policy[index, at]
            if reference_params is not None:
                reference = policy_logprobs(reference_params, architecture, sequences)[index, at]
                losses += KL_COEFFICIENTS[role] * (reference - policy[index, at]) ** 2 / 2
            total += role_weight * item.weight / shares * jnp.mean(losses)
    return total


def assert_trees_close(got, wanted):
    """But for the order in which float32 numbers were added up, which a small result of large terms
    shows most: so the error is measured by the largest number of its array."""
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.max(np.abs(b), initial=0))


def assert_trees_equal(got, wanted):
    jax.tree.map(np.testing.assert_array_equal, got, wanted)


@pytest.fixture(scope="module")
def supervised_updater(architecture, update_config, mesh):
    return Updater(architecture, update_config, mesh, loss="cross_entropy", num_steps=60)


@pytest.mark.parametrize("loss", ["policy_gradient", "cross_entropy"])
def test_packed_and_chunked_equals_each_sequence_alone(
    architecture, update_config, updater, supervised_updater, params, sequences, loss
):
    updater = {"policy_gradient": updater, "cross_entropy": supervised_updater}[loss]
    sums = updater.sums(params, packed(sequences, update_config))
    value, gradient = jax.jit(
        jax.value_and_grad(
            lambda params: one_by_one(params, architecture, sequences, loss=loss, update_config=update_config)
        )
    )(params)
    np.testing.assert_allclose(sums.loss, value, rtol=1e-5)
    assert_trees_close(sums.gradient, gradient)


def test_kl_towards_the_reference_equals_each_sequence_alone(
    architecture, mesh, update_config, params, sequences
):
    updater = Updater(architecture, update_config, mesh, kl_coefficients=KL_COEFFICIENTS)
    reference_params = jax.tree.map(lambda leaf: 0.9 * leaf, params)
    batch = packed(sequences, update_config)
    sums = updater.sums(params, batch, reference_params=reference_params)
    gradient = jax.jit(
        jax.grad(
            lambda params: one_by_one(
                params,
                architecture,
                sequences,
                loss="policy_gradient",
                update_config=update_config,
                reference_params=reference_params,
            )
        )
    )(params)
    assert_trees_close(sums.gradient, gradient)

    # The reference is not donated with the state, not even where the state started from it.
    state = state_from_params(architecture, updater.optimizer, mesh, params=reference_params)
    for _ in range(2):
        state, metrics = updater.update(state, batch, reference_params=reference_params)
    assert metrics["kl"] > 0
    assert_trees_equal(reference_params, jax.tree.map(lambda leaf: 0.9 * leaf, params))


def test_truncated_importance_equals_each_sequence_alone(
    architecture, mesh, update_config, params, sequences
):
    config = dataclasses.replace(update_config, truncate_ratio=1.1)
    updater, batch = Updater(architecture, config, mesh), packed(sequences, config)
    sums = updater.sums(params, batch)
    value, gradient = jax.jit(
        jax.value_and_grad(
            lambda params: one_by_one(
                params, architecture, sequences, loss="policy_gradient", update_config=config
            )
        )
    )(params)
    np.testing.assert_allclose(sums.loss, value, rtol=1e-5)
    assert_trees_close(sums.gradient, gradient)

    policy = policy_logprobs(params, architecture, sequences)
    ratios = [
        np.exp(logprobs[at] - item.stream.behavior_logprobs[1:][at])
        for item, logprobs in zip(sequences, policy, strict=True)
        for at in [np.flatnonzero(item.stream.loss_mask[1:])]
    ]
    cut = np.concatenate(ratios) > 1.1
    assert 0 < cut.mean() < 1
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    _, metrics = updater.update(state, batch)
    assert metrics["clip_fraction"] == pytest.approx(cut.mean())
    assert metrics["ratio"] == pytest.approx(np.concatenate(ratios).mean(), rel=1e-5)


@pytest.mark.parametrize(("rows_per_microbatch", "logprob_chunk"), [(1, 1000), (6, 1)])
def test_microbatches_and_chunks_do_not_change_the_sums(
    architecture, mesh, update_config, updater, params, sequences, rows_per_microbatch, logprob_chunk
):
    cut = dataclasses.replace(
        update_config, rows_per_microbatch=rows_per_microbatch, logprob_chunk=logprob_chunk
    )
    wanted = updater.sums(params, packed(sequences, update_config))
    got = Updater(architecture, cut, mesh).sums(params, packed(sequences, cut))
    assert_trees_close(got, wanted)


def test_masked_tokens_equal_absent_ones(update_config, updater, params, sequences):
    """A sequence without trained tokens, and whatever its advantage is, changes nothing."""
    untrained = dataclasses.replace(
        sequences[6],
        advantage=np.nan,
        stream=dataclasses.replace(sequences[6].stream, loss_mask=np.zeros(17, bool)),
    )
    without = updater.sums(params, packed(sequences[:6], update_config))
    with_it = updater.sums(params, packed([*sequences[:6], untrained], update_config))
    assert_trees_close(with_it, without)


def test_nan_outside_the_mask_is_harmless(update_config, updater, params, sequences):
    clean = packed(sequences, update_config)
    dirty = dataclasses.replace(
        clean,
        **{
            name: np.where(clean.loss_mask, getattr(clean, name), np.nan).astype(np.float32)
            for name in ("behavior_logprobs", "advantages", "temperatures")
        },
    )
    assert_trees_equal(updater.sums(params, dirty), updater.sums(params, clean))


def test_metrics_by_an_independent_count(architecture, mesh, update_config, updater, params, sequences):
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    loss = one_by_one(params, architecture, sequences, loss="policy_gradient", update_config=update_config)
    batch = packed(sequences, update_config)
    _, metrics = updater.update(state, batch)
    assert all(type(value) is float for value in metrics.values())
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-5)
    assert metrics["num_tokens/designer"] == sum(item.stream.loss_mask.sum() for item in sequences[:4])
    assert metrics["num_tokens/agent"] == sum(item.stream.loss_mask.sum() for item in sequences[4:])
    assert metrics["fill_rate"] == batch.fill_rate
    _, logprobs = policy_distributions(params, architecture, sequences)
    entropies = -np.sum(np.exp(logprobs) * logprobs, axis=-1)
    chosen = policy_logprobs(params, architecture, sequences)
    trained = [(index, np.flatnonzero(item.stream.loss_mask[1:])) for index, item in enumerate(sequences)]
    designer, agent = (np.concatenate([entropies[at] for at in part]) for part in (trained[:4], trained[4:]))
    assert metrics["entropy/designer"] == pytest.approx(designer.mean(), rel=1e-5)
    assert metrics["entropy/agent"] == pytest.approx(agent.mean(), rel=1e-5)
    difference = np.concatenate(
        [chosen[at] - sequences[at[0]].stream.behavior_logprobs[1:][at[1]] for at in trained]
    )
    assert metrics["logprob_difference"] == pytest.approx(np.abs(difference).mean(), rel=1e-5)
    assert metrics["ratio"] == pytest.approx(np.exp(difference).mean(), rel=1e-5)
    advantages = np.concatenate([np.full(len(at), sequences[index].advantage) for index, at in trained])
    clipped = np.where(advantages > 0, np.exp(difference) > 1.28, np.exp(difference) < 0.8)
    assert metrics["clip_fraction"] == pytest.approx(clipped.mean())
    assert metrics["grad_norm"] > 0
    assert metrics["skipped_empty"] == metrics["skipped_nonfinite"] == 0


def test_behavior_of_the_policy_itself_gives_ratio_one(
    architecture, mesh, update_config, updater, params, sequences
):
    """Log-probs of the policy, fed back as those of the sampler: no ratio, no clip, no difference."""
    exact = [
        dataclasses.replace(
            item,
            stream=dataclasses.replace(
                item.stream, behavior_logprobs=np.append(0, logprobs)[: len(item.stream.tokens)]
            ),
        )
        for item, logprobs in zip(sequences, policy_logprobs(params, architecture, sequences), strict=True)
    ]
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    _, metrics = updater.update(state, packed(exact, update_config))
    assert metrics["ratio"] == pytest.approx(1, abs=1e-5)
    assert metrics["logprob_difference"] == pytest.approx(0, abs=1e-5)
    assert metrics["clip_fraction"] == 0


def test_cross_entropy_learns_to_predict(architecture, mesh, update_config, supervised_updater, sequences):
    updater = supervised_updater
    state = create_state(architecture, updater.optimizer, mesh, seed=0)
    batch = packed(sequences, update_config)
    losses = []
    for _ in range(60):
        state, metrics = updater.update(state, batch)
        losses.append(metrics["loss"])
    assert losses[-1] < 0.5 * losses[0]
    assert int(state.step) == 60


def test_policy_gradient_raises_what_had_a_positive_advantage(
    architecture, mesh, update_config, updater, params, sequences
):
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    params = jax.tree.map(jnp.copy, state.params)
    batch = packed(sequences, update_config)
    state, _ = updater.update(state, batch)
    before, after = (updater.sums(weights, batch).loss for weights in (params, state.params))
    assert after < before


def test_no_compilation_after_the_first_update(architecture, mesh, update_config, updater, params, sequences):
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    state, _ = updater.update(state, packed(sequences, update_config))
    compiled = updater.num_compilations
    for some in (sequences[:1], sequences[3:], sequences * 3):
        state, metrics = updater.update(state, packed(some, update_config))
        assert metrics["skipped_empty"] == 0
    assert updater.num_compilations == compiled > 0


@pytest.mark.parametrize("field", ["advantages", "behavior_logprobs", "weights"])
def test_a_loss_that_is_not_finite_leaves_the_state_as_it_was(
    architecture, mesh, update_config, updater, params, sequences, field
):
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    state, _ = updater.update(state, packed(sequences, update_config))
    before = jax.tree.map(np.array, state)
    batch = packed(sequences, update_config)
    poisoned = getattr(batch, field).copy()
    poisoned[tuple(np.argwhere(batch.loss_mask)[3])] = np.nan
    state, metrics = updater.update(state, dataclasses.replace(batch, **{field: poisoned}))
    assert metrics["skipped_nonfinite"] == 1
    assert_trees_equal(state, before)
    state, metrics = updater.update(state, batch)
    assert metrics["skipped_nonfinite"] == 0
    assert int(state.step) == 2


@pytest.mark.parametrize("what", ["no sequences", "no trained tokens", "no advantages", "no weights"])
def test_nothing_to_learn_from_is_a_no_op_that_says_so(
    architecture, mesh, update_config, updater, params, sequences, what
):
    chosen = {
        "no sequences": [],
        "no trained tokens": [
            dataclasses.replace(
                item, stream=dataclasses.replace(item.stream, loss_mask=np.zeros_like(item.stream.loss_mask))
            )
            for item in sequences
        ],
        "no advantages": [dataclasses.replace(item, advantage=0.0) for item in sequences],
        "no weights": [dataclasses.replace(item, weight=0.0) for item in sequences],
    }[what]
    # A step would move the parameters even where the gradient is 0, by weight decay and momentum.
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    same, metrics = updater.update(state, packed(chosen, update_config))
    assert same is state
    assert metrics["skipped_empty"] == 1
    assert "loss" not in metrics


def test_misuse_is_explained(architecture, mesh, update_config, updater, params, sequences):
    wrong_rows = pack(sequences[:1], row_length=24, rows_multiple=1, pad_id=0)
    with pytest.raises(ValueError, match=r"pack with row_length=24 and rows_multiple=2"):
        updater.sums(params, wrong_rows)
    with pytest.raises(ValueError, match="pack with row_length=24"):
        updater.sums(params, pack(sequences, row_length=32, rows_multiple=2, pad_id=0))
    with pytest.raises(ValueError, match="without a KL penalty does not use reference_params"):
        updater.sums(params, packed(sequences, update_config), reference_params=params)
    needs = Updater(architecture, update_config, mesh, kl_coefficients=KL_COEFFICIENTS)
    with pytest.raises(ValueError, match="needs reference_params, which are missing"):
        needs.sums(params, packed(sequences, update_config))


def test_rows_that_the_mesh_cannot_share_are_refused(architecture):
    class TwoByTwo:
        shape = {"data": 2, "fsdp": 2, "tensor": 1}  # noqa: RUF012

    with pytest.raises(MeshError, match=r"rows_per_microbatch=6 .* multiple of 4, such as 8"):
        Updater(architecture, UpdateConfig(rows_per_microbatch=6), TwoByTwo())
