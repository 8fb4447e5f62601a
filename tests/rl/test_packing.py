"""Tests named after a defect (`defect_14` is algorithm.md 15.B 14) fail where it comes back."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.rl.packing import ROLES, pack
from spade_jax.types import TokenStream, TrainingSequence

PAD = 999


def sequence(tokens, trained, *, role="agent", advantage=1.0, weight=1.0, temperature=0.7):
    """A sequence whose trained tokens are those at the indices `trained`; log-probs are -token."""
    tokens = np.asarray(tokens, np.int32)
    mask = np.isin(np.arange(len(tokens)), list(trained))  # a set would match nothing
    return TrainingSequence(
        role=role,
        stream=TokenStream(
            tokens=tokens,
            loss_mask=mask,
            behavior_logprobs=np.where(mask, -tokens, 0).astype(np.float32),
            temperature=temperature,
        ),
        advantage=advantage,
        weight=weight,
    )


@st.composite
def sequence_lists(draw, row_length=24):
    lengths = draw(st.lists(st.integers(1, row_length), max_size=30))
    result = []
    for index, length in enumerate(lengths):
        result.append(
            sequence(
                np.arange(length) + 1000 * (index + 1),
                draw(st.sets(st.integers(1, max(1, length - 1)), max_size=length)) if length > 1 else [],
                role=draw(st.sampled_from(ROLES)),
                advantage=draw(st.integers(-3, 3)),
                weight=draw(st.sampled_from([0.5, 1.0, 2.0])),
            )
        )
    return result


def segments(batch):
    """Every segment of a batch as (row, slice of columns), in order."""
    for row, ids in enumerate(batch.segment_ids):
        for segment in range(1, ids.max(initial=0) + 1):
            columns = np.flatnonzero(ids == segment)
            yield row, slice(columns[0], columns[-1] + 1)


@given(sequence_lists(), st.integers(1, 4))
def test_defects_13_and_15_every_trained_sequence_stands_whole_in_exactly_one_place(sequences, rows_multiple):
    """The reference cuts off the last environments of a batch that is too long and fills up a short one
    with copies."""
    batch = pack(sequences, row_length=24, rows_multiple=rows_multiple, pad_id=PAD)
    assert batch.num_rows % rows_multiple == 0
    seen = []
    for at in segments(batch):
        index = int(batch.tokens[at][0]) // 1000 - 1
        original, stream = sequences[index], sequences[index].stream
        seen.append(index)
        np.testing.assert_array_equal(batch.tokens[at], stream.tokens)
        np.testing.assert_array_equal(batch.positions[at], np.arange(len(stream.tokens)))
        np.testing.assert_array_equal(batch.loss_mask[at], stream.loss_mask)
        np.testing.assert_array_equal(batch.behavior_logprobs[at], stream.behavior_logprobs)
        np.testing.assert_array_equal(batch.advantages[at], np.where(stream.loss_mask, original.advantage, 0))
        np.testing.assert_array_equal(
            batch.temperatures[at], np.where(stream.loss_mask, np.float32(0.7), 1).astype(np.float32)
        )
        assert {ROLES[role] for role in batch.role_ids[at]} == {original.role}
    assert sorted(seen) == [index for index, item in enumerate(sequences) if item.stream.loss_mask.any()]
    padding = batch.segment_ids == 0
    assert np.all(batch.tokens[padding] == PAD)
    assert not batch.loss_mask[padding].any()
    assert not batch.weights[~batch.loss_mask].any()


@given(sequence_lists())
def test_no_two_rows_could_have_been_one(sequences):
    batch = pack(sequences, row_length=24, rows_multiple=1, pad_id=PAD)
    used = sorted((batch.segment_ids > 0).sum(axis=1))
    assert len(used) < 2 or used[0] + used[1] > 24
    total = sum(len(item.stream.tokens) for item in sequences if item.stream.loss_mask.any())
    assert batch.fill_rate == pytest.approx(total / batch.tokens.size if batch.num_rows else 0)


@given(sequence_lists())
def test_weights_of_a_role_sum_to_its_loss_weight(sequences):
    role_weights = {"designer": 2.0, "agent": 0.25}
    batch = pack(sequences, row_length=24, rows_multiple=1, pad_id=PAD, role_weights=role_weights)
    for role_id, role in enumerate(ROLES):
        trained = any(item.role == role and item.stream.loss_mask.any() for item in sequences)
        total = batch.weights[batch.role_ids == role_id].sum()
        assert total == pytest.approx(role_weights[role] if trained else 0, rel=1e-5)


@given(sequence_lists())
def test_pooled_weights_sum_to_one_and_do_not_tell_roles_apart(sequences):
    batch = pack(sequences, row_length=24, rows_multiple=1, pad_id=PAD, role_weights=None)
    trained = [item for item in sequences if item.stream.loss_mask.any()]
    assert batch.weights.sum() == pytest.approx(1 if trained else 0, rel=1e-5)
    one_role = [dataclasses.replace(item, role="agent") for item in sequences]
    alone = pack(one_role, row_length=24, rows_multiple=1, pad_id=PAD)
    np.testing.assert_allclose(batch.weights, alone.weights, rtol=1e-6)


def test_pooled_weights_by_hand():
    sequences = [
        sequence([10, 11, 12], [1, 2], role="designer"),
        sequence([20, 21, 22, 23, 24], [1, 2, 3, 4], role="agent", weight=2.0),
        sequence([30, 31], [1], role="agent"),
        sequence([40, 41], [], role="agent"),
    ]
    batch = pack(sequences, row_length=12, rows_multiple=1, pad_id=PAD, role_weights=None)
    # Longest first. Shares 2/4 over 4 tokens, 1/4 over 2 and 1/4 over 1.
    np.testing.assert_allclose(
        batch.weights, [[0, 1 / 8, 1 / 8, 1 / 8, 1 / 8, 0, 1 / 8, 1 / 8, 0, 1 / 4, 0, 0]]
    )


def test_defect_14_more_episodes_do_not_drown_the_designer():
    """Each role has a mean of its own, so that no factor of up to 50 has to make up for the numbers."""
    designs = [sequence([1, 2], [1], role="designer")] * 2
    for num_episodes in (1, 100):
        batch = pack(
            [*designs, *[sequence([3, 4], [1])] * num_episodes], row_length=4, rows_multiple=1, pad_id=0
        )
        assert batch.weights[batch.role_ids == ROLES.index("designer")].sum() == pytest.approx(1)


def of_episode(part, whole):
    """`part` of an episode whose trained tokens are those of `whole`, with its share of the weight."""
    share = part.stream.loss_mask.sum() / whole.stream.loss_mask.sum()
    return dataclasses.replace(part, weight=whole.weight * share)


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
@pytest.mark.parametrize("role_weights", [None, {"designer": 2.0, "agent": 0.5}])
@given(
    others=sequence_lists(),
    trained=st.sets(st.integers(1, 19), min_size=1),
    at=st.integers(1, 19),
    weight=st.sampled_from([1.0, 2.0]),
)
def test_an_episode_split_into_several_sequences_counts_as_one(
    aggregation, role_weights, others, trained, at, weight
):
    """Its tokens weigh what they weigh unsplit; the part without trained tokens has no share."""
    tokens = np.arange(20) - 100
    whole = sequence(tokens, trained, weight=weight)
    # The second part starts with a token of context, as every sequence does.
    early = of_episode(sequence(tokens[:at], [t for t in trained if t < at], weight=weight), whole)
    late = of_episode(
        sequence([-1, *tokens[at:]], [t - at + 1 for t in trained if t >= at], weight=weight), whole
    )
    unsplit, split = (
        pack(
            [*others, *parts],
            row_length=24,
            rows_multiple=1,
            pad_id=PAD,
            role_weights=role_weights,
            aggregation=dict.fromkeys(ROLES, aggregation),
        )
        for parts in ([whole], [early, late])
    )
    for batch in (unsplit, split):
        assert batch.loss_mask.sum() == sum(item.stream.loss_mask.sum() for item in (*others, whole))
    by_token = [
        dict(zip(batch.tokens[batch.loss_mask], batch.weights[batch.loss_mask], strict=True))
        for batch in (unsplit, split)
    ]
    assert by_token[0].keys() == by_token[1].keys()
    for token, wanted in by_token[0].items():
        assert by_token[1][token] == pytest.approx(wanted, rel=1e-5)


def realistic(seed, row_length, *, whole_episodes):
    """A cycle's worth: 24 designs of 1 to 8k tokens and 192 episodes of up to 25 turns of 50 to 500."""
    rng = np.random.default_rng(seed)
    turns = [rng.integers(50, 501, rng.integers(1, 26)) for _ in range(192)]
    agent = [min(sum(lengths), row_length) for lengths in turns] if whole_episodes else np.concatenate(turns)
    return [
        *(sequence(np.ones(length), [1], role="designer") for length in rng.integers(1000, 8001, 24)),
        *(sequence(np.ones(length), [1]) for length in agent),
    ]


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.sampled_from([8192, 16384]), st.booleans())
def test_realistic_lengths_fill_nineteen_twentieths(seed, row_length, whole_episodes):
    sequences = realistic(seed, row_length, whole_episodes=whole_episodes)
    assert pack(sequences, row_length=row_length, rows_multiple=1, pad_id=PAD).fill_rate >= 0.95


