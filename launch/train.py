"""Runs self-play, or resumes it: the same command does both.

    python launch/train.py --config=configs/tiny_games.py --workdir=runs/first \
        --set=seed=1 --set=agent.temperature=0.7

Several processes find each other on a TPU pod slice and under SLURM; elsewhere each is told:

    python launch/train.py ... --coordinator_address=10.0.0.1:8476 --num_processes=2 --process_id=0

Exit codes: 0 the run reached its last cycle, 1 an error, 130 stopped by a signal before that.
"""

import logging
import os
import sys
from collections.abc import Sequence

# XLA's notes on compilation would tear the progress bars apart. Read once, when jax is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags

from spade_jax import config as config_lib
from spade_jax import train as train_lib
from spade_jax.distributed import Processes
from spade_jax.errors import SpadeError
from spade_jax.interruption import Interrupted

_CONFIG = flags.DEFINE_string(
    "config", None, "Python file with get_config(), such as configs/tiny_games.py.", required=True
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of the run: everything that it writes, and resumes from.", required=True
)
_SET = flags.DEFINE_multi_string(
    "set", [], "section.field=value, changes one field of the config; repeatable."
)
_ALLOW_CHANGED_CONFIG = flags.DEFINE_bool(
    "allow_changed_config", False, "Resume although the config differs from the one that the run began with."
)
_PROFILE_CYCLES = flags.DEFINE_list(
    "profile_cycles", [], "Cycles whose profiler traces are written to the workdir, as in 3,4."
)
_COORDINATOR_ADDRESS = flags.DEFINE_string(
    "coordinator_address", None, "host:port at which process 0 of several is found."
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Processes of the run.", lower_bound=1)
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which of them this is, from 0.", lower_bound=0)


@flags.validator("profile_cycles", message="must be cycle numbers, as in --profile_cycles=3,4")
def _are_numbers(cycles: Sequence[str]) -> bool:
    return all(cycle.isdecimal() for cycle in cycles)


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: every option is a flag, as in --workdir=DIR")
    logging.getLogger().setLevel(logging.WARNING)
    try:
        config = config_lib.with_overrides(config_lib.load(_CONFIG.value), _SET.value)
        finished = train_lib.train(
            config,
            workdir=_WORKDIR.value,
            allow_changed_config=_ALLOW_CHANGED_CONFIG.value,
            processes=Processes.from_flags(
                _COORDINATOR_ADDRESS.value, _NUM_PROCESSES.value, _PROCESS_ID.value
            ),
            profile_cycles=[int(cycle) for cycle in _PROFILE_CYCLES.value],
        )
    except Interrupted as stop:
        print(stop, file=sys.stderr)
        return 130
    except SpadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if finished else 130


if __name__ == "__main__":
    app.run(main)
