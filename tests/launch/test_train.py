"""What the training command says when it cannot run: one line, exit code 1, no traceback."""

import pathlib
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


def fails(folder: pathlib.Path, *flags: str) -> str:
    """The error of the command, run from another folder than the checkout."""
    result = subprocess.run(
        [sys.executable, CHECKOUT / "launch/train.py", *flags], cwd=folder, capture_output=True, text=True
    )
    assert result.returncode == 1, result.stderr
    (line,) = result.stderr.splitlines()
    return line


def test_a_config_file_that_is_not_there(tmp_path):
    line = fails(tmp_path, "--config=nowhere.py", "--workdir=run")
    assert line == "error: no config file nowhere.py; give the path of one, such as configs/tiny_games.py"
    assert not (tmp_path / "run").exists()


def test_an_override_that_does_not_fit(tmp_path):
    config = f"--config={CHECKOUT}/configs/tiny_games.py"
    line = fails(tmp_path, config, "--workdir=run", "--set=seed=1", "--set=agent.temperature=-1")
    assert line.startswith("error: config field agent.temperature: ")
    assert not (tmp_path / "run").exists()


def test_a_workdir_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    line = fails(tmp_path, f"--config={CHECKOUT}/configs/tiny_games.py", "--workdir=file")
    assert "a file is in the way" in line
