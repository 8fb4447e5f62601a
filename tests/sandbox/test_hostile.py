"""Attacks on the sandbox, each with the outcome it must have and, with the locks off, the harm it does.

An attack is one function of an otherwise ordinary environment; its answer is the next observation. Each
runs on a shared pool at every level, and afterwards nothing may have reached the host: no file, no
connection, no secret in the answer, the fork server alive, the child gone, and a sibling environment
still giving right answers. `test_breaches_without_protection` runs the same attacks in a throwaway jail
with every lock off, where each must succeed: an attack that fails there proves nothing here.

Every attack is bounded (forks, bytes, seconds), so that a lost lock cannot hurt the machine.
"""

import asyncio
import dataclasses
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import types

import pytest

from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.sandbox import fork_server, protocol
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.sandbox.protocol import Reset, Step
from spade_jax.types import FAILURE_KINDS
from tests.sandbox.conftest import CANARY, Bench

SIBLING = """
class SiblingEnv:
    def reset(self, seed=None):
        self.total = 0
        return "0", {}

    def step(self, action):
        self.total += int(action)
        return str(self.total), 0.0, False, False, {}
"""

PRELUDE = """
import ctypes, gc, io, os, resource, select, signal, socket, struct, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]


def call(*arguments):
    # One system call by number.
    result = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def reaches_kernel(*arguments):
    # A call with useless arguments: any error but the filter's shows that the kernel looked at them.
    try:
        call(*arguments)
    except PermissionError:
        raise
    except OSError:
        pass
    return "done"


def request_id():
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["request"]["id"]


def frame(body):
    return len(body).to_bytes(4, "little") + body


def forge(**fields):
    return json.dumps({"id": request_id(), **fields}).encode()


def attempt():
    # "refused", or what the attack got.
    try:
        return f"BREACH {attack()}"
    except (OSError, RuntimeError, MemoryError, ImportError, AttributeError) as error:
        return f"refused: {type(error).__name__}"
"""

STEPS = """

class AttackEnv:
    def reset(self, seed=None):
        return "ready", {}

    def step(self, action):
        answer = attempt()
        return answer if isinstance(answer, tuple) else (answer, 0.0, False, False, {})
"""

BARE_STEPS = STEPS.replace("attempt()", "attack()")


@dataclasses.dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
      code: defines `attack()`.
      outcomes: what may come of it: "refused", "ok", or kinds of failure.
      breach: what comes of it without protection: "BREACH" (it says so itself), "accepted" (an answer that
        nobody checks), "hangs", a kind of failure, or "unclear" where a bare process stops it too.
    """

    name: str
    code: str
    outcomes: tuple[str, ...]
    breach: str

    @property
    def source(self) -> str:
        steps = STEPS if self.outcomes == ("refused",) else BARE_STEPS
        return PRELUDE + self.code + steps


def refused(name, code, breach="BREACH"):
    return Attack(name, code, ("refused",), breach)


def raw(name, number, *arguments, breach="BREACH"):
    """One system call that must not reach the kernel."""
    listed = ", ".join(str(argument) for argument in (number, *arguments))
    return refused(name, f"def attack():\n    return reaches_kernel({listed})\n", breach)


NEVER_ENDS = [
    Attack("loop", "def attack():\n    while True: pass\n", ("timeout",), "hangs"),
    Attack("big_integer", "def attack():\n    return str(3 ** 10**8)[:5]\n",
           ("timeout", "environment_error"), "hangs"),
    Attack("regex", "def attack():\n    return str(re.match('(a+)+$', 'a' * 60 + 'b'))\n",
           ("timeout",), "hangs"),
    Attack("ignores_signals", """
def attack():
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: pass
""", ("timeout",), "hangs"),
    Attack("sleep_in_select", "def attack():\n    select.select([], [], [], 3600)\n", ("timeout",), "hangs"),
    Attack("sleep_on_lock", """
def attack():
    lock = threading.Lock(); lock.acquire(); lock.acquire()
""", ("timeout",), "hangs"),
    Attack("swallows_everything", """
def attack():
    while True:
        try:
            while True: pass
        except BaseException: pass
""", ("timeout",), "hangs"),
    Attack("endless_iterator", "def attack():\n    return sum(itertools.count())\n", ("timeout",), "hangs"),
    Attack("reads_its_own_channel", "def attack():\n    return os.read(3, 1)\n", ("timeout",), "hangs"),
    Attack("str_never_ends", """
