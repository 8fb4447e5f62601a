"""A run over several processes: how they find each other, and that they agree on what they run.

Each host of a TPU pod slice, each node of a SLURM job, or each of several processes on one machine runs
the same program with the same flags. `join` makes them one `jax.distributed` cluster, after which
`jax.devices()` are those of all; a run of one process is left as it is. When a process dies, jax ends
the others with a message, within its heartbeat's 100 seconds at the latest.
"""

import dataclasses
import hashlib
import ipaddress
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from spade_jax.errors import DistributedError

# How long a process that has ended, well or not, waits for the others to end too; jax then ends them.
_SHUTDOWN_SECONDS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes:
    """The processes of a run as its flags name them, and which of them this one is.

    Attributes:
      coordinator_address: host:port on which process 0 listens, and the others look for it.
      num_processes: how many there are.
      process_id: of this one, from 0.
    """

    coordinator_address: str
    num_processes: int
    process_id: int

    @classmethod
    def from_flags(
        cls, coordinator_address: str | None, num_processes: int | None, process_id: int | None
    ) -> Self | None:
        """What the flags of these names say; None where none of them is given.

        Raises:
          DistributedError: some are given and others not, or one is out of range.
        """
        given = {
            "--coordinator_address": coordinator_address,
            "--num_processes": num_processes,
            "--process_id": process_id,
        }
        if all(value is None for value in given.values()):
            return None
        if coordinator_address is None or num_processes is None or process_id is None:
            there = [flag for flag, value in given.items() if value is not None]
            missing = [flag for flag, value in given.items() if value is None]
            raise DistributedError(
                f"{' and '.join(there)} without {' and '.join(missing)}; give all three, or none on a TPU "
                "slice, under SLURM, or for a run of one process"
            )
        host, _, port = coordinator_address.rpartition(":")
        if not host or not port.isdecimal():
            raise DistributedError(
                f"--coordinator_address={coordinator_address} is not host:port; give an address of process 0 "
                "and a free port there, such as 10.0.0.1:8476"
            )
        if not 0 <= process_id < num_processes:
            raise DistributedError(
                f"--process_id={process_id} with --num_processes={num_processes}; number the processes from "
                f"0 to {num_processes - 1}"
            )
        return cls(
            coordinator_address=coordinator_address, num_processes=num_processes, process_id=process_id
        )

    @property
    def share_one_host(self) -> bool:
        """Whether all are on one machine, as they must be if they meet at a loopback address."""
        host = self.coordinator_address.rpartition(":")[0].strip("[]")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def place_on_host(processes: Processes | None) -> tuple[int, int]:
    """Which process this is of how many that share this host's cores.

    TPU slices have one process a host, and so have runs whose flags name an address of the network; SLURM
    gives each of its tasks cores of its own.
    """
    if processes is not None and processes.share_one_host:
        return processes.process_id, processes.num_processes
    return 0, 1


def join(processes: Processes | None, *, say: Callable[[str], None]) -> None:
    """Joins the other processes of the run, if there are any; returns when all are there.

    Call it before anything touches a device, and after everything that is forked: it starts threads. It
    takes SIGTERM for itself, so handlers have to be set afterwards. If a process does not come within five
    minutes, jax ends this one with a message.

    Args:
      processes: as the flags name them. Without, SLURM's or the TPU slice's own account is used where
        there is one.
      say: is told that the others are waited for.

    Raises:
      DistributedError: the cluster's account of its processes cannot be read.
    """
    if processes is not None:
        if processes.num_processes == 1:
            return
        arguments: dict[str, Any] = dataclasses.asdict(processes) | {"cluster_detection_method": "deactivate"}
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        arguments = {"cluster_detection_method": "slurm"}
    elif (jax.config.values["jax_platforms"] or "").startswith("tpu"):  # as jax sets it on a TPU host
        arguments = {}
    else:
        return
    where = f" at {processes.coordinator_address}" if processes is not None else ""
    say(f"waiting for the other processes of the run{where}")
    try:
        jax.distributed.initialize(**arguments, shutdown_timeout_seconds=_SHUTDOWN_SECONDS)
    except (ValueError, RuntimeError) as error:
        raise DistributedError(
            f"cannot join the processes of this run: {error}; give --coordinator_address, --num_processes "
            "and --process_id, the latter two as 1 and 0 for a run of one process"
        ) from error


def check_agreement(config: Mapping[str, Any], mesh: Mesh) -> None:
    """Compares what the processes are about to run, over all devices; nothing for one process.

    Args:
      config: of the run, JSON-able.
      mesh: over the devices of all processes.

    Raises:
      DistributedError: in every process, if one of them has another config, mesh or version of jax.
    """
    if jax.process_count() == 1:
        return
    accounts = {
        "config": json.dumps(config, sort_keys=True),
        "mesh": f"{dict(mesh.shape)} {[device.id for device in mesh.devices.flat]}",
        "version of jax": jax.__version__,
    }
    digests = [hashlib.sha256(account.encode()).digest() for account in accounts.values()]
    own = np.stack([np.frombuffer(digest, np.uint32) for digest in digests])
    everyone = np.asarray(multihost_utils.process_allgather(own))  # uint32 [processes, accounts, 8]
    differs = (everyone != everyone[:1]).any(axis=-1)
    if differs.any():
        others = ", ".join(
            f"process {process} another {name}"
            for process, row in enumerate(differs)
            for name, other in zip(accounts, row, strict=True)
            if other
        )
        raise DistributedError(
            f"the processes do not run the same: compared with process 0, {others}. Start all with the same "
            "code and flags"
        )
