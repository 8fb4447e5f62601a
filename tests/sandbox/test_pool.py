"""Levels and refusal to start, faults of the host's own making, and cleaning up after everyone."""

import asyncio
import concurrent.futures
import ctypes
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.errors import EnvironmentFailure, HostFault, SandboxUnavailable
from spade_jax.sandbox import fork_server, pool, seccomp
from spade_jax.sandbox.cores import share_of_cores
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool

LIMITS = SandboxLimits(step_timeout=10.0, load_timeout=20.0)
ROOT = pathlib.Path(__file__).resolve().parents[2]

ECHO = """
class EchoEnv:
    def reset(self, seed=None):
        return "ready", {}

    def step(self, action):
        return action, 0.0, False, False, {}
"""

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives up root's rights")


async def echo_once(sandbox: SandboxPool, code: str = ECHO) -> str:
    async with await sandbox.open(code) as environment:
        await environment.reset(0)
        return (await environment.step("echo")).observation


def run_host(
    script: str, *, command: tuple[str, ...] = (sys.executable, "-")
) -> subprocess.CompletedProcess[str]:
    """Runs a host of its own, in a fresh process, and returns what it printed."""
    prelude = (
        "import asyncio, json, os, sys\n"
        "from spade_jax.errors import *\n"
        "from spade_jax.sandbox.limits import SandboxLimits\n"
        "from spade_jax.sandbox.pool import SandboxPool\n"
        f"ECHO = {ECHO!r}\n"
        "async def echo_once(sandbox):\n"
        "    async with await sandbox.open(ECHO) as environment:\n"
        "        await environment.reset(0)\n"
        "        return (await environment.step('echo')).observation\n"
        "async def main(min_level='L2'):\n"
        "    async with await SandboxPool.start(SandboxLimits(step_timeout=10, load_timeout=20),"
        " min_level=min_level) as sandbox:\n"
        "        print(json.dumps([sandbox.level, await echo_once(sandbox)]))\n"
    )
    return subprocess.run(
        command,
        input=prelude + script,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
    )


@needs_bwrap
def test_uses_the_strongest_level():
    async def main():
        async with await SandboxPool.start(LIMITS) as sandbox:
            return sandbox.level, await echo_once(sandbox)

    assert asyncio.run(main()) == ("L3", "echo")


