"""Stopping a run on request: the first signal asks, the second one ends the process at once.

SIGTERM is what a machine sends that will soon be gone, so that what is in progress has only so much time
to end; after SIGINT, from a person, it has as much as it needs.
"""

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, TypeVar

from spade_jax.errors import SpadeError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL = 0.1
_T = TypeVar("_T")


class Interrupted(SpadeError):
    """The run was asked to stop where it has nothing to save."""


class StopRequest:
    """Whether SIGINT or SIGTERM has asked this process to stop."""

    def __init__(self, *, grace: float = math.inf) -> None:
        """Not asked yet.

        Args:
          grace: seconds that `in_time` leaves after SIGTERM.
        """
        self.requested = False
        self._grace = grace
        self._deadline = math.inf

    def request(self, number: int) -> None:
        """What the signal of this number asks for."""
        self.requested = True
        if number == signal.SIGTERM:
            self._deadline = time.monotonic() + self._grace

    def checked(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yields `items` until a stop is requested.

        Raises:
          Interrupted: a stop was requested before the items came to their end.
        """
        for item in items:
            if self.requested:
                raise Interrupted("stopped on request; run the same command again to go on")
            yield item

    async def in_time(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Runs `work`; None where it was given up as the time after SIGTERM was over.

        Work is given up only where it awaits something.
        """
        task = asyncio.ensure_future(work)
        while not task.done() and time.monotonic() < self._deadline:
            await asyncio.wait([task], timeout=_POLL)
        if task.done():
            return task.result()
        task.cancel()
        # However it ends: nothing of it is used.
        await asyncio.wait([task])
        return None


@contextlib.contextmanager
def listening_for_signals(*, grace: float = math.inf) -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM inside into a request; a second one acts as by default."""
    request = StopRequest(grace=grace)

    def ask(number: int, frame: FrameType | None) -> None:
        request.request(number)
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    before = [signal.signal(each, ask) for each in _SIGNALS]
    try:
        yield request
    finally:
        for each, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(each, handler)
