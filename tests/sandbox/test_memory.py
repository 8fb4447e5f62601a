"""What memory is left is read from whoever limits it, and environments wait for their share."""

import asyncio
import os

import pytest

from spade_jax.errors import HostFault, SandboxUnavailable
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.memory import MemoryGauge
from spade_jax.sandbox.pool import SandboxPool

MIB = 2**20

# Loads and steps for a while that the environment's own clock cannot measure.
WORK = """
class WorkEnv:
    def reset(self, seed=None):
        return "", {}

    def step(self, action):
        sum(range(int(action)))
        return "done", 0.0, False, False, {}
"""


@pytest.fixture
def machine(tmp_path):
    """A tree like the kernel's: 8 GiB of memory of which 5 are left, and the groups that a test adds."""

    class Machine:
        def write(self, path, text):
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

        def add_group(self, folder, *, limit, used, cached=0, version=2):
            names = ("memory.max", "memory.current") if version == 2 else (
                "memory.limit_in_bytes", "memory.usage_in_bytes"
            )  # fmt: skip
            self.write(f"{folder}/{names[0]}", limit)
            self.write(f"{folder}/{names[1]}", used)
            prefix = "" if version == 2 else "total_"
            self.write(f"{folder}/memory.stat", f"anon 5\n{prefix}inactive_file {cached}\nfile 7")

        def read(self):
            gauge = MemoryGauge(tmp_path)
            return gauge.total() // MIB, gauge.available() // MIB

    machine = Machine()
    machine.write(
        "proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 9 kB\nMemAvailable: 5242880 kB\nHugePages_Total: 0"
    )
    machine.write("proc/self/cgroup", "0::/")
    return machine


def test_a_machine_without_groups(machine):
    assert machine.read() == (8192, 5120)


def test_a_container_of_version_two(machine):
    machine.add_group("sys/fs/cgroup", limit=2048 * MIB, used=1500 * MIB, cached=500 * MIB)
    assert machine.read() == (2048, 1048)


def test_the_tightest_group_counts(machine):
    machine.write("proc/self/cgroup", "0::/outer/inner")
    machine.add_group("sys/fs/cgroup/outer/inner", limit="max", used=100 * MIB)
    machine.add_group("sys/fs/cgroup/outer", limit=3072 * MIB, used=2900 * MIB)
    machine.add_group("sys/fs/cgroup", limit=6000 * MIB, used=0)
    assert machine.read() == (3072, 172)


def test_a_group_of_version_one(machine):
    machine.write("proc/self/cgroup", "7:cpu,cpuacct:/box\n5:memory:/box\n0::/box")
    machine.add_group(
        "sys/fs/cgroup/memory/box", limit=1024 * MIB, used=300 * MIB, cached=200 * MIB, version=1
    )
    machine.add_group("sys/fs/cgroup/memory", limit=9223372036854771712, used=4000 * MIB, version=1)
    assert machine.read() == (1024, 924)


def test_a_container_of_version_one_that_is_told_its_path_outside(machine):
    machine.write("proc/self/cgroup", "5:memory:/docker/0123abc")
    machine.add_group("sys/fs/cgroup/memory", limit=512 * MIB, used=600 * MIB, version=1)
    assert machine.read() == (512, 0)


def test_this_machine_can_be_read():
    gauge = MemoryGauge()
    assert 0 < gauge.available() <= gauge.total()
    assert gauge.total() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_an_environment_that_could_never_fit_is_refused_at_the_start():
    limits = SandboxLimits(memory_mb=2 * MemoryGauge().total() // MIB)
    with pytest.raises(SandboxUnavailable, match="lower memory_mb"):
        asyncio.run(SandboxPool.start(limits))


def limits_for(share: float) -> SandboxLimits:
    """Environments each of which may take this share of the memory that is left."""
    memory_mb = int(share * MemoryGauge().available() / MIB)
    return SandboxLimits(memory_mb=memory_mb, step_timeout=60.0, load_timeout=60.0)


def test_a_new_environment_waits_for_those_that_may_still_grow():
    """Two could grow beyond what there is: the second is made once the first has nothing to do."""

    async def main():
        async with await SandboxPool.start(limits_for(0.7)) as sandbox:
            first = await sandbox.open(WORK)
            await first.reset(0)
            busy = asyncio.create_task(first.step("20000000"))
            await asyncio.sleep(0)
            second = await sandbox.open(WORK)
            assert busy.done()
            await second.reset(0)
            # Idle ones are not in the way of others, and are told apart by what they hold.
            for _ in range(3):
                await sandbox.open(WORK)
            assert sandbox.num_live == 5
            assert sandbox.failures == {}

    asyncio.run(main())


def test_opened_all_at_once_they_take_turns():
    async def main():
        async with await SandboxPool.start(limits_for(0.4)) as sandbox:
            most = 0

            async def watch():
                nonlocal most
                while True:
                    busy = sum(environment.busy for environment in sandbox._live)
                    most = max(most, busy + sandbox._num_starting)
                    await asyncio.sleep(0)

            watching = asyncio.create_task(watch())
            environments = await asyncio.gather(*(sandbox.open(WORK) for _ in range(12)))
            watching.cancel()
            assert len(environments) == 12
            assert most == 2

    asyncio.run(main())


def test_what_no_waiting_can_help_is_a_host_fault():
    """Something else has the memory, and nothing of ours is about to give any back."""
    gauge = MemoryGauge()
    limits = SandboxLimits(memory_mb=(gauge.available() + gauge.total()) // 2 // MIB)

    async def main():
        async with await SandboxPool.start(limits) as sandbox:
            with pytest.raises(HostFault, match=r"MiB are left beside 0 idle ones; close some, or lower"):
                await sandbox.open(WORK)
            assert sandbox.failures == {"host_fault": 1}

    asyncio.run(main())
