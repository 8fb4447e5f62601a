import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.config import ModelConfig
from spade_jax.errors import ConfigError
from spade_jax.model.architecture import Architecture
from spade_jax.model.attention import attend, attend_to_cache, attention_mask
from spade_jax.model.transformer import (
    CACHE_BLOCK,
    forward_with_cache,
    hidden_states,
    init_cache,
    init_params,
    unembed,
)

TINY = Architecture(
    vocab_size=61, num_layers=2, width=32, num_heads=4, num_kv_heads=2, head_width=8, mlp_width=48
)
VARIANTS = [
    TINY,
    Architecture(
        vocab_size=67,
        num_layers=3,
        width=24,
        num_heads=3,
        num_kv_heads=1,
        head_width=6,
        mlp_width=40,
        qk_norm=False,
        tie_embeddings=False,
        rope_theta=500.0,
    ),
    Architecture(
        vocab_size=61,
        num_layers=4,
        width=32,
        num_heads=4,
        num_kv_heads=1,
        head_width=8,
        mlp_width=24,
        num_experts=5,
        experts_per_token=2,
        sliding_windows=(9, 0, 9, 9),
        sliding_rope_theta=300.0,
        qkv_bias=True,
        post_norms=True,
        norm_offset=1.0,
        scale_embeddings=True,
    ),
]

_init_params = jax.jit(init_params, static_argnums=0)
_hidden_states = jax.jit(hidden_states, static_argnums=1)
_forward_with_cache = jax.jit(forward_with_cache, static_argnums=1)
_unembed = jax.jit(unembed, static_argnums=1)


def _random_tokens(shape, *, seed=0):
    return np.random.default_rng(seed).integers(0, TINY.vocab_size, shape).astype(np.int32)


def _logits(params, architecture, tokens):
    """Of one sequence alone, float32 [T, V]."""
    row = np.zeros((3, 1, CACHE_BLOCK + 14), np.int32)  # one shape for all, compiled once
    row[:, 0, : len(tokens)] = tokens, range(len(tokens)), [1] * len(tokens)
    hidden = _hidden_states(params, architecture, *row)
    return np.asarray(_unembed(params, architecture, hidden)[0, : len(tokens)])


@pytest.mark.parametrize("architecture", VARIANTS)
def test_packed_rows_equal_sequences_alone(architecture):
    params = _init_params(architecture, 0)
    sequences = [_random_tokens(n, seed=n) for n in (5, 9, 1, 12, 3)]
    rows = [sequences[:3], sequences[3:]]
    tokens = np.full((2, 20), 7, np.int32)  # padding is an ordinary token; segment 0 is what marks it
    positions, segment_ids = np.zeros((2, 20), np.int32), np.zeros((2, 20), np.int32)
    for row, members in enumerate(rows):
        start = 0
        for segment, sequence in enumerate(members, 1):
            place = np.s_[row, start : start + len(sequence)]
            tokens[place] = sequence
            positions[place] = range(len(sequence))
            segment_ids[place] = segment
            start += len(sequence)
    packed = _unembed(
        params, architecture, _hidden_states(params, architecture, tokens, positions, segment_ids)
    )
    assert np.isfinite(packed).all()
    for row, members in enumerate(rows):
        start = 0
        for sequence in members:
            found = packed[row, start : start + len(sequence)]
            np.testing.assert_allclose(found, _logits(params, architecture, sequence), atol=2e-5)
            start += len(sequence)


def test_no_token_sees_a_later_one():
    params = _init_params(TINY, 0)
    tokens = _random_tokens(16)
    changed = tokens.copy()
    changed[9] = (changed[9] + 1) % TINY.vocab_size
    before, after = _logits(params, TINY, tokens), _logits(params, TINY, changed)
    np.testing.assert_array_equal(before[:9], after[:9])
    assert np.abs(before[9:] - after[9:]).max(axis=1).min() > 1e-4


def test_positions_matter():
    params = _init_params(TINY, 0)
    tokens = _random_tokens(6)
    swapped = tokens[[1, 0, 2, 3, 4, 5]]
    assert np.abs(_logits(params, TINY, tokens)[-1] - _logits(params, TINY, swapped)[-1]).max() > 1e-3


def test_mask_is_the_one_drawn_in_its_docstring():
    segments = jnp.array([[1, 1, 1, 2, 2, 0]])
    positions = jnp.array([[0, 1, 2, 0, 1, 0]])
    mask = attention_mask(positions, positions, query_segments=segments, key_segments=segments)
    drawn = [line.split() for line in attention_mask.__doc__.splitlines() if " . " in line]
    assert mask[0].tolist() == [[mark == "x" for mark in line[1:]] for line in drawn]


@pytest.mark.parametrize("architecture", VARIANTS)
def test_cached_pieces_equal_the_full_forward(architecture):
    """Prefill in pieces, two of one sequence in the same call, then decode, across cache blocks."""
    params = _init_params(architecture, 0)
    total = CACHE_BLOCK + 14
    sequences = [_random_tokens(total, seed=seed) for seed in range(3)]
    slots = jnp.array([4, 0, 2])
    cache = init_cache(architecture, num_slots=5, max_context=total)
    # A slot that another sequence left full of numbers.
    cache = jax.tree.map(lambda array: array + 3.0, cache)
    piece = CACHE_BLOCK // 2 + 2
    pieces = np.stack([s[:piece] for s in sequences] + [s[piece : 2 * piece] for s in sequences])
    starts = jnp.array([0, 0, 0, piece, piece, piece])
    hidden, cache = _forward_with_cache(
        params,
        architecture,
        pieces,
        starts[:, None] + jnp.arange(piece),
        cache,
        slots=jnp.concatenate([slots, slots]),
    )
    found = [np.concatenate([hidden[:3], hidden[3:]], axis=1)]
    for position in range(2 * piece, total):
        tokens = np.stack([sequence[position : position + 1] for sequence in sequences])
        hidden, cache = _forward_with_cache(
            params, architecture, tokens, jnp.full((3, 1), position), cache, slots=slots
        )
        found.append(hidden)
    logits = _unembed(params, architecture, np.concatenate(found, axis=1))
    for row, sequence in enumerate(sequences):
        np.testing.assert_allclose(logits[row], _logits(params, architecture, sequence), atol=2e-5)


