"""Stopping a run on request: the first signal asks, the second one ends the process at once."""

import contextlib
import signal
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TypeVar

from spade_jax.errors import SpadeError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_T = TypeVar("_T")


class Interrupted(SpadeError):
    """The run was asked to stop where it has nothing to save."""


class StopRequest:
    """Whether SIGINT or SIGTERM has asked this process to stop."""

    def __init__(self) -> None:
        self.requested = False

    def checked(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yields `items` until a stop is requested.

        Raises:
          Interrupted: a stop was requested before the items came to their end.
        """
        for item in items:
            if self.requested:
                raise Interrupted("stopped on request; run the same command again to go on")
            yield item


@contextlib.contextmanager
def listening_for_signals() -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM inside into a request; a second one acts as by default."""
    request = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        request.requested = True
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    before = [signal.signal(each, ask) for each in _SIGNALS]
    try:
        yield request
    finally:
        for each, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(each, handler)
