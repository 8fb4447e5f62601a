"""Several Python processes side by side, as one run has them."""

import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def flags(process_id: int, port: int, num_processes: int = 2) -> list[str]:
    return [
        f"--coordinator_address=127.0.0.1:{port}",
        f"--num_processes={num_processes}",
        f"--process_id={process_id}",
    ]


def run_all(commands: list[list], *, env: list[dict[str, str]] | None = None) -> list[tuple[int, str]]:
    """Runs Python commands side by side; the exit code and the output of each."""
    variables = env or [{} for _ in commands]
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": str(ROOT), **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, extra in zip(commands, variables, strict=True)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]
