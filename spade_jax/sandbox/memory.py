"""How much memory a process and its children may have, and how much of it is left.

Linux only. The machine has a limit, and so may each control group (version 1 or 2) around the process;
what counts is whichever is nearest. File pages that the kernel would drop for others count as left.
"""

import pathlib
import re

_UNLIMITED = 2**60
# By version of control groups: limit, use, and the name of droppable file pages in `memory.stat`.
_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


class MemoryGauge:
    """Reads what this process's machine and control groups say; finds the groups once."""

    def __init__(self, root: pathlib.Path = pathlib.Path("/")):
        """Finds the groups.

        Args:
          root: of the tree in which the kernel's `proc` and `sys` are.
        """
        self._meminfo = root / "proc/meminfo"
        self._groups = []
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                mount, names = root / "sys/fs/cgroup", _NAMES[2]
            elif "memory" in controllers.split(","):
                mount, names = root / "sys/fs/cgroup/memory", _NAMES[1]
            else:
                continue
            # Inside a container the path may be the host's, and its own group the root of what is mounted.
            inner = mount / path.strip("/")
            around = [group for group in (inner, *inner.parents) if group.is_relative_to(mount)]
            self._groups += [(group, names) for group in around if (group / names[0]).is_file()]

    def total(self) -> int:
        """Bytes of the machine, or of the tightest group around this process."""
        return min([1024 * _field("MemTotal", self._meminfo), *(limit for limit, _ in self._limits())])

    def available(self) -> int:
        """Bytes of that which are not in use, or in use for files that could be dropped."""
        left = [limit - used for limit, used in self._limits()]
        return max(0, min([1024 * _field("MemAvailable", self._meminfo), *left]))

    def _limits(self) -> list[tuple[int, int]]:
        """Limit and use of every group that has a limit."""
        limits = []
        for group, (limit_name, used_name, cached_name) in self._groups:
            limit = (group / limit_name).read_text().strip()
            if limit != "max" and int(limit) < _UNLIMITED:
                used = int((group / used_name).read_text())
                limits.append((int(limit), used - _field(cached_name, group / "memory.stat")))
        return limits


def _field(name: str, path: pathlib.Path) -> int:
    found = re.search(rf"^{name}\W+(\d+)", path.read_text(), re.MULTILINE)
    assert found is not None, f"{path} has no {name}"
    return int(found[1])