def busy_share(batch, rows_multiple, num_shards):
    """Of the time of attention, where each microbatch takes as long as its slowest shard."""
    costs = np.array([sum(np.bincount(row)[1:] ** 2) for row in batch.segment_ids])
    by_shard = costs.reshape(-1, num_shards, rows_multiple // num_shards).sum(axis=2)
    return by_shard.mean(axis=1).sum() / by_shard.max(axis=1).sum()


@pytest.mark.parametrize("whole_episodes", [True, False])
@pytest.mark.parametrize(("rows_multiple", "num_shards"), [(8, 8), (8, 4), (4, 2)])
def test_shards_of_a_microbatch_cost_about_the_same(whole_episodes, rows_multiple, num_shards):
    sequences = realistic(0, 16384, whole_episodes=whole_episodes)
    in_order, balanced = (
        pack(sequences, row_length=16384, rows_multiple=rows_multiple, pad_id=PAD, num_shards=shards)
        for shards in (1, num_shards)
    )
    assert balanced.num_rows == in_order.num_rows
    before, after = (busy_share(batch, rows_multiple, num_shards) for batch in (in_order, balanced))
    assert after > max(before, 0.8)


@given(sequence_lists(), st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 3)]))
def test_the_number_of_shards_moves_sequences_and_changes_nothing_else(sequences, rows):
    rows_multiple, num_shards = rows
    one, many = (
        pack(sequences, row_length=24, rows_multiple=rows_multiple, pad_id=PAD, num_shards=shards)
        for shards in (1, num_shards)
    )

    def by_token(batch):
        arrays = [getattr(batch, field.name) for field in dataclasses.fields(batch)]
        places = zip(*(array[batch.segment_ids > 0] for array in arrays), strict=True)
        names = [field.name for field in dataclasses.fields(batch)]
        rows = [dict(zip(names, place, strict=True)) for place in places]
        return {row["tokens"]: {**row, "segment_ids": 0} for row in rows}

    assert many.num_rows == one.num_rows
    assert by_token(many) == by_token(one)


