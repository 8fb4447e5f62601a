"""Whatever bytes a child sends, the host neither crashes nor waits past its deadline."""

import asyncio
import contextlib
import json
import math
import os
import socket
import subprocess
import time
import types

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.sandbox import protocol
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.fork_server import Child
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.protocol import FrameBuffer, Request, Step
from spade_jax.types import FAILURE_KINDS

LIMITS = SandboxLimits()
STEP = Request(id=7, op="step")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
fields = st.sampled_from(sorted(protocol.Reply.__struct_fields__))
replies = st.dictionaries(fields, json_values, max_size=9).map(
    lambda reply: json.dumps({"id": 7, **reply}).encode(errors="surrogatepass")
)
bodies = st.binary(max_size=300) | replies


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


def checked_or_refused(check):
    """What the check returns, or None where it refused in the way that it may."""
    try:
        return check()
    except EnvironmentFailure as caught:
        failure = caught
    assert failure.kind in FAILURE_KINDS
    assert len(failure.detail) <= protocol.MAX_DETAIL
    return None


@given(bodies)
def test_an_answer_is_checked_or_refused(body):
    step = checked_or_refused(lambda: protocol.check_step(protocol.decode_reply(body, STEP), LIMITS))
    if step is None:
        return
    assert isinstance(step, Step)
    step.observation.encode()
    assert type(step.reward) is float
    assert math.isfinite(step.reward)
    assert type(step.terminated) is type(step.truncated) is bool
    assert all(type(key) is str and math.isfinite(value) for key, value in step.info.items())


tools = st.fixed_dictionaries(
    {"name": st.text(max_size=70), "description": st.text(max_size=9), "parameters": json_values}
)


@given(st.lists(tools | json_values, max_size=3).map(lambda listed: json.dumps(listed).encode()) | bodies)
def test_tools_are_checked_or_refused(body):
    """The list of tools is read apart from the rest of its answer."""
    limits = SandboxLimits(max_tools_bytes=200)
    reply = protocol.Reply(id=7, tools=msgspec.Raw(body))
    listed = checked_or_refused(lambda: protocol.check_tools(reply, limits))
    if listed is None:
        return
    assert len(body) <= 200
    assert len({tool.name for tool in listed}) == len(listed)
    assert all(0 < len(tool.name) <= 64 and tool.name.isascii() for tool in listed)
    assert all(type(tool.parameters) is dict for tool in listed)


@given(bodies)
def test_what_is_said_of_a_task_is_checked_or_refused(body):
    limits = SandboxLimits(max_observation_bytes=20)
    solution = checked_or_refused(lambda: protocol.check_solution(protocol.decode_reply(body, STEP), limits))
    assert solution is None or len(solution.encode()) <= 20
    criteria = checked_or_refused(lambda: protocol.check_criteria(protocol.decode_reply(body, STEP)))
    for found in criteria or ():
        assert type(found) in (bool, str)
        assert found in (True, False) or len(found) <= protocol.MAX_DETAIL


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'[{"name":"a","description":"","parameters":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001 + b"]",
        b'[{"name":"a","description":"","parameters":' + b'{"a":' * 33 + b"1" + b"}" * 34 + b"]",
        b'[{"name":"a","description":"","parameters":{"n":' + b"9" * 5_000 + b"}}]",
        b'[{"name":"a","description":"\xff","parameters":{}}]',
        b'[{"name":"a b","description":"","parameters":{}}]',
        b'[{"name":"a","description":"","parameters":{}},{"name":"a","description":"","parameters":{}}]',
    ],
)
def test_hostile_tools_are_refused(body):
    answer = b'{"id":7,"observation":"","tools":' + body + b"}"
    with pytest.raises(EnvironmentFailure):
        protocol.check_tools(protocol.decode_reply(answer, STEP), LIMITS)


