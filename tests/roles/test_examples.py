"""The examples keep what the prompts promise: they are valid, can be won, and are not given away."""

import re

import pytest

from spade_jax.config import ValidationConfig
from spade_jax.environments.validation import validate
from spade_jax.errors import EnvironmentFailure
from spade_jax.roles.designer import design_reply
from spade_jax.roles.prompts.examples import GAME, TOOL_USE
from spade_jax.roles.prompts.parts import sandbox_rules
from spade_jax.sandbox.tool_use_base_env import ToolUseBaseEnv
from tests.scripted import running_sandbox
from tests.tiny import get_config

SEEDS = range(20)
EXAMPLES = {"games": GAME, "tool_use": TOOL_USE}
both = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)


@pytest.fixture(scope="module")
def sandbox():
    with running_sandbox() as running:
        yield running


@both
def test_an_example_passes_validation(sandbox, example):
    reply = design_reply(example.code, example.hint)
    report = sandbox.run(
        validate(
            "e",
            reply,
            sandbox=sandbox.pool,
            config=ValidationConfig(num_seeds=8),
            setting="tool_use" if example is TOOL_USE else "games",
            max_turns=25,
            held_out=frozenset(),
        )
    )
    assert report.valid, report.verdicts[-1]


async def find_the_chain(environment, observation):
    """Plays the dials by what it sees: probes until it knows who drags whom, then sets them in order."""

    def read(text):
        return {name: (int(at), int(to)) for name, at, to in re.findall(r"([ABC]) (\d) \(goal (\d)\)", text)}

    dials, drags = read(observation), {}

    async def turn(name, steps):
        step = await environment.step(f"\\boxed{{turn {name} {steps}}}")
        before = dict(dials)
        dials.update(read(step.observation))
        moved = [other for other in dials if other != name and dials[other][0] != before[other][0]]
        return step, (moved[0] if moved else None)

    for name in "ABC":
        _, drags[name] = await turn(name, 1)
    step = None
    first = next(name for name in "ABC" if name not in drags.values())
    for name in (first, drags[first], drags[drags[first]]):
        steps = (dials[name][1] - dials[name][0]) % 10
        if steps:
            step, _ = await turn(name, steps)
    return step


@pytest.mark.parametrize("seed", SEEDS)
def test_the_game_is_won_by_looking(sandbox, seed):
    async def play():
        async with await sandbox.pool.open(GAME.code) as environment:
            reset = await environment.reset(seed)
            return await find_the_chain(environment, reset.observation)

    step = sandbox.run(play())
    assert (step.reward, step.terminated) == (1.0, True)


async def follow_instructions(environment, instruction):
    """Carries out the library's instructions by what they and the tools say."""

    async def call(tool, **arguments):
        result = await environment.call_tool(tool, arguments)
        assert result.succeeded, result.output
        return result.output

    async def book(title):
        return re.match(r"(B\d+): shelf (\w)", await call("find_book", title=title)).groups()

    async def reader(name):
        return re.match(r"Card (R\d+)", await call("find_reader", name=name))[1]

    while "<answer>" not in instruction:
        instruction = instruction.rpartition("New instruction: ")[2]
        titles = re.findall(r"'(.+?)'", instruction)
        if found := re.match(r"(\w+) wants to borrow .* for (\d+) days", instruction):
            instruction = await call(
                "lend",
                book_id=(await book(titles[0]))[0],
                reader_id=await reader(found[1]),
                days=int(found[2]),
            )
        elif instruction.startswith("Put "):
            (number, _), (_, shelf) = await book(titles[0]), await book(titles[1])
            instruction = await call("move", book_id=number, shelf=shelf)
        else:
            name = re.match(r"Tell (\w+)", instruction)[1]
            number, _ = await book(titles[0])
            instruction = await call("notify", reader_id=await reader(name), book_id=number, kind="ready")
    return await environment.step("<answer>done</answer>")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_tools_are_enough_to_do_what_is_asked(sandbox, seed):
    async def play():
        async with await sandbox.pool.open(TOOL_USE.code) as environment:
            reset = await environment.reset(seed)
            early = await environment.step("<answer>done</answer>")
            assert (early.reward, early.terminated) == (0.0, False)
            return await follow_instructions(environment, reset.observation)

    step = sandbox.run(play())
    assert (step.reward, step.terminated) == (1.0, True)