def test_balanced_rows_by_hand():
    """First-fit decreasing leaves rows that cost 64, 40, 34 and 0, and the costlier of each two sum to 98.
    Spread, they cost 64, 36, 25 and 13, which makes 89."""
    sequences = [sequence(np.full(length, length), [1]) for length in (2, 3, 5, 6, 8)]
    batch = pack(sequences, row_length=8, rows_multiple=2, pad_id=0, num_shards=2)
    np.testing.assert_array_equal(
        batch.tokens, [[8] * 8, [6] * 6 + [0] * 2, [5] * 5 + [0] * 3, [3] * 3 + [2] * 2 + [0] * 3]
    )


AGGREGATIONS = ["sequence", "sample", "token", "constant"]


def test_aggregation_by_hand():
    """Three episodes: two tokens train, four, and none; rows of ten tokens."""
    sequences = [
        sequence([10, 11, 12], [1, 2]),
        sequence([20, 21, 22, 23, 24], [1, 2, 3, 4]),
        sequence([30, 31], []),
    ]
    wanted = {
        "sequence": (1 / 4, 1 / 8),
        "sample": (1 / 6, 1 / 12),
        "token": (1 / 6, 1 / 6),
        "constant": (1 / 20, 1 / 20),
    }
    for aggregation, (short, long) in wanted.items():
        for role_weights, factor in ((None, 1.0), ({"designer": 1.0, "agent": 3.0}, 3.0)):
            batch = pack(
                sequences,
                row_length=10,
                rows_multiple=1,
                pad_id=PAD,
                role_weights=role_weights,
                aggregation=dict.fromkeys(ROLES, aggregation),
            )
            np.testing.assert_allclose(
                batch.weights, [[0, *[factor * long] * 4, 0, *[factor * short] * 2, 0, 0]], rtol=1e-6
            )


