"""The fork server: a fresh process that imports what environments may use and forks one for each.

Started by path, with settings as JSON in its first argument and a SOCK_SEQPACKET control socket to
the host. Single-threaded, holds no secret and never sees a source: the channel that it is given for
each child carries that. It imports nothing of the package but the files beside it.

Messages are JSON. To the host: `ready`, `spawned` (with the child's pidfd), `refused`, `exited`. From
the host: `spawn` (with the child's end of its channel). End of file ends it, and with it every child.
"""

# ruff: noqa: E402

import os

# What modules want to do after a fork is for threads and locks, of which this process has none, and
# would cost each child half of its fork.
os.register_at_fork = lambda **_: None

import contextlib
import ctypes
import gc
import importlib
import json
import pkgutil
import resource
import select
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

# The host names the folders of numpy and msgspec; nothing else of its own path is taken over.
sys.path += json.loads(sys.argv[1])["packages"]

import child
import determinism
import seccomp
import tool_use_base_env

# Every module that generated code may use, with what those import late: nothing can be opened in a child.
_MODULES = """
abc argparse array ast base64 binascii bisect calendar cmath codecs collections collections.abc colorsys
contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis email.utils enum
errno fnmatch fractions functools gc glob graphlib hashlib heapq hmac html html.parser inspect io itertools
json keyword linecache locale logging marshal math numbers numpy numpy.fft numpy.linalg numpy.ma
numpy.polynomial numpy.random operator os pathlib pickle platform pprint queue random re
sched secrets select shlex shutil signal socket stat statistics string stringprep struct subprocess sys
tempfile textwrap threading time timeit token tokenize traceback types typing unicodedata
urllib.parse uuid warnings weakref zlib zoneinfo
_strptime encodings.ascii encodings.cp437 encodings.idna encodings.latin_1 encodings.punycode
encodings.utf_16 encodings.utf_32 encodings.utf_8_sig
"""

# For sources that use math_verify: it, and all of the packages from which sympy imports late.
_MATHS_MODULES = "math_verify sympy.abc sympy.physics.units.util"
_MATHS_PACKAGES = """
antlr4 sympy.assumptions sympy.combinatorics sympy.concrete sympy.discrete sympy.integrals sympy.logic
sympy.matrices sympy.polys sympy.series sympy.sets sympy.simplify sympy.solvers sympy.tensor.array
"""

# What the reference implementation puts into a source's namespace, for sources that forget an import;
# with them goes the class that tool-use environments inherit from.
_NAMED_MODULES = (
    "itertools math random re json collections functools string copy heapq operator statistics numpy"
)
_NAMED_MEMBERS = {
    "collections": "deque defaultdict Counter OrderedDict namedtuple",
    "itertools": "combinations permutations product chain accumulate",
    "functools": "reduce lru_cache",
    "copy": "deepcopy",
    "heapq": "heappush heappop",
    "typing": "Tuple Dict List Optional Union Any Set FrozenSet Callable Iterable Sequence Mapping",
}

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_LAST_CAPABILITY = 63
_NOBODY = 65534
_MAX_DESCRIPTORS = 65536


