"""Everything in a child that would differ from run to run, tied to the seed of the episode.

Runs in the child: standard library and numpy only. `install` replaces the clock and the sources of
entropy once, in the fork server; `reseed` restarts all of them before a source is loaded and before
every reset. Program text that seeds nothing at all is thereby repeatable too.

It does not promise determinism: object addresses, the process id, `numpy.datetime64("now")` and
whatever an environment finds on purpose still differ. Replaying an episode finds those.
"""

import datetime
import os
import random
import sys
import time
from typing import Any, Self

import numpy as np

_EPOCH_NS = 1_767_225_600 * 10**9  # 2026-01-01
_TICK_NS = 1_000_000
_ENTROPY = random.Random(0)
_REAL_DATE, _REAL_DATETIME = datetime.date, datetime.datetime


class _Clock:
    """Advances by one tick at each reading, so that waiting loops end, and by what is slept."""

    def __init__(self) -> None:
        self.start_ns = self.elapsed_ns = 0

    def reseed(self, seed: int) -> None:
        # Programs that seed themselves from the time get other instances for other seeds.
        self.start_ns = _EPOCH_NS + seed % 10**7 * 10**9
        self.elapsed_ns = 0

    def read_elapsed_ns(self, *_: object) -> int:
        self.elapsed_ns += _TICK_NS
        return self.elapsed_ns

    def read_ns(self, *_: object) -> int:
        return self.start_ns + self.read_elapsed_ns()

    def read_elapsed(self, *_: object) -> float:
        return self.read_elapsed_ns() / 1e9

    def read(self, *_: object) -> float:
        return self.read_ns() / 1e9

    def sleep(self, seconds: Any) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.elapsed_ns += int(seconds * 1e9)


_CLOCK = _Clock()


def install() -> None:
    """Replaces clocks and entropy in this process and in all that it forks."""
    _install_clock()
    _install_dates()
    _install_entropy()


def reseed(seed: int) -> None:
    """Restarts every source of variation from one seed."""
    _CLOCK.reseed(seed)
    _ENTROPY.seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if "sympy" in sys.modules:
        sys.modules["sympy.core.random"].seed(seed)


def _install_clock() -> None:
    time.time, time.time_ns = _CLOCK.read, _CLOCK.read_ns
    time.clock_gettime, time.clock_gettime_ns = _CLOCK.read, _CLOCK.read_ns
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name, _CLOCK.read_elapsed)
        setattr(time, f"{name}_ns", _CLOCK.read_elapsed_ns)
    time.sleep = _CLOCK.sleep

    gmtime, localtime, ctime, strftime, asctime = (
        time.gmtime, time.localtime, time.ctime, time.strftime, time.asctime
    )  # fmt: skip
    time.gmtime = lambda secs=None: gmtime(_CLOCK.read() if secs is None else secs)
    time.localtime = lambda secs=None: localtime(_CLOCK.read() if secs is None else secs)
    time.ctime = lambda secs=None: ctime(_CLOCK.read() if secs is None else secs)
    time.strftime = lambda format, t=None: strftime(format, time.localtime() if t is None else t)
    time.asctime = lambda t=None: asctime(time.localtime() if t is None else t)


class _AnyDate(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _REAL_DATE) if cls is _Date else type.__instancecheck__(cls, instance)


class _AnyDateTime(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        real = cls is _DateTime
        return isinstance(instance, _REAL_DATETIME) if real else type.__instancecheck__(cls, instance)


class _Date(datetime.date, metaclass=_AnyDate):
    @classmethod
    def today(cls) -> Self:
        return cls.fromtimestamp(_CLOCK.read())


class _DateTime(datetime.datetime, metaclass=_AnyDateTime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(_CLOCK.read(), tz)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.fromtimestamp(_CLOCK.read(), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Self:
        return cls.now()


def _install_dates() -> None:
    for replacement, name in ((_Date, "date"), (_DateTime, "datetime")):
        # The names that repr and pickle use.
        replacement.__module__, replacement.__name__, replacement.__qualname__ = "datetime", name, name
        setattr(datetime, name, replacement)


def _install_entropy() -> None:
    # `secrets`, `uuid4`, `SystemRandom` and numpy's unseeded generators all draw from these two.
    for module, name in ((os, "urandom"), (random, "_urandom")):
        setattr(module, name, _ENTROPY.randbytes)

    seed_generator = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed_generator(self, _ENTROPY.getrandbits(64) if a is None else a, version)

    random.Random.seed = seed  # type: ignore[method-assign]
    random.seed = random._inst.seed