class Slow(Exception):
    def __str__(self):
        while True: pass
def attack():
    raise Slow
""", ("timeout",), "hangs"),
]  # fmt: skip

EATS = [
    refused("forks", """
def attack():
    pids = []
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        pids.append(pid)
    for pid in pids: os.waitpid(pid, 0)
    return len(pids)
"""),
    refused("threads", """
def attack():
    threads = [threading.Thread(target=lambda: None) for _ in range(20)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return len(threads)
"""),
    refused("memory_fast", "def attack():\n    return len(bytearray(600 * 2**20))\n"),
    refused("memory_slow", """
def attack():
    held = []
    for _ in range(600): held.append(bytearray(2**20))
    return len(held)
"""),
    refused("memory_numpy", "def attack():\n    return np.ones(75 * 2**20).size\n"),
    refused("memory_map", """
def attack():
    got = libc.mmap(None, 600 * 2**20, 3, 0x22, -1, 0)
    if got == ctypes.c_void_p(-1).value: raise MemoryError
    return "mapped"
"""),
    Attack("memory_and_catches", """
def attack():
    held = []
    for _ in range(600):
        try: held.append(bytearray(2**20))
        except MemoryError: return f"limited after {len(held) // 100}00 MiB"
    return "BREACH"
""", ("ok", "environment_error", "died"), "BREACH"),
    raw("memfd", 319, "b'spare'", 0),
    raw("sysv_shared_memory", 29, 0, 4096, 0o1600),
    raw("posix_queue", 240, "b'spade'", 0o102, 0o600, 0),
    raw("locked_memory", 149, 0, 4096),
]  # fmt: skip

READS_OR_WRITES = [
    refused("reads_secret", "def attack():\n    return open('CANARY_FILE').read()\n"),
    refused("reads_passwd", "def attack():\n    return os.open('/etc/passwd', os.O_RDONLY)\n"),
    refused("writes_file", "def attack():\n    return open('WRITE_FOLDER/written', 'w').write('x')\n"),
    refused("reads_environment_block", """
def attack():
    return "SPADE" in open("/proc/self/environ").read() or "read"
"""),
    refused("reads_parent", "def attack():\n    return len(open(f'/proc/{os.getppid()}/maps').read())\n"),
    refused("lists_processes", "def attack():\n    return len(os.listdir('/proc'))\n"),
    refused("reads_memory_device", "def attack():\n    return os.open('/dev/zero', os.O_RDWR)\n"),
    refused("makes_symlink", "def attack():\n    return os.symlink('/', 'WRITE_FOLDER/link')\n"),
    refused("makes_fifo", "def attack():\n    return os.mkfifo('WRITE_FOLDER/fifo')\n"),
    refused("removes_file", "def attack():\n    return os.unlink('WRITE_FOLDER/nothing-here')\n", "unclear"),
    refused("changes_mode", "def attack():\n    return os.chmod('CANARY_FILE', 0o644)\n"),
    refused("changes_folder", "def attack():\n    return os.chdir('/')\n"),
    raw("openat2", 437, -100, "b'/etc/passwd'", 0, 0),
    raw("open_by_handle", 304, -1, 0, 0, breach="BREACH"),
    raw("inotify", 253),
    raw("fanotify", 300, -1, -1),
    raw("statfs", 137, "b'/'", "ctypes.create_string_buffer(256)"),
    raw("getcwd", 79, "ctypes.create_string_buffer(256)", 256),
    raw("getrandom", 318, "ctypes.create_string_buffer(8)", 8, 0),
    Attack("canary_variable", """
def attack():
    held = [value for value in gc.get_objects() if isinstance(value, dict) and "SPADE_CANARY" in value]
    return f"{'BREACH' if held or 'SPADE_CANARY' in os.environ else 'nothing'}"
""", ("ok",), "unclear"),
]  # fmt: skip

TALKS = [
    refused("tcp", "def attack():\n    return socket.create_connection(('127.0.0.1', TCP_PORT), 1)\n"),
    refused("tcp_listen", "def attack():\n    return socket.create_server(('127.0.0.1', 0))\n"),
    refused("udp", """
def attack():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP_PORT))
"""),
    refused("abstract_socket", """
def attack():
    peer = socket.socket(socket.AF_UNIX)
    return peer.connect(chr(0) + "ABSTRACT_NAME")
"""),
    refused("metadata_service", """
