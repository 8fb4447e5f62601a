"""What an honest environment can count on: the contract, its conventions, and episode after episode."""

import asyncio

import pytest

from spade_jax.errors import EnvironmentFailure, HostFault

GUESS = """
class GuessEnv:
    def __init__(self, max_turns=7):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.secret = random.Random(seed).randint(0, 9)
        self.turn_count = 0
        return "Guess a digit.", {"digits": 10}

    def step(self, action):
        self.turn_count += 1
        won = action == str(self.secret)
        return f"turn {self.turn_count}", float(won), won, self.turn_count >= self.max_turns, {}
"""


def environment(step="'', 0.0, False, False, {}", reset="'', {}", before="", name="TestEnv"):
    return f"""
{before}
class {name}:
    def reset(self, seed=None):
        return {reset}

    def step(self, action):
        return {step}
"""


def failure_of(bench, code, *actions):
    """The failure that ends this environment, wherever it comes."""

    async def play():
        async with await bench.pool.open(code) as environment:
            await environment.reset(0)
            for action in actions:
                await environment.step(action)

    with pytest.raises(EnvironmentFailure) as caught:
        bench.run(play())
    assert bench.pool.num_live == 0
    return caught.value


def test_plays_an_episode_and_then_another(bench, opened):
    game = opened(GUESS)
    assert game.max_turns == 7
    for _ in range(2):
        observation, info = bench.run(game.reset(3))
        assert (observation, info) == ("Guess a digit.", {"digits": 10.0})
        wins = 0
        for digit in range(7):
            step = bench.run(game.step(str(digit)))
            assert step.observation == f"turn {digit + 1}"
            assert step.truncated == (digit == 6)
            assert step.reward == float(step.terminated)
            wins += step.terminated
        assert wins == 1


def test_different_seeds_make_different_instances(bench, opened):
    game = opened(environment(reset="str(random.random()) + str(np.random.rand()), {}"))
    answers = {bench.run(game.reset(seed)).observation for seed in range(5)}
    assert len(answers) == 5


@pytest.mark.parametrize(
    ("constructor", "expected"),
    [
        ("def __init__(self): pass", None),
        ("max_turns = 9", 9),
        ("def __init__(self): self.max_turns = np.int64(4)", 4),
        ("def __init__(self): self.max_turns = 0", None),
        ("def __init__(self): self.max_turns = 'many'", None),
        ("def __init__(self): self.max_turns = True", None),
        ("def __init__(self, max_turns): self.max_turns = max_turns", 25),
        ("def __init__(self, max_turns, **kwargs): self.max_turns = 2 * max_turns", 50),
    ],
)
def test_max_turns_is_what_the_environment_says(bench, constructor, expected):
    code = environment().replace("class TestEnv:", f"class TestEnv:\n    {constructor}")

    async def play():
        async with await bench.pool.open(code, turn_budget=25) as game:
            return game.max_turns

    assert bench.run(play()) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # A helper that ends in Env and comes later does not play.
        (environment(reset="'right', {}") + "\nclass InnerEnv:\n    pass\n", "right"),
        # Nor does one that comes earlier.
        ("class InnerEnv:\n    pass\n" + environment(reset="'right', {}"), "right"),
        # Of two that could play, the last.
        (environment(name="BaseEnv") + environment(reset="'right', {}", name="FinalEnv"), "right"),
        # Inherited methods count.
        (environment(reset="'right', {}", name="BaseEnv") + "\nclass LastEnv(BaseEnv):\n    pass\n", "right"),
        # What is imported is not the source's own.
        (
            environment(reset="'right', {}") + "\nimport collections as OtherEnv\nCounterEnv = Counter\n",
            "right",
        ),
    ],
)
def test_the_class_is_the_one_that_can_play(bench, opened, code, expected):
    assert bench.run(opened(code).reset(0)).observation == expected


@pytest.mark.parametrize(
    "use",
    [
        "deque([1]), defaultdict(int), Counter('a'), OrderedDict(), namedtuple('A', 'b')",
        "list(combinations([1, 2], 2)), list(permutations([1])), list(product([1])), list(chain([1]))",
        "list(accumulate([1])), reduce(max, [1]), lru_cache(None), deepcopy([1])",
        "heappush([], 1), heappop([1]), heapq.heapify([1]), operator.add(1, 2), statistics.mean([1])",
        "Tuple, Dict, List, Optional, Union, Any, Set, FrozenSet, Callable, Iterable, Sequence, Mapping",
        "itertools, math.pi, random.random(), re.match('a', 'a'), json.dumps(1), collections, functools",
        "string.digits, copy.copy(1), np.zeros(2), numpy.linalg.inv(np.eye(2)), np.fft.fft(np.ones(4))",
    ],
)
def test_names_that_sources_forget_to_import(bench, opened, use):
    game = opened(environment(reset=f"len(str(({use},))) and 'fine'"))
    assert bench.run(game.reset(0)).observation == "fine"


