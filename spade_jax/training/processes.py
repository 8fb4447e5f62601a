"""What the processes of a run agree on."""

from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

_T = TypeVar("_T")


def any_process(flag: bool) -> bool:
    """Whether the flag is set on any process; all have to ask at the same point of the program."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def on_all_processes(step: Callable[[], _T]) -> _T:
    """Runs a step that may fail on some processes alone; then it fails on all.

    Raises:
      RuntimeError: it failed on another process.
      Exception: what it raised on this one.
    """
    try:
        result, problem = step(), None
    # Whatever it is: the others wait to hear of it.
    except Exception as error:
        problem = error
    if any_process(problem is not None):
        raise problem or RuntimeError("it failed on another process, whose messages say why")
    return result
