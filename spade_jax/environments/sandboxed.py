"""The sandbox that a config asks for."""

from spade_jax.config import SandboxConfig
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool


async def start_sandbox(
    config: SandboxConfig, *, process_index: int = 0, num_processes: int = 1
) -> SandboxPool:
    """A pool with the limits and the isolation of a config.

    Args:
      process_index, num_processes: which process this is of how many that run a pool on this host.

    Raises:
      SandboxUnavailable: this machine cannot isolate as strictly as the config demands.
    """
    limits = SandboxLimits(
        memory_mb=config.memory_mb, load_timeout=config.load_timeout, step_timeout=config.step_timeout
    )
    return await SandboxPool.start(
        limits,
        num_zygotes=config.num_zygotes,
        min_level=config.min_level,
        process_index=process_index,
        num_processes=num_processes,
    )
