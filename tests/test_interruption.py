"""The first signal asks, the second acts as if nobody had listened."""

import os
import signal

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
