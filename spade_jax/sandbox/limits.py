"""What one environment may use: memory, time and the sizes of everything that crosses its channel."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """Limits of one environment, enforced by the kernel (memory) and by the host (all else).

    Attributes:
      memory_mb: MiB of address space beyond what its fork server has mapped.
      load_timeout: seconds for running the source and the constructor.
      step_timeout: seconds for one reset or one step.
      max_code_bytes: longest source, in UTF-8.
      max_action_chars: an action is cut to this length.
      max_observation_bytes: longest observation or output of a tool, in UTF-8.
      max_tools_bytes: longest list of tools' schemas, as JSON.
      max_reward: largest magnitude of one reward.
      max_forks: environments that one fork server makes before a fresh one takes its place.
    """

    memory_mb: int = 256
    load_timeout: float = 5.0
    step_timeout: float = 2.0
    max_code_bytes: int = 256 * 1024
    max_action_chars: int = 100_000
    max_observation_bytes: int = 64 * 1024
    max_tools_bytes: int = 64 * 1024
    max_reward: float = 1e6
    max_forks: int = 10_000

    @property
    def max_reply_bytes(self) -> int:
        """Longest frame that a child may send: tools, and an observation in which JSON escapes every byte."""
        return 6 * self.max_observation_bytes + self.max_tools_bytes + 16 * 1024
