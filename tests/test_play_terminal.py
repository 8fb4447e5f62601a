"""A person's play, with what they type piped in, on the files that a run writes and in the sandbox."""

import io
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from spade_jax import play_terminal
from spade_jax.config import Config, ModelConfig, to_dict
from spade_jax.errors import WorkdirError
from spade_jax.types import (
    Design,
    DesignContext,
    EnvironmentSource,
    RegretEstimate,
    TokenStream,
    ValidationReport,
    Verdict,
)
from spade_jax.workdir import Workdir

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]

GUESS = """
class GuessEnv:
    def __init__(self, max_turns=9):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.secret = 3 + seed
        return "guess a number", {}

    def step(self, action):
        won = action == "\\\\boxed{%d}" % self.secret
        return f"you said {action}", 1.0 if won else 0.0, won, False, {}
"""
HOSTILE = """
class HostileEnv:
    def reset(self, seed=None):
        return "\\x1b[2Jgone [bold]not markup[/bold]", {}

    def step(self, action):
        raise RuntimeError("broken \\x1b]0;title\\x07")
"""

CONFIG = Config(
    num_cycles=1,
    model=ModelConfig(num_layers=1, width=8, num_heads=1, num_kv_heads=1, head_width=8, mlp_width=8),
)


def write(
    workdir: Workdir, environment_id: str, code: str, *, regret: float | None, valid: bool = True
) -> None:
    source = EnvironmentSource(
        environment_id=environment_id, skill="Logical Deduction", code=code, hint="it is three\x1b[1m"
    )
    context = DesignContext(environment_id=environment_id, skill=source.skill, document=None)
    stream = TokenStream(
        tokens=np.zeros(1, np.int32),
        loss_mask=np.ones(1, bool),
        behavior_logprobs=np.zeros(1, np.float32),
        temperature=1.0,
    )
    report = ValidationReport(
        environment_id=environment_id, verdicts=(Verdict(rung="extract", passed=valid),)
    )
    estimate = None
    if regret is not None:
        estimate = RegretEstimate(
            environment_id=environment_id,
            return_without_hint=0.25,
            return_with_hint=0.25 + regret,
            win_rate=0.25,
            win_rate_with_hint=0.25 + regret,
            regret=regret,
            standard_error=0.1,
            num_pairs=8,
        )
    design = Design(
        context=context, reply="...", stream=stream, source=source if valid else None, report=report
    )
    workdir.write_environment(design, cycle=0, estimate=estimate, reward=0.5)


@pytest.fixture
def workdir(tmp_path):
    with Workdir.open(tmp_path / "run", to_dict(CONFIG)) as workdir:
        write(workdir, "c00000-e000", GUESS, regret=0.5)
        write(workdir, "c00000-e001", HOSTILE, regret=None)
        write(workdir, "c00000-e002", "", regret=None, valid=False)
        write(workdir, "c00000-e003", GUESS, regret=0.625)
    return tmp_path / "run"


def play(workdir: pathlib.Path, environment_id: str, typed: str, monkeypatch, capsys) -> str:
    config, environments = play_terminal.load_run(workdir)
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    play_terminal.play(play_terminal.find(environments, environment_id), config, Console())
    return capsys.readouterr().out


def test_bare_text_is_boxed_and_a_box_is_taken_as_it_is(workdir, monkeypatch, capsys):
    output = play(workdir, "c00000-e000", "7\nI say \\boxed{ 3 }\n", monkeypatch, capsys)
    assert "you said \\boxed{7}\n" in output
    assert "you said \\boxed{3}\n" in output
    assert "Return 1, ended by the rules." in output


def test_each_play_is_another_instance(workdir, monkeypatch, capsys):
    output = play(workdir, "c00000-e000", "3\n\n3\n4\n", monkeypatch, capsys)
    assert output.count("Return 1, ended by the rules.") == 2
    assert output.count("you said") == 3


