import asyncio
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from spade_jax.errors import ContextOverflow
from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import hidden_states, init_params, unembed
from spade_jax.sampling.engine import Engine
from spade_jax.sampling.methods import SamplingParams

ARCHITECTURE = Architecture(
    vocab_size=41, num_layers=2, width=32, num_heads=4, num_kv_heads=2, head_width=8, mlp_width=48
)
MAX_CONTEXT = 90  # not a whole number of cache blocks, and more than one
STOP_ID = 1


@pytest.fixture(scope="module")
def all_params():
    init = jax.jit(init_params, static_argnums=0)
    # Sharper than at initialisation, so that a wrong context shows in the tokens.
    return [jax.tree.map(lambda x: x * 1.5, init(ARCHITECTURE, seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def shared_engine():
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), ("data", "fsdp", "tensor"))
    return Engine(ARCHITECTURE, mesh, num_slots=4, max_context=MAX_CONTEXT, decode_steps=3, pad_id=0)


@pytest.fixture
def engine(shared_engine, all_params):
    shared_engine.load_weights(all_params[0], version=0)
    yield shared_engine
    assert not shared_engine._sessions, "a session is still open"
    assert shared_engine._slots == [None] * 4, "a slot is still taken"


@jax.jit
def _all_logits(params, tokens):
    row = jnp.zeros(MAX_CONTEXT, jnp.int32).at[: len(tokens)].set(tokens)[None]
    hidden = hidden_states(params, ARCHITECTURE, row, jnp.arange(MAX_CONTEXT)[None], jnp.ones_like(row))
    return unembed(params, ARCHITECTURE, hidden)[0]


def _logits(params, tokens):
    """Of a whole context through the training path, float32 [T, V]; one shape, compiled once."""
    padded = np.zeros(MAX_CONTEXT, np.int32)
    padded[: len(tokens)] = tokens
    return np.asarray(_all_logits(params, padded))[: len(tokens)]


def _logprobs(params, stream):
    logits = _logits(params, stream.tokens) / stream.temperature
    logprobs = np.asarray(jax.nn.log_softmax(logits))
    return np.r_[0.0, logprobs[np.arange(len(logits) - 1), stream.tokens[1:]]]


def _sampling(*, seed=0, max_tokens=6, temperature=1.0, **fields):
    return SamplingParams(
        seed=seed, max_tokens=max_tokens, temperature=temperature, stop_ids=(STOP_ID,), **fields
    )


def _prompt(index, turn=0):
    rng = np.random.default_rng((index, turn))
    return rng.integers(2, 41, 3 + 5 * (index % 4) + turn).tolist()


async def _converse(session, index, *, turns=3, delay=None, temperature=0.8):
    """A conversation whose length, prompts and seed follow from its index."""
    with session:
        for turn in range(turns):
            if delay is not None:
                await asyncio.sleep(delay.random() * 0.01)
            sampling = _sampling(seed=index, max_tokens=2 + (index + turn) % 5, temperature=temperature)
            await session.generate(_prompt(index, turn), sampling)
    return session.stream(temperature)


def _run(engine, indices, **settings):
    """The streams of conversations held together, by index."""

    async def main():
        sessions = {index: engine.session((index,)) for index in indices}
        streams = await asyncio.gather(*(_converse(sessions[i], i, **settings) for i in indices))
        return dict(zip(indices, streams, strict=True))

    return asyncio.run(asyncio.wait_for(main(), timeout=300))


def _assert_equal_streams(found, expected):
    for index, stream in found.items():
        np.testing.assert_array_equal(stream.tokens, expected[index].tokens)
        np.testing.assert_array_equal(stream.loss_mask, expected[index].loss_mask)
        np.testing.assert_allclose(stream.behavior_logprobs, expected[index].behavior_logprobs, atol=1e-5)


@pytest.fixture(scope="module")
def alone(shared_engine, all_params):
    """Seven conversations, each held alone."""
    shared_engine.load_weights(all_params[0], version=0)
    return {index: _run(shared_engine, [index])[index] for index in range(7)}


def test_behavior_logprobs_are_those_of_the_training_path(alone, all_params):
    for stream in alone.values():
        expected = np.where(stream.loss_mask, _logprobs(all_params[0], stream), 0.0)
        np.testing.assert_allclose(stream.behavior_logprobs, expected, atol=1e-4)
        assert (stream.behavior_logprobs[stream.loss_mask] < 0).any()


def test_the_loss_mask_marks_what_was_sampled_and_nothing_else(alone):
    for index, stream in alone.items():
        observed = [token for turn in range(3) for token in _prompt(index, turn)]
        assert stream.tokens[~stream.loss_mask].tolist() == observed
        assert stream.loss_mask[-1]
        assert len(stream.tokens) == len(stream.loss_mask) == len(stream.behavior_logprobs)


def test_neighbours_and_slots_do_not_change_what_is_sampled(engine, alone):
    _assert_equal_streams(_run(engine, [2, 0, 3]), alone)
    _assert_equal_streams(_run(engine, [6, 5, 4, 3]), alone)


def test_sessions_beyond_the_slots_lose_their_place_and_nothing_else(engine, alone):
    _assert_equal_streams(_run(engine, list(range(7))), alone)


def test_arrival_order_and_timing_change_nothing_at_all(engine):
    batches = []
    original = engine._decode_chunk

    def spy(requests):
        batches[-1].append([(request.session.key, request.session._slot) for request in requests])
        return original(requests)

    engine._decode_chunk = spy
    streams = []
    try:
        for seed in range(3):
            batches.append([])
            order = np.random.default_rng(seed).permutation(7).tolist()
            streams.append(_run(engine, order, delay=np.random.default_rng(seed)))
    finally:
        del engine._decode_chunk
    assert batches[0] == batches[1] == batches[2]
    for index in range(7):
        for other in streams[1:]:
            found, expected = other[index], streams[0][index]
            np.testing.assert_array_equal(found.tokens, expected.tokens)
            np.testing.assert_array_equal(found.behavior_logprobs, expected.behavior_logprobs)


def test_top_k_one_is_greedy_and_its_logprobs_are_those_of_the_training_path(engine, all_params):
    async def main():
        with engine.session((0,)) as session:
            completion = await session.generate(_prompt(3), _sampling(max_tokens=12, top_k=1))
            return completion, session.stream(1.0)

    completion, stream = asyncio.run(main())
    tokens = stream.tokens
    start = len(tokens) - len(completion.tokens)
    expected = _logits(all_params[0], tokens)[start - 1 : -1].argmax(axis=1)
    assert completion.tokens.tolist() == expected.tolist()
    np.testing.assert_allclose(
        completion.behavior_logprobs, _logprobs(all_params[0], stream)[start:], atol=1e-4
    )


def test_a_turn_prefills_only_what_is_new(engine):
    prefilled = []
    original = engine._run_prefill

    def spy(pieces, count):
        prefilled[-1] += sum(request.session.num_tokens - start for request, start in pieces[-1:])
        return original(pieces, count)

    async def main():
        with engine.session((0,)) as session:
            for length in (8, 3, 1):
                prefilled.append(0)
                await session.generate([5] * length, _sampling(max_tokens=4))

    engine._run_prefill = spy
    try:
        asyncio.run(main())
    finally:
        del engine._run_prefill
    # The last sampled token of the turn before is not in the cache yet.
    assert prefilled == [8, 4, 2]


def test_the_engine_is_busy_from_a_dispatch_to_its_results_and_not_between_turns(engine):
    async def main():
        with engine.session((0,)) as session:
            for _ in range(2):
                started, before = time.perf_counter(), engine.busy_seconds
                await session.generate([5] * 9, _sampling(max_tokens=6))
                busy = engine.busy_seconds - before
                assert 0 < busy < time.perf_counter() - started
                await asyncio.sleep(0.01)
                assert engine.busy_seconds == before + busy

    asyncio.run(main())


def test_nothing_compiles_after_warm_up(engine):
    engine.warm_up()
    before = engine.num_compilations
    assert before <= 8
    _run(engine, [0, 1, 2, 3, 4, 5], temperature=0.37)
    _run(engine, [11], temperature=1.9, turns=2)

    async def main():
        with engine.session((0,)) as session:
            await session.generate([4] * 77, _sampling(max_tokens=9, top_k=3, top_p=0.5, seed=12345))

    asyncio.run(main())
    assert engine.num_compilations == before


def test_new_weights_are_used_for_the_whole_context(engine, all_params):
    async def main():
        with engine.session((0,)) as session:
            first = await session.generate(_prompt(3), _sampling())
            engine.load_weights(all_params[1], version=7)
            second = await session.generate(_prompt(2), _sampling())
            return first, second, session.stream(1.0)

    first, second, stream = asyncio.run(main())
    assert (first.weights_version, second.weights_version) == (0, 7)
    new = len(second.tokens)
    expected = _logprobs(all_params[1], stream)[-new:]
    np.testing.assert_allclose(second.behavior_logprobs, expected, atol=1e-4)


def test_weights_cannot_change_under_a_running_wave(engine, all_params):
    async def main():
        with engine.session((0,)) as session:
            reply = asyncio.create_task(session.generate(_prompt(0), _sampling(max_tokens=20)))
            while engine._wave is None:
                await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="await them first"):
                engine.load_weights(all_params[1], version=1)
            await reply

    asyncio.run(main())


