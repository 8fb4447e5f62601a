"""The filter as the kernel reads it, for both machine types, and its numbers as the kernel publishes them."""

import pathlib
import re
import struct

import pytest

from spade_jax.sandbox import seccomp

MACHINES = sorted(seccomp.ARCHITECTURES)
ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOTTY, ENOSYS = 0x50001, 0x50019, 0x50026


FORBIDDEN = """
openat open openat2 creat socket connect accept bind sendto sendmsg recvmsg clone clone3 fork vfork execve
execveat kill tkill tgkill ptrace prctl prlimit64 setrlimit setitimer timer_create timerfd_create
memfd_create io_uring_setup bpf userfaultfd mount unshare setns pidfd_open shmget process_vm_readv
process_vm_writev getrandom sched_setaffinity seccomp dup dup2 dup3 pipe pipe2 mmap mprotect pkey_mprotect
ioctl fcntl
"""


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """Runs the filter by the rules of classic BPF on one system call."""
    architecture = seccomp.ARCHITECTURES[machine]
    audit = architecture.audit if audit is None else audit
    arguments = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, audit, 0, *arguments)
    program = seccomp.build_filter(architecture)
    instructions = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        code, when_true, when_false, operand = instructions[at]
        at += 1
        match code:
            case 0x20:
                [accumulator] = struct.unpack_from("<I", data, operand)
            case 0x15:
                at += when_true if accumulator == operand else when_false
            case 0x35:
                at += when_true if accumulator >= operand else when_false
            case 0x45:
                at += when_true if accumulator & operand else when_false
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"an instruction that the filter has no need of: {code:#x}")


@pytest.mark.parametrize("machine", MACHINES)
def test_every_number_has_the_verdict_of_its_name(machine):
    architecture = seccomp.ARCHITECTURES[machine]
    allowed = {architecture.numbers[name] for name in architecture.allowed}
    special = {architecture.numbers[name] for name in ("ioctl", "clone3", "mmap", "mprotect", "fcntl")}
    assert not allowed & special
    for number in set(range(600)) - special:
        assert verdict(machine, number) == (ALLOW if number in allowed else EPERM), number
    assert verdict(machine, architecture.numbers["ioctl"]) == ENOTTY
    assert verdict(machine, architecture.numbers["clone3"]) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["mmap", "mprotect"])
def test_memory_may_not_be_executable(machine, name):
    number = seccomp.ARCHITECTURES[machine].numbers[name]
    for protection in range(8):
        wanted = EPERM if protection & 4 else ALLOW
        assert verdict(machine, number, 0x7000_0000_0000, 4096, protection) == wanted
        # High bits that the kernel ignores must not hide low ones.
        assert verdict(machine, number, 0, 4096, protection | 1 << 40) == wanted


@pytest.mark.parametrize("machine", MACHINES)
def test_descriptor_flags_only(machine):
    number = seccomp.ARCHITECTURES[machine].numbers["fcntl"]
    for command in range(1100):
        assert verdict(machine, number, 3, command) == (ALLOW if command in (1, 2, 3) else EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_foreign_calls_kill(machine):
    architecture = seccomp.ARCHITECTURES[machine]
    for audit in (0x40000003, 0x40000028, 0, *(a.audit for a in seccomp.ARCHITECTURES.values())):
        expected = ALLOW if audit == architecture.audit else KILL
        assert verdict(machine, architecture.numbers["read"], audit=audit) == expected
    if architecture.foreign_bit:
        assert verdict(machine, architecture.foreign_bit | architecture.numbers["read"]) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_what_must_never_be_allowed(machine):
    assert not set(seccomp.ARCHITECTURES[machine].allowed) & set(FORBIDDEN.split())


@pytest.mark.parametrize(
    ("machine", "header", "pattern"),
    [
        ("x86_64", "x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)"),
        ("aarch64", "asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+) (\d+)"),
    ],
)
def test_numbers_are_the_kernels(machine, header, pattern):
    path = pathlib.Path("/usr/include") / header
    if not path.is_file():
        pytest.skip("the kernel's headers are not installed (apt-get install linux-libc-dev)")
    published = {name: int(number) for name, number in re.findall(pattern, path.read_text())}
    assert {name: published[name] for name in seccomp.ARCHITECTURES[machine].numbers} == (
        seccomp.ARCHITECTURES[machine].numbers
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_libseccomps(machine):
    pyseccomp = pytest.importorskip("pyseccomp", reason="needs libseccomp and pyseccomp", exc_type=Exception)
    arch = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}[machine]
    for name, number in seccomp.ARCHITECTURES[machine].numbers.items():
        assert pyseccomp.resolve_syscall(arch, name) == number
