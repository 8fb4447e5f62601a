"""What the sandbox costs, beside a bare fork and a cold subprocess in the same run.

    python benchmarks/sandbox.py --json results.json

Stacks: `spade_jax` is the sandbox as it is used; `bare_fork` is the same fork server and client with every
lock left out; `subprocess` starts a Python with numpy for each environment. Ratios between stacks of one
run mean something; digits move with the machine and with what else it does. Works on Linux, best as root
(memory of others' children can be read by root only).
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from spade_jax.sandbox import fork_server
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.fork_server import ForkServer
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool

LIMITS = SandboxLimits(load_timeout=60.0, step_timeout=60.0)
MAX_SECONDS = 15.0
SOURCE = """
class BenchmarkEnv:
    def __init__(self):
        self.max_turns = 10

    def reset(self, seed=None):
        self.board = [random.randint(0, 9) for _ in range(9)]
        return "x" * 150, {}

    def step(self, action):
        return "y" * 200, 0.5, False, False, {"turn": 1}
"""
BUSY_SOURCE = SOURCE.replace('return "y"', 'while True: pass\n        return "y"')
ACTION = "\\boxed{left}" * 8

COLD = (
    "import random, sys, numpy\n"
    f"namespace = {{'random': random}}\nexec({SOURCE!r}, namespace)\n"
    "environment = namespace['BenchmarkEnv']()\n"
    "environment.reset(0)\n"
    "for line in sys.stdin:\n    print(environment.step(line), flush=True)\n"
)

Record = dict[str, Any]


class Recorder:
    """Collects measurements and prints each as it comes."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, workload: str, stack: str, runs: list[float], unit: str) -> None:
        ordered = sorted(runs)
        record = {
            "workload": workload,
            "stack": stack,
            "median": statistics.median(ordered),
            "p95": ordered[int(0.95 * (len(ordered) - 1))],
            "unit": unit,
            "runs": len(ordered),
        }
        self.records.append(record)
        print(f"{workload:28} {stack:12} {record['median']:12.3f} {unit:6} (p95 {record['p95']:.3f})")


def bounded(num_runs: int) -> Iterator[int]:
    """Counts to `num_runs`, or for as long as a busy machine may hold up one workload."""
    end = time.perf_counter() + MAX_SECONDS
    for run in range(num_runs):
        yield run
        if time.perf_counter() > end:
            return


async def time_each(action: Callable[[], Awaitable[Any]], num_runs: int) -> list[float]:
    """Seconds of each run."""
    runs = []
    for _ in bounded(num_runs):
        started = time.perf_counter()
        await action()
        runs.append(time.perf_counter() - started)
    return runs


def scaled(runs: list[float], factor: float) -> list[float]:
    return [run * factor for run in runs]


async def measure_pool(recorder: Recorder, stack: str, pool: SandboxPool) -> None:
    """Every workload of one stack that forks."""
    spawns: list[float] = []
    loads: list[float] = []
    kills: list[float] = []
    for _ in bounded(200):
        started = time.perf_counter()
        environment = await spawn(pool)
        spawned = time.perf_counter()
        await environment.load(SOURCE, turn_budget=10)
        await environment.reset(0)
        loads.append(time.perf_counter() - spawned)
        spawns.append(spawned - started)
        await environment.close()
    recorder.add("spawn", stack, scaled(spawns, 1e3), "ms")
    recorder.add("load and reset", stack, scaled(loads, 1e3), "ms")

    async with await pool.open(SOURCE) as environment:
        await environment.reset(0)
        await time_each(lambda: environment.step(ACTION), 500)
        steps = await time_each(lambda: environment.step(ACTION), 5000)
    recorder.add("step round trip", stack, scaled(steps, 1e6), "us")

    rates = []
    for _ in bounded(5):
        started = time.perf_counter()
        await asyncio.gather(*(lifecycles(pool, 50) for _ in range(4)))
        rates.append(200 / (time.perf_counter() - started))
    recorder.add("full lifecycle", stack, rates, "1/s")

    for num_live in (64, 512):
        async with many(pool, num_live) as environments:
            rates = []
            for _ in bounded(5):
                started = time.perf_counter()
                await asyncio.gather(*(play(environment, 20) for environment in environments))
                rates.append(20 * num_live / (time.perf_counter() - started))
            recorder.add(f"steps with {num_live} live", stack, rates, "1/s")
            if num_live == 64 and os.geteuid() == 0:
                pss = [proportional_kib(environment) / 1024 for environment in environments]
                recorder.add("memory per idle environment", stack, pss, "MiB")

    for _ in bounded(30):
        environment = await pool.open(BUSY_SOURCE)
        await environment.reset(0)
        waiting = asyncio.create_task(environment.step(""))
        await asyncio.sleep(0.005)
        pidfd = os.dup(environment._child.pidfd)
        started = time.perf_counter()
        await environment.close()
        select.select([pidfd], [], [])
        kills.append(time.perf_counter() - started)
        os.close(pidfd)
        await asyncio.gather(waiting, return_exceptions=True)
    recorder.add("kill a runaway", stack, scaled(kills, 1e3), "ms")


