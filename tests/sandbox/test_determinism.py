"""What honest code does repeats, in any child of any fork server; replay shows what does not."""

import asyncio

import pytest

from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool

PATIENT = SandboxLimits(step_timeout=10.0, load_timeout=20.0)


def source(expression: str, before: str = "") -> str:
    return f"""
import datetime, decimal, hashlib, os, random, secrets, time, uuid
from datetime import date
{before}

class AnswerEnv:
    def reset(self, seed=None):
        return str({expression}), {{}}

    def step(self, action):
        return str({expression}), 0.0, False, False, {{}}
"""


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def sandbox(loop):
    sandbox = loop.run_until_complete(SandboxPool.start(PATIENT, num_zygotes=2))
    yield sandbox
    loop.run_until_complete(sandbox.close())


async def answers(sandbox, code: str, seed: int) -> tuple[str, ...]:
    async with await sandbox.open(code) as environment:
        first = await environment.reset(seed)
        steps = [await environment.step("") for _ in range(2)]
        return (first.observation, *(step.observation for step in steps))


REPEATS = [
    "random.random()",
    "random.Random().random()",
    "random.Random(seed).random() if 'seed' in dir() else random.gauss(0, 1)",
    "[random.shuffle(x := list(range(9))), x][1]",
    "random.seed() or random.random()",
    "random.SystemRandom().random()",
    "np.random.rand()",
    "np.random.default_rng().random()",
    "np.random.RandomState().rand()",
    "np.random.seed() or np.random.rand()",
    "np.random.permutation(9)",
    "secrets.token_hex(4)",
    "uuid.uuid4()",
    "os.urandom(4)",
    "time.time()",
    "time.time_ns()",
    "time.perf_counter()",
    "time.ctime()",
    "time.strftime('%S')",
    "time.localtime().tm_sec",
    "time.clock_gettime(time.CLOCK_REALTIME)",
    "datetime.datetime.now()",
    "datetime.datetime.utcnow()",
    "datetime.datetime.now(datetime.timezone.utc)",
    "datetime.date.today()",
    "date.today()",
    "list({'red', 'green', 'blue', 'cyan'})",
    "hash('text')",
    "set('abcdefghij')",
    "(np.random.rand(64, 64) @ np.random.rand(64, 64)).sum()",
]


@pytest.mark.parametrize("expression", REPEATS)
def test_repeats_in_another_child_of_another_server(loop, sandbox, expression):
    code = source(expression)
    plays = [loop.run_until_complete(answers(sandbox, code, 11)) for _ in range(2)]
    assert plays[0] == plays[1]


@pytest.mark.parametrize("expression", [*REPEATS[:8], "time.time()", "datetime.datetime.now()"])
def test_other_seeds_and_later_turns_differ(loop, sandbox, expression):
    code = source(expression)
    one, other = (loop.run_until_complete(answers(sandbox, code, seed)) for seed in (11, 12))
    assert len({*one, *other}) == 6 or "seed()" in expression


def test_replay_finds_what_does_not_repeat(loop, sandbox):
    code = source("id(object())")
    plays = [loop.run_until_complete(answers(sandbox, code, 11)) for _ in range(2)]
    assert plays[0] != plays[1]


def test_module_level_randomness_repeats(loop, sandbox):
    code = source("LAYOUT", before="LAYOUT = [random.random(), random.Random().random(), time.time()]")
    assert len({loop.run_until_complete(answers(sandbox, code, 5)) for _ in range(2)}) == 1


def test_a_second_episode_of_the_same_seed_repeats_the_first(loop, sandbox):
    code = source("[random.random(), np.random.rand(), time.time(), uuid.uuid4()]")

    async def play():
        async with await sandbox.open(code) as environment:
            episodes = []
            for seed in (3, 4, 3):
                first = await environment.reset(seed)
                episodes.append((first, await environment.step("")))
            return episodes

    one, other, again = loop.run_until_complete(play())
    assert one == again != other


def test_a_loop_that_waits_for_the_clock_ends(loop, sandbox):
    code = source("wait()", before="""
def wait():
    start, deadline = time.monotonic(), time.monotonic() + 5
    while time.monotonic() < deadline: pass
    return time.monotonic() - start >= 5
""")  # fmt: skip
    assert loop.run_until_complete(answers(sandbox, code, 0))[0] == "True"
