"""A long run with hostile sources mixed in: nothing leaks and no result is lost.

python -m pytest tests/sandbox/test_soak.py -m slow -n 0 -k full
"""

import asyncio
import contextlib
import ctypes
import os
import pathlib
import time

import pytest

from spade_jax.errors import EnvironmentFailure
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool

PR_SET_CHILD_SUBREAPER = 36

HONEST = """
class SoakEnv:
    def reset(self, seed=None):
        self.offset = OFFSET
        return str(seed), {}

    def step(self, action):
        return str(int(action) + self.offset), 1.0, True, False, {}
"""

HOSTILE = [
    ("environment_error", "        raise ValueError"),
    ("died", "        import os; os._exit(3)"),
    ("invalid_output", "        return None"),
    ("protocol_violation", "        import os; os.write(3, b'y' * 64)"),
    ("timeout", "        while True: pass"),
]


def resident_kib() -> int:
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def num_descendants() -> int:
    """Living and unreaped processes below this one."""
    parents = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        # It may end while it is looked at.
        with contextlib.suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().split("PPid:")[1].split()[0])
    found, generation = 0, {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        found += len(generation)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_episodes", "num_sources", "max_seconds"),
    [pytest.param(1_500, 100, 300, id="short"), pytest.param(100_000, 2_000, 3600, id="full")],
)
def test_soak(num_episodes, num_sources, max_seconds):
    """Episodes of many sources, one in twenty hostile, 32 sources at a time."""
    per_source = num_episodes // num_sources
    results: dict[str, int] = {}
    started = time.monotonic()

    async def play_source(sandbox, number: int) -> None:
        kind, body = HOSTILE[number // 20 % len(HOSTILE)] if number % 20 == 0 else ("fine", "")
        code = HONEST.replace("OFFSET", str(number)) + f"\n\n# {number}\n"
        if body:
            head, tail = code.split("    def step(self, action):\n")
            code = f"{head}    def step(self, action):\n{body}\n{tail}"
        environment = await sandbox.open(code)
        for episode in range(per_source):
            try:
                assert (await environment.reset(episode)).observation == str(episode)
                assert (await environment.step(str(episode))).observation == str(episode + number)
                outcome = "fine"
            except EnvironmentFailure as failure:
                outcome = failure.kind
                await environment.close()
                environment = await sandbox.open(code)
            assert outcome == kind
            results[outcome] = results.get(outcome, 0) + 1
        await environment.close()

    async def main() -> None:
        # Few forks to a server, so that many come and go.
        limits = SandboxLimits(step_timeout=0.5, load_timeout=30.0, max_forks=50)
        async with await SandboxPool.start(limits, num_zygotes=2) as sandbox:
            numbers = iter(range(num_sources))
            descriptors = len(os.listdir("/proc/self/fd"))
            baseline = 0

            async def worker() -> None:
                nonlocal baseline
                for number in numbers:
                    await play_source(sandbox, number)
                    if not baseline and sum(results.values()) >= num_episodes // 10:
                        baseline = resident_kib()

            await asyncio.gather(*(worker() for _ in range(32)))
            assert sandbox.num_live == 0
            assert sandbox.failures["host_fault"] == 0
            assert resident_kib() < 1.05 * baseline
            await asyncio.sleep(0.5)
            assert len(os.listdir("/proc/self/fd")) == descriptors

    # Whatever its parents leave behind becomes a child of this process, where it is counted.
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    processes = num_descendants()
    asyncio.run(main())
    assert sum(results.values()) == num_episodes
    hostile = {number // 20 % len(HOSTILE) for number in range(0, num_sources, 20)}
    assert set(results) == {"fine", *(HOSTILE[index][0] for index in hostile)}
    assert num_descendants() == processes
    assert time.monotonic() - started < max_seconds