def attack():
    return socket.socket().connect_ex(("169.254.169.254", 80))
""", "unclear"),
    refused("socket_pair", "def attack():\n    return socket.socketpair()\n"),
    refused("pipe", "def attack():\n    return os.pipe()\n"),
    refused("passes_descriptor", """
def attack():
    peer = socket.socket(fileno=3)
    try: return socket.send_fds(peer, [b""], [0])
    finally: peer.detach()
"""),
    refused("peer_credentials", """
def attack():
    peer = socket.socket(fileno=3)
    try: return peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED)
    finally: peer.detach()
"""),
    raw("netlink", 41, 16, 3, 0),
    raw("sendto_channel", 44, 3, 0, 0, 0, 0, 0),
    raw("eventfd", 290, 0, 0),
]  # fmt: skip

ESCAPES = [
    refused("subprocess", "def attack():\n    return subprocess.run(['/bin/true']).returncode\n"),
    refused("exec", """
def attack():
    try: os.execv("/nonexistent", ["x"])
    except FileNotFoundError: return "looked for it"
"""),
    refused("posix_spawn", "def attack():\n    return os.posix_spawn('/bin/true', ['true'], {})\n"),
    refused("system", """
def attack():
    if os.system("exit 3") in (-1, 32512): raise OSError
    return "ran"
"""),
    raw("vfork_exec_by_handle", 322, -1, "b''", 0, 0, 0x1000),
    raw("ptrace", 101, 0, 0, 0, 0),
    raw("user_namespace", 272, 0x10000000),
    raw("set_namespace", 308, -1, 0),
    raw("mount", 165, "b'none'", "b'/nonexistent'", "b'tmpfs'", 0, 0),
    raw("new_mount_api", 430, "b'tmpfs'", 0),
    raw("chroot", 161, "b'/nonexistent'"),
    raw("pivot_root", 155, "b'/nonexistent'", "b'/'"),
    raw("setuid", 105, 0),
    raw("setgroups", 116, 0, 0),
    raw("capset", 126, 0, 0),
    raw("io_uring", 425, 1, "ctypes.create_string_buffer(120)"),
    raw("bpf", 321, 0, 0, 0),
    raw("perf", 298, 0, 0, -1, -1, 0),
    raw("userfaultfd", 323, 0),
    raw("keyring", 250, 0, -3, 0),
    raw("personality", 135, 0xFFFFFFFF),
    raw("seccomp_again", 317, 0, 0, 0),
    raw("landlock_again", 444, 0, 0, 1),
    raw("set_affinity", 203, 0, 8, "ctypes.create_string_buffer(b'\\xff' * 8, 8)"),
    raw("set_priority", 141, 0, 0, 5),
    raw("scheduler", 144, 0, 0, "ctypes.create_string_buffer(4)"),
    raw("pidfd_open", 434, "os.getppid()", 0),
    raw("compare_kernel_objects", 312, "os.getpid()", "os.getpid()", 0, 0, 0),
    raw("segment_base", 158, 0x1003, "ctypes.create_string_buffer(8)"),
    raw("protection_key", 330, 0, 0),
    raw("pkey_mprotect", 329, 0, 0, 4, -1),
    raw("remap_file_pages", 216, 0, 0, 0, 0, 0),
    raw("no_dumpable", 157, 4, 1, 0, 0, 0),
    raw("parent_death_signal_off", 157, 1, 0, 0, 0, 0),
    refused("executable_memory", """
def attack():
    got = libc.mmap(None, 4096, 7, 0x22, -1, 0)
    if got == ctypes.c_void_p(-1).value: raise PermissionError
    return "mapped"
"""),
    refused("makes_memory_executable", """
def attack():
    page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
    return call(10, page, 4096, 5)
"""),
    Attack("foreign_abi", """
def attack():
    result = libc.syscall(ctypes.c_long(0x40000000 + 39))
    return "BREACH"
""", ("died",), "BREACH"),
    refused("terminal_injection", """
def attack():
    import fcntl
    result = libc.ioctl(0, 0x5412, b"x")
    number = ctypes.get_errno()
    if number == 25 and reaches_kernel(16, 3, 0x8901, ctypes.create_string_buffer(8)): raise PermissionError
    return number
""", "unclear"),
    refused("raises_limits", """
def attack():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return "set"
"""),
    refused("parents_limits", """
def attack():
    return resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)
