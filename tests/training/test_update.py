import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.config import LossConfig, UpdateConfig
from spade_jax.errors import MeshError
from spade_jax.model.transformer import hidden_states, unembed
from spade_jax.rl.packing import pack
from spade_jax.training.state import create_state, state_from_params
from spade_jax.training.update import Updater

ROLE_WEIGHTS = {"designer": 0.5, "agent": 2.0}
KL_LOSSES = {"designer": LossConfig(kl_coefficient=0.3), "agent": LossConfig(kl_coefficient=0.1)}


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


def one_by_one(params, architecture, sequences, *, loss, reference_params=None):
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
                losses = -jnp.minimum(ratio * item.advantage, jnp.clip(ratio, 0.8, 1.28) * item.advantage)
            if reference_params is not None:
                reference = policy_logprobs(reference_params, architecture, sequences)[index, at]
                losses += KL_LOSSES[role].kl_coefficient * (reference - policy[index, at]) ** 2 / 2
            total += role_weight * item.weight / shares * jnp.mean(losses)
    return total


def with_nan_outside_the_mask(batch):
    names = ("behavior_logprobs", "advantages", "temperatures")
    dirty = {name: np.where(batch.loss_mask, getattr(batch, name), np.nan) for name in names}
    return dataclasses.replace(batch, **{name: values.astype(np.float32) for name, values in dirty.items()})


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
        jax.value_and_grad(lambda params: one_by_one(params, architecture, sequences, loss=loss))
    )(params)
    np.testing.assert_allclose(sums.loss, value, rtol=1e-5)
    assert_trees_close(sums.gradient, gradient)


def test_kl_towards_the_reference_equals_each_sequence_alone(
    architecture, mesh, update_config, params, sequences
):
    updater = Updater(architecture, update_config, mesh, losses=KL_LOSSES)
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


# Both roles differ in everything, and no two cases share a kind, an aggregation or a KL penalty of a role.
PAIRS = {
    "gspo and cispo": {
        "designer": LossConfig(kind="gspo", clip_low=0.04, clip_high=0.01, aggregation="token"),
        "agent": LossConfig(kind="cispo", clip_low=0.1, clip_high=0.2, aggregation="constant"),
    },
    "truncated and masked": {
        "designer": LossConfig(
            kind="truncated", max_ratio=1.1, aggregation="sample", kl="reward", kl_coefficient=0.2
        ),
        "agent": LossConfig(
            kind="masked", min_ratio=0.7, max_ratio=1.2, aggregation="token", entropy_coefficient=0.5
        ),
    },
    "reinforce and clipped": {
        "designer": LossConfig(kind="reinforce", aggregation="constant", kl="k1", kl_coefficient=0.2),
        "agent": LossConfig(aggregation="sample", entropy_coefficient=0.1, kl="k2", kl_coefficient=0.3),
    },
}


def policy_gradient(config, policy, behavior, reference, entropies, advantage):
    """float32 [n], of the trained tokens of one sequence, as the papers' formulas read, and their ratios."""
    ratios = jnp.exp(policy - behavior)
    fixed = jax.lax.stop_gradient(ratios)
    advantages = jnp.full(len(policy), advantage)
    if config.kl == "reward":
        k1 = jax.lax.stop_gradient(policy - reference)
        advantages -= config.kl_coefficient * jnp.cumsum(k1[::-1])[::-1]
    low, high = 1 - config.clip_low, 1 + config.clip_high
    match config.kind:
        case "gspo":
            ratios = jnp.exp(jnp.mean(policy - behavior))
            losses = -jnp.minimum(ratios * advantages, jnp.clip(ratios, low, high) * advantages)
        case "clipped":
            losses = -jnp.minimum(ratios * advantages, jnp.clip(ratios, low, high) * advantages)
        case "cispo":
            losses = -jnp.clip(fixed, low, high) * advantages * policy
        case "truncated":
            losses = -jnp.minimum(fixed, config.max_ratio) * advantages * policy
        case "masked":
            inside = (fixed >= config.min_ratio) & (fixed <= config.max_ratio)
            losses = -jnp.where(inside, fixed, 0) * advantages * policy
        case "reinforce":
            losses = -advantages * policy
    if config.kl != "reward":
        losses += config.kl_coefficient * (policy - reference) ** 2 / 2
    return losses - config.entropy_coefficient * entropies