def test_the_turn_limit_is_the_agents(workdir, monkeypatch, capsys):
    output = play(workdir, "c00000-e000", "0\n" * 20, monkeypatch, capsys)
    assert f"Return 0, cut off after {CONFIG.agent.max_turns} turns." in output


def test_the_hint_is_shown_on_request_and_costs_no_turn(workdir, monkeypatch, capsys):
    assert "it is three" not in play(workdir, "c00000-e000", "3\n", monkeypatch, capsys)
    output = play(workdir, "c00000-e000", "?\n" * 20 + "3\n", monkeypatch, capsys)
    assert "Hint: it is three" in output
    assert "Return 1, ended by the rules." in output


def test_what_an_environment_says_cannot_drive_the_terminal(workdir, monkeypatch, capsys):
    output = play(workdir, "c00000-e001", "?\nanything\n", monkeypatch, capsys)
    assert "\N{REPLACEMENT CHARACTER}[2Jgone [bold]not markup[/bold]" in output
    assert "The environment failed: environment_error" in output
    assert "\x1b" not in output
    assert "\x07" not in output


def test_valid_environments_are_listed_by_regret(workdir):
    _, environments = play_terminal.load_run(workdir)
    ids = [saved.source.environment_id for saved in environments]
    assert ids == ["c00000-e003", "c00000-e000", "c00000-e001"]
    console = Console(file=io.StringIO(), width=100)
    play_terminal.show_list(environments, console)
    lines = console.file.getvalue().splitlines()
    assert [next(line for line in lines if name in line).split("│")[4:7] for name in ids] == [
        ["     0.25 ", "      0.88 ", "  +0.62 "],
        ["     0.25 ", "      0.75 ", "  +0.50 "],
        ["        - ", "         - ", "      - "],
    ]


def test_the_menu_asks_again_until_it_has_a_number_of_the_list(workdir, monkeypatch):
    _, environments = play_terminal.load_run(workdir)
    monkeypatch.setattr(sys, "stdin", io.StringIO("0\n4\nc00000-e000\n²\n2\n"))
    chosen = play_terminal.choose(environments, Console(file=io.StringIO()))
    assert chosen.source.environment_id == "c00000-e000"
    assert play_terminal.choose(environments, Console(file=io.StringIO())) is None


@pytest.mark.parametrize("damage", ["no folder", "no config", "broken json", "no environments"])
def test_a_folder_that_cannot_be_played_is_explained(workdir, damage):
    if damage == "no folder":
        workdir = workdir / "nowhere"
    elif damage == "no config":
        (workdir / "config.json").unlink()
    elif damage == "broken json":
        next(workdir.glob("environments/*/*e000*.json")).write_text("{")
    else:
        for path in workdir.glob("environments/*/*.json"):
            path.unlink()
    with pytest.raises(WorkdirError, match=str(workdir)):
        play_terminal.load_run(workdir)


def test_an_unknown_environment_is_explained(workdir):
    _, environments = play_terminal.load_run(workdir)
    with pytest.raises(WorkdirError, match="--list"):
        play_terminal.find(environments, "c00000-e002")


def command(workdir: pathlib.Path, *flags: str) -> list[str]:
    return [sys.executable, str(CHECKOUT / "launch/play.py"), f"--workdir={workdir}", *flags]


def test_the_command_plays_what_is_piped_in_from_any_folder(workdir, tmp_path):
    result = subprocess.run(command(workdir), cwd=tmp_path, input="1\n3\n", capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Return 1, ended by the rules." in result.stdout
    failed = subprocess.run(command(tmp_path), cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"error: no run in {tmp_path}")
    assert len(failed.stderr.splitlines()) == 1


def test_ctrl_c_leaves_at_once_without_a_traceback(workdir, tmp_path):
    with subprocess.Popen(
        command(workdir, "--environment=c00000-e000"),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        shown = b""
        while not shown.endswith(b"> "):
            char = process.stdout.read(1)
            assert char, process.stderr.read()
            shown += char
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert errors == b""
