"""What passes between the host and one environment, seen from the host, which trusts none of it.

A frame is a 4-byte little-endian length and a JSON object. The host asks, the child answers once, with
the random id of the question. Whatever else arrives is a protocol violation. What fits the frame but
not the contract (a reward that is not finite, an observation that is too long) is invalid output.
"""

import math
import re
from typing import Any, NamedTuple, TypeVar

import msgspec

from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.types import FAILURE_KINDS

MAX_DETAIL = 500
MAX_INFO_ENTRIES = 64
MAX_SCHEMA_DEPTH = 32
MAX_CRITERIA = 64
_Message = TypeVar("_Message")
_TOOL_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


class Reset(NamedTuple):
    """The first observation of an episode and the numbers that came with it."""

    observation: str
    info: dict[str, float]


class Step(NamedTuple):
    """An environment's answer to one action; every field is a claim of the environment."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, float]


class ToolResult(NamedTuple):
    """What a tool answered; not `succeeded` where there is none of that name or it raised."""

    output: str
    succeeded: bool


class Tool(msgspec.Struct, frozen=True):
    """A function that an environment offers to the agent.

    Attributes:
      name: letters, digits, `_`, `-` and `.`, at most 64.
      description: for the agent.
      parameters: JSON schema of the arguments.
    """

    name: str
    description: str
    parameters: dict[str, Any]


class Request(msgspec.Struct, omit_defaults=True):
    """What the host asks of a child; `op` says which of the other fields matter."""

    id: int
    op: str
    code: str = ""
    turn_budget: int = 0
    seed: int | None = None
    action: str | None = None
    call: str = ""
    max_bytes: int = 0
    max_tools_bytes: int = 0


class Reply(msgspec.Struct):
    """What a child answers."""

    id: int
    failure: str = ""
    detail: str = ""
    max_turns: int | None = None
    observation: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, float] = {}
    tools: msgspec.Raw = msgspec.Raw(b"[]")
    succeeded: bool = False
    criteria: tuple[bool | str, ...] = ()


class FrameBuffer:
    """Collects the bytes of one reply."""

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._pending = b""

    def feed(self, chunk: bytes) -> bytes | None:
        """Adds bytes; returns the body once the frame is complete.

        Raises:
          EnvironmentFailure: the frame is longer than allowed, or bytes follow it.
        """
        data = self._pending + chunk if self._pending else chunk
        if len(data) < 4:
            self._pending = data
            return None
        length = int.from_bytes(data[:4], "little")
        if length > self._max_bytes:
            raise EnvironmentFailure(
                "protocol_violation", f"announced {length} bytes; at most {self._max_bytes} are allowed"
            )
        if len(data) < 4 + length:
            self._pending = data
            return None
        if len(data) > 4 + length:
            raise EnvironmentFailure("protocol_violation", "sent more than the one answer it was asked for")
        self._pending = b""
        return data[4:]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Reply)
_tools_decoder = msgspec.json.Decoder(list[Tool])


def encode_request(request: Request) -> bytes:
    """The frame of a request.

    Raises:
      UnicodeEncodeError: for text with lone surrogates, which JSON cannot carry.
    """
    body = _encoder.encode(request)
    return len(body).to_bytes(4, "little") + body


def decode_reply(body: bytes, request: Request) -> Reply:
    """Reads the answer to one request.

    Raises:
      EnvironmentFailure: the one that the child reports, or a protocol violation.
      HostFault: the child could not be locked down. Only the answer to `hello`, given before the
        child has seen any source, can say so.
    """
    reply = _decode(_decoder, body)
    if reply.id != request.id:
        raise EnvironmentFailure("protocol_violation", "answered another question than the one asked")
    if reply.failure == "host_fault" and request.op == "hello":
        raise HostFault(reply.detail[:MAX_DETAIL])
    if reply.failure:
        if reply.failure not in FAILURE_KINDS:
            raise EnvironmentFailure("protocol_violation", f"unknown failure {reply.failure[:40]!r}")
        raise EnvironmentFailure(reply.failure, reply.detail[:MAX_DETAIL])
    return reply


def _decode(decoder: msgspec.json.Decoder[_Message], body: bytes) -> _Message:
    try:
        return decoder.decode(body)
    # Beyond its own errors the decoder lets these through from hostile numbers, text and nesting.
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise EnvironmentFailure("protocol_violation", f"not an answer: {error}"[:MAX_DETAIL]) from None


def check_reset(reply: Reply, limits: SandboxLimits) -> Reset:
    """Raises EnvironmentFailure where an answer to reset leaves the contract."""
    _check_text(reply.observation, limits)
    return Reset(observation=reply.observation, info=_check_info(reply.info))


def check_step(reply: Reply, limits: SandboxLimits) -> Step:
    """Raises EnvironmentFailure where an answer to step leaves the contract."""
    _check_text(reply.observation, limits)
    if not -limits.max_reward <= reply.reward <= limits.max_reward:
        raise EnvironmentFailure(
            "invalid_output", f"reward {reply.reward} is outside +-{limits.max_reward:g}"
        )
    return Step(
        observation=reply.observation,
        reward=reply.reward,
        terminated=reply.terminated,
        truncated=reply.truncated,
        info=_check_info(reply.info),
    )


def check_tools(reply: Reply, limits: SandboxLimits) -> list[Tool]:
    """Raises EnvironmentFailure where the tools that an environment lists leave the contract."""
    body = bytes(reply.tools)
    if len(body) > limits.max_tools_bytes:
        raise EnvironmentFailure(
            "invalid_output",
            f"the tools' schemas have {len(body)} bytes; at most {limits.max_tools_bytes} are allowed",
        )
    tools = _decode(_tools_decoder, body)
    names = [tool.name for tool in tools]
    for name in names:
        if not _TOOL_NAME.fullmatch(name):
            raise EnvironmentFailure(
                "invalid_output",
                f"a tool is called {name[:64]!r}; want at most 64 letters, digits, _, - and .",
            )
    if len(set(names)) < len(names):
        raise EnvironmentFailure("invalid_output", "two tools have the same name")
    if _nested_beyond([tool.parameters for tool in tools], MAX_SCHEMA_DEPTH):
        raise EnvironmentFailure(
            "invalid_output", f"a tool's parameters are nested more than {MAX_SCHEMA_DEPTH} deep"
        )
    return tools


def check_call(reply: Reply, limits: SandboxLimits) -> ToolResult:
    """Raises EnvironmentFailure where the output of a tool leaves the contract."""
    _check_text(reply.observation, limits)
    return ToolResult(output=reply.observation, succeeded=reply.succeeded)


def check_solution(reply: Reply, limits: SandboxLimits) -> str | None:
    """Raises EnvironmentFailure where the text of a solution leaves the contract."""
    _check_text(reply.observation, limits)
    return reply.observation if reply.succeeded else None


def check_criteria(reply: Reply) -> list[bool | str]:
    """Raises EnvironmentFailure where an environment has more criteria than any task needs."""
    if len(reply.criteria) > MAX_CRITERIA:
        raise EnvironmentFailure(
            "invalid_output", f"there are {len(reply.criteria)} criteria; at most {MAX_CRITERIA} are allowed"
        )
    return [found if isinstance(found, bool) else found[:MAX_DETAIL] for found in reply.criteria]


def check_max_turns(reply: Reply) -> int | None:
    """Raises EnvironmentFailure where the turn limit that an environment claims is not a count."""
    if reply.max_turns is not None and not 0 < reply.max_turns < 2**31:
        raise EnvironmentFailure("invalid_output", f"max_turns is {reply.max_turns}; want a positive count")
    return reply.max_turns


def _nested_beyond(values: list[Any], depth: int) -> bool:
    """Whether dicts and lists lie deeper than that; without recursion, whose limit differs by Python."""
    for _ in range(depth):
        containers = [value for value in values if isinstance(value, dict | list)]
        values = [
            inner
            for container in containers
            for inner in (container.values() if isinstance(container, dict) else container)
        ]
    return any(isinstance(value, dict | list) for value in values)


def _check_text(observation: str, limits: SandboxLimits) -> None:
    if 4 * len(observation) > limits.max_observation_bytes:
        size = len(observation.encode())
        if size > limits.max_observation_bytes:
            raise EnvironmentFailure(
                "invalid_output",
                f"the observation has {size} bytes; at most {limits.max_observation_bytes} are allowed",
            )


def _check_info(info: dict[str, float]) -> dict[str, float]:
    if not info:
        return info
    if len(info) > MAX_INFO_ENTRIES:
        raise EnvironmentFailure(
            "invalid_output", f"info has {len(info)} numbers; at most {MAX_INFO_ENTRIES} are allowed"
        )
    for value in info.values():
        if not math.isfinite(value):
            raise EnvironmentFailure("invalid_output", f"info holds {value}; want finite numbers")
    return info