async def spawn(pool: SandboxPool) -> SandboxedEnvironment:
    """A child that is locked down and has answered once."""
    child = await pool._servers[0].spawn()
    environment = SandboxedEnvironment(child, LIMITS, on_end=lambda *_: None)
    await environment._ask("hello", 60.0)
    return environment


async def lifecycles(pool: SandboxPool, num_environments: int) -> None:
    for _ in range(num_environments):
        async with await pool.open(SOURCE) as environment:
            await environment.reset(0)
            await environment.step(ACTION)


async def play(environment: SandboxedEnvironment, num_steps: int) -> None:
    for _ in range(num_steps):
        await environment.step(ACTION)


@contextlib.asynccontextmanager
async def many(pool: SandboxPool, num_live: int) -> AsyncIterator[list[SandboxedEnvironment]]:
    environments = [await pool.open(SOURCE) for _ in range(num_live)]
    for environment in environments:
        await environment.reset(0)
    yield environments
    for environment in environments:
        await environment.close()


def pid_of(environment: SandboxedEnvironment) -> int:
    info = pathlib.Path(f"/proc/self/fdinfo/{environment._child.pidfd}").read_text()
    return int(info.split("Pid:")[1].split()[0])


def proportional_kib(environment: SandboxedEnvironment) -> int:
    rollup = pathlib.Path(f"/proc/{pid_of(environment)}/smaps_rollup").read_text()
    return int(rollup.split("\nPss:")[1].split()[0])


def measure_cold(recorder: Recorder) -> None:
    """A fresh interpreter for each environment, without any protection."""
    starts, steps = [], []
    for _ in bounded(15):
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", COLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for step in range(100):
            asked = time.perf_counter()
            process.stdin.write(ACTION + "\n")
            process.stdin.flush()
            process.stdout.readline()
            (steps if step else starts).append(time.perf_counter() - (asked if step else started))
        process.kill()
        process.communicate()
    recorder.add("spawn, load, reset, step", "subprocess", scaled(starts, 1e3), "ms")
    recorder.add("step round trip", "subprocess", scaled(steps, 1e6), "us")


def measure_orphans(recorder: Recorder) -> None:
    """From the SIGKILL of a host with 64 environments until the last of them is gone."""
    runs = []
    for _ in bounded(5):
        host = subprocess.Popen([sys.executable, __file__, "--host"], stdout=subprocess.PIPE, text=True)
        assert host.stdout is not None
        pidfds = [os.pidfd_open(pid) for pid in json.loads(host.stdout.readline())]
        started = time.perf_counter()
        host.send_signal(signal.SIGKILL)
        for pidfd in pidfds:
            select.select([pidfd], [], [])
            os.close(pidfd)
        runs.append(time.perf_counter() - started)
        host.communicate()
    recorder.add("clean-up after a killed host", "spade_jax", scaled(runs, 1e3), "ms")


async def be_a_host() -> None:
    pool = await SandboxPool.start(LIMITS)
    async with many(pool, 64) as environments:
        print(json.dumps([pid_of(environment) for environment in environments]), flush=True)
        await asyncio.sleep(3600)


async def measure(recorder: Recorder) -> None:
    async with await SandboxPool.start(LIMITS) as pool:
        print(f"level {pool.level}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        await measure_pool(recorder, "spade_jax", pool)
    fork_server._ZYGOTE = pathlib.Path(__file__).with_name("bare_zygote.py")
    async with SandboxPool(LIMITS, "L1", [await ForkServer.start(LIMITS, level="L1")]) as pool:
        await measure_pool(recorder, "bare_fork", pool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    parser.add_argument("--host", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.host:
        asyncio.run(be_a_host())
        return
    recorder = Recorder()
    asyncio.run(measure(recorder))
    measure_cold(recorder)
    measure_orphans(recorder)
    if arguments.json:
        arguments.json.write_text(json.dumps(recorder.records, indent=2) + "\n")


if __name__ == "__main__":
    main()