def test_without_bubblewrap_the_filter_holds(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    async def main():
        async with await SandboxPool.start(LIMITS) as sandbox:
            return sandbox.level, await echo_once(sandbox)

    assert asyncio.run(main()) == ("L2", "echo")
    with pytest.raises(SandboxUnavailable, match="L3: bubblewrap is not installed"):
        asyncio.run(SandboxPool.start(LIMITS, min_level="L3"))


def test_bubblewrap_that_does_not_work_is_not_trusted(monkeypatch, tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(SandboxUnavailable, match="L3: bwrap: No permissions to create new namespace"):
        asyncio.run(SandboxPool.start(LIMITS, min_level="L3"))


# A filter outside ours that refuses further filters: a kernel without seccomp, as far as a child can tell.
NO_SECCOMP = """
import ctypes, errno
from spade_jax.sandbox import seccomp as s
import platform
number = {"x86_64": 157, "aarch64": 167}[platform.machine()]
program = b"".join([
    s._instruction(s._LOAD_WORD, s._OFFSET_NUMBER),
    *s._block(number, [s._load_argument(0), *s._when(s._JUMP_EQUAL, 22, s._REFUSE | errno.EINVAL),
                       s._instruction(s._RETURN, s._ALLOW)]),
    s._instruction(s._RETURN, s._ALLOW),
])
libc = ctypes.CDLL(None, use_errno=True)
s.forbid_new_privileges(libc)
s.install_filter(libc, s.Filter(program))
"""


def test_without_seccomp_it_refuses_to_start():
    result = run_host(NO_SECCOMP + "try: asyncio.run(main())\nexcept SandboxUnavailable as e: print(e)\n")
    assert "need sandbox level L2 or stronger" in result.stdout, result.stderr
    assert "L2: [Errno 22] prctl(PR_SET_SECCOMP) failed" in result.stdout
    assert 'min_level="L1"' in result.stdout


def test_without_seccomp_level_one_must_be_asked_for():
    result = run_host(NO_SECCOMP + "asyncio.run(main('L1'))\n")
    assert json.loads(result.stdout) == ["L1", "echo"]
    assert "generated code can read files" in result.stderr


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match=r"darwin has no seccomp filter.*container or VM"):
        asyncio.run(SandboxPool.start(LIMITS))


def test_a_breach_in_the_self_test_stops_everything(monkeypatch):
    broken = pool.SOURCE.replace("    breaches = []", "    breaches = ['walk_out']")
    assert broken != pool.SOURCE
    monkeypatch.setattr(pool, "SOURCE", broken)
    with pytest.raises(SandboxUnavailable, match="what no environment may do: walk_out"):
        asyncio.run(SandboxPool.start(LIMITS))


def test_the_self_test_notices_a_missing_filter():
    """At level L1 no filter is in force: attempts that are refused above must succeed and be seen."""

    async def main():
        sandbox = SandboxPool(LIMITS, "L1")
        async with sandbox, await sandbox.open(pool.SOURCE) as environment:
            return (await environment.reset(0)).observation.split()

    breaches = asyncio.run(main())
    assert {"execute", "signal_parent", "map_executable", "set_timer"} <= set(breaches)


@needs_root
def test_works_without_root():
    """As uid 65534, in a mount namespace where every folder on the way to the interpreter can be entered."""
    unshare, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if unshare is None or setpriv is None or subprocess.run([unshare, "--mount", "true"]).returncode:
        pytest.skip("no mount namespace can be made here")
    closed = [p for p in pathlib.Path(sys.base_prefix).resolve().parents if not p.stat().st_mode & 0o001]
    prepare = ""
    if closed:
        top, prefix = closed[-1], pathlib.Path(sys.base_prefix).resolve()
        prepare = (
            f"mount --bind {prefix} /mnt && mount -t tmpfs -o mode=755 none {top} && "
            f"mkdir -p {prefix} && mount --bind /mnt {prefix} && "
        )
    command = (
        f"{prepare} exec setpriv --reuid=65534 --regid=65534 --clear-groups {shlex.quote(sys.executable)} -"
    )
    result = run_host("asyncio.run(main())\n", command=[unshare, "--mount", "sh", "-c", command])
    assert json.loads(result.stdout)[1] == "echo", result.stderr


@needs_root
@needs_bwrap
def test_works_where_namespaces_are_used_up():
    """A limit of zero user namespaces, set inside one so that the machine keeps its own."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--user", "true"]).returncode:
        pytest.skip("no user namespace can be made here")
    inside = f"echo 0 > /proc/sys/user/max_user_namespaces && exec {shlex.quote(sys.executable)} -"
    command = [unshare, "--user", "--map-root-user", "sh", "-c", inside]
    result = run_host("asyncio.run(main())\n", command=command)
    assert json.loads(result.stdout) == ["L2", "echo"], result.stderr


def test_a_dead_server_is_replaced_and_its_environments_are_host_faults(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    async def main():
        async with await SandboxPool.start(LIMITS, num_zygotes=2) as sandbox:
            environments = [await sandbox.open(ECHO) for _ in range(4)]
            server = sandbox._slots[0]._current
            os.kill(server._process.pid, signal.SIGKILL)
            await wait_until(lambda: not server.alive)
            results = []
            for environment in environments:
                try:
                    await environment.reset(0)
                    results.append("fine")
                except HostFault as fault:
                    results.append(str(fault))
            assert sorted(results) == ["fine", "fine", "the fork server died", "the fork server died"]
            assert await asyncio.gather(*(echo_once(sandbox) for _ in range(6))) == ["echo"] * 6
            assert sandbox.failures == {"host_fault": 2}
            # No zombie is left, and no pipe.
            await wait_until(lambda: server._process.returncode is not None)
            await wait_until(lambda: server._process.stderr.closed)

    asyncio.run(main())


def test_a_server_that_has_forked_enough_is_replaced_and_ends_with_its_last_child():
    async def main():
        limits = SandboxLimits(step_timeout=10.0, load_timeout=20.0, max_forks=4)
        async with await SandboxPool.start(limits) as sandbox:
            held = [await sandbox.open(ECHO) for _ in range(3)]
            first = sandbox._slots[0]._current
            servers = {first}
            for _ in range(9):
                assert await echo_once(sandbox) == "echo"
                servers.add(sandbox._slots[0]._current)
            # The self-test is the first of 13 children.
            assert len(servers) == 4
            assert first.alive
            assert all(server.num_forks <= 4 for server in servers)
            for environment in held:
                await environment.reset(0)
                assert (await environment.step("old")).observation == "old"
                await environment.close()
            retired = servers - {sandbox._slots[0]._current}
            await wait_until(lambda: not any(server.alive for server in retired))
            await wait_until(lambda: all(server._process.returncode is not None for server in retired))
            assert sandbox.failures == {}

    asyncio.run(main())


def test_a_retired_server_that_dies_is_cleaned_up_too(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    async def main():
        limits = SandboxLimits(step_timeout=10.0, load_timeout=20.0, max_forks=2)
        async with await SandboxPool.start(limits) as sandbox:
            held = await sandbox.open(ECHO)
            assert await echo_once(sandbox) == "echo"
            [server] = sandbox._slots[0]._retired
            os.kill(server._process.pid, signal.SIGKILL)
            await wait_until(lambda: server._process.returncode is not None)
            with pytest.raises(HostFault, match="the fork server died"):
                await held.reset(0)
            assert await echo_once(sandbox) == "echo"

    asyncio.run(main())


def test_many_who_wait_for_a_fresh_server_share_it():
    async def main():
        limits = SandboxLimits(step_timeout=10.0, load_timeout=20.0, max_forks=1)
        async with await SandboxPool.start(limits) as sandbox:
            first = sandbox._slots[0]._current
            assert await asyncio.gather(*(echo_once(sandbox) for _ in range(5))) == ["echo"] * 5
            second = sandbox._slots[0]._current
            assert second is not first
            assert second.num_forks == 5
            assert not first.alive

    asyncio.run(main())


def test_a_retired_server_is_cleaned_up_whatever_its_event_loop():
    limits = SandboxLimits(step_timeout=10.0, load_timeout=20.0, max_forks=2)
    sandbox = asyncio.run(SandboxPool.start(limits))

    async def hold_one():
        held = await sandbox.open(ECHO)
        assert await echo_once(sandbox) == "echo"
        return held, sandbox._slots[0]._retired[0]

    async def use_it_and_close(held, server):
        await held.reset(0)
        assert (await held.step("old")).observation == "old"
        await held.close()
        await wait_until(lambda: not server.alive)

    held, server = asyncio.run(hold_one())
    assert server.alive
    asyncio.run(use_it_and_close(held, server))
    asyncio.run(sandbox.close())


def test_each_request_has_its_own_deadline():
    """A short one after a long one, and one after a pause that is longer than it."""
    code = ECHO.replace("return action", "while action == 'spin': pass\n        return action")

    async def main():
        async with await SandboxPool.start(SandboxLimits(step_timeout=0.3, load_timeout=900.0)) as sandbox:
            for pause in (0.0, 0.7):
                environment = await sandbox.open(code)
                await environment.reset(0)
                for turn in range(3):
                    await asyncio.sleep(pause)
                    assert (await environment.step(str(turn))).observation == str(turn)
                async with asyncio.timeout(60):
                    with pytest.raises(EnvironmentFailure, match=r"timeout: no answer within 0\.3 s"):
                        await environment.step("spin")

    asyncio.run(main())


async def wait_until(condition, *, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_child_killed_from_outside_is_nobodys_fault(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    async def main():
        async with await SandboxPool.start(LIMITS) as sandbox:
            environment = await sandbox.open(ECHO)
            signal.pidfd_send_signal(environment._child.pidfd, signal.SIGKILL)
            with pytest.raises(HostFault, match="killed from outside"):
                await environment.reset(0)

    asyncio.run(main())


@pytest.mark.parametrize("level", ["L2", "L3"])
def test_a_closed_pool_leaves_no_process_not_even_a_dead_one(level):
    """Also where nobody reaps orphans, as in a container whose first process is the trainer."""
    if level == "L3" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    script = (
        f"if {level!r} == 'L2': os.environ['PATH'] = '/nonexistent'\n"
        "import ctypes\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become children of this process\n"
        "asyncio.run(main())\n"
        "print(open(f'/proc/self/task/{os.getpid()}/children').read().split())\n"
    )
    result = run_host(script)
    assert result.stdout.splitlines() == [json.dumps([level, "echo"]), "[]"], result.stderr


def test_a_closed_pool_stays_closed():
    async def main():
        sandbox = await SandboxPool.start(LIMITS)
        environment = await sandbox.open(ECHO)
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(HostFault, match="closed"):
            await environment.reset(0)
        with pytest.raises(HostFault, match="closed"):
            await sandbox.open(ECHO)

    asyncio.run(main())


def test_pools_do_not_disturb_each_other():
    async def main():
        async with await SandboxPool.start(LIMITS) as one, await SandboxPool.start(LIMITS) as other:
            assert await asyncio.gather(*(echo_once(p) for p in [one, other] * 10)) == ["echo"] * 20
            await one.close()
            assert await echo_once(other) == "echo"

    asyncio.run(main())


def test_a_pool_serves_one_event_loop_after_another():
    sandbox = asyncio.run(SandboxPool.start(LIMITS))
    assert [asyncio.run(echo_once(sandbox)) for _ in range(3)] == ["echo"] * 3
    asyncio.run(sandbox.close())


def test_an_environment_that_dies_under_another_loop_is_still_understood():
    sandbox = asyncio.run(SandboxPool.start(LIMITS))
    exits = ECHO.replace("return action", "import os; os._exit(7); return action")

    async def open_and_reset():
        environment = await sandbox.open(exits)
        await environment.reset(0)
        return environment

    environment = asyncio.run(open_and_reset())
    with pytest.raises(EnvironmentFailure, match="died: the process exited with status 7"):
        asyncio.run(environment.step(""))
    asyncio.run(sandbox.close())


@pytest.mark.parametrize("level", ["L2", "L3"])
def test_processes_of_one_host_share_out_its_cores(level, monkeypatch):
    if level == "L3" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    if level == "L2":
        monkeypatch.setenv("PATH", "/nonexistent")
    mine = os.sched_getaffinity(0)
    code = ECHO.replace('"ready"', "__import__('json').dumps(sorted(__import__('os').sched_getaffinity(0)))")

    async def cores_of(index: int, count: int) -> set[int]:
        pool = await SandboxPool.start(LIMITS, process_index=index, num_processes=count)
        async with pool, await pool.open(code) as environment:
            return set(json.loads((await environment.reset(0)).observation))

    async def main():
        assert await cores_of(0, 1) == mine
        shares = [await cores_of(index, 2) for index in range(2)]
        assert shares[0] | shares[1] == mine
        assert not shares[0] & shares[1] or len(mine) == 1

    asyncio.run(main())
    assert os.sched_getaffinity(0) == mine


def test_jax_processes_of_one_host_have_a_pool_each():
    script = """
import jax.numpy as jnp
async def play(index):
    limits = SandboxLimits(step_timeout=10, load_timeout=20)
    total = jnp.arange(4).sum()  # JAX's threads run while the fork servers start
    async with await SandboxPool.start(limits, process_index=index, num_processes=2) as sandbox:
        answers = await asyncio.gather(*(echo_once(sandbox) for _ in range(8)))
    print(json.dumps([answers, int(total + jnp.int32(index))]))
"""
    with concurrent.futures.ThreadPoolExecutor() as threads:
        results = threads.map(run_host, [f"{script}asyncio.run(play({index}))" for index in range(2)])
    for index, result in enumerate(results):
        assert json.loads(result.stdout) == [["echo"] * 8, 6 + index], result.stderr


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_core_is_somebodys_and_everybody_has_one(num_cores, num_processes):
    with pytest.MonkeyPatch.context() as monkeypatch:
        # The one thing that a test machine has too few of.
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(10, 10 + num_cores)))
        shares = [share_of_cores(index, num_processes) for index in range(num_processes)]
    if num_processes == 1:
        assert shares == [None]
        return
    assert set().union(*shares) == set(range(10, 10 + num_cores))
    counts = [len(share) for share in shares]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1
    if num_processes <= num_cores:
        assert sum(counts) == num_cores


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0)])
def test_a_share_that_does_not_exist_is_refused(index, count):
    with pytest.raises(ValueError, match="want an index from 0"):
        asyncio.run(SandboxPool.start(LIMITS, process_index=index, num_processes=count))


def test_cancelled_opens_leave_nothing_behind():
    async def main():
        async with await SandboxPool.start(LIMITS) as sandbox:
            await echo_once(sandbox)
            descriptors = len(os.listdir("/proc/self/fd"))
            for turns in range(12):
                task = asyncio.create_task(sandbox.open(ECHO))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if turns % 2:
                    await asyncio.sleep(0.001 * turns)
                task.cancel()
                outcome = (await asyncio.gather(task, return_exceptions=True))[0]
                if not isinstance(outcome, asyncio.CancelledError):
                    await outcome.close()
            assert await echo_once(sandbox) == "echo"
            assert sandbox.num_live == 0
            assert len(os.listdir("/proc/self/fd")) == descriptors

    asyncio.run(main())


def test_three_hundred_live_from_a_low_soft_limit_on_descriptors():
    """Each answers for itself, and the pool raises the limit that it needs raised."""
    script = (
        "import resource\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "async def main():\n"
        "    limits = SandboxLimits(step_timeout=60, load_timeout=60)\n"
        "    async with await SandboxPool.start(limits, num_zygotes=2) as sandbox:\n"
        "        held = [await sandbox.open(ECHO) for _ in range(300)]\n"
        "        await asyncio.gather(*(e.reset(0) for e in held))\n"
        "        for turn in range(2):\n"
        "            steps = [e.step(f'{turn} {i}') for i, e in enumerate(held)]\n"
        "            answers = [step.observation for step in await asyncio.gather(*steps)]\n"
        "            assert answers == [f'{turn} {i}' for i in range(300)]\n"
        "        print(json.dumps([sandbox.num_live, dict(sandbox.failures)]))\n"
        "asyncio.run(main())\n"
    )
    result = run_host(script)
    assert json.loads(result.stdout) == [300, {}], result.stderr


def test_running_out_of_descriptors_is_a_host_fault():
    script = (
        "import resource\n"
        "async def main():\n"
        "    async with await SandboxPool.start(SandboxLimits(step_timeout=30)) as sandbox:\n"
        "        used = len(os.listdir('/proc/self/fd'))\n"
        "        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 6, hard))\n"
        "        held, faults = [], []\n"
        "        for _ in range(8):\n"
        "            try: held.append(await sandbox.open(ECHO))\n"
        "            except HostFault as fault: faults.append(str(fault))\n"
        "        for environment in held: await environment.close()\n"
        "        print(json.dumps([len(held), len(faults), await echo_once(sandbox), *faults]))\n"
        "asyncio.run(main())\n"
    )
    result = run_host(script)
    num_held, num_faults, echo, *_ = json.loads(result.stdout)
    assert num_held >= 1, result.stderr
    assert num_faults >= 1
    assert num_held + num_faults == 8
    assert echo == "echo"


def test_nothing_is_left_behind():
    def children() -> set[int]:
        mine = pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/children")
        return {int(pid) for path in mine for pid in path.read_text().split()}

    async def episodes(sandbox: SandboxPool):
        for code in (ECHO, "while", "import os; os._exit(1)", ECHO.replace("return action", "return 1 / 0")):
            plays = [echo_once(sandbox, code) for _ in range(5)]
            answers = await asyncio.gather(*plays, return_exceptions=True)
            assert all(a == "echo" if code == ECHO else isinstance(a, EnvironmentFailure) for a in answers)

    async def main():
        async with await SandboxPool.start(LIMITS) as sandbox:
            await episodes(sandbox)
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                await episodes(sandbox)
            await asyncio.sleep(0.2)
            assert sandbox.num_live == 0
            assert len(os.listdir("/proc/self/fd")) == before

    processes = children()
    descriptors = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert children() == processes
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("level", ["L2", "L3"])
def test_everything_dies_with_the_host(level, tmp_path):
    if level == "L3" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    script = (
        ("os.environ['PATH'] = '/nonexistent'\n" if level == "L2" else "") + "async def main():\n"
        "    sandbox = await SandboxPool.start(SandboxLimits(step_timeout=600))\n"
        "    idle = [await sandbox.open(ECHO) for _ in range(3)]\n"
        "    busy = await sandbox.open(ECHO.replace('return action', 'while True: pass; return action'))\n"
        "    await busy.reset(0)\n"
        "    task = asyncio.create_task(busy.step(''))\n"
        "    await asyncio.sleep(0.1)\n"
        "    pids = []\n"
        "    for e in [*idle, busy]:\n"
        "        info = open(f'/proc/self/fdinfo/{e._child.pidfd}').read()\n"
        "        pids.append(int(info.split('Pid:')[1].split()[0]))\n"
        "    print(json.dumps(pids), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    result = run_host(script)
    pids = json.loads(result.stdout)
    assert len(pids) == 4
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "children outlived their host"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_works_beside_jax():
    script = "import jax.numpy as jnp\njnp.ones(3).sum().block_until_ready()\nasyncio.run(main())\n"
    result = run_host("os.environ['JAX_PLATFORMS'] = 'cpu'\n" + script)
    assert json.loads(result.stdout)[1] == "echo", result.stderr
    assert "fork" not in result.stderr


def test_the_host_side_never_imports_jax():
    result = run_host("import spade_jax.sandbox.pool\nprint(json.dumps(sorted(sys.modules)))\n")
    assert not {"jax", "flax"} & set(json.loads(result.stdout))


def test_libraries_are_found_without_importing_them():
    assert (fork_server._package_folder("numpy") / "numpy" / "__init__.py").is_file()


def test_every_level_has_a_filter_or_says_that_it_has_none():
    assert seccomp.local_filter().length > 50
    assert ctypes.sizeof(seccomp.Filter) == 16