"""),
    refused("late_import", "def attack():\n    import sqlite3\n    return 'imported'\n", "unclear"),
]  # fmt: skip

KEEPERS = [
    refused("kills_parent", "def attack():\n    os.kill(os.getppid(), 9)\n    return 'sent'\n"),
    refused("kills_group", "def attack():\n    os.kill(0, 0)\n    return 'sent'\n"),
    refused("kills_everything", "def attack():\n    os.kill(-1, 0)\n    return 'sent'\n"),
    refused("stops_parent", """
def attack():
    os.kill(os.getppid(), signal.SIGCONT)
    return "sent"
"""),
    refused("kills_trainer", "def attack():\n    os.kill(TRAINER_PID, 0)\n    return 'sent'\n", "unclear"),
    raw("thread_signal", 200, "os.getpid()", 0),
    raw("queued_signal", 129, "os.getpid()", 0, "ctypes.create_string_buffer(128)"),
    refused("sigio_to_parent", """
def attack():
    call(72, 3, 8, os.getppid())
    return "set"
"""),
    refused("non_blocking_channel", "def attack():\n    call(72, 3, 4, 0x800)\n    return 'set'\n"),
    refused("duplicates_channel", "def attack():\n    return os.dup(3)\n"),
    refused("reads_sibling", """
def attack():
    local = (ctypes.c_long * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    return reaches_kernel(310, os.getppid(), local, 1, local, 1, 0)
"""),
    refused("writes_sibling", """
def attack():
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_long * 2)(ctypes.addressof(buffer), 8)
    return reaches_kernel(311, os.getpid(), local, 1, local, 1, 0)
"""),
    refused("other_descriptors", """
def attack():
    found = []
    for number in range(4, 128):
        try: os.fstat(number)
        except OSError: continue
        found.append(number)
    if not found: raise OSError
    return found
"""),
    Attack("closes_channel", """
def attack():
    os.close(3)
    while True: pass
""", ("died",), "unclear"),
    refused("interval_timer", "def attack():\n    return signal.setitimer(signal.ITIMER_REAL, 3600)\n"),
    refused("alarm", """
def attack():
    libc.alarm(1000)
    if libc.alarm(0) not in range(1, 1001): raise OSError
    return "set"
"""),
    raw("posix_timer", 222, 0, 0, "ctypes.create_string_buffer(8)"),
    raw("timer_descriptor", 283, 1, 0),
    raw("signal_descriptor", 289, -1, "ctypes.create_string_buffer(8)", 8, 0),
    Attack("patches_runner", """
def attack():
    import child
    child._reward = lambda reward: reward
    child._text = lambda text, limit: text
    return "x" * 70000, 1e9, False, False, {}
""", ("invalid_output", "protocol_violation"), "accepted"),
]  # fmt: skip


def forged(name, body, outcomes=("protocol_violation",), breach="accepted"):
    """Bytes written to the channel in place of the runner's answer, which never comes."""
    return Attack(name, f"def attack():\n    os.write(3, {body})\n    while True: pass\n", outcomes, breach)


