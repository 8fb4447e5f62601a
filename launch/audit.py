"""Says what a set of environments is worth, before anything is trained on it.

    python launch/audit.py --environments=DIR_OR_JSONL [--model=runs/quickstart] [--json FILE] [--csv FILE]

Exit codes: 0 the audit ran, whatever it found, 1 an error, 130 stopped from the keyboard.
"""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# XLA's notes on compilation would tear the progress bars apart. Read once, when jax is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags

from spade_jax.audit import run as audit_lib
from spade_jax.errors import SpadeError
from spade_jax.files import any_path

_ENVIRONMENTS = flags.DEFINE_string(
    "environments",
    None,
    "Folder of *.py at any depth, or a file *.jsonl with `code` on each line.",
    required=True,
)
_MODEL = flags.DEFINE_string(
    "model", None, "Workdir of a run, finished or not, whose newest policy plays the environments."
)
_SEEDS = flags.DEFINE_integer("seeds", 32, "Instances that each environment is measured on.", lower_bound=1)
_EPISODES = flags.DEFINE_integer(
    "episodes", 16, "Plays of each environment without its hint, and as many with it.", lower_bound=1
)
_JSON = flags.DEFINE_string("json", None, "File for a list with an object for each environment.")
_CSV = flags.DEFINE_string("csv", None, "File for a line for each environment.")


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: every option is a flag, as in --seeds=8")
    logging.getLogger().setLevel(logging.WARNING)
    try:
        audit_lib.audit(
            Path(_ENVIRONMENTS.value),
            model=any_path(_MODEL.value) if _MODEL.value else None,
            num_seeds=_SEEDS.value,
            num_episodes=_EPISODES.value,
            json_path=Path(_JSON.value) if _JSON.value else None,
            csv_path=Path(_CSV.value) if _CSV.value else None,
        )
    except SpadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    app.run(main)