def one_by_one_by_role(params, architecture, sequences, *, losses, reference_params):
    """The gradient's loss as its definition reads, with the losses of each role."""
    tokens, distributions = policy_distributions(params, architecture, sequences)
    policy = jnp.take_along_axis(distributions, tokens[:, 1:, None], axis=2)[..., 0]
    entropies = -jnp.sum(jnp.exp(distributions) * distributions, axis=-1)
    reference = policy_logprobs(reference_params, architecture, sequences)
    total = 0.0
    for role, config in losses.items():
        members = [(index, item) for index, item in enumerate(sequences) if item.role == role]
        trained = [(index, item) for index, item in members if item.stream.loss_mask.any()]
        num_tokens = sum(item.stream.loss_mask.sum() for _, item in trained)
        for index, item in trained:
            at = np.flatnonzero(item.stream.loss_mask[1:])
            behavior = item.stream.behavior_logprobs[1:][at]
            arrays = (policy[index, at], behavior, reference[index, at], entropies[index, at])
            token_losses = policy_gradient(config, *arrays, item.advantage)
            total += (
                ROLE_WEIGHTS[role]
                * {
                    "sample": item.weight / sum(item.weight for _, item in members) * jnp.mean(token_losses),
                    "token": jnp.sum(token_losses) / num_tokens,
                    "constant": jnp.sum(token_losses) / 24 / sum(item.weight for _, item in trained),
                }[config.aggregation]
            )
    return total


@pytest.fixture(scope="module", params=PAIRS)
def by_role(request, architecture, update_config, mesh, params, sequences):
    """The updater of a pair of losses, a batch for it and the params of its reference, if it has one.

    One of the sequences trains nothing, which `sample` counts.
    """
    losses = PAIRS[request.param]
    updater = Updater(architecture, update_config, mesh, losses=losses)
    untrained = dataclasses.replace(
        sequences[8].stream, loss_mask=np.zeros_like(sequences[8].stream.loss_mask)
    )
    sequences = [*sequences[:8], dataclasses.replace(sequences[8], stream=untrained), *sequences[9:]]
    batch = pack(
        sequences,
        row_length=24,
        rows_multiple=update_config.rows_per_microbatch,
        pad_id=0,
        role_weights=ROLE_WEIGHTS,
        aggregation={role: config.aggregation for role, config in losses.items()},
    )
    reference_params = jax.tree.map(lambda leaf: 0.9 * leaf, params)
    return losses, updater, sequences, batch, reference_params if updater.uses_reference else None


def test_losses_of_each_role_accumulate_to_those_of_each_sequence_alone(
    architecture, update_config, params, by_role
):
    losses, updater, sequences, batch, reference_params = by_role
    assert batch.num_rows > update_config.rows_per_microbatch
    sums = updater.sums(params, batch, reference_params=reference_params)
    gradient = jax.jit(
        jax.grad(
            lambda params: one_by_one_by_role(
                params,
                architecture,
                sequences,
                losses=losses,
                reference_params=params if reference_params is None else reference_params,
            )
        )
    )(params)
    assert_trees_close(sums.gradient, gradient)
    num_clipped = float(sums.totals["clip_fraction"])
    assert 0 < num_clipped < batch.loss_mask.sum(), "the bounds of the losses should be at work"


def test_nan_outside_the_mask_reaches_no_roles_loss(params, by_role):
    _, updater, _, batch, reference_params = by_role
    dirty = with_nan_outside_the_mask(batch)
    clean_sums, dirty_sums = (
        updater.sums(params, some, reference_params=reference_params) for some in (batch, dirty)
    )
    assert np.isfinite(clean_sums.loss)
    assert_trees_equal(dirty_sums, clean_sums)


def test_without_advantages_only_a_penalty_or_a_bonus_is_something_to_learn_from(
    architecture, mesh, params, by_role
):
    losses, updater, _, batch, reference_params = by_role
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    nothing = dataclasses.replace(batch, advantages=np.zeros_like(batch.advantages))
    _, metrics = updater.update(state, nothing, reference_params=reference_params)
    others = any(config.kl_coefficient or config.entropy_coefficient for config in losses.values())
    assert metrics["skipped_empty"] == (not others)
    assert ("loss" in metrics) == others


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
    dirty = with_nan_outside_the_mask(clean)
    assert_trees_equal(updater.sums(params, dirty), updater.sums(params, clean))


def test_metrics_by_an_independent_count(architecture, mesh, update_config, updater, params, sequences):
    state = state_from_params(architecture, updater.optimizer, mesh, params=params)
    loss = one_by_one(params, architecture, sequences, loss="policy_gradient")
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
    surprise = -np.concatenate([chosen[at] for at in trained[4:]])
    assert metrics["entropy_gap/agent"] == pytest.approx(agent.mean() - surprise.mean(), abs=1e-4)
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
    needs = Updater(architecture, update_config, mesh, losses=KL_LOSSES)
    with pytest.raises(ValueError, match="needs reference_params, which are missing"):
        needs.sums(params, packed(sequences, update_config))


def test_rows_that_the_mesh_cannot_share_are_refused(architecture):
    class TwoByTwo:
        shape = {"data": 2, "fsdp": 2, "tensor": 1}  # noqa: RUF012

    with pytest.raises(MeshError, match=r"rows_per_microbatch=6 .* multiple of 4, such as 8"):
        Updater(architecture, UpdateConfig(rows_per_microbatch=6), TwoByTwo())
