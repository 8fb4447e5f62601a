"""A person plays an environment that a run's designer wrote, in the terminal and in the sandbox.

python launch/play.py --workdir=runs/quickstart [--environment=c00012-e003] [--list]
"""

import sys
from collections.abc import Sequence

from absl import app, flags
from rich.console import Console

from spade_jax import play_terminal
from spade_jax.errors import SpadeError
from spade_jax.files import any_path

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
_ENVIRONMENT = flags.DEFINE_string("environment", None, "Play this one instead of asking.")
_LIST = flags.DEFINE_bool("list", False, "List all valid environments of the run and leave.")


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: every option is a flag, as in --workdir=DIR")
    console = Console()
    try:
        config, environments = play_terminal.load_run(any_path(_WORKDIR.value))
        if _LIST.value:
            play_terminal.show_list(environments, console)
        elif _ENVIRONMENT.value is not None:
            play_terminal.play(play_terminal.find(environments, _ENVIRONMENT.value), config, console)
        elif (saved := play_terminal.choose(environments, console)) is not None:
            play_terminal.play(saved, config, console)
    except SpadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        console.print()
    return 0


if __name__ == "__main__":
    app.run(main)
