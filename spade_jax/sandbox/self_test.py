"""An environment that tries what no environment may do, run at the start of every pool.

The source goes the way of every other source: the same fork server, lock and protocol. Each attempt
that succeeds is named in the first observation; a pool that sees one refuses to start.
"""

SOURCE = r"""
import ctypes
import os
import resource
import signal
import socket

libc = ctypes.CDLL(None, use_errno=True)


def refused(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")


def open_file():
    os.close(os.open("/etc/passwd", os.O_RDONLY))


def make_socket():
    socket.socket().close()


def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def execute():
    # A program that does not exist: with the right to execute this is ENOENT, not EPERM.
    try:
        os.execv("/nonexistent", ["/nonexistent"])
    except FileNotFoundError:
        return


def signal_parent():
    os.kill(os.getppid(), 0)


def trace_parent():
    refused(libc.ptrace(16, os.getppid(), None, None))


def make_namespace():
    refused(libc.unshare(0x10000000))


def map_executable():
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    if libc.mmap(None, 4096, 7, 0x22, -1, 0) == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "refused")


def set_timer():
    signal.setitimer(signal.ITIMER_REAL, 3600.0)


def raise_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.prlimit(0, resource.RLIMIT_AS, (soft, hard))


def make_ring():
    parameters = ctypes.create_string_buffer(120)
    refused(libc.syscall(425, 1, parameters))


def make_memory_file():
    os.close(os.memfd_create("spare"))


def use_other_descriptors():
    for descriptor in range(4, 256):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        return
    raise OSError("none")


ATTEMPTS = [
    open_file, make_socket, fork, execute, signal_parent, trace_parent, make_namespace, map_executable,
    set_timer, raise_limit, make_ring, make_memory_file, use_other_descriptors,
]


class SelfTestEnv:
    def reset(self, seed=None):
        breaches = []
        for attempt in ATTEMPTS:
            try:
                attempt()
            except OSError:
                continue
            breaches.append(attempt.__name__)
        return " ".join(breaches), {"num_attempts": len(ATTEMPTS)}

    def step(self, action):
        return "", 0.0, True, False, {}
"""
