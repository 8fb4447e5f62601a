"""The sandbox: fork servers at one level of isolation, and the environments that run in them.

    async with await SandboxPool.start(limits, num_zygotes=2, min_level="L2") as pool:
        environment = await pool.open(code)
        observation, info = await environment.reset(seed=7)
        step = await environment.step("\\\\boxed{left}")

Levels: L3 is a bubblewrap jail around L2; L2 is a kernel filter (seccomp) and resource limits on every
child; L1 is resource limits only and not a barrier. The strongest that works here is used, and the pool
refuses to start below `min_level`, or if its self-test finds that something forbidden works.

It knows nothing of training. It does not promise that environments are deterministic, nor that one
instance forgets an episode when the next begins.
"""

import asyncio
import collections
import logging
import resource
import shutil
import sys
from typing import Literal, Self

from spade_jax.errors import HostFault, SandboxUnavailable
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.fork_server import ForkServer, LevelUnavailable
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.self_test import SOURCE

Level = Literal["L3", "L2", "L1"]

_LEVELS: tuple[Level, ...] = ("L3", "L2", "L1")
_MAX_DESCRIPTORS = 65536
_TURN_BUDGET = 1000

_log = logging.getLogger(__name__)


class SandboxPool:
    """Opens environments; hundreds may be live at once, used from one event loop.

    Attributes:
      level: the isolation in force.
      failures: environments that have failed so far, by kind, "host_fault" among them.
      num_opened: environments asked for so far.
    """

    def __init__(self, limits: SandboxLimits, level: Level, servers: list[ForkServer]):
        """See `start`."""
        self.level = level
        self.failures: collections.Counter[str] = collections.Counter()
        self.num_opened = 0
        self._limits = limits
        self._servers = servers
        self._live: set[SandboxedEnvironment] = set()
        self._replacements: dict[int, asyncio.Task[ForkServer]] = {}
        self._closed = False

    @classmethod
    async def start(
        cls, limits: SandboxLimits, *, num_zygotes: int = 1, min_level: Level = "L2"
    ) -> "SandboxPool":
        """Starts the fork servers at the strongest level that works here, and tests that it holds.

        Raises this process's soft limit on open files to its hard one, as each environment takes two.

        Raises:
          SandboxUnavailable: no acceptable level works, or the self-test broke out.
        """
        _raise_descriptor_limit()
        reasons = []
        for level in _LEVELS[: _LEVELS.index(min_level) + 1]:
            try:
                pool = await cls._start_level(limits, level)
            except LevelUnavailable as reason:
                reasons.append(f"{level}: {reason}")
                continue
            if level == "L1":
                _log.warning(
                    "sandbox level L1: generated code can read files, use the network and kill this "
                    "process. Use it for trusted environments only. %s",
                    "; ".join(reasons),
                )
            try:
                more = range(num_zygotes - 1)
                pool._servers += await asyncio.gather(*(ForkServer.start(limits, level=level) for _ in more))
            except LevelUnavailable as reason:
                await pool.close()
                raise SandboxUnavailable(
                    f"one fork server started at level {level}, another did not: {reason}"
                ) from None
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
        index = self.num_opened % len(self._servers)
        try:
            server = await self._living_server(index)
        except HostFault:
            self.failures["host_fault"] += 1
            raise
        return await self._open(server, code, turn_budget)

    async def close(self) -> None:
        """Kills every environment and ends the fork servers. May be called again."""
        self._closed = True
        for environment in list(self._live):
            await environment.close()
        await asyncio.gather(*(server.close() for server in self._servers))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @classmethod
    async def _start_level(cls, limits: SandboxLimits, level: Level) -> "SandboxPool":
        """One fork server that has passed its test."""
        _require(level)
        pool = cls(limits, level, [await ForkServer.start(limits, level=level)])
        try:
            async with await pool._open(pool._servers[0], SOURCE, _TURN_BUDGET) as environment:
                breaches, _ = await environment.reset(seed=0)
        except HostFault as fault:
            await pool.close()
            raise LevelUnavailable(str(fault)) from None
        except BaseException:
            await pool.close()
            raise
        if breaches and level != "L1":
            await pool.close()
            raise SandboxUnavailable(
                f"the sandbox's self-test at level {level} did what no environment may do: {breaches}. "
                "This kernel does not enforce its filters; use another machine or container runtime."
            )
        return pool

    async def _open(self, server: ForkServer, code: str, turn_budget: int) -> SandboxedEnvironment:
        try:
            child = await server.spawn()
        except HostFault:
            self.failures["host_fault"] += 1
            raise
        environment = SandboxedEnvironment(child, self._limits, on_end=self._forget)
        self._live.add(environment)
        await environment.load(code, turn_budget=turn_budget)
        return environment

    def _forget(self, environment: SandboxedEnvironment, failure: str) -> None:
        self._live.discard(environment)
        if failure:
            self.failures[failure] += 1

    async def _living_server(self, index: int) -> ForkServer:
        server = self._servers[index]
        if server.alive:
            return server
        loop = asyncio.get_running_loop()
        task = self._replacements.get(index)
        if task is None or task.get_loop() is not loop:
            task = self._replacements[index] = loop.create_task(self._replace(index))
        # Shared by all who wait for this server; one of them being cancelled must not stop it.
        return await asyncio.shield(task)

    async def _replace(self, index: int) -> ForkServer:
        try:
            await self._servers[index].close()
            server = await ForkServer.start(self._limits, level=self.level)
        except LevelUnavailable as reason:
            raise HostFault(f"a fork server died and cannot be replaced: {reason}") from None
        finally:
            self._replacements.pop(index, None)
        if self._closed:
            await server.close()
            raise HostFault("the sandbox pool was closed")
        self._servers[index] = server
        return server


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