def test_replies_end_by_stop_id_by_max_tokens_or_with_the_context(engine):
    def greedy(max_tokens, *stop_ids):
        return SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=0, stop_ids=stop_ids, top_k=1)

    async def main():
        with engine.session((0,)) as session:
            by_length = await session.generate(_prompt(3), greedy(7))
        likely = by_length.tokens.tolist()
        with engine.session((0,)) as session:
            by_stop = await session.generate(_prompt(3), greedy(7, 0, likely[-1]))
        with engine.session((0,)) as session:
            by_context = await session.generate([3] * (MAX_CONTEXT - 5), greedy(50))
            with pytest.raises(ContextOverflow):
                await session.generate([], greedy(1))
        return by_length, by_stop, by_context

    by_length, by_stop, by_context = asyncio.run(main())
    assert (by_length.finish_reason, len(by_length.tokens)) == ("length", 7)
    first = by_length.tokens.tolist().index(by_length.tokens[-1])
    assert by_stop.finish_reason == "stop"
    np.testing.assert_array_equal(by_stop.tokens, by_length.tokens[: first + 1])
    assert (by_context.finish_reason, len(by_context.tokens)) == ("length", 5)


def test_a_prompt_that_is_too_long_is_refused_and_changes_nothing(engine, alone):
    async def main():
        with engine.session((0,)) as session:
            await session.generate(_prompt(0), _sampling(seed=0, max_tokens=2, temperature=0.8))
            before = session.tokens
            with pytest.raises(ContextOverflow, match=f"max_context={MAX_CONTEXT}"):
                await session.generate([3] * MAX_CONTEXT, _sampling())
            np.testing.assert_array_equal(session.tokens, before)
            await session.generate(_prompt(0, 1), _sampling(seed=0, max_tokens=3, temperature=0.8))
            return session.tokens

    tokens = asyncio.run(main())
    np.testing.assert_array_equal(tokens, alone[0].tokens[: len(tokens)])


