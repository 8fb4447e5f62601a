"""Continuous batching for many conversations at once, in lockstep, from asyncio.

    session.generate (one request) -> wave: every open session waits -> admit into slots -> prefill
        -> decode chunks; finished requests are answered and others admitted in between -> next wave

A wave starts only when every open session is waiting in `generate`, and takes the requests in order
of their keys. What is batched together hence never depends on timing, and a resumed run samples what
an uninterrupted one does. So open all sessions that belong together before anything is awaited, and
close each one when its conversation ends: the others wait for it.

Each open session keeps its keys and values in a slot of the cache between turns, so that a turn
prefills only what is new. With more sessions than slots, idle ones lose theirs and are prefilled
anew later; nothing is dropped. The device works in a thread while the event loop goes on.
"""

import asyncio
import collections
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from spade_jax.errors import ContextOverflow
from spade_jax.model.architecture import Architecture
from spade_jax.model.sharding import cache_sharding
from spade_jax.model.transformer import Cache, Params, init_cache
from spade_jax.sampling.methods import MAX_STOP_IDS, RowSampling, SamplingParams
from spade_jax.sampling.programs import DecodeInputs, PrefillInputs, Sampled, decode, prefill
from spade_jax.types import TokenStream

Key = tuple[int, ...]
Drawn = tuple[list[int], list[float]]  # the tokens of one row, -1 after its end, and their log-probs

# Prompts are prefilled in pieces of this length, as many in one call as one of these counts. Short
# pieces waste little on the ten tokens of a typical turn; a long prompt takes many of them at once.
_PIECE_LENGTH = 8
_PIECE_COUNTS = (16, 64, 256)

_NO_SAMPLING = SamplingParams(max_tokens=1, temperature=1.0, seed=0, stop_ids=())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completion:
    """One sampled reply.

    Attributes:
      tokens: int32 [n], the stop token included.
      behavior_logprobs: float32 [n], at the sampling temperature, among all tokens.
      finish_reason: "stop" after a stop id; "length" after max_tokens or at the end of the context.
      weights_version: of the weights that sampled it.
    """

    tokens: np.ndarray
    behavior_logprobs: np.ndarray
    finish_reason: Literal["stop", "length"]
    weights_version: int


@dataclasses.dataclass(kw_only=True, eq=False)
class _Request:
    """One reply being made.

    Attributes:
      limit: tokens that may be sampled, by max_tokens and by what is left of the context.
    """

    session: "Session"
    params: SamplingParams
    limit: int
    future: asyncio.Future[Completion]
    tokens: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)

    @property
    def stopped(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] in self.params.stop_ids

    @property
    def finished(self) -> bool:
        return self.stopped or len(self.tokens) == self.limit

    @property
    def position(self) -> int:
        """Of the last token so far."""
        return self.session.num_tokens + len(self.tokens) - 1


class _Call(NamedTuple):
    """A program under way on the device, and for how many of its rows somebody waits."""

    sampled: Sampled
    num_rows: int
    dispatched_at: float


class Session:
    """One conversation: its tokens, which of them were sampled, and its place in the cache.

    Made by `Engine.session`; open from then until `close` or the end of its `with` block.
    """

    def __init__(self, engine: "Engine", key: Key):
        self.key = key
        self._engine = engine
        self._tokens: list[int] = []
        self._sampled: list[bool] = []
        self._logprobs: list[float] = []
        self._weights_version = -1
        self._request: _Request | None = None
        self._slot: int | None = None
        self._num_cached = 0
        self._forgotten: list[int] = []
        self._closed = False

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def num_tokens(self) -> int:
        """Tokens of the context so far."""
        return len(self._tokens)

    @property
    def tokens(self) -> np.ndarray:
        """int32 [num_tokens], the context so far."""
        return np.array(self._tokens, np.int32)

    def stream(self, temperature: float) -> TokenStream:
        """The conversation so far as training data; the loss mask is True where the sampler sampled."""
        return TokenStream(
            tokens=self.tokens,
            loss_mask=np.array(self._sampled, bool),
            behavior_logprobs=np.array(self._logprobs, np.float32),
            temperature=temperature,
            weights_version=self._weights_version,
        )

    def restart(self) -> None:
        """Starts an empty context, for a conversation whose earlier part reads differently from now on.

        What the new context begins with as the old one did is still in the cache.
        """
        self._forgotten, self._tokens = self._tokens, []
        self._sampled, self._logprobs = [], []
        self._weights_version = -1

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        """Appends new ids to the context and samples a reply, which is appended too.

        Whatever interrupts it, a failure or being cancelled, closes the session.

        Raises:
          ContextOverflow: the context with the new ids leaves no room for a reply; nothing changed.
          RuntimeError: the session is closed, or is already waiting for a reply.
          FloatingPointError: the weights give log-probs that are not finite.
        """
        if self._closed or self._request is not None:
            state = "is closed" if self._closed else "already waits for a reply"
            raise RuntimeError(f"session {self.key} {state}; it cannot generate")
        num_tokens = self.num_tokens + len(new_ids)
        limit = min(params.max_tokens, self._engine.max_context - num_tokens)
        if limit < 1:
            raise ContextOverflow(
                f"a prompt of {num_tokens} tokens does not fit sampling.max_context="
                f"{self._engine.max_context} with room for a reply; shorten it or raise max_context"
            )
        if not num_tokens:
            raise ValueError("an empty context; a reply needs at least one token before it")
        if self._forgotten:
            pairs = zip(self._forgotten, new_ids, strict=False)
            shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            # The last id is always prefilled, since the first draw needs what it predicts.
            self._num_cached, self._forgotten = min(self._num_cached, shared, len(new_ids) - 1), []
        self._append(new_ids, sampled=False, logprobs=[0.0] * len(new_ids))
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._request = _Request(session=self, params=params, limit=limit, future=future)
        self._engine._start_wave_soon()
        try:
            completion = await future
        except BaseException:
            self.close()
            raise
        finally:
            self._request = None
        return completion

    def close(self) -> None:
        """Ends the conversation and gives its slot back; what was sampled can still be read."""
        if not self._closed:
            self._closed = True
            self._engine._close(self)

    def _append(self, tokens: Sequence[int], *, sampled: bool, logprobs: Sequence[float]) -> None:
        self._tokens.extend(tokens)
        self._sampled.extend([sampled] * len(tokens))
        self._logprobs.extend(logprobs)