def test_parameters_as_deep_as_allowed_are_listed():
    body = b'[{"name":"a","description":"","parameters":' + b'{"a":' * 32 + b"1" + b"}" * 33 + b"]"
    answer = b'{"id":7,"observation":"","tools":' + body + b"}"
    [tool] = protocol.check_tools(protocol.decode_reply(answer, STEP), LIMITS)
    assert tool.parameters["a"]["a"]["a"]


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 120))
def test_frames_do_not_depend_on_how_they_arrive(chunks, max_bytes):
    """Fed in pieces, the same bytes give the same body or the same refusal."""

    def feed(pieces):
        buffer = FrameBuffer(max_bytes)
        for piece in pieces:
            if (body := buffer.feed(piece)) is not None:
                return body
        return None

    whole = b"".join(chunks)
    length = int.from_bytes(whole[:4], "little")
    if len(whole) < 4:
        assert feed(chunks) is None
    elif length > max_bytes:
        with pytest.raises(EnvironmentFailure):
            feed(chunks)
    elif len(whole) < 4 + length:
        assert feed(chunks) is None
    elif len(whole) == 4 + length:
        assert feed(chunks) == feed([whole]) == whole[4:]
    else:
        with pytest.raises(EnvironmentFailure):
            feed([whole])


def test_a_child_cannot_blame_the_host():
    body = json.dumps({"id": 7, "failure": "host_fault", "detail": "x" * 9999}).encode()
    with pytest.raises(EnvironmentFailure) as caught:
        protocol.decode_reply(body, STEP)
    assert caught.value.kind == "protocol_violation"
    with pytest.raises(HostFault) as fault:
        protocol.decode_reply(body, Request(id=7, op="hello"))
    assert len(str(fault.value)) == protocol.MAX_DETAIL


@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_what_a_child_reports_is_data(kind):
    body = json.dumps({"id": 7, "failure": kind, "detail": "y" * 9999}).encode()
    with pytest.raises(EnvironmentFailure) as caught:
        protocol.decode_reply(body, STEP)
    assert (caught.value.kind, len(caught.value.detail)) == (kind, protocol.MAX_DETAIL)


@pytest.fixture(scope="module")
def corpse():
    """A process that is dead and not reaped: a pidfd that takes any signal and does nothing."""
    process = subprocess.Popen(["true"])
    pidfd = os.pidfd_open(process.pid)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield pidfd
    os.close(pidfd)
    process.wait()


async def step_against(corpse: int, chunks: list[bytes], *, answer: bool, hang_up: bool):
    """One step of an environment whose child is this function, saying whatever it is told to say."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    server = types.SimpleNamespace(watch=lambda loop: None)
    child = Child(server, ours, os.dup(corpse), exit_status=0)
    limits = SandboxLimits(step_timeout=0.03)
    environment = SandboxedEnvironment(child, limits, on_end=lambda *_: None)
    task = asyncio.create_task(environment.step("go"))
    await asyncio.sleep(0)
    with contextlib.suppress(OSError):
        if answer:
            request = json.loads(theirs.recv(4096)[4:])
            chunks = [chunk.replace(b'"id": 7', b'"id": %d' % request["id"]) for chunk in chunks]
            chunks[-1:] = [frame(chunks[-1])] if chunks else []
        for chunk in chunks:
            theirs.send(chunk)
            await asyncio.sleep(0)
    if hang_up:
        theirs.close()
    try:
        return await task
    except EnvironmentFailure as failure:
        return failure
    finally:
        await environment.close()
        theirs.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunks=st.lists(bodies, max_size=4), answer=st.booleans(), hang_up=st.booleans())
def test_no_bytes_outlast_the_deadline(corpse, chunks, answer, hang_up):
    started = time.monotonic()
    outcome = asyncio.run(step_against(corpse, chunks, answer=answer, hang_up=hang_up))
    assert time.monotonic() - started < 5
    assert isinstance(outcome, Step) or outcome.kind in FAILURE_KINDS


def test_the_fake_child_can_answer_well(corpse):
    """Otherwise the test above would only ever see refusals."""
    body = b'{"id": 7, "observation": "hi", "reward": 1, "terminated": true}'
    outcome = asyncio.run(step_against(corpse, [body], answer=True, hang_up=False))
    assert outcome == Step("hi", 1.0, True, False, {})
