"""Runs one environment: gives up every right, then answers the host's requests about one source.

Runs in a process forked by the fork server (zygote.py): standard library, numpy and msgspec only.
`lock_down` comes before any byte of the source is read. `serve` then loads the source and calls
its methods as asked, one frame in, one frame out.

Nothing here is trusted by the host: this code shares its interpreter with the environment, which can
make it say anything. Its checks only give honest mistakes a good message; the host checks again.
"""

import ctypes
import json
import math
import os
import resource
import signal
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
import numpy as np
from determinism import reseed
from seccomp import Filter, forbid_new_privileges, install_filter

CHANNEL = 3
_MAX_DETAIL = 500
_MAX_CRITERIA = 64
_MODULE_NAME = "environment"
_CPU_SECONDS = 3600

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
# The numbers of these newer calls are the same on every machine type.
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_CREATE_RULESET_VERSION = 1
# By ABI version: file system, network and scope rights that a ruleset can handle.
_LANDLOCK_FS = {1: 2**13 - 1, 2: 2**14 - 1, 3: 2**15 - 1, 4: 2**15 - 1, 5: 2**16 - 1}
_LANDLOCK_NET = 2**2 - 1
_LANDLOCK_SCOPE = 2**2 - 1


class InvalidOutput(Exception):
    """The environment answered with something outside the contract."""


def landlock_ruleset(libc: ctypes.CDLL) -> int:
    """Makes a ruleset that allows nothing which this kernel's Landlock can forbid.

    Returns:
      its descriptor, or -1 where the kernel has no Landlock.
    """
    version = libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    if version < 1:
        return -1
    rights = [_LANDLOCK_FS[min(version, 5)]]
    if version >= 4:
        rights.append(_LANDLOCK_NET)
    if version >= 6:
        rights.append(_LANDLOCK_SCOPE)
    attributes = (ctypes.c_uint64 * len(rights))(*rights)
    return libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0)


def limit_resources() -> None:
    """Gives up what the fork server needs no more than its children, which inherit the limits."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_MEMLOCK, 0)
    _limit(resource.RLIMIT_MSGQUEUE, 0)
    _limit(resource.RLIMIT_SIGPENDING, 64)
    _limit(resource.RLIMIT_STACK, 8 * 2**20)


def _limit(name: int, value: int) -> None:
    _, hard = resource.getrlimit(name)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(name, (allowed, allowed))


def lock_down(
    channel: int,
    *,
    libc: ctypes.CDLL,
    parent: int,
    memory_bytes: int,
    max_descriptors: int,
    ruleset: int,
    program: Filter | None,
) -> None:
    """Gives up everything but computing and talking over the channel; some limits are inherited already.

    Args:
      channel: the socket to the host; becomes descriptor 3, the only one left besides /dev/null.
      libc: the C library, loaded before the fork.
      parent: process id of the fork server.
      memory_bytes: cap on the whole address space.
      max_descriptors: no open descriptor has a number at or above this one.
      ruleset: Landlock ruleset, or -1.
      program: the seccomp filter, or None to run without one.

    Raises:
      OSError: if the kernel refuses any part; nothing of the source may run then.
    """
    forbid_new_privileges(libc)
    if ruleset >= 0 and libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self failed")
    os.dup2(channel, CHANNEL)
    os.closerange(CHANNEL + 1, max_descriptors)

    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(1)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")

    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_NOFILE, CHANNEL + 1)
    _limit(resource.RLIMIT_NPROC, 0)
    # Soft below hard: what the kernel ends for its CPU time dies of SIGXCPU, not of an unexplained SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 60))

    if program is not None:
        install_filter(libc, program)


def make_module(names: dict[str, Any]) -> types.ModuleType:
    """The module that a source will run in, made before the fork: to fill it is dear in each child.

    In sys.modules, because dataclasses, typing and pickle look classes up there.

    Args:
      names: what a source finds in its namespace without importing it.
    """
    module = sys.modules[_MODULE_NAME] = types.ModuleType(_MODULE_NAME)
    for name, value in names.items():
        module.__dict__.setdefault(name, value)
    return module


def serve(module: types.ModuleType, lock_error: str) -> NoReturn:
    """Answers requests until the host closes the channel.

    Args:
      module: from `make_module`.
      lock_error: why `lock_down` failed; the first answer tells the host, which then stops here.
    """
    environment = None
    decode, encode = msgspec.json.decode, msgspec.json.encode
    receive, send = _receive, _send
    while True:
        request = decode(receive())
        reply: dict[str, Any]
        try:
            match request["op"]:
                case "step":
                    reply = _step(environment, request["action"], request["max_bytes"])
                case "call":
                    reply = _call(environment, request["call"], request["max_bytes"])
                case "reset":
                    reply = _reset(environment, request["seed"], request["max_bytes"])
                    reply["tools"] = _tools(environment, request["max_tools_bytes"])
                case "solution":
                    reply = _solution(environment, request["max_bytes"])
                case "criteria":
                    reply = _criteria(environment)
                case "load":
                    environment, reply = _load(request["code"], request["turn_budget"], module)
                case "hello":
                    reply = {"failure": "host_fault", "detail": lock_error} if lock_error else {}
        except InvalidOutput as error:
            reply = {"failure": "invalid_output", "detail": str(error)[:_MAX_DETAIL]}
        except BaseException as error:
            reply = {"failure": "environment_error", "detail": _describe(error)}
        reply["id"] = request["id"]
        send(encode(reply))


def _receive(
    read: Callable[[int, int], bytes] = os.read, exit_now: Callable[[int], NoReturn] = os._exit
) -> bytes:
    """One frame's body. Defaults hold on to functions that environments tend to replace."""
    frame, size = b"", 4
    while len(frame) < size:
        more = read(CHANNEL, 65536)
        if not more:
            exit_now(0)
        frame += more
        if len(frame) >= 4:
            size = 4 + int.from_bytes(frame[:4], "little")
    return frame[4:]


