"""The training command as a user runs it, and what is compared of two runs."""

import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "tests" / "tiny.py"


def arguments(workdir: pathlib.Path, cache_dir: pathlib.Path, *overrides: str) -> list[str]:
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


def outcome(workdir: pathlib.Path) -> dict[str, object]:
    """All that a finished run says, but for how long it took."""
    rows = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    found: dict[str, object] = {f"metrics row {number}": _timeless(row) for number, row in enumerate(rows)}
    found["summary.json"] = _timeless(json.loads((workdir / "summary.json").read_text()))
    for folder in ("environments", "episodes"):
        for path in sorted((workdir / folder).rglob("*.*")):
            found[str(path.relative_to(workdir))] = path.read_text()
    return found


def _timeless(row: dict[str, float]) -> dict[str, float]:
    return {
        name: value
        for name, value in row.items()
        if not name.startswith("seconds/") and "per_second" not in name
    }
