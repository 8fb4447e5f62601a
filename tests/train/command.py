"""The training command as a user runs it, and what is compared of two runs."""

import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "tests" / "tiny.py"


def arguments(workdir: pathlib.Path | str, cache_dir: pathlib.Path, *overrides: str) -> list[str]:
    """The flags of a run of the tiny config."""
    sets = [f"--set={item}" for item in (f"warm_start.cache_dir={cache_dir}", *overrides)]
    return [f"--config={CONFIG}", f"--workdir={workdir}", *sets]


def start(flags: list[str], *, at: dict | None = None, hash_seed: str = "random") -> subprocess.Popen[str]:
    """Starts the command in a process group of its own.

    Args:
      at: the moment at which it is sent signals, as tests/train/driver.py takes it.
      hash_seed: PYTHONHASHSEED.
    """
    script = (
        [ROOT / "launch" / "train.py"] if at is None else [ROOT / "tests/train/driver.py", json.dumps(at)]
    )
    return subprocess.Popen(
        [sys.executable, *script, *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(
    flags: list[str], *, code: int = 0, at: dict | None = None, hash_seed: str = "random"
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end, which has to be an exit with `code`."""
    process = start(flags, at=at, hash_seed=hash_seed)
    try:
        stdout, stderr = process.communicate(timeout=1200)
    finally:
        process.kill()
    assert process.returncode == code, f"exit {process.returncode}, not {code}\n{stdout}\n{stderr}"
    return subprocess.CompletedProcess(process.args, code, stdout, stderr)


def killed(flags: list[str], *, at: dict) -> None:
    """Runs the command until `kill -9` strikes at a moment."""
    run(flags, at={**at, "signals": ["SIGKILL"]}, code=-signal.SIGKILL)


def differences(workdir: pathlib.Path, reference: pathlib.Path) -> dict[str, tuple[object, object]]:
    """What two finished runs say differently, but for how long things took."""
    one, other = _outcome(workdir), _outcome(reference)
    return {
        name: (one.get(name), other.get(name))
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    }


def _outcome(workdir: pathlib.Path) -> dict[str, object]:
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    rows.append(json.loads((workdir / "summary.json").read_text()))
    found: dict[str, object] = {
        f"row {number}: {name}": value
        for number, row in enumerate(rows)
        for name, value in row.items()
        if not name.startswith("seconds/") and "per_second" not in name
    }
    for folder in ("environments", "episodes"):
        for path in (workdir / folder).rglob("*.*"):
            found[str(path.relative_to(workdir))] = path.read_text()
    for path in (workdir / "archive").rglob("*"):
        if path.is_file():
            found[str(path.relative_to(workdir))] = path.read_bytes()
    assert len(found) > 100, f"{workdir} holds next to nothing"
    return found