LIES = [
    Attack("reward_nan", "def attack():\n    return '', float('nan'), False, False, {}\n",
           ("invalid_output",), "accepted"),
    Attack("reward_true", "def attack():\n    return '', True, False, False, {}\n",
           ("invalid_output",), "accepted"),
    Attack("reward_text", "def attack():\n    return '', '1.0', False, False, {}\n",
           ("invalid_output",), "accepted"),
    Attack("reward_set", "def attack():\n    return '', {1}, False, False, {}\n",
           ("invalid_output",), "unclear"),
    Attack("keys_not_text", "def attack():\n    return '', 0.0, False, False, {1: 2, None: 3, 'a': 4}\n",
           ("ok",), "unclear"),
    Attack("int_subclass", """
class Always(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
    def __float__(self): return 1e300
    def __int__(self): return 10**300
def attack():
    return "", Always(0), False, False, {}
""", ("ok",), "unclear"),
    Attack("text_subclass", """
class Text(str):
    def encode(self, *a): return b""
    def __len__(self): return 0
def attack():
    return Text("x" * 70000), 0.0, False, False, {}
""", ("invalid_output",), "unclear"),
    Attack("huge_output", "def attack():\n    return 'x' * (8 * 2**20), 0.0, False, False, {}\n",
           ("invalid_output",), "accepted"),
    forged("raw_nan", "frame(forge(reward=float('nan')))"),
    forged("raw_infinity", "frame(forge(reward=float('inf')))"),
    forged("raw_1e999", "frame(forge(reward=0.0).replace(b'0.0', b'1e999'))"),
    forged("raw_bool", "frame(forge(reward=True))"),
    forged("raw_text_reward", "frame(forge(reward='1'))"),
    forged("raw_number_observation", "frame(forge(observation=5))"),
    forged("raw_surrogate", "frame(forge(observation=chr(0xd800)))"),
    forged("raw_big_integer", "frame(forge(reward=0.0).replace(b'0.0', b'9' * 5000))", breach="unclear"),
    forged("raw_big_number", "frame(forge(reward=1e300))", ("invalid_output",)),
    forged("raw_long_observation", "frame(forge(observation='x' * 70000))", ("invalid_output",)),
    forged("raw_info_infinity", "frame(forge(info={'a': 0.5}).replace(b'0.5', b'1e999'))"),
    forged("raw_info_text", "frame(forge(info={'a': 'b'}))"),
    forged("raw_info_crowd", "frame(forge(info={str(i): i for i in range(1000)}))", ("invalid_output",)),
    forged("raw_host_fault", "frame(forge(failure='host_fault', detail='not my fault'))"),
    forged("raw_unknown_failure", "frame(forge(failure='excellent'))"),
    forged("raw_nesting", "frame(b'[' * 100000)", breach="unclear"),
    forged("raw_nesting_unknown_key", "frame(b'{\"x\": ' + b'[' * 100000)", breach="unclear"),
    forged("raw_bad_utf8", "frame(b'{\"id\": 1, \"observation\": \"\\xff\"}')", breach="unclear"),
    forged("raw_not_json", "frame(b'hello')", breach="unclear"),
    forged("raw_empty", "frame(b'')", breach="unclear"),
    forged("raw_length_4g", "b'\\xff' * 64", breach="hangs"),
    forged("raw_other_id", "frame(json.dumps({'id': 7, 'reward': 1.0}).encode())"),
    forged("raw_text_id", "frame(b'{\"id\": \"1\"}')"),
    forged("raw_doubled", "frame(forge()) * 2", breach="unclear"),
    forged("raw_trailing_byte", "frame(forge()) + b'x'", breach="unclear"),
    Attack("dribble", """
def attack():
    data = frame(forge(observation="x" * 30000))
    for position in range(len(data)):
        os.write(3, data[position:position + 1])
        select.select([], [], [], 0.01)
""", ("timeout",), "hangs"),
    Attack("flood", """
def attack():
    while True: os.write(3, b"x" * 65536)
""", ("protocol_violation",), "unclear"),
    Attack("garbage_on_stdout", """
def attack():
    print("x" * 10**6); os.write(1, b"y" * 10**6); os.write(2, b"z" * 10**6)
    sys.stdout = sys.stderr = None
    return "quiet"
""", ("ok",), "unclear"),
    Attack("answers_in_advance", """
def attack():
    os.write(3, frame(json.dumps({"id": request_id() + 1, "reward": 1.0}).encode()))
    return "ready for the next"
""", ("ok", "protocol_violation"), "unclear"),
    Attack("error_text_huge", "def attack():\n    raise ValueError('x' * 10**7)\n",
           ("environment_error",), "unclear"),
    Attack("error_text_control", "def attack():\n    raise ValueError(chr(27) + '[2J' + chr(0xd800))\n",
           ("environment_error",), "unclear"),
]  # fmt: skip

DIES = [
    Attack("hard_exit", "def attack():\n    os._exit(0)\n", ("died",), "died"),
    Attack("soft_exit", "def attack():\n    sys.exit(0)\n", ("environment_error",), "unclear"),
    Attack("own_base_exception", """
class Own(BaseException): pass
def attack():
    raise Own("text")
""", ("environment_error",), "unclear"),
    Attack("keyboard_interrupt", "def attack():\n    raise KeyboardInterrupt\n",
           ("environment_error",), "unclear"),
    Attack("generator_exit", "def attack():\n    raise GeneratorExit\n", ("environment_error",), "unclear"),
    Attack("str_raises", """
class Bad(Exception):
    def __str__(self): raise SystemExit
    __traceback__ = property(lambda self: 1 / 0)
def attack():
    raise Bad
""", ("environment_error", "died"), "unclear"),
    Attack("segfault", "def attack():\n    ctypes.string_at(0)\n", ("died",), "died"),
    Attack("abort", "def attack():\n    os.abort()\n", ("died",), "died"),
    Attack("recursion", "def attack():\n    return attack()\n", ("environment_error",), "unclear"),
    Attack("recursion_unlimited", """
def attack():
    sys.setrecursionlimit(10**9)
    nested = []
    for _ in range(10**6): nested = [nested]
    return repr(nested)
""", ("died", "environment_error", "timeout"), "unclear"),
    Attack("corrupts_interpreter", "def attack():\n    ctypes.memset(id(None), 0, 16)\n    return None\n",
           ("died", "invalid_output", "environment_error"), "unclear"),
    Attack("removes_builtins", """
def attack():
    import builtins
    for name in ("len", "isinstance", "type", "str", "dict"): delattr(builtins, name)
    return "ok", 0.0, False, False, {}
""", ("died", "environment_error", "ok"), "unclear"),
]  # fmt: skip

