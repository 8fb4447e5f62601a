"""Runs launch/train.py and sends its process signals at an exact moment: at some call of some function.

python tests/train/driver.py '{"function": "module:Class.method", "call": 2, "signals": ["SIGKILL"]}' FLAGS

A moment may have `"after": true`, for the end of the call, and `"delay"`, seconds to wait first. Signals
but SIGKILL go to the whole process group, as from a terminal.
"""

import importlib
import json
import os
import pathlib
import runpy
import signal
import sys
import time

TRAIN = pathlib.Path(__file__).resolve().parents[2] / "launch" / "train.py"


def arm(function: str, call: int, signals: list[str], after: bool = False, delay: float = 0.0) -> None:
    """Wraps a function so that one of its calls sends the signals."""
    module, _, path = function.partition(":")
    owner = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    calls = 0

    def strike() -> None:
        time.sleep(delay)
        for signal_name in signals:
            if signal_name == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            os.killpg(os.getpgrp(), getattr(signal, signal_name))
            time.sleep(0.2)  # or two equal signals may become one

    def wrapped(*args, **kwargs):
        nonlocal calls
        calls += 1
        now = calls == call
        if now and not after:
            strike()
        result = original(*args, **kwargs)
        if now and after:
            strike()
        return result

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    arm(**json.loads(sys.argv[1]))
    sys.argv = [str(TRAIN), *sys.argv[2:]]
    runpy.run_path(str(TRAIN), run_name="__main__")
