"""The sandbox: fork servers at one level of isolation, and the environments that run in them.

    async with await SandboxPool.start(limits, num_zygotes=2, min_level="L2") as pool:
        environment = await pool.open(code)
        observation, info = await environment.reset(seed=7)
        step = await environment.step("\\\\boxed{left}")

Levels: L3 is a bubblewrap jail around L2; L2 is a kernel filter (seccomp) and resource limits on every
child; L1 is resource limits only and not a barrier. The strongest that works here is used, and the pool
refuses to start below `min_level`, or if its self-test finds that something forbidden works.

A source finds numpy and much of the standard library, under the usual names without an import, and the
class `ToolUseBaseEnv`. One that names math_verify or sympy finds those too, in fork servers of their own.

It knows nothing of training. It does not promise that environments are deterministic, nor that one
instance forgets an episode when the next begins.
"""

import asyncio
import collections
import functools
import logging
import resource
import shutil
import sys
from collections.abc import Sequence
from typing import Literal, Self

from spade_jax.errors import HostFault, SandboxUnavailable
from spade_jax.sandbox.cores import share_of_cores
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.fork_server import ForkServer, LevelUnavailable
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.memory import MemoryGauge
from spade_jax.sandbox.self_test import SOURCE
from spade_jax.sandbox.slot import ServerSlot

Level = Literal["L3", "L2", "L1"]

_LEVELS: tuple[Level, ...] = ("L3", "L2", "L1")
_MAX_DESCRIPTORS = 65536
_TURN_BUDGET = 1000
_MEMORY_RETRY_SECONDS = 0.01

_log = logging.getLogger(__name__)


