"""The shell scripts on stand-in interpreters: nothing is installed and no network is needed."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import pytest

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

PYTHON = shlex.quote(sys.executable)

# Acts as this interpreter, but writes down what it is asked to do and installs nothing.
RECORDING_PYTHON = f"""#!/bin/bash
case "$*" in
  -c*) exec {PYTHON} "$@" ;;
  --version) exec {PYTHON} "$@" ;;
esac
printf '%s|' "$PWD" "$@" >>"$RECORD"
echo >>"$RECORD"
"""


def write_program(path: pathlib.Path, text: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path):
    """A checkout, in a path with a space, whose .venv holds the recording interpreter."""
    checkout = tmp_path / "a checkout"
    shutil.copytree(CHECKOUT / "launch", checkout / "launch")
    shutil.copytree(CHECKOUT / ".ci", checkout / ".ci")
    shutil.copy(CHECKOUT / "setup.py", checkout)
    write_program(checkout / ".venv/bin/python", RECORDING_PYTHON)
    write_program(checkout / ".venv/bin/shellcheck", "#!/bin/bash\n")
    return checkout


def run(command: list, *, cwd: pathlib.Path, path: str = os.defpath) -> subprocess.CompletedProcess[str]:
    """Runs a command with little more in its environment than PATH and the record's place."""
    env = {"PATH": path, "RECORD": str(cwd / "record"), "PIP_NO_INDEX": "1"}
    return subprocess.run(command, cwd=cwd, env=env, text=True, capture_output=True)


def record(folder: pathlib.Path) -> list[str]:
    """The recorded calls, each as `folder|argument|argument|...`, and an empty record again."""
    file = folder / "record"
    calls = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return calls


def call_function(checkout: pathlib.Path, call: str, *, path: str) -> subprocess.CompletedProcess[str]:
    script = f'source "{checkout}/launch/_environment.sh"; {call}'
    return run(["/bin/bash", "-euo", "pipefail", "-c", script], cwd=checkout, path=path)


