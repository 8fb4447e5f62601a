"""What every test runs under: the CPU, no network, and a compilation cache that outlives the run."""

import os
import socket

import hypothesis

from spade_jax.user_cache import user_cache_dir

# Set before anything imports jax, here and in the processes that tests start.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(user_cache_dir() / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# How fast an example runs says nothing about the code on a machine that does other things too.
hypothesis.settings.register_profile("spade_jax", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("spade_jax")

_connect = socket.socket.connect


def _connect_locally(self: socket.socket, address: object) -> None:
    if self.family in (socket.AF_INET, socket.AF_INET6):
        host = address[0] if isinstance(address, tuple) else address
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"tests have no network: something connects to {address}")
    _connect(self, address)  # type: ignore[arg-type]


socket.socket.connect = _connect_locally  # type: ignore[method-assign,assignment]
