"""One of several processes of one program, on the CPU and over loopback.

python tests/training/processes.py INDEX COUNT PORT DEVICES FUNCTION ARGUMENT...
"""

import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_together(function: str, *arguments: str, count: int, devices: int) -> list[str]:
    """The last line that each of `count` processes with `devices` devices each printed.

    All have to end well.

    Args:
      function: `module:function` that each calls with the arguments.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, (index, count, port, devices)), function, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    try:
        outcomes = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    failed = [err for process, (_, err) in zip(processes, outcomes, strict=True) if process.returncode]
    assert not failed, "\n\n".join(err[-4000:] for err in failed)
    return [out.splitlines()[-1] for out, _ in outcomes]


def main(index: str, count: str, port: str, devices: str, function: str, *arguments: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import importlib

    import jax

    if int(count) > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", int(count), int(index))
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