def test_quickstart_runs_an_ordinary_training_run_from_any_folder(checkout, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    quickstart = checkout / "launch/quickstart.sh"

    assert run(["/bin/bash", quickstart], cwd=elsewhere).returncode == 0
    train = record(elsewhere)[-1]
    assert f"|{checkout}/launch/train.py|--config={checkout}/configs/tiny_games.py|" in train
    assert f"|--workdir={checkout}/runs/quickstart|" in train

    assert run(["/bin/bash", quickstart, "my run", "--set=seed=2"], cwd=elsewhere).returncode == 0
    train = record(elsewhere)[-1]
    assert train.startswith(f"{elsewhere}|")
    assert "|--workdir=my run|" in train
    assert train.endswith("|--set=seed=2|")


def test_a_second_run_installs_nothing_until_the_requirements_change(checkout, tmp_path):
    def num_installs() -> int:
        assert run(["/bin/bash", checkout / "launch/quickstart.sh"], cwd=tmp_path).returncode == 0
        return sum("|pip|install|" in call for call in record(tmp_path))

    assert [num_installs(), num_installs()] == [1, 0]
    original = (checkout / "setup.py").read_text()
    (checkout / "setup.py").write_text(original + "\n# changed\n")
    assert [num_installs(), num_installs()] == [1, 0]
    (checkout / "setup.py").write_text(original)
    assert [num_installs(), num_installs()] == [1, 0]


def test_what_the_tests_need_includes_what_a_run_needs_but_not_the_reverse(checkout, tmp_path):
    def installs(script: str) -> list[str]:
        assert run(["/bin/bash", checkout / script], cwd=tmp_path).returncode == 0
        return [call for call in record(tmp_path) if "|pip|install|" in call]

    assert len(installs("launch/quickstart.sh")) == 1
    assert installs("launch/test.sh")[0].endswith(f"|{checkout}[test]|")
    assert installs(".ci/run") == installs("launch/quickstart.sh") == []


def test_a_failed_installation_is_an_error_and_tried_again(checkout, tmp_path):
    python = checkout / ".venv/bin/python"
    failing = RECORDING_PYTHON + '[[ $3 != install ]] || { echo "no space left" >&2; exit 1; }\n'
    write_program(python, failing)
    for _ in range(2):
        result = run(["/bin/bash", checkout / "launch/quickstart.sh"], cwd=tmp_path)
        assert result.returncode != 0
        assert "no space left" in result.stderr
        assert not any("train.py" in call for call in record(tmp_path))
    write_program(python, RECORDING_PYTHON)
    assert run(["/bin/bash", checkout / "launch/quickstart.sh"], cwd=tmp_path).returncode == 0
    assert any("train.py" in call for call in record(tmp_path))


def test_arguments_of_the_test_script_reach_pytest_in_the_checkout(checkout, tmp_path):
    result = run(["/bin/bash", checkout / "launch/test.sh", "tests/rl", "-k", "a or b"], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    calls = record(tmp_path)
    assert calls[-1] == f"{checkout}|-m|pytest|tests/rl|-k|a or b|"
    for tool in ("ruff", "mypy"):
        assert any(call.startswith(f"{checkout}|-m|{tool}|") for call in calls)


def test_an_interpreter_that_fails_or_is_too_old_does_not_count(checkout, tmp_path):
    write_program(tmp_path / "shims/python3.11", "#!/bin/bash\necho 'command not found' >&2\nexit 127\n")
    write_program(tmp_path / "shims/python3.12", "#!/bin/bash\nexit 1  # what an old Python's check gives\n")
    good = write_program(tmp_path / "good/python3.11", f'#!/bin/bash\nexec {PYTHON} "$@"\n')
    path = f"{tmp_path}/shims:{tmp_path}/good:{os.defpath}"
    assert call_function(checkout, "find_python", path=path).stdout.strip() == str(good)


def test_no_interpreter_at_all_is_an_error_that_says_what_to_do(checkout, tmp_path):
    shutil.rmtree(checkout / ".venv")
    for name in ("dirname", "cksum"):
        write_program(tmp_path / "bin" / name, f'#!/bin/bash\nexec {shutil.which(name)} "$@"\n')
    result = run(["/bin/bash", checkout / "launch/quickstart.sh"], cwd=tmp_path, path=f"{tmp_path}/bin")
    assert result.returncode != 0
    assert "no Python 3.11, 3.12 or 3.13" in result.stderr
    assert "apt-get install python3 python3-venv" in result.stderr


@pytest.mark.parametrize("user_id", [0, 1000])
def test_a_python_without_the_venv_module_gets_it_from_debian(checkout, tmp_path, user_id):
    shutil.rmtree(checkout / ".venv")
    bin_folder = tmp_path / "bin"
    for name in ("dirname", "cksum", "grep"):
        write_program(bin_folder / name, f'#!/bin/bash\nexec {shutil.which(name)} "$@"\n')
    without_venv = """case "$*" in
  *ensurepip*) [[ -e $RECORD ]]; exit ;;
  "-m venv"*) echo "$*" >>"$RECORD"; exit ;;
esac"""
    write_program(bin_folder / "python3.11", f'#!/bin/bash\n{without_venv}\nexec {PYTHON} "$@"\n')
    write_program(bin_folder / "id", f"#!/bin/bash\necho {user_id}\n")
    write_program(bin_folder / "apt-get", '#!/bin/bash\necho "apt-get $*" >>"$RECORD"\n')

    result = call_function(checkout, "make_venv", path=str(bin_folder))
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if user_id == 0:
        assert result.returncode == 0, result.stderr
        *_, install, make = record(checkout)
        assert install.endswith(f" install -y -qq --no-install-recommends {package}")
        assert make == f"-m venv --clear {checkout}/.venv"
    else:
        assert result.returncode != 0
        assert f"sudo apt-get install {package}" in result.stderr
        assert record(checkout) == []