def test_a_coroutine_that_fails_or_is_cancelled_holds_nobody_up(engine, alone):
    async def fail(session):
        with session:
            await session.generate([5, 6], _sampling())
            raise ZeroDivisionError

    async def main():
        sessions = {index: engine.session((index,)) for index in range(6)}
        good = [asyncio.create_task(_converse(sessions[index], index)) for index in range(4)]
        failing = asyncio.create_task(fail(sessions[4]))
        with sessions[5]:
            cancelled = asyncio.create_task(sessions[5].generate([7], _sampling(max_tokens=60)))
            while engine._wave is None:
                await asyncio.sleep(0)
            cancelled.cancel()
            streams = await asyncio.gather(*good)
            with pytest.raises(ZeroDivisionError):
                await failing
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            with pytest.raises(RuntimeError, match="is closed"):
                await sessions[5].generate([7], _sampling())
        return dict(enumerate(streams))

    _assert_equal_streams(asyncio.run(asyncio.wait_for(main(), timeout=300)), alone)


def test_a_session_that_is_open_but_busy_elsewhere_is_waited_for(engine):
    async def main():
        with engine.session((0,)) as first, engine.session((1,)) as second:
            reply = asyncio.create_task(first.generate([5], _sampling()))
            await asyncio.sleep(0.05)
            assert engine._wave is None
            assert not reply.done()
            second.close()
            await asyncio.wait_for(reply, timeout=300)

    asyncio.run(main())


