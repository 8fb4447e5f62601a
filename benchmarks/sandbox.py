"""What the sandbox costs, beside a bare fork and a cold subprocess in the same run.

    python benchmarks/sandbox.py --json results.json
    taskset -c 0 python benchmarks/sandbox.py --json results.json

Stacks: `spade_jax` is the sandbox as it is used; `bare_fork` is the same fork server and client with every
lock left out; `subprocess` starts a Python with numpy for each environment; `socket` is a process that
sends back what it gets; `no_client` asks the sandbox's child over a blocking socket and does not read the
answer, so that what `spade_jax` takes beyond it is the host's share of a step. Stacks take turns, so that
ratios between them mean something; digits move with the machine and with what else it does. In a virtual
machine an idle core may take longer to wake than a step takes: on one core (the second command) both sides
share a core that is awake. Works on Linux, best as root (the memory of others' children can be read by root
only).
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from memory import pss_kib

from spade_jax.sandbox import fork_server, protocol
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.sandbox.slot import ServerSlot

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

COLD = f"""
import random, sys, numpy
print(flush=True)
namespace = {{"random": random}}
for line in sys.stdin:
    if line == "load\\n":
        exec({SOURCE!r}, namespace)
        environment = namespace["BenchmarkEnv"]()
        print(environment.reset(0), flush=True)
    elif line == "spin\\n":
        while True: pass
    else:
        print(environment.step(line), flush=True)
