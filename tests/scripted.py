"""A policy whose every reply is written down in advance, and games whose outcome it decides.

What stands around it is real: tokenizer, chat rendering, sandbox. So counts, rewards and masks can be
worked out on paper.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from spade_jax.errors import HostFault, SpadeError
from spade_jax.sampling.engine import Completion
from spade_jax.sampling.methods import SamplingParams
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.text.chat import Chat
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.types import EnvironmentSource, TokenStream

# Each turn names the answer; `turns` right ones in a row win, a wrong one loses, "crash" is a bug.
GAME = """import random

class {name}Env:
    turns = {turns}
    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.done = 0
        return self.observe(), {{}}
    def observe(self):
        self.answer = str(self.rng.randint(10, 99))
        return f"say {{self.answer}}"
    def step(self, action):
        move = action.removeprefix("\\\\boxed{{").removesuffix("}}")
        if move == "crash":
            raise RuntimeError("a bug")
        if move == "stay":
            return self.observe(), 0.5, False, False, {{}}
        if move == "stop":
            return self.observe(), 0.5, False, True, {{}}
        if move != self.answer:
            return "wrong", -1.0, True, False, {{}}
        self.done += 1
        return self.observe(), 1.0, self.done == self.turns, False, {{}}
"""


def game(name: str, *, turns: int = 1) -> str:
    """The program of a game that is won by saying what it asks for."""
    return GAME.format(name=name, turns=turns)


def game_source(name: str, *, turns: int = 1) -> EnvironmentSource:
    """The game as an environment that has passed validation."""
    return EnvironmentSource(
        environment_id=name, skill="Logical Deduction", code=game(name, turns=turns), hint=f"obey {name}"
    )


def small_tokenizer() -> Tokenizer:
    """Knows the games and the chat format; anything else it spells in bytes."""
    texts = [game("One"), game("Two", turns=2), "Reply with \\boxed{action}.\nsay 42\n\nHINT: obey One"]
    return Tokenizer.train(texts, vocab_size=512, atoms=("\\boxed{", "}"))


def right(conversation: str) -> str:
    """The reply that the latest observation asks for."""
    return "\\boxed{" + re.findall(r"say (\d+)", conversation)[-1] + "}"


class Sandbox(NamedTuple):
    """A running pool and the means to await things in its event loop."""

    pool: SandboxPool
    run: Callable[[Coroutine[Any, Any, Any]], Any]


@contextlib.contextmanager
def running_sandbox() -> Iterator[Sandbox]:
    """A pool with two fork servers, so that a replay happens in another one, and patient limits."""
    with asyncio.Runner() as runner:
        limits = SandboxLimits(load_timeout=60.0, step_timeout=60.0)
        pool = runner.run(SandboxPool.start(limits, num_zygotes=2))
        try:
            yield Sandbox(pool, runner.run)
        finally:
            runner.run(pool.close())


class FaultySandbox:
    """A pool that fails whenever it opens an environment of one name.

    Args:
      after: times that the environment is opened before it does.
      error: how it fails; as a host does by default.
    """

    def __init__(self, pool: SandboxPool, name: str, *, after: int = 0, error: SpadeError | None = None):
        self._pool = pool
        self._name = name
        self._left = after
        self._error = error or HostFault("no more processes")
        self.level = pool.level

    async def open(self, code: str) -> SandboxedEnvironment:
        if f"class {self._name}Env" in code:
            self._left -= 1
            if self._left < 0:
                raise self._error
        return await self._pool.open(code)


class ScriptedEngine:
    """Stands in for `spade_jax.sampling.engine.Engine`.

    Args:
      reply: (key of the session, decoded conversation so far) to the text of the next reply; a reply
        that does not fit max_tokens is cut there, as a sampled one would be.
    """

    num_compilations = 0
    busy_seconds = 0.0

    def __init__(self, chat: Chat, reply: Callable[[tuple[int, ...], str], str], *, num_slots: int = 16):
        self.num_slots = num_slots
        self.chat = chat
        self.reply = reply
        self.requests: list[tuple[tuple[int, ...], str, SamplingParams]] = []
        self.open_keys: set[tuple[int, ...]] = set()

    def session(self, key: tuple[int, ...]) -> "ScriptedSession":
        assert key not in self.open_keys, f"{key} is open already"
        self.open_keys.add(key)
        return ScriptedSession(self, key)


class ScriptedSession:
    """One conversation; each sampled token has a log-prob of its own, so that a mix-up shows."""

    def __init__(self, engine: ScriptedEngine, key: tuple[int, ...]):
        self.key = key
        self._engine = engine
        self._tokens: list[int] = []
        self._sampled: list[bool] = []

    def __enter__(self) -> "ScriptedSession":
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.open_keys.discard(self.key)

    @property
    def num_tokens(self) -> int:
        return len(self._tokens)

    def restart(self) -> None:
        self._tokens, self._sampled = [], []

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        engine = self._engine
        assert self.key in engine.open_keys, "a closed session cannot generate"
        self._append(new_ids, sampled=False)
        conversation = engine.chat.decode(self._tokens)
        engine.requests.append((self.key, conversation, params))
        text = engine.reply(self.key, conversation)
        tokens = [*engine.chat.encode(text), engine.chat.stop_ids[0]][: params.max_tokens]
        start = self.num_tokens
        self._append(tokens, sampled=True)
        return Completion(
            tokens=np.array(tokens, np.int32),
            behavior_logprobs=self._logprobs[start:],
            finish_reason="stop" if tokens[-1] in params.stop_ids else "length",
            weights_version=0,
        )

    def stream(self, temperature: float) -> TokenStream:
        return TokenStream(
            tokens=np.array(self._tokens, np.int32),
            loss_mask=np.array(self._sampled, bool),
            behavior_logprobs=self._logprobs,
            temperature=temperature,
        )

    @property
    def _logprobs(self) -> np.ndarray:
        positions = np.arange(1, len(self._tokens) + 1)
        return np.where(self._sampled, -positions / 100, 0).astype(np.float32)

    def _append(self, tokens: Sequence[int], *, sampled: bool) -> None:
        self._tokens.extend(tokens)
        self._sampled.extend([sampled] * len(tokens))