@pytest.mark.parametrize(
    "body",
    [
        "import datetime; assert datetime.datetime.strptime('2020-01-02', '%Y-%m-%d').day == 2",
        "import datetime; assert isinstance(datetime.datetime.now(), datetime.date)",
        "from datetime import datetime, timedelta as t; assert isinstance(datetime.now() - t(1), datetime)",
        "import pickle, datetime; assert pickle.loads(pickle.dumps(datetime.date(2020, 1, 1))).year == 2020",
        "import logging; logging.warning('heard by nobody'); print('nor this'); print('x' * 10**6)",
        "import io, csv; assert list(csv.reader(io.StringIO('a,b'))) == [['a', 'b']]",
        "import decimal, fractions; assert decimal.Decimal('0.1') + 1 and fractions.Fraction(1, 3)",
        "import traceback; assert 'line' in ''.join(traceback.format_stack())",
        "import time; start = time.time(); time.sleep(3600); assert 3600 <= time.time() - start < 3601",
        "import uuid, secrets; assert uuid.uuid4() != uuid.uuid4(); assert secrets.token_hex(4)",
        "assert np.linalg.solve(np.eye(3), np.ones(3)).sum() == 3; np.random.default_rng().normal()",
        "assert eval('1 + 1') == 2; exec('x = 3')",
        "import sys; assert 'ab'.encode('idna') and 'ab'.encode('utf-16')",
        "import dataclasses; assert dataclasses.make_dataclass('Card', [('rank', 'int')])(1).rank == 1",
        "import warnings; warnings.warn('quiet')",
        "import typing, enum; assert enum.Enum('Colour', 'RED').RED",
        "f = lru_cache(None)(lambda n: n if n < 2 else f(n - 1) + f(n - 2)); assert f(80) > 0",
    ],
)
def test_honest_code_works(bench, opened, body):
    game = opened(
        f"class HonestEnv:\n    def reset(self, seed=None):\n        {body}\n        return 'fine', {{}}\n"
        "    def step(self, action):\n        return '', 0.0, True, False, {}\n"
    )
    assert bench.run(game.reset(0)).observation == "fine"


@pytest.mark.parametrize(
    ("answer", "reward", "terminated", "truncated", "info"),
    [
        ("'', 1, True, False, {}", 1.0, True, False, {}),
        ("'', np.float32(0.5), np.bool_(True), np.bool_(False), {}", 0.5, True, False, {}),
        ("'', np.int64(2), False, np.array(True), {}", 2.0, False, True, {}),
        ("['', -0.25, False, False, {'a': np.float64(2), 'b': 3, 'c': True, 'd': 'text'}]",
         -0.25, False, False, {"a": 2.0, "b": 3.0, "c": 1.0}),
        ("'', 0.0, False, False, {'nan': float('nan'), 'inf': 1e999, 'huge': 10**400, 5: 1, 'ok': 1}",
         0.0, False, False, {"ok": 1.0}),
    ],
)  # fmt: skip
def test_numbers_arrive_plain(bench, opened, answer, reward, terminated, truncated, info):
    game = opened(environment(step=answer))
    bench.run(game.reset(0))
    step = bench.run(game.step(""))
    assert (step.reward, step.terminated, step.truncated, step.info) == (reward, terminated, truncated, info)
    assert type(step.reward) is float


def test_a_bare_string_from_reset_is_an_observation(bench, opened):
    assert bench.run(opened(environment(reset="'hello'")).reset(0)) == ("hello", {})


@pytest.mark.parametrize("text", ['é漢🙂\x00\x1f"\\\n', "x" * 65536, "é" * 32768, "\x01" * 65536])
def test_text_comes_and_goes_unchanged(bench, opened, text):
    game = opened(environment(step="action, 0.0, False, False, {}"))
    bench.run(game.reset(0))
    assert bench.run(game.step(text)).observation == text


def test_a_long_action_is_cut(bench, opened):
    game = opened(environment(step="str(len(action)), 0.0, False, False, {}"))
    bench.run(game.reset(0))
    assert bench.run(game.step("x" * 10**6)).observation == "100000"


