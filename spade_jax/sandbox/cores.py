"""The processor cores of a host, shared out between the processes that run a pool on it."""

import os


def share_of_cores(process_index: int, num_processes: int) -> list[int] | None:
    """The cores that the fork servers of one process may use.

    Every core that this process may run on belongs to one of them; with more processes than cores,
    several share one.

    Args:
      process_index: of this process among those on the host, from 0.
      num_processes: how many run a pool on the host.

    Returns:
      core numbers, or None where there is nothing to share out.

    Raises:
      ValueError: the index is not one of the processes'.
    """
    if not 0 <= process_index < num_processes:
        raise ValueError(
            f"process {process_index} of {num_processes} on this host; want an index from 0 to one less"
        )
    if num_processes == 1:
        return None
    cores = sorted(os.sched_getaffinity(0))
    return cores[process_index::num_processes] or [cores[process_index % len(cores)]]
