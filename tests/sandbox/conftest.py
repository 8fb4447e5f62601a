"""Pools at each level, an event loop that outlives a test, and a host full of things to steal."""

import asyncio
import os
import shutil
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool

CANARY = "canary-7391-sings"
# Generous, so that honest code passes on a busy machine; what never ends goes to the hurried pool.
PATIENT = SandboxLimits(step_timeout=10.0, load_timeout=20.0)
HURRIED = SandboxLimits(step_timeout=0.5, load_timeout=0.5)


class Bench:
    """A pool, its event loop, and the oracles that tell whether anything got out of it."""

    def __init__(self, folder: Path):
        self.loop = asyncio.new_event_loop()
        self.folder = folder
        folder.chmod(0o777)
        self.canary_file = folder / "canary.txt"
        self.canary_file.write_text(CANARY)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.datagrams.bind(("127.0.0.1", 0))
        self.datagrams.setblocking(False)
        self.abstract_name = f"spade-sandbox-{os.getpid()}-{id(self)}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind("\0" + self.abstract_name)
        self.abstract.listen()
        self.abstract.setblocking(False)
        self.pool: SandboxPool
        self.hurried_pool: SandboxPool

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def fill_in(self, code: str) -> str:
        """Writes this host's addresses into an attack."""
        values = {
            "CANARY_FILE": str(self.canary_file),
            "TRAINER_PID": str(os.getpid()),
            "WRITE_FOLDER": str(self.folder),
            "TCP_PORT": str(self.listener.getsockname()[1]),
            "UDP_PORT": str(self.datagrams.getsockname()[1]),
            "ABSTRACT_NAME": self.abstract_name,
        }
        for name, value in values.items():
            code = code.replace(name, value)
        return code

    def traces(self) -> list[str]:
        """What an attack left on the host, emptied by asking."""
        found = []
        for path in self.folder.iterdir():
            if path != self.canary_file:
                found.append(f"file {path.name}")
                path.unlink()
        for name, server in (("tcp", self.listener), ("abstract", self.abstract)):
            try:
                connection, _ = server.accept()
            except BlockingIOError:
                continue
            connection.close()
            found.append(name)
        try:
            self.datagrams.recv(100)
            found.append("udp")
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        self.run(self.pool.close())
        self.run(self.hurried_pool.close())
        self.loop.close()
        for server in (self.listener, self.datagrams, self.abstract):
            server.close()


def start_pool(
    monkeypatch: pytest.MonkeyPatch, level: str
) -> Callable[..., Coroutine[Any, Any, SandboxPool]]:
    """A pool starter at exactly this level; L2 is what a machine without bubblewrap has."""
    if level == "L3" and shutil.which("bwrap") is None:
        pytest.skip("level L3 needs bubblewrap (apt-get install bubblewrap)")
    if level == "L2":
        monkeypatch.setenv("PATH", "/nonexistent")
    return SandboxPool.start


@pytest.fixture(params=["L2", "L3"], scope="module")
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A running pool at each level, shared by the tests of one file."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SPADE_CANARY", CANARY)
        start = start_pool(monkeypatch, request.param)
        bench = Bench(tmp_path_factory.mktemp("host"))
        bench.pool = bench.run(start(PATIENT))
        bench.hurried_pool = bench.run(start(HURRIED))
        if bench.pool.level != request.param:
            bench.close()
            pytest.skip(f"this machine offers {bench.pool.level}, not {request.param}")
        yield bench
        bench.close()


@pytest.fixture
def opened(bench: Bench) -> Iterator[Callable[[str], SandboxedEnvironment]]:
    """Opens environments on the shared pool and closes them after the test."""
    environments = []

    def open_environment(code: str) -> SandboxedEnvironment:
        environments.append(bench.run(bench.pool.open(code)))
        return environments[-1]

    yield open_environment
    for environment in environments:
        bench.run(environment.close())
