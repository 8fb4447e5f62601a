"""One environment as the host sees it: a channel to a child that may do anything to it.

Every call either returns something that was checked, or raises, by its deadline. The first failure is
final: the child is killed, and later calls raise the same failure. Calls may come from one event loop
after another, but only one at a time.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, Self, TypeVar

from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.sandbox import protocol
from spade_jax.sandbox.fork_server import Child
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.protocol import Reply, Request, Reset, Step, Tool, ToolResult

_Checked = TypeVar("_Checked")
_HELLO_TIMEOUT = 120.0
# From the end of a child's channel to the news of its exit; after it the child is taken to be alive.
_EXIT_GRACE = 0.1
_READ_BYTES = 65536
# A child that is short of processor time, not of will, gets at most this many times its timeout.
_MAX_EXTENSION = 5.0


class SandboxedEnvironment:
    """A loaded environment in a child process of its own; made by `SandboxPool.open`.

    Attributes:
      max_turns: the turn limit that the environment states itself, None if it states none.
      tools: what the episode offers besides `step`; known after `reset`, empty for games.
    """

    def __init__(
        self, child: Child, limits: SandboxLimits, *, on_end: Callable[["SandboxedEnvironment", str], None]
    ):
        """Takes over a fresh child and its descriptors.

        Args:
          on_end: called once, with the kind of failure or "" for an ordinary close.
        """
        self.max_turns: int | None = None
        self.tools: list[Tool] = []
        self._child = child
        self._limits = limits
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ids = _random_ids()
        self._silence = select.poll()  # asks in half the time of a read that fails
        self._silence.register(child.channel, select.POLLIN)
        self._frames = protocol.FrameBuffer(limits.max_reply_bytes)
        self._waiter: asyncio.Future[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: tuple[str, str] | None = None
        self._killed = False
        self._hung_up = False
        child.on_end = self._on_child_end

    @property
    def busy(self) -> bool:
        """Whether a call waits for the child, which may be taking memory for it."""
        return self._waiter is not None

    async def load(self, code: str, *, turn_budget: int) -> None:
        """Has the child load the source, once it has locked itself down. Called once, by the pool.

        Args:
          turn_budget: passed as max_turns where the constructor demands one.

        Raises:
          EnvironmentFailure: the source failed.
          HostFault: the child could not be locked down.
        """
        await self._ask("hello", _HELLO_TIMEOUT)
        try:
            size = len(code.encode())
        except UnicodeEncodeError:
            self._fail("environment_error", "the source holds lone surrogates, which no file can carry")
        if size > self._limits.max_code_bytes:
            limit = self._limits.max_code_bytes
            self._fail("environment_error", f"the source has {size} bytes; at most {limit} are allowed")
        reply = await self._ask("load", self._limits.load_timeout, code=code, turn_budget=turn_budget)
        self.max_turns = self._checked(protocol.check_max_turns, reply)

    async def reset(self, seed: int) -> Reset:
        """Starts an episode, and learns its tools; can be called again for the next one.

        Raises:
          EnvironmentFailure: the environment failed and is dead.
          HostFault: the sandbox failed, or the environment was closed.
        """
        limits = self._limits
        reply = await self._ask(
            "reset",
            limits.step_timeout,
            seed=seed,
            max_bytes=limits.max_observation_bytes,
            max_tools_bytes=limits.max_tools_bytes,
        )
        self.tools = self._checked(protocol.check_tools, reply, limits)
        return self._checked(protocol.check_reset, reply, limits)

    async def step(self, action: str) -> Step:
        """Plays one action, cut to the limits' length.

        Raises:
          EnvironmentFailure: the environment failed and is dead.
          HostFault: the sandbox failed, or the environment was closed.
        """
        limits = self._limits
        action = action[: limits.max_action_chars]
        reply = await self._ask(
            "step", limits.step_timeout, action=action, max_bytes=limits.max_observation_bytes
        )
        return self._checked(protocol.check_step, reply, limits)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Calls one of the episode's tools; whether that takes a turn is the caller's to say.

        Args:
          arguments: by name, of the kinds that JSON knows.

        Raises:
          ValueError: the name and arguments are longer than an action may be.
          EnvironmentFailure: the environment failed and is dead. A tool that raises is no failure.
          HostFault: the sandbox failed, or the environment was closed.
        """
        limits = self._limits
        # Text inside the request, as Python's JSON knows lone surrogates and numbers of any length.
        call = json.dumps([name, arguments])
        if len(call) > limits.max_action_chars:
            raise ValueError(
                f"a call of a tool has {len(call)} characters; at most {limits.max_action_chars} are allowed:"
                " tell the agent so without making it"
            )
        reply = await self._ask(
            "call", limits.step_timeout, call=call, max_bytes=limits.max_observation_bytes
        )
        return self._checked(protocol.check_call, reply, limits)

    async def solution(self) -> str | None:
        """What the environment says solves its episode from here on; None where it does not say.

        Raises:
          EnvironmentFailure: it has a solution and failed to give it, and is dead.
          HostFault: the sandbox failed, or the environment was closed.
        """
        limits = self._limits
        reply = await self._ask("solution", limits.step_timeout, max_bytes=limits.max_observation_bytes)
        return self._checked(protocol.check_solution, reply, limits)

    async def check_criteria(self) -> list[bool | str]:
        """For each criterion of a multi-step task, in order, whether it holds now, or its error's text.

        Empty for an environment without criteria. A criterion that raises is no failure.

        Raises:
          EnvironmentFailure: the environment failed and is dead.
          HostFault: the sandbox failed, or the environment was closed.
        """
        return self._checked(protocol.check_criteria, await self._ask("criteria", self._limits.step_timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Kills the child. May be called again, and while another call waits, which then fails."""
        self.end("host_fault", "the environment was closed", counted_as="")

    def end(self, kind: str, detail: str, *, counted_as: str | None = None) -> None:
        """Kills the child and makes the failure final, unless one already is.

        Args:
          counted_as: the kind that the pool counts, by default the kind itself.
        """
        if self._failure is not None:
            return
        self._failure = (kind, detail)
        self._kill()
        os.close(self._child.pidfd)
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._child.channel)
        waiter = self._waiter
        if waiter is None:
            self._child.channel.close()
        else:
            # The waiting call may be sending; this wakes it, and it closes the channel.
            with contextlib.suppress(OSError):
                self._child.channel.shutdown(socket.SHUT_RDWR)
            if not waiter.done():
                waiter.set_exception(self._error())
        self._on_end(self, kind if counted_as is None else counted_as)

    async def _ask(self, operation: str, timeout: float, **fields: Any) -> Reply:
        """One request and its answer."""
        self._raise_if_ended()
        if self._waiter is not None:
            raise RuntimeError("an environment takes one call at a time, and another is still waiting")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._watch(loop)
        self._refuse_unsolicited()
        # Random, so that an answer cannot be sent before its question.
        request = Request(next(self._ids), operation, **fields)
        frame = self._encode(request)
        waiter = self._waiter = loop.create_future()
        self._set_deadline(loop, timeout)
        try:
            try:
                sent = self._child.channel.send(frame)
                if sent < len(frame):
                    await loop.sock_sendall(self._child.channel, frame[sent:])
            except BlockingIOError:
                await loop.sock_sendall(self._child.channel, frame)
            except (BrokenPipeError, ConnectionResetError):
                # The reader sees the end of the channel too, and knows why the child died.
                pass
            body = await waiter
        except asyncio.CancelledError:
            self.end("host_fault", "a call was cancelled", counted_as="")
            raise
        finally:
            self._waiter = None
            if self._failure is not None:
                self._child.channel.close()
        try:
            return protocol.decode_reply(body, request)
        except EnvironmentFailure as failure:
            self._fail(failure.kind, failure.detail)
        except HostFault as fault:
            self._fail("host_fault", str(fault))

    def _encode(self, request: Request) -> bytes:
        try:
            return protocol.encode_request(request)
        except UnicodeEncodeError:
            assert request.action is not None, "a source is checked before it is sent"
            request.action = request.action.encode(errors="replace").decode()
            return protocol.encode_request(request)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._child.channel)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop = loop
        self._child.server.watch(loop)
        if self._hung_up:
            loop.call_later(_EXIT_GRACE, self._kill_if_alive)
        else:
            loop.add_reader(self._child.channel, self._on_readable)

    def _refuse_unsolicited(self) -> None:
        """The channel must be silent before a question is asked."""
        if not self._hung_up and self._silence.poll(0):
            self._on_readable()
            self._raise_if_ended()

    def _on_readable(self) -> None:
        try:
            chunk = self._child.channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            self._on_hang_up()
            return
        waiter = self._waiter
        if waiter is None or waiter.done():
            self.end("protocol_violation", "sent bytes that nobody had asked for")
            return
        try:
            body = self._frames.feed(chunk)
        except EnvironmentFailure as failure:
            self.end(failure.kind, failure.detail)
            return
        if body is not None:
            waiter.set_result(body)

    def _on_hang_up(self) -> None:
        assert self._loop is not None
        self._hung_up = True
        self._loop.remove_reader(self._child.channel)
        if self._child.exit_status is not None:
            self._end_dead()
        else:
            self._loop.call_later(_EXIT_GRACE, self._kill_if_alive)

    def _on_child_end(self) -> None:
        if self._child.server_died:
            self.end("host_fault", "the fork server died")
        elif self._hung_up:
            self._end_dead()
        # Otherwise an answer may still lie in the channel before its end; it counts.

    def _end_dead(self) -> None:
        status = self._child.exit_status
        assert status is not None
        if status >= 0:
            self.end("died", f"the process exited with status {status}")
        elif self._killed:
            self.end("died", "the process closed its channel")
        elif status == -signal.SIGKILL:
            self.end("host_fault", "the child was killed from outside; the machine may be out of memory")
        else:
            self.end("died", f"the process was killed by signal {-status} ({signal.strsignal(-status)})")

    def _set_deadline(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        """One timer serves request after request: it looks, when it goes off, how much time is left."""
        self._timeout, self._asked_at, self._cpu_before = timeout, loop.time(), 0.0
        self._due = self._asked_at + timeout
        if self._timer is not None and self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(self._due, self._on_timer)

    def _on_timer(self) -> None:
        assert self._loop is not None
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        now = self._loop.time()
        if now >= self._due:
            if self._hung_up:
                self.end("died", "the process closed its channel")
                return
            cpu = _starved_cpu_seconds(self._child.pidfd)
            over = now - self._asked_at >= _MAX_EXTENSION * self._timeout
            if cpu is None or over or cpu - self._cpu_before >= 0.5 * self._timeout:
                self.end("timeout", f"no answer within {self._timeout:g} s")
                return
            # It wants to run and was not let: the machine is busy. Time goes on for it.
            self._due, self._cpu_before = now + self._timeout, cpu
        self._timer = self._loop.call_at(self._due, self._on_timer)

    def _kill_if_alive(self) -> None:
        """After the grace: a child that hung up and still runs is killed, and it is known that we did."""
        if self._failure is None and not _has_exited(self._child.pidfd):
            self._killed = True
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._child.pidfd, signal.SIGKILL)

    def _raise_if_ended(self) -> None:
        if self._failure is not None:
            raise self._error()

    def _error(self) -> EnvironmentFailure | HostFault:
        assert self._failure is not None
        kind, detail = self._failure
        return HostFault(detail) if kind == "host_fault" else EnvironmentFailure(kind, detail)

    def _checked(self, check: Callable[..., _Checked], *arguments: Any) -> _Checked:
        """What a check of an answer returns; the environment fails where the check does."""
        try:
            return check(*arguments)
        except EnvironmentFailure as failure:
            self._fail(failure.kind, failure.detail)

    def _fail(self, kind: str, detail: str) -> NoReturn:
        self.end(kind, detail)
        raise self._error()


def _random_ids() -> Iterator[int]:
    """56 random bits at a time, from a block, as asking the kernel each time costs a microsecond."""
    while True:
        block = os.urandom(7 * 128)
        for start in range(0, len(block), 7):
            yield int.from_bytes(block[start : start + 7], "little")


def _has_exited(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _starved_cpu_seconds(pidfd: int) -> float | None:
    """Processor time of a process that would run if it could; None if it waits, or cannot be seen."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}") as file:
            pid = next(line.split()[1] for line in file if line.startswith("Pid:"))
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(") ")[2].split()
    except (OSError, StopIteration):
        return None
    if fields[0] != "R":
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