class Engine:
    """The sampler: a cache with fixed slots, two compiled programs and a scheduler.

    Attributes:
      max_context: tokens that one session can hold, prompt and replies together.
      weights_version: of the weights in use; -1 before the first `load_weights`.
      busy_seconds: in which the device had sampling to do, from each dispatch until its results were here.
    """

    def __init__(
        self,
        architecture: Architecture,
        mesh: Mesh,
        *,
        num_slots: int,
        max_context: int,
        decode_steps: int,
        pad_id: int,
    ):
        """Allocates the cache.

        Args:
          mesh: with axes data, fsdp and tensor; the weights' own.
          num_slots: sequences decoded side by side, and conversations kept in the cache.
          max_context: tokens of prompt and replies together, at most.
          decode_steps: tokens sampled in one dispatch, after which finished rows make room.
          pad_id: token that fills unused places; never seen by a sequence.

        Raises:
          MeshError: the mesh does not divide the slots.
        """
        self.max_context = max_context
        self.weights_version = -1
        self.busy_seconds = 0.0
        self._params: Params | None = None
        self._pad_id = pad_id
        self._decode_steps = decode_steps
        self._row_counts = _row_counts(num_slots, multiple=mesh.shape["data"] * mesh.shape["fsdp"])
        self._sessions: dict[Key, Session] = {}
        self._slots: list[Session | None] = [None] * num_slots
        self._wave: asyncio.Task[None] | None = None

        self._replicated = NamedSharding(mesh, PartitionSpec())
        placement = cache_sharding(mesh, num_slots=num_slots)
        make_cache = functools.partial(init_cache, architecture, num_slots=num_slots, max_context=max_context)
        self._make_cache = jax.jit(make_cache, out_shardings=placement)
        self._cache = self._make_cache()

        def compiled(program: Callable[..., tuple[Cache, Sampled]]) -> Any:
            return jax.jit(program, donate_argnums=1, out_shardings=(placement, self._replicated))

        self._prefill = compiled(functools.partial(prefill, architecture=architecture, mesh=mesh))
        self._decode = compiled(
            functools.partial(decode, architecture=architecture, mesh=mesh, num_steps=decode_steps)
        )

    @property
    def num_compilations(self) -> int:
        """Programs compiled so far; it stays as it is after `warm_up`."""
        return self._prefill._cache_size() + self._decode._cache_size()

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    def load_weights(self, params: Params, *, version: int) -> None:
        """Samples with these params from now on, where they lie; what the cache holds is forgotten.

        Raises:
          RuntimeError: sequences are being sampled; load weights between waves.
        """
        if self._wave is not None:
            raise RuntimeError("weights cannot change while sequences are being sampled; await them first")
        self._params = params
        self.weights_version = version
        for session in self._sessions.values():
            session._num_cached = 0

    def session(self, key: Key) -> Session:
        """Opens a conversation. Requests are taken in order of key, which is unique among open ones."""
        if key in self._sessions:
            raise ValueError(f"a session with key {key} is open already; keys must be unique")
        session = self._sessions[key] = Session(self, key)
        return session

    def warm_up(self) -> None:
        """Compiles every program that sampling may need; needs weights."""
        for count in _PIECE_COUNTS:
            self._run_prefill([], count)
        for count in self._row_counts:
            self._run_decode([], count)

    def _clear_cache(self) -> None:
        self._cache = self._make_cache()
        for session in self._sessions.values():
            session._num_cached = 0

    # Scheduling. Runs in the event loop; only the device programs run in a thread.

    def _start_wave_soon(self) -> None:
        # Through the loop's queue: coroutines that are already due may still open sessions.
        asyncio.get_running_loop().call_soon(self._start_wave)

    def _start_wave(self) -> None:
        if self._wave is not None:
            return
        pending = [session._request for session in self._sessions.values()]
        requests = [request for request in pending if request is not None and not request.future.done()]
        if not requests or len(requests) < len(pending):
            return
        self._wave = asyncio.get_running_loop().create_task(self._run_wave(requests))

    async def _run_wave(self, requests: list[_Request]) -> None:
        try:
            await self._serve(requests)
        except Exception as error:
            # The cache may be lost with the failed call, or hold numbers that are not finite.
            self._clear_cache()
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(error)
        finally:
            # Whatever ended the wave, nobody is left waiting for it.
            for request in requests:
                request.future.cancel()
            for slot, session in enumerate(self._slots):
                if session is not None and session._closed:
                    self._slots[slot] = None
            self._wave = None
            self._start_wave_soon()

    def _close(self, session: Session) -> None:
        del self._sessions[session.key]
        if self._wave is None:
            # During a wave the slot stays taken until its end, so that which slots are free, and thereby
            # what is evicted, does not depend on when a session is closed.
            if session._slot is not None:
                self._slots[session._slot] = None
            if any(other._request is not None for other in self._sessions.values()):
                self._start_wave_soon()

    async def _serve(self, requests: list[_Request]) -> None:
        if self._params is None:
            raise RuntimeError("the engine has no weights; call load_weights first")
        # Those that are still in the cache come first, before any of them could be evicted.
        order = sorted(requests, key=lambda request: (request.session._slot is None, request.session.key))
        waiting = collections.deque(order)
        running: list[_Request] = []
        while waiting or running:
            admitted = self._admit(waiting, running)
            if admitted:
                self._record(admitted, await asyncio.to_thread(self._prefill_prompts, admitted))
                running += admitted
                running = self._answer(running)
            if running:
                self._record(running, await asyncio.to_thread(self._decode_chunk, running))
                running = self._answer(running)

    def _admit(self, waiting: collections.deque[_Request], running: list[_Request]) -> list[_Request]:
        """Takes requests from `waiting` in order while there are slots for them."""
        admitted: list[_Request] = []
        busy = {request.session for request in running}
        while waiting:
            session = waiting[0].session
            if session._slot is None:
                slot = self._find_slot(busy)
                if slot is None:
                    break
                owner = self._slots[slot]
                if owner is not None:
                    owner._slot = None
                self._slots[slot] = session
                session._slot, session._num_cached = slot, 0
            busy.add(session)
            admitted.append(waiting.popleft())
        return admitted

    def _find_slot(self, busy: set[Session]) -> int | None:
        """The lowest free slot, or else that of the idle session with the lowest key."""
        idle = []
        for slot, owner in enumerate(self._slots):
            if owner is None:
                return slot
            if owner not in busy:
                idle.append((owner.key, slot))
        return min(idle)[1] if idle else None

    def _record(self, requests: list[_Request], rows: list[Drawn]) -> None:
        for request, (tokens, logprobs) in zip(requests, rows, strict=True):
            num_new = sum(token >= 0 for token in tokens)
            request.tokens += tokens[:num_new]
            request.logprobs += logprobs[:num_new]
            if not all(map(math.isfinite, logprobs)):
                raise FloatingPointError(
                    f"weights version {self.weights_version} give log-probs that are not finite in session "
                    f"{request.session.key}; look for NaN in the params of the last update"
                )

    def _answer(self, running: list[_Request]) -> list[_Request]:
        """Resolves finished requests, drops abandoned ones and returns the others."""
        remaining = []
        for request in running:
            session = request.session
            if request.future.done():  # cancelled
                continue
            if not request.finished:
                remaining.append(request)
                continue
            session._append(request.tokens, sampled=True, logprobs=request.logprobs)
            session._num_cached = session.num_tokens - 1
            session._weights_version = self.weights_version
            request.future.set_result(
                Completion(
                    tokens=np.array(request.tokens, np.int32),
                    behavior_logprobs=np.array(request.logprobs, np.float32),
                    finish_reason="stop" if request.stopped else "length",
                    weights_version=self.weights_version,
                )
            )
        return remaining

    # Device work. Reads the scheduler's state and changes only the cache.

    def _prefill_prompts(self, requests: list[_Request]) -> list[Drawn]:
        """Prefills what is not in the cache yet of each request and samples its first token."""
        pieces = [
            (request, start)
            for request in requests
            for start in range(request.session._num_cached, request.session.num_tokens, _PIECE_LENGTH)
        ]
        calls = []
        while pieces:
            count = _piece_count(len(pieces))
            calls.append(self._run_prefill(pieces[:count], count))
            pieces = pieces[count:]
        # All calls are under way before the first result is waited for.
        return self._fetch(calls)

    def _run_prefill(self, pieces: list[tuple[_Request, int]], count: int) -> _Call:
        """Dispatches one call, which samples for the prompts that end in it."""
        tokens = np.full((count, _PIECE_LENGTH), self._pad_id, np.int32)
        positions = np.full((count, _PIECE_LENGTH), self._cache.max_context, np.int32)
        slots = np.zeros(count, np.int32)
        ending, last = [], []
        for index, (request, start) in enumerate(pieces):
            session = request.session
            new = session._tokens[start : start + _PIECE_LENGTH]
            tokens[index, : len(new)] = new
            positions[index, : len(new)] = range(start, start + len(new))
            slots[index] = session._slot or 0
            if start + len(new) == session.num_tokens:
                ending.append(request)
                last.append(index * _PIECE_LENGTH + len(new) - 1)
        num_rows = min(count, self.num_slots)
        inputs = {
            "tokens": tokens,
            "positions": positions,
            "slots": slots,
            "last": _filled(last, num_rows),
            "rows": _row_sampling(ending, num_rows),
        }
        placed = PrefillInputs(**jax.device_put(inputs, self._replicated))
        dispatched_at = time.perf_counter()
        self._cache, sampled = self._prefill(self._params, self._cache, placed)
        return _Call(sampled, len(ending), dispatched_at)

    def _decode_chunk(self, requests: list[_Request]) -> list[Drawn]:
        count = next(count for count in self._row_counts if count >= len(requests))
        return self._fetch([self._run_decode(requests, count)])

    def _run_decode(self, requests: list[_Request], count: int) -> _Call:
        inputs = {
            "tokens": _filled([request.tokens[-1] for request in requests], count),
            "positions": _filled([request.position for request in requests], count),
            "slots": _filled([request.session._slot or 0 for request in requests], count),
            "remaining": _filled([request.limit - len(request.tokens) for request in requests], count),
            "rows": _row_sampling(requests, count),
        }
        placed = DecodeInputs(**jax.device_put(inputs, self._replicated))
        dispatched_at = time.perf_counter()
        self._cache, sampled = self._decode(self._params, self._cache, placed)
        return _Call(sampled, len(requests), dispatched_at)

    def _fetch(self, calls: list[_Call]) -> list[Drawn]:
        """Waits for calls that follow one another and returns the rows that they sampled, in order."""
        rows: list[Drawn] = []
        for call in calls:
            tokens, logprobs = jax.device_get(call.sampled)
            num = call.num_rows
            rows += zip(tokens[:num].tolist(), logprobs[:num].tolist(), strict=True)
        self.busy_seconds += time.perf_counter() - calls[0].dispatched_at
        return rows


