"""A design on its way up the ladder: what is known of it, its child, and episodes in that."""

import ast
import asyncio
import dataclasses
import functools
import warnings
from collections.abc import Awaitable, Callable
from typing import Self

from spade_jax.config import ValidationConfig
from spade_jax.environments.fingerprint import fingerprint
from spade_jax.environments.validation.actions import Action, take
from spade_jax.errors import SpadeError
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.types import Setting

MAX_TURNS = 1000
MAX_SECONDS = 120.0

# Actions with their answers, in order.
Transcript = list[tuple[Action, object]]
Nearest = Callable[[str], tuple[str, float] | None]
Judge = Callable[[str], Awaitable[bool | None]]


class Rejection(SpadeError):
    """Why a rung does not let a design pass, in words that its designer can use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What designs are validated with.

    Attributes:
      held_out: fingerprints of the held-out environments.
      setting: in `tool_use` an environment must offer tools; how any is played follows from whether it does.
      max_turns: turns that the agent has.
      nearest: a program's nearest remembered one and their similarity in [0, 1], 1 where the two have the
        same fingerprint; None where nothing is remembered.
      judge: whether a program is sound; None where no verdict could be had.
    """

    sandbox: SandboxPool
    config: ValidationConfig
    held_out: frozenset[str]
    setting: Setting
    max_turns: int
    nearest: Nearest | None = None
    judge: Judge | None = None


class Candidate:
    """One design; closes its child at the end of an `async with`.

    Attributes:
      reply: the designer's text as sampled, or None where the source is given.
      needs_hint: whether the reply must have a hint.
      code: the source, once it is extracted.
      hint: "" where there is none.
      turns_left, seconds_left: that the present rung may still play.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        *,
        reply: str | None = None,
        needs_hint: bool = False,
        code: str = "",
        hint: str = "",
    ):
        self.surroundings = surroundings
        self.config = surroundings.config
        self.reply = reply
        self.needs_hint = needs_hint
        self.code = code
        self.hint = hint
        # What the rung `play` saw, for `replay` to compare with.
        self.transcript: Transcript | None = None
        self._environment: SandboxedEnvironment | None = None
        self.begin_rung()

    def begin_rung(self) -> None:
        """Gives the next rung its turns and seconds."""
        self.turns_left = MAX_TURNS
        self.seconds_left = MAX_SECONDS

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The program's syntax tree.

        Raises:
          Rejection: the text is not Python.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                return ast.parse(self.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Rejection(f"{type(error).__name__}: {error}") from None

    @functools.cached_property
    def digest(self) -> str:
        """The program's fingerprint.

        Raises:
          Rejection: the text is not Python.
        """
        try:
            return fingerprint(self.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Rejection(f"{type(error).__name__}: {error}") from None

    async def environment(self) -> SandboxedEnvironment:
        """The child in which this design runs, made when it is first needed.

        Raises:
          EnvironmentFailure: the source failed.
          HostFault: the sandbox failed.
        """
        if self._environment is None:
            self._environment = await self.surroundings.sandbox.open(self.code)
        return self._environment

    async def start(self, seed: int, *, max_turns: int) -> "Episode":
        """Resets the child to an instance and starts an episode in it, which ends any other."""
        environment = await self.environment()
        observation = (await environment.reset(seed)).observation
        return Episode(self, environment, observation, max_turns)

    def spend_turn(self, seconds: float) -> None:
        """Counts one turn that took so long.

        Raises:
          Rejection: the rung has taken too long; an environment that needs it all cannot be trained on.
        """
        self.turns_left -= 1
        self.seconds_left -= seconds
        if self.seconds_left < 0:
            raise Rejection(
                f"too slow: {MAX_TURNS - self.turns_left} turns took more than {MAX_SECONDS:g} seconds"
            )

    async def close(self) -> None:
        """Ends the child, where there is one."""
        if self._environment is not None:
            await self._environment.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Episode:
    """One episode of a candidate, played until it ends or the turns run out.

    Attributes:
      actions: those taken so far.
      observation: the latest.
      ended: whether the environment ended it.
      won: whether it did so with a positive reward.
    """

    def __init__(
        self, candidate: Candidate, environment: SandboxedEnvironment, observation: str, max_turns: int
    ):
        self.environment = environment
        self.observation = observation
        self.actions: list[Action] = []
        self.ended = False
        self.won = False
        self._candidate = candidate
        self._max_turns = max_turns

    @property
    def has_tools(self) -> bool:
        """Whether it is played by calling tools and ended by an answer."""
        return bool(self.environment.tools)

    @property
    def goes_on(self) -> bool:
        """Whether there is another turn to take."""
        return not self.ended and len(self.actions) < self._max_turns and self._candidate.turns_left > 0

    async def take(self, action: Action) -> None:
        """Takes one turn."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        step = await take(self.environment, action)
        self._candidate.spend_turn(loop.time() - started)
        self.actions.append(action)
        self.observation = step.observation
        self.ended = step.terminated or step.truncated
        self.won = step.terminated and step.reward > 0