@given(sequence_lists(), st.sampled_from(AGGREGATIONS), st.sampled_from(AGGREGATIONS))
def test_each_role_is_aggregated_in_its_own_way(sequences, designer, agent):
    """What one role's aggregation is does not touch the other, unless they are pooled."""
    mixed, *alike = (
        pack(
            sequences,
            row_length=24,
            rows_multiple=1,
            pad_id=PAD,
            aggregation={"designer": of_designer, "agent": of_agent},
        )
        for of_designer, of_agent in ((designer, agent), (designer, designer), (agent, agent))
    )
    for role, batch in zip(("designer", "agent"), alike, strict=True):
        of_role = (mixed.role_ids == ROLES.index(role)) & (mixed.segment_ids > 0)
        np.testing.assert_array_equal(mixed.weights[of_role], batch.weights[of_role])


def test_rows_and_weights_by_hand():
    sequences = [
        sequence([10, 11, 12], [1, 2], role="designer"),
        sequence([20, 21, 22, 23, 24], [1, 2, 3, 4], role="agent", weight=3.0),
        sequence([30, 31], [1], role="agent"),
        sequence([40, 41], [], role="agent"),
    ]
    batch = pack(
        sequences,
        row_length=7,
        rows_multiple=1,
        pad_id=PAD,
        role_weights={"designer": 2.0, "agent": 1.0},
    )
    # Longest first: 5, then 3 into a new row, then 2 into the first row with room; nothing trains the last.
    np.testing.assert_array_equal(
        batch.tokens, [[20, 21, 22, 23, 24, 30, 31], [10, 11, 12, PAD, PAD, PAD, PAD]]
    )
    np.testing.assert_array_equal(batch.segment_ids, [[1, 1, 1, 1, 1, 2, 2], [1, 1, 1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(batch.positions, [[0, 1, 2, 3, 4, 0, 1], [0, 1, 2, 0, 0, 0, 0]])
    # agent: shares 3/4 over 4 tokens and 1/4 over 1; designer: 2 over 2 tokens.
    np.testing.assert_allclose(
        batch.weights,
        [[0, 3 / 16, 3 / 16, 3 / 16, 3 / 16, 0, 1 / 4], [0, 1, 1, 0, 0, 0, 0]],
    )


def test_what_stands_outside_the_mask_does_not_enter():
    clean = sequence([5, 6, 7, 8], [2])
    logprobs = np.where(clean.stream.loss_mask, clean.stream.behavior_logprobs, np.nan)
    dirty = dataclasses.replace(clean, stream=dataclasses.replace(clean.stream, behavior_logprobs=logprobs))
    for field in dataclasses.fields(batch := pack([clean], row_length=4, rows_multiple=1, pad_id=0)):
        other = pack([dirty], row_length=4, rows_multiple=1, pad_id=0)
        np.testing.assert_array_equal(getattr(batch, field.name), getattr(other, field.name))


def test_nothing_gives_a_batch_without_rows():
    batch = pack([], row_length=8, rows_multiple=4, pad_id=0)
    assert batch.tokens.shape == (0, 8)
    assert batch.fill_rate == 0


def test_rows_that_shards_cannot_share_are_refused():
    with pytest.raises(ValueError, match="rows_multiple=4 is not a multiple of num_shards=3"):
        pack([], row_length=8, rows_multiple=4, pad_id=0, num_shards=3)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (sequence(np.ones(9), [1]), r"sequence 1 \(agent\) has 9 tokens and a row holds 1 to 8"),
        (sequence([], []), r"sequence 1 \(agent\) has 0 tokens"),
        (sequence([1, 2], [0]), r"sequence 1 \(agent\) trains its first token"),
        (
            dataclasses.replace(
                sequence([1, 2], [1]),
                stream=dataclasses.replace(sequence([1, 2], [1]).stream, loss_mask=np.ones(3, bool)),
            ),
            r"sequence 1 \(agent\) has 2 tokens, 3 loss_mask entries",
        ),
    ],
)
def test_a_sequence_that_cannot_be_packed_is_named(bad, message):
    with pytest.raises(ValueError, match=message):
        pack([sequence([1, 2], [1]), bad], row_length=8, rows_multiple=1, pad_id=0)
