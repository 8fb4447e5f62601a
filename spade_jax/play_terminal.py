"""A person plays an environment of a run in the terminal, in the place of the agent.

Reads what `spade_jax.workdir` wrote, opens the program in the sandbox, and hands it actions in the form
in which the agent's reach it. What an environment says is untrusted: control characters, which could
drive a terminal, are shown as a placeholder. Nothing of the run is changed.
"""

import asyncio
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from spade_jax.config import Config
from spade_jax.environments.sandboxed import start_sandbox
from spade_jax.errors import EnvironmentFailure, WorkdirError
from spade_jax.reporting import printable
from spade_jax.rl.regret import episode_return
from spade_jax.roles.agent import action_reply
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.text.extract import action_for_environment, extract_boxed
from spade_jax.types import EnvironmentSource, RegretEstimate
from spade_jax.workdir import read_config

MENU_LENGTH = 20
HELP = "Type an action, ? for the hint, or end the input (Ctrl-D) to leave."


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedEnvironment:
    """A valid environment of a run.

    Attributes:
      estimate: how the agent fared in it, None where it was not played.
    """

    source: EnvironmentSource
    cycle: int
    estimate: RegretEstimate | None


def load_run(workdir: Path) -> tuple[Config, list[SavedEnvironment]]:
    """A run's config and its valid environments, those with the highest regret first.

    Raises:
      WorkdirError: there is no run in the folder, it is damaged, or it has no valid environment yet.
    """
    config = read_config(workdir)
    try:
        environments = [
            saved
            for path in sorted(workdir.glob("environments/cycle_*/*.json"))
            if (saved := _load_environment(path)) is not None
        ]
    except (OSError, ValueError, KeyError) as error:
        raise WorkdirError(f"cannot read the run in {workdir}: {error}") from error
    if not environments:
        raise WorkdirError(f"the run in {workdir} has no valid environment yet; wait for its first cycle")
    return config, sorted(environments, key=_rank)


def _load_environment(path: Path) -> SavedEnvironment | None:
    about: dict[str, Any] = json.loads(path.read_bytes())
    if not about["valid"]:
        return None
    return SavedEnvironment(
        source=EnvironmentSource(
            environment_id=about["environment_id"],
            skill=about["skill"],
            code=path.with_suffix(".py").read_text(encoding="utf-8"),
            hint=about["hint"],
            document_id=about["document_id"],
        ),
        cycle=about["cycle"],
        estimate=msgspec.convert(about["estimate"], RegretEstimate | None),
    )


def _rank(saved: SavedEnvironment) -> tuple[float, str]:
    regret = saved.estimate.regret if saved.estimate else float("-inf")
    return -regret, saved.source.environment_id


def find(environments: Sequence[SavedEnvironment], environment_id: str) -> SavedEnvironment:
    """The environment with this id.

    Raises:
      WorkdirError: the run has none.
    """
    for saved in environments:
        if saved.source.environment_id == environment_id:
            return saved
    raise WorkdirError(f"no valid environment {environment_id!r} in this run; --list shows those there are")


def show_list(environments: Iterable[SavedEnvironment], console: Console) -> None:
    """A numbered table of environments."""
    table = Table()
    for name in ("", "environment", "skill", "win rate", "with hint", "regret"):
        table.add_column(name, justify="left" if name in ("environment", "skill") else "right", no_wrap=True)
    for number, saved in enumerate(environments, start=1):
        estimate = saved.estimate
        scores = ("-", "-", "-")
        if estimate is not None:
            scores = (
                f"{estimate.win_rate:.2f}",
                f"{estimate.win_rate_with_hint:.2f}",
                f"{estimate.regret:+.2f}",
            )
        table.add_row(str(number), saved.source.environment_id, saved.source.skill, *scores)
    console.print(table)


def choose(environments: Sequence[SavedEnvironment], console: Console) -> SavedEnvironment | None:
    """Asks which environment to play; None if the person wants none."""
    shown = environments[:MENU_LENGTH]
    show_list(shown, console)
    if len(shown) < len(environments):
        console.print(f"The {len(shown)} with the highest regret of {len(environments)}; --list shows all.")
    while (answer := _ask(f"Which one, 1 to {len(shown)}? ")) is not None:
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(shown):
            return shown[int(answer) - 1]
    return None


def play(saved: SavedEnvironment, config: Config, console: Console) -> None:
    """Plays instance after instance until the person leaves.

    Raises:
      SandboxUnavailable: the machine cannot isolate the environment as the run's config demands.
      HostFault: the sandbox failed.
    """
    # The loop runs only while the sandbox works: input is read outside it, where Ctrl-C ends it at once.
    with asyncio.Runner() as runner:
        pool = runner.run(start_sandbox(config.sandbox))
        try:
            seed = 0
            playing = True
            while playing:
                console.rule(f"{saved.source.environment_id}, instance {seed}")
                playing = _play_instance(runner, pool, saved.source, seed, config.agent.max_turns, console)
                seed += 1
                playing = playing and _ask("Enter for another instance, Ctrl-D to leave: ") is not None
        finally:
            runner.run(pool.close())


def _play_instance(
    runner: asyncio.Runner,
    pool: SandboxPool,
    source: EnvironmentSource,
    seed: int,
    max_turns: int,
    console: Console,
) -> bool:
    """Plays one instance to its end; False if the person left before it."""
    console.print(HELP, style="dim")
    try:
        environment = runner.run(pool.open(source.code))
        try:
            _show(runner.run(environment.reset(seed)).observation, console)
            rewards: list[float] = []
            terminated = truncated = False
            while not (terminated or truncated):
                reply = _ask("> ")
                if reply is None:
                    return False
                if reply == "?":
                    _show(f"Hint: {source.hint}", console, style="italic")
                    continue
                if extract_boxed(reply) is None:
                    reply = action_reply(reply)
                step = runner.run(environment.step(action_for_environment(reply)))
                _show(step.observation, console)
                rewards.append(step.reward)
                terminated = step.terminated
                truncated = step.truncated or len(rewards) >= max_turns
        finally:
            runner.run(environment.close())
    except EnvironmentFailure as failure:
        _show(f"The environment failed: {failure}", console, style="bold red")
        return True
    outcome = "ended by the rules" if terminated else f"cut off after {len(rewards)} turns"
    console.print(f"Return {episode_return(rewards, terminated):g}, {outcome}.", style="bold")
    return True


def _ask(prompt: str) -> str | None:
    """One line of input without its outer white space; None at its end."""
    try:
        return input(prompt).strip()
    except EOFError:
        print()
        return None


def _show(text: str, console: Console, *, style: str | None = None) -> None:
    """Prints untrusted text as it is, but for characters that a terminal would obey."""
    console.print(printable(text), style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)