def _send(body: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    frame = len(body).to_bytes(4, "little") + body
    sent = write(CHANNEL, frame)
    while sent < len(frame):
        sent += write(CHANNEL, frame[sent:])


def _load(code: str, turn_budget: int, module: types.ModuleType) -> tuple[Any, dict[str, Any]]:
    """Runs the source in the module and makes its environment."""
    namespace = module.__dict__
    reseed(0)
    exec(compile(code, "<environment>", "exec", dont_inherit=True), namespace)
    environment_class = _find_class(namespace)
    try:
        environment = environment_class()
    except TypeError as error:
        try:
            environment = environment_class(max_turns=turn_budget)
        except TypeError:
            raise error from None
    max_turns = _plain(getattr(environment, "max_turns", None))
    return environment, {"max_turns": max_turns if type(max_turns) is int and max_turns > 0 else None}


def _find_class(namespace: dict[str, Any]) -> type:
    """The last class of the source itself whose name ends in Env, one that can play before others."""
    candidates = [
        value
        for name, value in namespace.items()
        if name.endswith("Env")
        and name not in ("Env", "ToolUseBaseEnv")
        and isinstance(value, type)
        and value.__module__ == _MODULE_NAME
    ]
    if not candidates:
        raise LookupError("the source defines no class whose name ends in Env")
    playable = [item for item in candidates if hasattr(item, "reset") and hasattr(item, "step")]
    return (playable or candidates)[-1]


def _reset(environment: Any, seed: int, max_bytes: int) -> dict[str, Any]:
    reseed(seed)
    result = environment.reset(seed=seed)
    if isinstance(result, str):
        result = (result, {})
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise InvalidOutput(f"reset returned {_shape(result)}; want (str, dict)")
    return {"observation": _text(result[0], max_bytes), "info": _numbers(result[1])}


def _step(environment: Any, action: str, max_bytes: int) -> dict[str, Any]:
    result = environment.step(action)
    if not isinstance(result, tuple | list) or len(result) != 5:
        raise InvalidOutput(f"step returned {_shape(result)}; want (str, float, bool, bool, dict)")
    observation, reward, terminated, truncated, info = result
    return {
        "observation": _text(observation, max_bytes),
        "reward": _reward(reward),
        "terminated": _flag("terminated", terminated),
        "truncated": _flag("truncated", truncated),
        "info": _numbers(info),
    }


def _tools(environment: Any, max_bytes: int) -> msgspec.Raw:
    """The tools that this episode offers, as a JSON list; none for a game."""
    listed = environment.get_tools() if hasattr(environment, "get_tools") else []
    if not isinstance(listed, list | tuple):
        raise InvalidOutput(f"get_tools returned {_shape(listed)}; want a list of schemas")
    tools = []
    for tool in listed:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or type(function.get("name")) is not str:
            raise InvalidOutput('a tool\'s schema is a dict with "function", a dict with "name" and more')
        description, parameters = function.get("description", ""), function.get("parameters", {})
        if type(description) is not str or type(parameters) is not dict:
            raise InvalidOutput(f"tool {function['name'][:64]}: want description as str, parameters as dict")
        tools.append({"name": function["name"], "description": description, "parameters": parameters})
    try:
        encoded = msgspec.json.encode(tools)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidOutput(f"the tools' schemas are no JSON: {error}") from None
    if len(encoded) > max_bytes:
        raise InvalidOutput(f"the tools' schemas have {len(encoded)} bytes; at most {max_bytes} are allowed")
    return msgspec.Raw(encoded)


def _call(environment: Any, call: str, max_bytes: int) -> dict[str, Any]:
    name, arguments = json.loads(call)
    result = environment.execute_tool(name, arguments)
    if not isinstance(result, dict) or not {"output", "returncode"} <= result.keys():
        raise InvalidOutput(f"execute_tool returned {_shape(result)}; want a dict of output and returncode")
    code = _plain(result["returncode"])
    if type(code) is not int:
        raise InvalidOutput(f"returncode is {_shape(code)}; want int")
    return {"observation": _text(result["output"], max_bytes), "succeeded": code == 0}


def _solution(environment: Any, max_bytes: int) -> dict[str, Any]:
    """The environment's own solution, where it has a method for it and that has something to say."""
    method = getattr(environment, "solution", None)
    try:
        text = method() if callable(method) else None
    except NotImplementedError:  # what the tool-use class does that defines none
        text = None
    if text is None:
        return {}
    if not isinstance(text, str):
        raise InvalidOutput(f"solution returned {_shape(text)}; want str")
    return {"observation": _text(text, max_bytes), "succeeded": True}


def _criteria(environment: Any) -> dict[str, Any]:
    """Which criteria of a tool-use task hold in its present state; none for a game."""
    criteria = getattr(environment, "_message_criteria", [])
    if not isinstance(criteria, list | tuple):
        raise InvalidOutput(f"_message_criteria is {_shape(criteria)}; want a list of functions")
    if len(criteria) > _MAX_CRITERIA:
        raise InvalidOutput(f"there are {len(criteria)} criteria; at most {_MAX_CRITERIA} are allowed")
    return {"criteria": [_holds(criterion, environment._state) for criterion in criteria]}


def _holds(criterion: Any, state: Any) -> bool | str:
    """Whether it does, or the text of its error."""
    try:
        return bool(criterion(state))
    except Exception as error:
        return _describe(error)


def _plain(value: Any) -> Any:
    """Numpy scalars and subclasses of numbers as the builtin of the same value."""
    if type(value) in (float, bool, int):
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


def _text(observation: Any, max_bytes: int) -> str:
    if not isinstance(observation, str):
        raise InvalidOutput(f"the observation is {_shape(observation)}; want str")
    observation = str.__str__(observation)
    try:
        size = len(observation.encode())
    except UnicodeEncodeError:
        raise InvalidOutput("the observation holds lone surrogates, which no encoding can carry") from None
    if size > max_bytes:
        raise InvalidOutput(f"the observation has {size} bytes; at most {max_bytes} are allowed")
    return observation


def _reward(reward: Any) -> float:
    reward = _plain(reward)
    if type(reward) not in (int, float):
        raise InvalidOutput(f"the reward is {_shape(reward)}; want float")
    try:
        reward = float(reward)
    except OverflowError:
        raise InvalidOutput("the reward is too large for a float") from None
    if not math.isfinite(reward):
        raise InvalidOutput(f"the reward is {reward}; want a finite number")
    return reward


def _flag(name: str, value: Any) -> bool:
    value = _plain(value)
    if type(value) is not bool:
        raise InvalidOutput(f"{name} is {_shape(value)}; want bool")
    return value


def _numbers(info: Any) -> dict[str, float]:
    """The finite numbers of an info dictionary; all else in it is for the environment's own use."""
    if not isinstance(info, dict):
        raise InvalidOutput(f"info is {_shape(info)}; want dict")
    numbers: dict[str, float] = {}
    for key, value in info.items():
        value = _plain(value)
        if type(key) is str and len(key) <= 64 and key.isascii() and type(value) in (bool, int, float):
            try:
                number = float(value)
            except OverflowError:
                continue
            if math.isfinite(number) and len(numbers) < 64:
                numbers[key] = number
    return numbers


def _shape(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"of type {type(value).__name__}"


def _describe(error: BaseException) -> str:
    """One line about an exception that may itself be hostile."""
    name = type.__getattribute__(type(error), "__name__")
    try:
        text = str(error)[:_MAX_DETAIL].encode("utf-8", "replace").decode()
    except BaseException:
        text = "(its text cannot be shown)"
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<environment>":
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f" (line {line})" if line is not None else ""
    return f"{name}: {text}"[: _MAX_DETAIL - len(where)] + where