def test_padding_is_not_written_to_the_cache():
    params = _init_params(TINY, 0)
    cache = init_cache(TINY, num_slots=2, max_context=16)
    positions = jnp.array([[0, 1, cache.max_context, cache.max_context]])
    _, new = _forward_with_cache(params, TINY, _random_tokens((1, 4)), positions, cache, slots=jnp.array([1]))
    written = np.abs(new.values).sum(axis=(0, 2, 4)) > 0
    assert np.argwhere(written).tolist() == [[1, 0], [1, 1]]
    np.testing.assert_array_equal(np.abs(new.keys).sum(axis=(0, 2, 3)) > 0, written)


def test_longer_neighbours_do_not_change_a_row_at_all():
    """The engine's promise that a sequence does not depend on its batch rests on this."""
    keys = jax.random.split(jax.random.key(0), 3)
    cache_keys = jax.random.normal(keys[0], (1, 2, 2, 8, 4 * CACHE_BLOCK))
    cache_values = jax.random.normal(keys[1], (1, 2, 2, 4 * CACHE_BLOCK, 8))
    queries = jax.random.normal(keys[2], (2, 1, 4, 8))

    def attend_first_row(other_position, num_blocks):
        return attend_to_cache(
            queries,
            cache_keys,
            cache_values,
            jnp.array([[CACHE_BLOCK // 2], [other_position]]),
            layer=jnp.array(0),
            slots=jnp.array([1, 0]),
            block_size=CACHE_BLOCK,
            num_blocks=jnp.array(num_blocks),
            scale=0.4,
        )[0]

    alone, beside_long = attend_first_row(3, 1), attend_first_row(4 * CACHE_BLOCK - 1, 4)
    np.testing.assert_array_equal(alone, beside_long)
    expected = attend(
        queries[:1],
        cache_keys[0, 1:, :, :, : CACHE_BLOCK // 2 + 1].transpose(0, 3, 1, 2),
        cache_values[0, 1:, :, : CACHE_BLOCK // 2 + 1].swapaxes(1, 2),
        jnp.ones((1, 1, CACHE_BLOCK // 2 + 1), bool),
        scale=0.4,
    )
    np.testing.assert_allclose(alone, expected[0], atol=1e-5)


def test_bfloat16_activations_keep_far_positions_apart():
    """Rotary tables in bfloat16 would turn position 257 into 256."""
    architecture = Architecture(
        vocab_size=61,
        num_layers=1,
        width=32,
        num_heads=2,
        num_kv_heads=2,
        head_width=16,
        mlp_width=32,
        activation_dtype="bfloat16",
    )
    params = _init_params(architecture, 0)
    tokens = jnp.array([[3, 5]])
    near = _hidden_states(params, architecture, tokens, jnp.array([[0, 257]]), jnp.ones_like(tokens))
    far = _hidden_states(params, architecture, tokens, jnp.array([[0, 256]]), jnp.ones_like(tokens))
    assert near.dtype == jnp.bfloat16
    assert _unembed(params, architecture, near).dtype == jnp.float32
    assert np.abs(np.float32(near[0, 1]) - np.float32(far[0, 1])).max() > 0


@pytest.mark.parametrize("architecture", VARIANTS)
def test_float32_precision_is_asked_of_every_product_and_of_the_gradient(architecture):
    def products(architecture):
        params = jax.eval_shape(lambda: init_params(architecture, 0))

        def loss(params, ids):
            return jnp.sum(unembed(params, architecture, hidden_states(params, architecture, ids, ids, ids)))

        ids = jax.ShapeDtypeStruct((1, 4), jnp.int32)
        text = jax.jit(jax.grad(loss)).lower(params, ids).as_text()
        return [line for line in text.splitlines() if "dot_general" in line]

    exact = products(dataclasses.replace(architecture, matmul_precision="float32"))
    assert len(exact) > 10
    assert all("HIGHEST" in line for line in exact)
    assert not any("HIGHEST" in line for line in products(architecture))


@pytest.mark.parametrize("architecture", VARIANTS)
def test_num_parameters_counts_the_arrays(architecture):
    params = _init_params(architecture, 0)
    assert architecture.num_parameters() == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_seeds_give_reproducible_and_different_params():
    first, again, other = (_init_params(TINY, seed) for seed in (0, 0, 1))
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, first, again)))
    query = first["blocks"]["query"]
    assert not np.array_equal(query, other["blocks"]["query"])
    assert not np.array_equal(query[0], query[1]), "the layers must not start equal"


@pytest.mark.parametrize(
    ("change", "name"), [({"num_kv_heads": 3}, "num_kv_heads=3"), ({"head_width": 7}, "head_width=7")]
)
def test_numbers_that_do_not_fit_together_are_refused(change, name):
    fields = {"num_layers": 1, "width": 8, "num_heads": 4, "num_kv_heads": 2, "head_width": 8, "mlp_width": 8}
    with pytest.raises(ConfigError, match=name):
        Architecture.from_config(ModelConfig(**{**fields, **change}), 61)