ATTACKS = [*NEVER_ENDS, *EATS, *READS_OR_WRITES, *TALKS, *ESCAPES, *KEEPERS, *LIES, *DIES]

HARMFUL = [attack for attack in ATTACKS if attack.breach != "unclear"]

AT_LOAD = [
    ("loop_at_import", "while True: pass", "timeout"),
    ("exit_at_import", "import os\nos._exit(7)", "died"),
    ("loop_in_constructor", "class AEnv:\n    def __init__(self):\n        while True: pass", "timeout"),
    ("memory_at_import", "x = bytearray(2**40)", "environment_error"),
    ("compiler_bomb", "x = " + "(" * 5000 + ")" * 5000, "environment_error"),
    ("constant_folding", "x = 'a' * 2**40", "environment_error"),
    ("atexit_hangs", "import atexit, sys\natexit.register(lambda: [0 for _ in iter(int, 1)])\nsys.exit(0)",
     "environment_error"),
    ("metaclass", "class M(type):\n    def __call__(cls): raise MemoryError\nclass AEnv(metaclass=M): pass",
     "environment_error"),
    ("speaks_before_it_is_asked", "import os\nos.write(3, b'x' * 10)\nwhile True: pass",
     "protocol_violation"),
]  # fmt: skip

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="attacks name x86-64 system calls")


async def outcome_of(pool, source: str, *, patience: float) -> tuple[str, str]:
    """Kind and text of what comes of one step of an attack."""
    try:
        async with asyncio.timeout(patience), await pool.open(source) as environment:
            await environment.reset(0)
            step = await environment.step("go")
            if step.observation == "ready for the next":
                await environment.step("go")
            return "ok", step.observation
    except EnvironmentFailure as failure:
        return failure.kind, failure.detail
    except HostFault as fault:
        return "host_fault", str(fault)
    except TimeoutError:
        return "hangs", ""


async def keep_asking(pool, stop: asyncio.Event) -> int:
    """Plays an honest sibling until told to stop; it fails if an answer is ever wrong."""
    async with await pool.open(SIBLING) as environment:
        await environment.reset(0)
        total = 0
        while not stop.is_set():
            total += 7
            assert (await environment.step("7")).observation == str(total)
            await asyncio.sleep(0.01)
    return total


async def attack_all(bench) -> dict[str, tuple[str, str]]:
    """Runs every attack beside honest siblings."""
    stop = asyncio.Event()
    siblings = [asyncio.create_task(keep_asking(pool, stop)) for pool in (bench.pool, bench.hurried_pool)]
    few_at_once = asyncio.Semaphore(8)

    async def run(name: str, source: str, kinds: tuple[str, ...]) -> tuple[str, tuple[str, str]]:
        pool = bench.hurried_pool if kinds[0] == "timeout" else bench.pool
        async with few_at_once:
            return name, await outcome_of(pool, bench.fill_in(source), patience=60)

    attacks = [(attack.name, attack.source, attack.outcomes) for attack in ATTACKS]
    attacks += [(name, code, (kind,)) for name, code, kind in AT_LOAD]
    outcomes = dict(await asyncio.gather(*(run(*attack) for attack in attacks)))
    stop.set()
    assert min(await asyncio.gather(*siblings)) > 0
    return outcomes


