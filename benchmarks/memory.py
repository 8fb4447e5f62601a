"""The memory of a run with all its processes, sandbox included.

    python benchmarks/memory.py -- python launch/train.py --config=configs/tiny_games.py --workdir=runs/memory

Runs the command and prints the largest sum of proportional set sizes (PSS: pages that processes share
count once) that its process tree had, as seen once a second. Linux only.
"""

import contextlib
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

INTERVAL_S = 1.0


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    process = subprocess.Popen(command)
    peak = 0
    while process.poll() is None:
        total = 0
        for pid in tree(process.pid):
            with contextlib.suppress(OSError):  # it ended meanwhile
                total += pss_kib(pid)
        peak = max(peak, total)
        time.sleep(INTERVAL_S)
    print(f"peak PSS of the process tree: {peak / 2**20:.2f} GiB")
    return process.returncode


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
        children[parent].append(int(stat.parent.name))
    found, at = [root], 0
    while at < len(found):
        found += children[found[at]]
        at += 1
    return found


def pss_kib(pid: int) -> int:
    """The proportional set size of one process, in KiB.

    Raises:
      OSError: it has ended, or belongs to another user.
    """
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(arguments[1:] if arguments[:1] == ["--"] else arguments))
