"""The system calls that an environment may make, as a filter program for the kernel.

Runs in the child, so it imports the standard library only. An environment computes and talks over
the one descriptor it holds; it cannot open, connect, fork, execute, signal, set timers or map
executable memory. Everything that is not in the tables is refused with EPERM, which honest code
sees as an ordinary `PermissionError`.

The filter does not judge the contents of memory behind pointers, and it cannot see the vDSO clock.
"""

import ctypes
import dataclasses
import errno
import platform
import struct

_ALLOWED_EVERYWHERE = (
    "read write readv writev close fstat lseek ppoll pselect6 munmap mremap brk madvise "
    "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack sched_yield nanosleep clock_nanosleep "
    "clock_gettime clock_getres gettimeofday getpid gettid getuid geteuid getgid getegid getrusage "
    "times futex restart_syscall exit exit_group rseq set_robust_list membarrier sched_getaffinity "
    "sysinfo uname getitimer"
)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The numbers of one machine type.

    Attributes:
      audit: the kernel's AUDIT_ARCH constant, checked before any number is trusted.
      numbers: system call numbers by name.
      only_here: names allowed in addition to those allowed everywhere.
      foreign_bit: numbers at or above it belong to a second ABI of the same machine (x32); 0 if none.
    """

    audit: int
    numbers: dict[str, int]
    only_here: tuple[str, ...]
    foreign_bit: int = 0

    @property
    def allowed(self) -> tuple[str, ...]:
        """Names of the calls that are allowed whatever their arguments."""
        return (*_ALLOWED_EVERYWHERE.split(), *self.only_here)


# fmt: off
ARCHITECTURES = {
    "x86_64": Architecture(
        audit=0xC000003E,
        numbers={
            "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10,
            "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
            "ioctl": 16, "readv": 19, "writev": 20,
            "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28,
            "nanosleep": 35, "getitimer": 36, "getpid": 39, "exit": 60, "uname": 63, "fcntl": 72,
            "gettimeofday": 96, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104,
            "geteuid": 107, "getegid": 108, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202,
            "sched_getaffinity": 204, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
            "clock_nanosleep": 230, "exit_group": 231, "epoll_wait": 232, "pselect6": 270, "ppoll": 271,
            "set_robust_list": 273, "membarrier": 324, "rseq": 334, "clone3": 435,
        },
        only_here=("poll", "select", "epoll_wait", "time"),
        foreign_bit=0x40000000,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        numbers={
            "epoll_pwait": 22, "fcntl": 25, "ioctl": 29, "close": 57, "lseek": 62, "read": 63, "write": 64,
            "readv": 65, "writev": 66, "pselect6": 72, "ppoll": 73, "fstat": 80, "exit": 93, "exit_group": 94,
            "futex": 98, "set_robust_list": 99, "nanosleep": 101, "getitimer": 102, "clock_gettime": 113,
            "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
            "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
            "rt_sigreturn": 139, "times": 153, "uname": 160, "getrusage": 165, "gettimeofday": 169,
            "getpid": 172, "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178,
            "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226,
            "madvise": 233, "membarrier": 283, "rseq": 293, "clone3": 435,
        },
        only_here=("epoll_pwait",),
    ),
}
# fmt: on

_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_GREATER_EQUAL = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000
_KILL_PROCESS = 0x80000000

_OFFSET_NUMBER = 0
_OFFSET_ARCHITECTURE = 4
_OFFSET_ARGUMENTS = 16

_PROT_EXEC = 4
# F_GETFD, F_SETFD, F_GETFL. F_SETOWN and F_SETSIG would let a child signal its parent.
_FCNTL_COMMANDS = (1, 2, 3)

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2


def build_filter(architecture: Architecture) -> bytes:
    """Assembles the filter for one machine type.

    Returns:
      a BPF program, eight bytes an instruction, in little-endian order.
    """
    numbers = architecture.numbers
    program = [
        _instruction(_LOAD_WORD, _OFFSET_ARCHITECTURE),
        _instruction(_JUMP_EQUAL, architecture.audit, when_true=1),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD_WORD, _OFFSET_NUMBER),
    ]
    if architecture.foreign_bit:
        program += _when(_JUMP_GREATER_EQUAL, architecture.foreign_bit, _KILL_PROCESS)
    for name in architecture.allowed:
        program += _when(_JUMP_EQUAL, numbers[name], _ALLOW)
    program += _when(_JUMP_EQUAL, numbers["ioctl"], _REFUSE | errno.ENOTTY)
    # ENOSYS makes the C library fall back to clone, which then fails with a clean EPERM.
    program += _when(_JUMP_EQUAL, numbers["clone3"], _REFUSE | errno.ENOSYS)

    executable = [_load_argument(2), *_when(_JUMP_ANY_BIT, _PROT_EXEC, _REFUSE | errno.EPERM)]
    for name in ("mmap", "mprotect"):
        program += _block(numbers[name], [*executable, _instruction(_RETURN, _ALLOW)])
    commands = [_load_argument(1)]
    for command in _FCNTL_COMMANDS:
        commands += _when(_JUMP_EQUAL, command, _ALLOW)
    program += _block(numbers["fcntl"], [*commands, _instruction(_RETURN, _REFUSE | errno.EPERM)])

    program.append(_instruction(_RETURN, _REFUSE | errno.EPERM))
    return b"".join(program)


class Filter(ctypes.Structure):
    """A BPF program as the kernel takes it; making one costs more than installing it."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    def __init__(self, program: bytes):
        self._buffer = ctypes.create_string_buffer(program, len(program))
        super().__init__(len(program) // 8, ctypes.cast(self._buffer, ctypes.c_void_p))


def local_filter() -> Filter:
    """The filter for the machine that this runs on.

    Raises:
      OSError: for a machine type without a table.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise OSError(errno.ENOSYS, f"no system call table for machine type {machine!r}; known: {known}")
    return Filter(build_filter(ARCHITECTURES[machine]))


def forbid_new_privileges(libc: ctypes.CDLL) -> None:
    """Sets no_new_privs, without which an unprivileged process may not install a filter."""
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")


def install_filter(libc: ctypes.CDLL, program: Filter) -> None:
    """Puts the filter on the calling thread, for good.

    Raises:
      OSError: if the kernel or a filter outside refuses.
    """
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP) failed")


def _instruction(code: int, operand: int, *, when_true: int = 0, when_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, when_true, when_false, operand)


def _load_argument(index: int) -> bytes:
    # The low half: every argument that is checked here is an int or a set of low bits.
    return _instruction(_LOAD_WORD, _OFFSET_ARGUMENTS + 8 * index)


def _when(jump: int, operand: int, verdict: int) -> list[bytes]:
    return [_instruction(jump, operand, when_false=1), _instruction(_RETURN, verdict)]


def _block(number: int, body: list[bytes]) -> list[bytes]:
    return [_instruction(_JUMP_EQUAL, number, when_false=len(body)), *body]