"""

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

    def compare(self, *workloads: str) -> None:
        """Prints how much dearer each is with its protections than without."""
        medians = {(record["workload"], record["stack"]): record["median"] for record in self.records}
        for workload in workloads:
            ratio = medians[workload, "spade_jax"] / medians[workload, "bare_fork"]
            print(f"{workload:28} {ratio:.2f} times that of bare_fork")


def bounded(num_runs: int) -> Iterator[int]:
    """Counts to `num_runs`, or for as long as a busy machine may hold up one workload."""
    end = time.perf_counter() + MAX_SECONDS
    for run in range(num_runs):
        yield run
        if time.perf_counter() > end:
            return


async def time_each(action: Callable[..., Awaitable[Any]], *arguments: Any, num_runs: int) -> list[float]:
    """Seconds of each run."""
    runs = []
    for _ in bounded(num_runs):
        started = time.perf_counter()
        await action(*arguments)
        runs.append(time.perf_counter() - started)
    return runs


def scaled(runs: list[float], factor: float) -> list[float]:
    return [run * factor for run in runs]


async def measure_pools(recorder: Recorder, pools: dict[str, SandboxPool]) -> None:
    """Every workload of the stacks that fork, one stack after the other in each round."""
    spawns: dict[str, list[float]] = {stack: [] for stack in pools}
    loads: dict[str, list[float]] = {stack: [] for stack in pools}
    for _ in bounded(300):
        for stack, pool in pools.items():
            started = time.perf_counter()
            environment = await spawn(pool._slots[0])
            spawned = time.perf_counter()
            await environment.load(SOURCE, turn_budget=10)
            await environment.reset(0)
            loads[stack].append(time.perf_counter() - spawned)
            spawns[stack].append(spawned - started)
            await environment.close()
    for stack in pools:
        recorder.add("spawn", stack, scaled(spawns[stack], 1e3), "ms")
        recorder.add("load and reset", stack, scaled(loads[stack], 1e3), "ms")

    environments = {stack: await pool.open(SOURCE) for stack, pool in pools.items()}
    steps: dict[str, list[float]] = {stack: [] for stack in (*pools, "no_client")}
    host_seconds: dict[str, list[float]] = {stack: [] for stack in pools}
    for environment in environments.values():
        await environment.reset(0)
        await time_each(environment.step, ACTION, num_runs=500)
    for _ in bounded(50):
        for stack, environment in environments.items():
            started = time.process_time()
            steps[stack] += await time_each(environment.step, ACTION, num_runs=200)
            host_seconds[stack].append((time.process_time() - started) / 200)
        steps["no_client"] += step_without_client(environments["spade_jax"], num_runs=200)
    for stack in steps:
        recorder.add("step round trip", stack, scaled(steps[stack], 1e6), "us")
    for stack, environment in environments.items():
        recorder.add("host's CPU time for a step", stack, scaled(host_seconds[stack], 1e6), "us")
        await environment.close()
    recorder.add(
        "host's share of a step",
        "spade_jax",
        [1e6 * (statistics.median(steps["spade_jax"]) - statistics.median(steps["no_client"]))],
        "us",
    )

    rates: dict[str, list[float]] = {stack: [] for stack in pools}
    for _ in bounded(5):
        for stack, pool in pools.items():
            started = time.perf_counter()
            await asyncio.gather(*(lifecycles(pool, 50) for _ in range(4)))
            rates[stack].append(200 / (time.perf_counter() - started))
    for stack in pools:
        recorder.add("full lifecycle", stack, rates[stack], "1/s")

    for num_live in (64, 512):
        for stack, pool in pools.items():
            await measure_live(recorder, stack, pool, num_live)

    for stack, pool in pools.items():
        recorder.add("kill a runaway", stack, scaled([await kill(pool) for _ in bounded(30)], 1e3), "ms")


def step_without_client(environment: SandboxedEnvironment, *, num_runs: int) -> list[float]:
    """Seconds of each step of its child, asked with a request made beforehand."""
    channel, loop = environment._child.channel, asyncio.get_running_loop()
    request = protocol.encode_request(protocol.Request(id=2**55, op="step", action=ACTION, max_bytes=65536))
    loop.remove_reader(channel)
    channel.setblocking(True)

    def ask() -> None:
        channel.send(request)
        channel.recv(65536)

    runs = [timed(ask) for _ in range(num_runs)]
    channel.setblocking(False)
    loop.add_reader(channel, environment._on_readable)
    return runs


async def measure_live(recorder: Recorder, stack: str, pool: SandboxPool, num_live: int) -> None:
    """Steps of many environments at once, and what an idle one takes."""
    async with many(pool, num_live) as environments:
        rates = []
        for _ in bounded(5):
            started = time.perf_counter()
            await asyncio.gather(*(play(environment, 20) for environment in environments))
            rates.append(20 * num_live / (time.perf_counter() - started))
        recorder.add(f"steps with {num_live} live", stack, rates, "1/s")
        if num_live == 64 and os.geteuid() == 0:
            pss = [pss_kib(pid_of(environment)) / 1024 for environment in environments]
            recorder.add("memory per idle environment", stack, pss, "MiB")


async def kill(pool: SandboxPool) -> float:
    """Seconds from the wish to end a loop to its end."""
    environment = await pool.open(BUSY_SOURCE)
    await environment.reset(0)
    waiting = asyncio.create_task(environment.step(""))
    await asyncio.sleep(0.005)
    pidfd = os.dup(environment._child.pidfd)
    started = time.perf_counter()
    await environment.close()
    select.select([pidfd], [], [])
    seconds = time.perf_counter() - started
    os.close(pidfd)
    await asyncio.gather(waiting, return_exceptions=True)
    return seconds


async def spawn(slot: ServerSlot) -> SandboxedEnvironment:
    """A child that is locked down and has answered once."""
    child = await (await slot.server()).spawn()
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


class Cold:
    """A fresh interpreter for one environment, without any protection."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", COLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.read()

    def read(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def ask(self, line: str) -> None:
        self.tell(line)
        self.read()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def measure_cold(recorder: Recorder) -> None:
    """The same workloads where each environment has an interpreter of its own."""
    spawns, loads, steps, kills, pss = [], [], [], [], []
    for _ in bounded(15):
        started = time.perf_counter()
        cold = Cold()
        spawns.append(time.perf_counter() - started)
        loads.append(timed(cold.ask, "load"))
        steps += [timed(cold.ask, ACTION) for _ in range(200)]
        pss.append(pss_kib(cold.process.pid) / 1024)
        cold.tell("spin")
        time.sleep(0.005)
        kills.append(timed(cold.end))
    recorder.add("spawn", "subprocess", scaled(spawns, 1e3), "ms")
    recorder.add("load and reset", "subprocess", scaled(loads, 1e3), "ms")
    recorder.add("step round trip", "subprocess", scaled(steps, 1e6), "us")
    recorder.add("memory per idle environment", "subprocess", pss, "MiB")
    recorder.add("kill a runaway", "subprocess", scaled(kills, 1e3), "ms")

    def lifecycle(_: int) -> None:
        cold = Cold()
        cold.ask("load")
        cold.ask(ACTION)
        cold.end()

    rates = []
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for _ in bounded(5):
            rates.append(16 / timed(lambda: list(threads.map(lifecycle, range(16)))))
    recorder.add("full lifecycle", "subprocess", rates, "1/s")


def measure_echo(recorder: Recorder) -> None:
    """What a step of this size costs before any Python is run for it."""
    ours, theirs = socket.socketpair()
    echo = "import os\nwhile data := os.read(0, 65536): os.write(0, data)"
    with ours, subprocess.Popen([sys.executable, "-c", echo], stdin=theirs.fileno()):
        theirs.close()
        message = b"x" * 300

        def ask() -> None:
            ours.send(message)
            ours.recv(65536)

        ask()
        recorder.add("step round trip", "socket", scaled([timed(ask) for _ in range(10_000)], 1e6), "us")
        ours.shutdown(socket.SHUT_WR)


def timed(action: Callable[..., Any], *arguments: Any) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - started


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
    async with await SandboxPool.start(LIMITS) as pool, SandboxPool(LIMITS, "L1") as bare_pool:
        print(f"level {pool.level}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        protected = fork_server._ZYGOTE
        fork_server._ZYGOTE = pathlib.Path(__file__).with_name("bare_zygote.py")
        await bare_pool._slots[0].server()
        fork_server._ZYGOTE = protected
        await measure_pools(recorder, {"spade_jax": pool, "bare_fork": bare_pool})

        runs = []
        await pool._maths_slots[0].server()
        for _ in bounded(100):
            started = time.perf_counter()
            environment = await spawn(pool._maths_slots[0])
            runs.append(time.perf_counter() - started)
            await environment.close()
        recorder.add("spawn with math_verify", "spade_jax", scaled(runs, 1e3), "ms")


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
    measure_echo(recorder)
    measure_cold(recorder)
    measure_orphans(recorder)
    recorder.compare("spawn", "step round trip")
    if arguments.json:
        arguments.json.write_text(json.dumps(recorder.records, indent=2) + "\n")


if __name__ == "__main__":
    main()