def _row_counts(num_slots: int, *, multiple: int) -> tuple[int, ...]:
    """The row counts that decode is compiled for: all slots and halves of that, in rising order."""
    counts = {-(-num_slots // (divisor * multiple)) * multiple for divisor in (1, 2, 4, 8)}
    return tuple(sorted(counts))


def _piece_count(num_pieces: int) -> int:
    """Pieces of the next prefill call: no more than a quarter of a larger call may be empty."""
    fitting = [count for count in _PIECE_COUNTS if num_pieces >= 0.75 * count]
    return fitting[-1] if fitting else _PIECE_COUNTS[0]


def _filled(values: Sequence[int], length: int) -> np.ndarray:
    array = np.zeros(length, np.int32)
    array[: len(values)] = values
    return array


def _row_sampling(requests: Sequence[_Request], num_rows: int) -> RowSampling:
    params = [request.params for request in requests]
    params += [_NO_SAMPLING] * (num_rows - len(requests))
    stop_ids = [(*p.stop_ids, *(-1,) * (MAX_STOP_IDS - len(p.stop_ids))) for p in params]
    columns: dict[str, Any] = {
        "seed": np.array([p.seed for p in params], np.int32),
        "temperature": np.array([p.temperature for p in params], np.float32),
        "top_k": np.array([p.top_k for p in params], np.int32),
        "top_p": np.array([p.top_p for p in params], np.float32),
        "stop_ids": np.array(stop_ids, np.int32),
    }
    return RowSampling(**columns)
