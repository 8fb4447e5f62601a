"""The first signal asks, the second acts as if nobody had listened."""

import asyncio
import math
import os
import signal
import time

import pytest

from spade_jax.interruption import Interrupted, StopRequest, listening_for_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_becomes_a_request(number):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with listening_for_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyError), listening_for_signals():
        raise KeyError
    assert signal.getsignal(signal.SIGINT) is before


def test_items_go_on_until_a_stop_is_requested():
    stop, seen = StopRequest(), []

    def note(item):
        seen.append(item)
        stop.requested = item == 4

    assert list(stop.checked(range(3))) == [0, 1, 2]
    with pytest.raises(Interrupted, match="run the same command again"):
        list(map(note, stop.checked(range(9))))
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("number", "grace", "ends"),
    [(signal.SIGTERM, 0.0, False), (signal.SIGTERM, math.inf, True), (signal.SIGINT, 0.0, True)],
)
def test_only_after_sigterm_and_its_time_is_work_given_up(number, grace, ends):
    cleaned_up = []

    async def work():
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.5 if ends else 3600)
            return "done"
        finally:
            await asyncio.sleep(0.2)
            cleaned_up.append(True)

    with listening_for_signals(grace=grace) as stop:
        assert asyncio.run(stop.in_time(work())) == ("done" if ends else None)
        assert stop.requested
    assert cleaned_up == [True]


def test_work_that_holds_the_process_ends_also_after_its_time():
    async def work():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)
        return "done"

    with listening_for_signals(grace=0.01) as stop:
        assert asyncio.run(stop.in_time(work())) == "done"


def test_an_error_of_the_work_is_raised():
    async def work():
        raise KeyError

    with listening_for_signals(grace=1.0) as stop, pytest.raises(KeyError):
        asyncio.run(stop.in_time(work()))