def test_an_action_that_cannot_be_encoded_still_arrives(bench, opened):
    game = opened(environment(step="action, 0.0, False, False, {}"))
    bench.run(game.reset(0))
    assert bench.run(game.step("a\ud800b")).observation == "a?b"


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("def reset(", "SyntaxError"),
        ("x = 1\ny = 1 / 0\n", "ZeroDivisionError: division by zero (line 2)"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("import asyncio.subprocess", "ModuleNotFoundError"),
        ("class Game:\n    pass\n", "no class whose name ends in Env"),
        ("from collections import Counter as FakeEnv", "no class whose name ends in Env"),
        ("class AEnv:\n    def __init__(self, size, max_turns=1): pass\n", "size"),
        ("class AEnv:\n    def __init__(self): raise ValueError('bad')\n", "ValueError: bad (line 2)"),
        (environment(reset="{}['missing']"), "KeyError: 'missing' (line 5)"),
        ("class AEnv:\n    pass\n", "AttributeError"),
        ("\0", "null bytes"),
        ("x = '\ud800'", "surrogates"),
        ("#" * 300_000, "300000 bytes"),
        ("class AEnv:\n    reset = 3\n", "not callable"),
    ],
)  # fmt: skip
def test_a_broken_source_is_its_own_fault(bench, code, detail):
    failure = failure_of(bench, code)
    assert failure.kind == "environment_error"
    assert detail in failure.detail


@pytest.mark.parametrize(
    "answer",
    [
        "'', 0.0, False, False",
        "None",
        "'', 0.0, False, False, {}, 1",
        "1, 0.0, False, False, {}",
        "b'', 0.0, False, False, {}",
        "'', True, False, False, {}",
        "'', '1', False, False, {}",
        "'', None, False, False, {}",
        "'', float('nan'), False, False, {}",
        "'', 1e999, False, False, {}",
        "'', 10**400, False, False, {}",
        "'', 1e7, False, False, {}",
        "'', 1j, False, False, {}",
        "'', 0.0, 1, False, {}",
        "'', 0.0, False, None, {}",
        "'', 0.0, False, False, None",
        "'', 0.0, False, False, []",
        "'x' * 65537, 0.0, False, False, {}",
        "'é' * 32769, 0.0, False, False, {}",
        "'\\ud800', 0.0, False, False, {}",
    ],
)
def test_an_answer_outside_the_contract_is_invalid(bench, answer):
    failure = failure_of(bench, environment(step=answer), "")
    assert failure.kind == "invalid_output"
    assert failure.detail


@pytest.mark.parametrize("answer", ["None", "'', {}, 1", "1, {}", "'', None", "('',)"])
def test_a_first_observation_outside_the_contract_is_invalid(bench, answer):
    assert failure_of(bench, environment(reset=answer)).kind == "invalid_output"


def test_a_failure_is_final_and_counted_once(bench):
    counted = bench.pool.failures["environment_error"]

    async def play():
        async with await bench.pool.open(environment(step="1 / 0")) as game:
            await game.reset(0)
            failures = []
            for call in (lambda: game.step(""), lambda: game.step(""), lambda: game.reset(1)):
                with pytest.raises(EnvironmentFailure) as caught:
                    await call()
                failures.append((caught.value.kind, caught.value.detail))
            return failures

    assert len(set(bench.run(play()))) == 1
    assert bench.pool.failures["environment_error"] == counted + 1


def test_closing_wakes_whoever_waits(bench):
    async def play():
        game = await bench.pool.open(environment(step="[x for x in iter(int, 1)]"))
        await game.reset(0)
        waiting = asyncio.create_task(game.step(""))
        await asyncio.sleep(0.05)
        await game.close()
        with pytest.raises(HostFault, match="closed"):
            await waiting
        await game.close()
        with pytest.raises(HostFault, match="closed"):
            await game.reset(0)

    bench.run(play())
    assert bench.pool.num_live == 0


def test_a_cancelled_call_ends_the_environment(bench):
    async def play():
        game = await bench.pool.open(environment(step="[x for x in iter(int, 1)]"))
        await game.reset(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await game.step("")
        with pytest.raises(HostFault, match="cancelled"):
            await game.step("")

    bench.run(play())
    assert bench.pool.num_live == 0


def test_two_calls_at_once_are_refused(bench):
    async def play():
        async with await bench.pool.open(GUESS) as game:
            await game.reset(0)
            first = asyncio.create_task(game.step("1"))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one call at a time"):
                await game.step("2")
            await first

    bench.run(play())


def test_an_environment_outlives_its_event_loop(bench):
    async def start():
        game = await bench.pool.open(GUESS)
        await game.reset(0)
        return game

    game = bench.run(start())
    other = asyncio.new_event_loop()
    assert other.run_until_complete(game.step("1")).observation == "turn 1"
    other.close()
    assert bench.run(game.step("2")).observation == "turn 2"
    bench.run(game.close())


def test_many_play_at_once_without_mixing_answers(bench):
    code = environment(step="f'{self.seed}:{action}', 0.0, False, False, {}", before="").replace(
        "return '', {}", "self.seed = seed; return str(seed), {}"
    )

    async def play(index):
        async with await bench.pool.open(code) as game:
            assert (await game.reset(index)).observation == str(index)
            for turn in range(5):
                step = await game.step(f"{index}-{turn}")
                assert step.observation == f"{index}:{index}-{turn}"

    async def play_all():
        await asyncio.gather(*(play(index) for index in range(50)))

    bench.run(play_all())
    assert bench.pool.num_live == 0
