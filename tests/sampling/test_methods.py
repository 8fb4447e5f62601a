import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.sampling.methods import MAX_STOP_IDS, RowSampling, SamplingParams, sample

VOCAB_SIZE = 12
NUM_DRAWS = 4096

_sample = jax.jit(sample)


def _rows(num_rows, *, temperature=1.0, top_k=0, top_p=1.0, stop_ids=()):
    stop_ids = [*stop_ids, *[-1] * (MAX_STOP_IDS - len(stop_ids))]
    return RowSampling(
        seed=jnp.arange(num_rows, dtype=jnp.int32),
        temperature=jnp.full(num_rows, temperature, jnp.float32),
        top_k=jnp.full(num_rows, top_k, jnp.int32),
        top_p=jnp.full(num_rows, top_p, jnp.float32),
        stop_ids=jnp.tile(jnp.array(stop_ids, jnp.int32), (num_rows, 1)),
    )


@pytest.fixture(scope="module")
def logits():
    return jax.random.normal(jax.random.key(0), (VOCAB_SIZE,)) * 2


def _expected(logits, *, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution by its definition, in numpy and float64."""
    values = np.asarray(logits, np.float64) / temperature
    order = np.argsort(-values)
    kept = order[: top_k or None]
    probabilities = np.exp(values[kept]) / np.exp(values[kept]).sum()
    num_kept = 1 + np.searchsorted(np.cumsum(probabilities), top_p)
    result = np.zeros(VOCAB_SIZE)
    result[kept[:num_kept]] = probabilities[:num_kept] / probabilities[:num_kept].sum()
    return result


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.7},
        {"temperature": 1.5, "top_k": 6, "top_p": 0.8},
    ],
    ids=str,
)
def test_draws_follow_the_distribution_and_report_their_logprobs_among_all_tokens(logits, settings):
    tokens, logprobs, _ = _sample(
        jnp.tile(logits, (NUM_DRAWS, 1)), jnp.zeros(NUM_DRAWS, jnp.int32), _rows(NUM_DRAWS, **settings)
    )
    expected = _expected(logits, **settings)
    assert (expected[tokens] > 0).all(), "a token outside the kept ones was drawn"
    among_all = _expected(logits, temperature=settings.get("temperature", 1.0))
    np.testing.assert_allclose(np.exp(logprobs), among_all[tokens], rtol=1e-4)
    # By what top-k and top-p leave out, draws are likelier than those of the whole distribution.
    gap = np.mean(logprobs) - np.sum(among_all * np.log(among_all))
    noise = 5 * np.std(logprobs) / np.sqrt(NUM_DRAWS)
    assert gap > noise if "top_k" in settings or "top_p" in settings else abs(gap) < noise
    observed = np.bincount(tokens, minlength=VOCAB_SIZE) / NUM_DRAWS
    # Five standard errors of a frequency: a false alarm once in 100,000 runs, were seeds not fixed.
    np.testing.assert_allclose(
        observed, expected, atol=5 * np.sqrt(0.25 / NUM_DRAWS), err_msg="frequencies are off"
    )


def test_top_k_one_is_greedy_even_among_equals():
    logits = jnp.array([[0.0, 3.0, 3.0, 1.0]] * 16)
    tokens, logprobs, _ = _sample(logits, jnp.arange(16), _rows(16, top_k=1, temperature=5.0))
    assert tokens.tolist() == [1] * 16
    np.testing.assert_allclose(logprobs, jax.nn.log_softmax(logits / 5.0)[:, 1], rtol=1e-6)


def test_settings_of_one_row_do_not_touch_another(logits):
    """The row without top_k draws the same when a neighbour has it, through the other branch."""
    both, positions = jnp.stack([logits, logits]), jnp.array([5, 5])
    plain = _rows(2)
    mixed = plain._replace(top_k=jnp.array([0, 2], jnp.int32))
    for one, other in zip(_sample(both, positions, plain), _sample(both, positions, mixed), strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def test_a_draw_depends_on_seed_and_position_and_nothing_else(logits):
    positions = jnp.arange(64, dtype=jnp.int32)
    rows = _rows(64)._replace(seed=jnp.full(64, 7, jnp.int32))
    tokens, _, _ = _sample(jnp.tile(logits, (64, 1)), positions, rows)
    assert len(set(tokens.tolist())) > 1, "each position must have noise of its own"
    reversed_tokens, _, _ = _sample(jnp.tile(logits, (64, 1)), positions[::-1], rows)
    np.testing.assert_array_equal(tokens, reversed_tokens[::-1])
    other_seed, _, _ = _sample(jnp.tile(logits, (64, 1)), positions, rows._replace(seed=rows.seed + 1))
    assert (tokens != other_seed).any()


def test_any_of_the_stop_ids_stops_and_filling_does_not():
    logits = jnp.where(jnp.eye(5) > 0, 0.0, -jnp.inf)  # row i can only draw token i
    _, _, stopped = _sample(logits, jnp.arange(5), _rows(5, stop_ids=(1, 3)))
    assert stopped.tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"seed": -1},
        {"seed": 2**31},
        {"stop_ids": tuple(range(MAX_STOP_IDS + 1))},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused_by_name(fields):
    good = {"max_tokens": 4, "temperature": 1.0, "seed": 0, "stop_ids": ()}
    with pytest.raises(ValueError, match=next(iter(fields))):
        SamplingParams(**{**good, **fields})