def loaded(example):
    """The example in this process, which may look inside: it is our own text."""
    namespace = {"ToolUseBaseEnv": ToolUseBaseEnv}
    exec(example.code, namespace)
    [made] = [value for name, value in namespace.items() if name.endswith("Env") and name != "ToolUseBaseEnv"]
    return made()


def outcome(environment, seed, actions):
    """Whether the actions win."""
    environment.reset(seed=seed)
    for action in actions:
        _, reward, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            return terminated and reward == 1.0
    return False


@pytest.mark.parametrize("seed", SEEDS)
@both
def test_the_solution_wins_and_a_part_of_it_does_not(example, seed):
    environment = loaded(example)
    first, _ = environment.reset(seed=seed)
    actions = environment.solution().splitlines()
    assert outcome(environment, seed, actions)
    assert not outcome(environment, seed, actions[:-1])
    assert not outcome(environment, seed, [actions[-1]])
    assert not outcome(environment, (seed + 1) * 1000, actions)
    assert environment.max_turns >= len(actions)
    given_away = [action for action in actions if action in first or action in example.hint]
    assert given_away in ([], ["<answer>done</answer>"])


def test_another_command_in_the_game_does_not_win():
    environment = loaded(GAME)
    for seed in SEEDS:
        environment.reset(seed=seed)
        actions = environment.solution().splitlines()
        for index, action in enumerate(actions):
            name, steps = re.fullmatch(r"\\boxed\{turn ([ABC]) (\d)\}", action).groups()
            changed = f"\\boxed{{turn {name} {int(steps) % 9 + 1}}}"
            assert not outcome(environment, seed, [*actions[:index], changed, *actions[index + 1 :]])


def test_no_criterion_of_the_tools_holds_at_the_start():
    environment = loaded(TOOL_USE)
    for seed in SEEDS:
        environment.reset(seed=seed)
        assert len(environment._user_messages) == len(environment._message_criteria) == 3
        assert not any(criterion(environment._state) for criterion in environment._message_criteria)


@pytest.mark.parametrize(
    "action",
    ["", "turn A 3", "\\boxed{}", "\\boxed{turn A}", "\\boxed{turn A 0}", "\\boxed{turn D 3}", "\\boxed{{}"],
)
def test_an_action_that_cannot_be_read_is_a_turn_without_effect(action):
    environment = loaded(GAME)
    environment.reset(seed=3)
    before = dict(environment.dials)
    observation, reward, terminated, truncated, _ = environment.step(action)
    assert (reward, terminated, truncated, environment.dials) == (0.0, False, False, before)
    assert "turn NAME STEPS" in observation


def modules_promised():
    rules = sandbox_rules(get_config())
    listed = rules[rules.index("(") + 1 : rules.index(")")]
    return [*re.findall(r"\w+", listed), "numpy", "math_verify"]


def test_what_the_prompt_says_of_imports_is_true(sandbox):
    """The modules that it names can be imported, and others cannot."""

    async def loads(code):
        try:
            async with await sandbox.pool.open(f"{code}\n{GAME.code}"):
                return True
        except EnvironmentFailure:
            return False

    names = modules_promised()
    assert {"random", "re", "json", "numpy"} <= set(names)
    assert sandbox.run(loads(f"import {', '.join(names)}\nprint('lost')"))
    for broken in (
        "import pytest",
        "open('/etc/passwd')",
        "import socket; socket.socket()",
        "import subprocess; subprocess.run('true')",
        "import threading; threading.Thread(target=print).start()",
        "input()",
    ):
        assert not sandbox.run(loads(broken)), broken