class ForkServer:
    """The loop of the process: forks on request, reports who has exited."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]):
        self._control = control
        self._memory_mb = settings["memory_mb"]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._module = child.make_module(_names())
        self._program = None if settings["level"] == "L1" else seccomp.local_filter()
        self._ruleset = -1 if settings["level"] == "L1" else child.landlock_ruleset(self._libc)
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._max_descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._poll = select.epoll()
        self._pids: dict[int, int] = {}

    def give_up_privileges(self, level: str, parent: int, cores: list[int] | None) -> None:
        """Becomes nobody where it can, keeps to its cores, and dies with the host.

        In a jail (L3) bubblewrap has done the first and knows better when the host has died.
        """
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            # If memory runs out, environments go before the trainer. Not every container allows it.
            file.write("1000")
        os.nice(5)
        if cores is not None:
            os.sched_setaffinity(0, cores)
        if level != "L3" and _can_become_nobody():
            for capability in range(_LAST_CAPABILITY + 1):
                self._libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
            # A user namespace that maps only this user has nobody else to become; the filter holds anyway.
            with contextlib.suppress(OSError):
                os.setgroups([])
                os.setresgid(_NOBODY, _NOBODY, _NOBODY)
                os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        # After the change of user, which clears both.
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        self._libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        if level != "L3" and os.getppid() != parent:
            raise SystemExit("the host died while its fork server started")

    def run(self) -> NoReturn:
        """Serves the host until it closes the control socket."""
        child.limit_resources()
        gc.collect()
        gc.freeze()
        self._poll.register(self._control.fileno(), select.EPOLLIN)
        self._send({"kind": "ready", "landlock": self._ruleset >= 0})
        # From here on the host no longer reads what is printed.
        os.dup2(0, 2)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control.fileno():
                    self._answer()
                else:
                    self._reap(descriptor)

    def _answer(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 1)
        if not data:
            self._end()
        spawn_id = json.loads(data)["id"]
        if not descriptors:
            self._send(
                {"kind": "refused", "id": spawn_id, "detail": "the fork server has no free descriptor"}
            )
            return
        [channel] = descriptors
        try:
            pid, pidfd = self._fork(channel)
        except OSError as error:
            self._send({"kind": "refused", "id": spawn_id, "detail": f"the fork failed: {error.strerror}"})
            return
        finally:
            os.close(channel)
        self._pids[pidfd] = pid
        self._poll.register(pidfd, select.EPOLLIN)
        self._send({"kind": "spawned", "id": spawn_id, "pid": pid}, [pidfd])

    def _end(self) -> NoReturn:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        # Children that nobody waits for stay behind, dead, where the first process does not reap orphans.
        for pid in self._pids.values():
            os.waitpid(pid, 0)
        os._exit(0)

    def _fork(self, channel: int) -> tuple[int, int]:
        parent = os.getpid()
        memory_bytes = self._mapped_bytes() + self._memory_mb * 2**20
        pid = os.fork()
        if pid == 0:
            self._become_child(channel, parent, memory_bytes)
        try:
            return pid, os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _become_child(self, channel: int, parent: int, memory_bytes: int) -> NoReturn:
        error = ""
        try:
            try:
                child.lock_down(
                    channel,
                    libc=self._libc,
                    parent=parent,
                    memory_bytes=memory_bytes,
                    max_descriptors=self._max_descriptors,
                    ruleset=self._ruleset,
                    program=self._program,
                )
            except OSError as failure:
                error = str(failure)
            child.serve(self._module, error)
        finally:
            os._exit(1)

    def _mapped_bytes(self) -> int:
        """Address space of this process, as RLIMIT_AS counts it."""
        return int(os.pread(self._statm, 64, 0).split()[0]) * resource.getpagesize()

    def _reap(self, pidfd: int) -> None:
        pid = self._pids.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._send({"kind": "exited", "pid": pid, "status": os.waitstatus_to_exitcode(status)})

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors or [])


def _names() -> dict[str, Any]:
    names = {name: sys.modules[name] for name in _NAMED_MODULES.split()}
    names["np"] = sys.modules["numpy"]
    names["ToolUseBaseEnv"] = tool_use_base_env.ToolUseBaseEnv
    for module, members in _NAMED_MEMBERS.items():
        for member in members.split():
            names[member] = getattr(sys.modules[module], member)
    return names


def _import_maths() -> None:
    for name in _MATHS_MODULES.split():
        importlib.import_module(name)
    for package in _MATHS_PACKAGES.split():
        _import_all(package)
    math_verify = sys.modules["math_verify"]
    # Builds the parser's tables, which every child would otherwise spend a second on.
    if not math_verify.verify(math_verify.parse("$\\frac{1}{2}$"), math_verify.parse("0.5")):
        raise SystemExit("math_verify does not know that a half is 0.5; reinstall math-verify and sympy")


def _import_all(package: str) -> None:
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.name.rpartition(".")[2] in ("tests", "benchmarks"):
            continue
        importlib.import_module(found.name)
        if found.ispkg:
            _import_all(found.name)


def _can_become_nobody() -> bool:
    """Whether this process may change user and still signal the children it has then."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/status") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    return all(effective >> capability & 1 for capability in (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))


def main() -> NoReturn:
    settings = json.loads(sys.argv[1])
    if settings["control"] != child.CHANNEL:
        os.dup2(settings["control"], child.CHANNEL)
        os.close(settings["control"])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    for name in _MODULES.split():
        importlib.import_module(name)
    determinism.install()
    # After it, so that generators which modules keep for themselves are the same in every server.
    if settings["with_maths"]:
        _import_maths()
    server = ForkServer(socket.socket(fileno=child.CHANNEL), settings)
    # What is not imported by now cannot be: an empty path makes that a plain ModuleNotFoundError.
    sys.path.clear()
    server.give_up_privileges(settings["level"], settings["parent"], settings["cores"])
    server.run()


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
