"""The host's handle on one fork server (zygote.py): starts it, asks it for children, hears of exits.

The server is started by exec, never by forking this process (which may hold JAX's threads), from a
thread that lives as long as the process: the kernel ties a parent-death signal to the thread that
spawned. It ends when its control socket closes, at the latest when this process dies.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from spade_jax.errors import HostFault
from spade_jax.sandbox.limits import SandboxLimits

_FOLDER = pathlib.Path(__file__).resolve().parent
_ZYGOTE = _FOLDER / "zygote.py"
_START_TIMEOUT = 60.0
# Only a backstop: requests wait behind one another, and a busy machine may take its time.
_SPAWN_TIMEOUT = 120.0
_EXIT_TIMEOUT = 2.0
_RETRY_SECONDS = 0.001
_PACKAGES = ("numpy", "msgspec")
_MATHS_PACKAGES = ("math_verify", "latex2sympy2_extended", "antlr4", "sympy", "mpmath")

_spawner = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sandbox-spawner")


class LevelUnavailable(Exception):
    """This machine cannot offer one level of isolation; the text says what is missing."""


@dataclasses.dataclass(eq=False)
class Child:
    """A forked process, locked down or about to be, that waits for its first request.

    Attributes:
      server: that forked it, and hears of its exit.
      channel: the host's end of its channel, non-blocking.
      pidfd: for signals, immune to reused process ids.
      exit_status: once it has exited; negative is the signal that killed it.
      server_died: the fork server is gone, and took the child along.
      on_end: called when one of the two above changes.
    """

    server: "ForkServer"
    channel: socket.socket
    pidfd: int
    exit_status: int | None = None
    server_died: bool = False
    on_end: Callable[[], None] = lambda: None


class ForkServer:
    """One zygote process and the exits of its children."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket):
        self._process = process
        self._control = control
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready: asyncio.Future[None] | None = None
        self._waiters: dict[int, tuple[asyncio.Future[Child], socket.socket]] = {}
        self._children: dict[int, Child] = {}
        self._next_id = 0
        self._retiring = False
        self.alive = True

    @property
    def num_forks(self) -> int:
        """Children that it was asked for so far."""
        return self._next_id

    @classmethod
    async def start(
        cls,
        limits: SandboxLimits,
        *,
        level: str,
        with_maths: bool = False,
        cores: Sequence[int] | None = None,
    ) -> "ForkServer":
        """Starts a server at one level and waits until it can fork.

        Args:
          with_maths: whether its children find math_verify and sympy, which take it a second or more.
          cores: that it and its children may use, None for those of this process.

        Raises:
          LevelUnavailable: it ended before it was ready, with what it printed.
        """
        loop = asyncio.get_running_loop()
        host_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        host_end.setblocking(False)
        try:
            process = await loop.run_in_executor(
                _spawner, _launch, limits, level, with_maths, cores, server_end
            )
        except OSError as error:
            host_end.close()
            raise LevelUnavailable(f"cannot start the fork server: {error}") from error
        finally:
            server_end.close()
        server = cls(process, host_end)
        server._ready = loop.create_future()
        server.watch(loop)
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await server._ready
        except (HostFault, TimeoutError) as error:
            printed = await server.close()
            raise LevelUnavailable(printed or f"the fork server did not become ready: {error!r}") from None
        return server

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listens to the server in the given event loop, and no longer in an earlier one."""
        if loop is self._loop or not self.alive:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._control)
        self._loop = loop
        loop.add_reader(self._control, self._on_readable)

    async def spawn(self) -> Child:
        """Forks a child.

        Raises:
          HostFault: no child could be made.
        """
        loop = asyncio.get_running_loop()
        self.watch(loop)
        self._next_id += 1
        spawn_id = self._next_id
        try:
            host_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise HostFault(f"cannot make a channel: {error}") from None
        host_end.setblocking(False)
        waiter: asyncio.Future[Child] = loop.create_future()
        self._waiters[spawn_id] = (waiter, host_end)
        try:
            async with asyncio.timeout(_SPAWN_TIMEOUT):
                await self._send({"kind": "spawn", "id": spawn_id}, child_end)
                return await waiter
        except TimeoutError:
            host_end.close()
            raise HostFault(f"the fork server made no child within {_SPAWN_TIMEOUT:g} s") from None
        except BaseException:
            host_end.close()
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # Cancelled in the moment between the answer and its arrival here.
                os.close(waiter.result().pidfd)
            raise
        finally:
            child_end.close()
            self._waiters.pop(spawn_id, None)
            self._end_if_idle()

    def retire(self) -> None:
        """Ends the server once its last child has ended; it must not be asked to fork again."""
        self._retiring = True
        if self.alive:
            self._end_if_idle()
        else:
            self._reap()

    async def close(self) -> str:
        """Ends the server and its children. May be called again.

        Returns:
          what the server printed before it was ready, which is empty unless it failed.
        """
        self._end("the sandbox pool was closed")
        return await asyncio.get_running_loop().run_in_executor(_spawner, _finish, self._process)

    async def _send(self, message: dict[str, Any], passed: socket.socket) -> None:
        data = json.dumps(message).encode()
        while self.alive:
            try:
                socket.send_fds(self._control, [data], [passed.fileno()])
                return
            except BlockingIOError:
                await asyncio.sleep(_RETRY_SECONDS)
            except (BrokenPipeError, ConnectionResetError):
                self._end("the fork server died")
        raise HostFault("the fork server died")

    def _on_readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 1)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data, descriptors = b"", []
        if not data:
            self._end("the fork server died")
            return
        message = json.loads(data)
        match message["kind"]:
            case "ready":
                assert self._ready is not None
                self._ready.set_result(None)
            case "spawned":
                waiting = self._waiters.get(message["id"])
                if waiting is None or waiting[0].done():
                    # Nobody waits any more; the child finds its channel closed and ends.
                    for descriptor in descriptors:
                        os.close(descriptor)
                elif not descriptors:
                    waiting[0].set_exception(HostFault("this process has no file descriptor left"))
                else:
                    waiter, channel = waiting
                    child = self._children[message["pid"]] = Child(self, channel, descriptors[0])
                    waiter.set_result(child)
            case "refused":
                waiting = self._waiters.get(message["id"])
                if waiting is not None and not waiting[0].done():
                    waiting[0].set_exception(HostFault(message["detail"]))
            case "exited":
                gone = self._children.pop(message["pid"], None)
                if gone is not None:
                    gone.exit_status = message["status"]
                    gone.on_end()
                self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._retiring and not self._children and not self._waiters:
            self._end("the fork server was retired")

    def _reap(self) -> None:
        _spawner.submit(_finish, self._process)

    def _end(self, reason: str) -> None:
        if not self.alive:
            return
        self.alive = False
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._control)
        self._control.close()
        for waiter in [self._ready, *(waiter for waiter, _ in self._waiters.values())]:
            if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
                waiter.set_exception(HostFault(reason))
        while self._children:
            _, child = self._children.popitem()
            child.server_died = True
            child.on_end()
        if self._retiring:
            self._reap()


def _launch(
    limits: SandboxLimits,
    level: str,
    with_maths: bool,
    cores: Sequence[int] | None,
    control: socket.socket,
) -> subprocess.Popen[bytes]:
    names = _PACKAGES + (_MATHS_PACKAGES if with_maths else ())
    packages = sorted({str(_package_folder(name)) for name in names})
    settings = {
        "level": level,
        "control": control.fileno(),
        "parent": os.getpid(),
        "packages": packages,
        "memory_mb": limits.memory_mb,
        "with_maths": with_maths,
        "cores": cores,
    }
    interpreter = os.path.realpath(sys.executable)
    # No site (-S): the packages' folders are named above. Not -I, which would ignore PYTHONHASHSEED.
    command = [interpreter, "-s", "-S", "-B", str(_ZYGOTE), json.dumps(settings)]
    variables = {
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }
    if level == "L3":
        command = [*_jail(packages, variables), *command]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=variables,
        cwd="/",
        pass_fds=[control.fileno()],
        start_new_session=True,
    )


def _finish(process: subprocess.Popen[bytes]) -> str:
    """Reaps a server whose control socket is closed; returns the last line of what it printed."""
    # It ends by itself, and bubblewrap with it: one that is killed cannot reap the processes of its jail.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_TIMEOUT)
    process.kill()
    process.wait()
    assert process.stderr is not None
    if process.stderr.closed:
        return ""
    with process.stderr as printed:
        lines = printed.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _jail(packages: list[str], variables: dict[str, str]) -> list[str]:
    """The bubblewrap command line: no network, no processes of others, nothing of the disk but Python."""
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    arguments = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", "--uid", "65534", "--gid", "65534", "--hostname", "env"]
    arguments += ["--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv"]
    arguments += ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    # At their own paths: a relocated interpreter finds another installation's libraries.
    for folder in [os.path.realpath(sys.base_prefix), *packages, str(_FOLDER)]:
        arguments += ["--ro-bind", folder, folder]
    arguments += ["--proc", "/proc", "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"]
    arguments += ["--dev-bind", "/dev/urandom", "/dev/urandom", "--chdir", "/", "--remount-ro", "/"]
    for name, value in variables.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--"]


def _package_folder(name: str) -> pathlib.Path:
    """The folder on the path that holds a package, found without importing the package."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.origin is not None, f"{name} is not a regular package"
    return pathlib.Path(spec.origin).resolve().parent.parent
