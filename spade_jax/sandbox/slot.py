"""A place in the pool that always has a fork server to give.

It starts one when first asked, and another when that one has died or has forked as often as it may: the
old one then ends with the last of its children.
"""

import asyncio
from collections.abc import Awaitable, Callable

from spade_jax.errors import HostFault
from spade_jax.sandbox.fork_server import ForkServer, LevelUnavailable


class ServerSlot:
    """One living fork server after another."""

    def __init__(self, start: Callable[[], Awaitable[ForkServer]], *, max_forks: int):
        """Starts nothing yet.

        Args:
          start: makes a server; may raise LevelUnavailable.
          max_forks: children that one server makes before another takes its place.
        """
        self._start = start
        self._max_forks = max_forks
        self._current: ForkServer | None = None
        self._retired: list[ForkServer] = []
        self._starting: asyncio.Task[ForkServer] | None = None
        self._closed = False

    async def server(self) -> ForkServer:
        """A server that is alive and may fork.

        Raises:
          HostFault: none could be started, or the slot was closed.
        """
        if self._closed:
            raise HostFault("the sandbox pool was closed")
        current = self._current
        if current is not None and current.alive and current.num_forks < self._max_forks:
            return current
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting.get_loop() is not loop:
            self._starting = loop.create_task(self._replace())
        # Shared by all who wait for this server; one of them being cancelled must not stop it.
        return await asyncio.shield(self._starting)

    async def close(self) -> None:
        """Ends the servers and all their children. May be called again."""
        self._closed = True
        await asyncio.gather(*(server.close() for server in self._servers()))

    def _servers(self) -> list[ForkServer]:
        return self._retired + ([self._current] if self._current is not None else [])

    async def _replace(self) -> ForkServer:
        try:
            server = await self._start()
        except LevelUnavailable as reason:
            raise HostFault(str(reason)) from None
        finally:
            self._starting = None
        if self._closed:
            await server.close()
            raise HostFault("the sandbox pool was closed")
        # A retired server hears of its children in the event loop of today.
        self._retired = [old for old in self._retired if old.alive]
        for old in self._servers():
            old.watch(asyncio.get_running_loop())
        if self._current is not None:
            self._retired.append(self._current)
            self._current.retire()
        self._current = server
        return server