def test_weights_with_nan_fail_every_waiting_request(engine, all_params):
    engine.load_weights(jax.tree.map(lambda x: x * jnp.nan, all_params[0]), version=3)

    async def main():
        sessions = [engine.session((index,)) for index in range(2)]
        return await asyncio.gather(
            *(_converse(session, index) for index, session in enumerate(sessions)),
            return_exceptions=True,
        )

    errors = asyncio.run(asyncio.wait_for(main(), timeout=300))
    assert all(isinstance(error, FloatingPointError) and "version 3" in str(error) for error in errors)
    # Numbers that are not finite are still in the cache; no later sequence may see them.
    engine.load_weights(all_params[0], version=0)
    stream = _run(engine, [3])[3]
    expected = np.where(stream.loss_mask, _logprobs(all_params[0], stream), 0.0)
    np.testing.assert_allclose(stream.behavior_logprobs, expected, atol=1e-4)


def test_misuse_is_refused(engine):
    async def main():
        with engine.session((0,)) as session:
            with pytest.raises(ValueError, match="open already"):
                engine.session((0,))
            with pytest.raises(ValueError, match="empty context"):
                await session.generate([], _sampling())
            reply = asyncio.create_task(session.generate([5], _sampling()))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="already waits"):
                await session.generate([5], _sampling())
            await reply

    asyncio.run(main())


_EIGHT_DEVICES = """
import asyncio
import jax, numpy as np
from jax.sharding import Mesh
from spade_jax.model.architecture import Architecture
from spade_jax.model.sharding import param_shardings
from spade_jax.model.transformer import init_params
from spade_jax.sampling import Engine, SamplingParams

architecture = Architecture(
    vocab_size=48, num_layers=2, width=32, num_heads=4, num_kv_heads=2, head_width=8, mlp_width=48
)


def sample(sizes):
    devices = np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes)
    mesh = Mesh(devices, ("data", "fsdp", "tensor"))
    engine = Engine(architecture, mesh, num_slots=8, max_context=64, decode_steps=4, pad_id=0)
    shardings = param_shardings(architecture, mesh)
    engine.load_weights(jax.jit(lambda: init_params(architecture, 0), out_shardings=shardings)(), version=0)

    async def converse(session, index):
        sampling = SamplingParams(max_tokens=4, temperature=1.0, seed=index, stop_ids=())
        with session:
            for turn in range(2):
                await session.generate([5, 3 + index, 7, 2], sampling)
        return session.stream(1.0)

    async def main():
        sessions = [engine.session((index,)) for index in range(6)]
        return await asyncio.gather(*(converse(s, index) for index, s in enumerate(sessions)))

    streams = asyncio.run(main())
    assert engine.num_compilations == 2, engine.num_compilations
    return streams


assert len(jax.devices()) == 8
for one, many in zip(sample((1, 1, 1)), sample((2, 2, 2)), strict=True):
    np.testing.assert_array_equal(one.tokens, many.tokens)
    np.testing.assert_allclose(one.behavior_logprobs, many.behavior_logprobs, atol=2e-5)
"""


@pytest.mark.slow
def test_a_mesh_of_eight_devices_samples_what_one_device_does():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    command = [sys.executable, "-c", _EIGHT_DEVICES]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_context_that_restarts_is_that_of_a_new_session(engine):
    """Whatever of the old context the new one begins with, and whether it is longer or shorter."""

    async def after(first, second):
        with engine.session((0,)) as session:
            if first:
                await session.generate(first, _sampling(seed=1))
                session.restart()
                assert session.num_tokens == 0
            await session.generate(second, _sampling(seed=2))
            return session.stream(1.0)

    prompt = _prompt(7)
    for first in (prompt, [*prompt[:6], 5], [*prompt, 3, 4], [9], prompt[:-1]):
        _assert_equal_streams({0: asyncio.run(after(first, prompt))}, {0: asyncio.run(after(None, prompt))})