class SandboxPool:
    """Opens environments; hundreds may be live at once, used from one event loop.

    Attributes:
      level: the isolation in force.
      failures: environments that have failed so far, by kind, "host_fault" among them.
      num_opened: environments asked for so far.
    """

    def __init__(
        self,
        limits: SandboxLimits,
        level: Level,
        *,
        num_zygotes: int = 1,
        cores: Sequence[int] | None = None,
    ):
        """See `start`, which also tests what this makes."""
        self.level = level
        self.failures: collections.Counter[str] = collections.Counter()
        self.num_opened = 0
        self._limits = limits
        start = functools.partial(ForkServer.start, limits, level=level, cores=cores)
        self._slots, self._maths_slots = (
            [
                ServerSlot(functools.partial(start, with_maths=with_maths), max_forks=limits.max_forks)
                for _ in range(num_zygotes)
            ]
            for with_maths in (False, True)
        )
        self._live: set[SandboxedEnvironment] = set()
        self._num_starting = 0
        self._closed = False

    @classmethod
    async def start(
        cls,
        limits: SandboxLimits,
        *,
        num_zygotes: int = 1,
        min_level: Level = "L2",
        process_index: int = 0,
        num_processes: int = 1,
    ) -> "SandboxPool":
        """Starts the fork servers at the strongest level that works here, and tests that it holds.

        Raises this process's soft limit on open files to its hard one, as each environment takes two.

        Args:
          num_zygotes: fork servers; as many again start when sources first need math_verify.
          min_level: weakest isolation to accept.
          process_index: of this process among those of this host that run a pool; each has its own cores.
          num_processes: how many those are.

        Raises:
          SandboxUnavailable: no acceptable level works, the self-test broke out, or one environment may
            take more memory than there is.
        """
        _raise_descriptor_limit()
        cores = share_of_cores(process_index, num_processes)
        reasons = []
        for level in _LEVELS[: _LEVELS.index(min_level) + 1]:
            pool = cls(limits, level, num_zygotes=num_zygotes, cores=cores)
            try:
                await pool._begin()
            except LevelUnavailable as reason:
                await pool.close()
                reasons.append(f"{level}: {reason}")
                continue
            except BaseException:
                await pool.close()
                raise
            if level == "L1":
                _log.warning(
                    "sandbox level L1: generated code can read files, use the network and kill this "
                    "process. Use it for trusted environments only. %s",
                    "; ".join(reasons),
                )
            return pool
        raise SandboxUnavailable(
            f"need sandbox level {min_level} or stronger and none works here. {'; '.join(reasons)}. "
            "Run on a Linux machine, container or VM whose kernel allows seccomp filters. For TRUSTED "
            'environments only, min_level="L1" does without: it does not stop file reads, network use or '
            "the killing of this process."
        )

    @property
    def num_live(self) -> int:
        """Environments that are open now."""
        return len(self._live)

    async def open(self, code: str, *, turn_budget: int = _TURN_BUDGET) -> SandboxedEnvironment:
        """Makes a child, runs the source in it and constructs its environment.

        Waits while the environments that are in a call could outgrow what memory is left.

        The class is the last one defined in the source whose name ends in Env, one with reset and step
        before others. It is constructed without arguments, or with max_turns=turn_budget if it demands
        arguments.

        Raises:
          EnvironmentFailure: the source failed.
          HostFault: the sandbox failed; nothing is known about the source.
        """
        if self._closed:
            raise HostFault("the sandbox pool was closed")
        self.num_opened += 1
        slots = self._maths_slots if _needs_maths(code) else self._slots
        slot = slots[self.num_opened % len(slots)]
        try:
            await self._wait_for_memory()
            environment = await self._spawn(slot)
        except HostFault:
            self.failures["host_fault"] += 1
            raise
        await environment.load(code, turn_budget=turn_budget)
        return environment

    async def close(self) -> None:
        """Kills every environment and ends the fork servers. May be called again."""
        self._closed = True
        for environment in list(self._live):
            await environment.close()
        await asyncio.gather(*(slot.close() for slot in self._slots + self._maths_slots))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _begin(self) -> None:
        """Starts the servers, after one of them has passed its test.

        Raises:
          LevelUnavailable: what the level needs is missing here.
          SandboxUnavailable: see `start`.
        """
        _require(self.level)
        total = self._memory.total()
        if self._limits.memory_mb * 2**20 > total:
            raise SandboxUnavailable(
                f"an environment may take {self._limits.memory_mb} MiB, and this machine or container has "
                f"{total // 2**20} MiB in all; lower memory_mb"
            )
        first, *others = self._slots
        try:
            environment = await self._spawn(first)
            async with environment:
                await environment.load(SOURCE, turn_budget=_TURN_BUDGET)
                breaches, _ = await environment.reset(seed=0)
        except HostFault as fault:
            raise LevelUnavailable(str(fault)) from None
        if breaches and self.level != "L1":
            raise SandboxUnavailable(
                f"the sandbox's self-test at level {self.level} did what no environment may do: {breaches}. "
                "This kernel does not enforce its filters; use another machine or container runtime."
            )
        try:
            await asyncio.gather(*(slot.server() for slot in others))
        except HostFault as fault:
            raise SandboxUnavailable(
                f"one fork server started at level {self.level}, another did not: {fault}"
            ) from None

    async def _spawn(self, slot: ServerSlot) -> SandboxedEnvironment:
        self._num_starting += 1
        try:
            server = await slot.server()
            child = await server.spawn()
        finally:
            self._num_starting -= 1
        environment = SandboxedEnvironment(child, self._limits, on_end=self._forget)
        self._live.add(environment)
        return environment

    @functools.cached_property
    def _memory(self) -> MemoryGauge:
        # Not before it is known that this is Linux.
        return MemoryGauge()

    async def _wait_for_memory(self) -> None:
        """Waits until one more environment fits beside all that may be growing now.

        What idle environments hold is already missing from what is available; those in a call may grow to
        their cap before it returns.

        Raises:
          HostFault: it does not fit, and no call is under way whose end could change that.
        """
        while True:
            num_growing = self._num_starting + sum(environment.busy for environment in self._live)
            available = self._memory.available()
            if (num_growing + 1) * self._limits.memory_mb * 2**20 <= available:
                return
            if num_growing == 0:
                raise HostFault(
                    f"no memory for another environment: it may take {self._limits.memory_mb} MiB, and "
                    f"{available // 2**20} MiB are left beside {len(self._live)} idle ones; close some, or "
                    "lower memory_mb"
                )
            await asyncio.sleep(_MEMORY_RETRY_SECONDS)

    def _forget(self, environment: SandboxedEnvironment, failure: str) -> None:
        self._live.discard(environment)
        if failure:
            self.failures[failure] += 1


def _needs_maths(code: str) -> bool:
    """Whether a source names the modules that not every fork server loads."""
    return "math_verify" in code or "sympy" in code


def _require(level: Level) -> None:
    """Raises LevelUnavailable where it is plain that a level cannot work; starting it shows the rest."""
    if sys.platform != "linux":
        raise LevelUnavailable(f"{sys.platform} has no seccomp filter")
    if level == "L3" and shutil.which("bwrap") is None:
        raise LevelUnavailable("bubblewrap is not installed (apt-get install bubblewrap)")


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
