"""The sandbox that a config asks for."""

from spade_jax.config import SandboxConfig
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool


async def start_sandbox(config: SandboxConfig) -> SandboxPool:
    """A pool with the limits and the isolation of a config.

    Raises:
      SandboxUnavailable: this machine cannot isolate as strictly as the config demands.
    """
    limits = SandboxLimits(
        memory_mb=config.memory_mb, load_timeout=config.load_timeout, step_timeout=config.step_timeout
    )
    return await SandboxPool.start(limits, num_zygotes=config.num_zygotes, min_level=config.min_level)