@pytest.fixture(scope="module")
def outcomes(bench) -> dict[str, tuple[str, str]]:
    """What came of each attack; nothing of it may have reached the host."""
    servers = [slot._current for slot in [*bench.pool._slots, *bench.hurried_pool._slots]]
    outcomes = bench.run(attack_all(bench))
    assert bench.traces() == []
    assert all(server.alive for server in servers)
    assert bench.pool.num_live == bench.hurried_pool.num_live == 0
    return outcomes


@on_x86
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(outcomes, attack):
    kind, text = outcomes[attack.name]
    assert ("refused" if kind == "ok" and text.startswith("refused") else kind) in attack.outcomes, text
    assert "BREACH" not in text
    assert "canary" not in text
    assert len(text) <= 65536


@on_x86
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, _, kind in AT_LOAD])
def test_attack_while_loading(outcomes, name, kind):
    assert outcomes[name][0] == kind, outcomes[name][1]


def launch_unprotected(folder):
    """Starts a fork server that locks nothing, in a jail that can be thrown away."""

    def launch(limits, level, with_maths, cores, control):
        packages = sorted({str(fork_server._package_folder(name)) for name in ("numpy", "msgspec")})
        settings = {"level": "L1", "control": control.fileno(), "parent": 0, "packages": packages}
        settings |= {"with_maths": with_maths, "cores": cores, "memory_mb": 0}
        jail = [shutil.which("bwrap"), "--ro-bind", "/", "/", "--bind", str(folder), str(folder)]
        jail += ["--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-ipc", "--cap-add", "ALL"]
        script = pathlib.Path(__file__).with_name("unprotected.py")
        inside = [os.path.realpath(sys.executable), "-S", "-B", str(script), str(fork_server._FOLDER)]
        return subprocess.Popen(
            [*jail, "--die-with-parent", *inside, json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[control.fileno()],
            start_new_session=True,
        )

    return launch


def believe(body, request):
    """A host that believes what it is told."""
    blank = {"observation": "", "reward": 0.0, "terminated": False, "truncated": False, "info": {}}
    reply = {**blank, "max_turns": None, **json.loads(body)}
    if reply.get("failure") in FAILURE_KINDS:
        raise EnvironmentFailure(reply["failure"], str(reply.get("detail", "")))
    return types.SimpleNamespace(**reply)


@pytest.fixture(scope="module")
def unprotected_outcomes(tmp_path_factory) -> dict[str, str]:
    """What comes of each attack with nothing in its way."""
    if shutil.which("bwrap") is None:
        pytest.skip("the throwaway jail needs bubblewrap (apt-get install bubblewrap)")
    if os.geteuid() != 0:
        pytest.skip("only root can show what root could do")
    folder = tmp_path_factory.mktemp("unprotected")
    bench = Bench(folder)
    outcomes = {}

    async def run(attack):
        limits = SandboxLimits(step_timeout=60, load_timeout=60, max_observation_bytes=2**40)
        async with SandboxPool(limits, "L1") as pool:
            patience = 1.5 if attack.breach == "hangs" else 60
            kind, text = await outcome_of(pool, bench.fill_in(attack.source), patience=patience)
            # An attack that has killed its fork server need not come to boast of it.
            breached = text.startswith("BREACH") or text == "the fork server died"
            outcomes[attack.name] = "BREACH" if breached else kind.replace("ok", "accepted")

    async def run_all():
        few_at_once = asyncio.Semaphore(4)

        async def limited(attack):
            async with few_at_once:
                await run(attack)

        await asyncio.gather(*(limited(attack) for attack in HARMFUL))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SPADE_CANARY", CANARY)
        monkeypatch.setattr(fork_server, "_launch", launch_unprotected(folder))
        monkeypatch.setattr(protocol, "decode_reply", believe)
        monkeypatch.setattr(protocol, "check_max_turns", lambda reply: None)
        monkeypatch.setattr(protocol, "check_tools", lambda reply, _: [])
        monkeypatch.setattr(protocol, "check_reset", lambda reply, _: Reset(reply.observation, {}))
        monkeypatch.setattr(
            protocol,
            "check_step",
            lambda r, _: Step(str(r.observation), r.reward, r.terminated, r.truncated, r.info),
        )
        bench.run(run_all())
    assert {"file written", "tcp", "udp", "abstract"} <= set(bench.traces())
    bench.loop.close()
    return outcomes


@on_x86
@pytest.mark.slow
@pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.breach != "unclear"], ids=lambda attack: attack.name
)
def test_breaches_without_protection(unprotected_outcomes, attack):
    assert unprotected_outcomes[attack.name] == attack.breach
