"""What an environment says of its own task: a solution, and which criteria hold; none of it is trusted."""

import pytest

from spade_jax.errors import EnvironmentFailure
from spade_jax.sandbox import protocol

TASK = r"""
import numpy as np

class TaskEnv(ToolUseBaseEnv):
    def reset(self, seed=None):
        self._state = {"lamp": False, "seed": seed}
        self._tools = {"lamp": {}}
        self._message_criteria = CRITERIA
        return "Switch the lamp on.", {}

    def tool_lamp(self):
        self._state["lamp"] = True
        return "Light."

    def solution(self):
        SOLUTION
"""
LAMP = 'lambda state: state["lamp"]'


def task(*, criteria: str = f"[{LAMP}]", solution: str = "return 'lamp'") -> str:
    return TASK.replace("CRITERIA", criteria).replace("SOLUTION", solution)


def game(more: str) -> str:
    return f"""
class GameEnv:
    def reset(self, seed=None):
        {more}
        return "go", {{}}

    def step(self, action):
        pass
"""


@pytest.fixture
def begun(bench, opened):
    def begin(code):
        environment = opened(code)
        bench.run(environment.reset(3))
        return environment

    return begin


def failure_of(bench, call):
    with pytest.raises(EnvironmentFailure) as caught:
        bench.run(call)
    return caught.value


def test_a_solution_is_told_as_text(bench, begun):
    environment = begun(task(solution="return f'é {self._state}'"))
    assert bench.run(environment.solution()) == "é {'lamp': False, 'seed': 3}"
    bench.run(environment.call_tool("lamp", {}))
    assert bench.run(environment.solution()) == "é {'lamp': True, 'seed': 3}"


@pytest.mark.parametrize(
    "code",
    [
        game("pass"),
        game("self.solution = 'blue'"),
        task(solution="return None"),
        TASK.replace("CRITERIA", "[]").replace("def solution(self):\n        SOLUTION", ""),
    ],
    ids=["no method", "a text in its place", "nothing to say", "the base class's"],
)
def test_where_there_is_no_solution(bench, begun, code):
    environment = begun(code)
    assert bench.run(environment.solution()) is None
    assert bench.run(environment.reset(4)).info == {}


def test_an_empty_solution_is_one(bench, begun):
    assert bench.run(begun(task(solution="return ''")).solution()) == ""


@pytest.mark.parametrize(
    ("solution", "kind", "detail"),
    [
        ("return ['lamp']", "invalid_output", "solution returned a list of 1; want str"),
        ("return 'x' * 70000", "invalid_output", "70000 bytes"),
        ("return chr(0xd800)", "invalid_output", "surrogates"),
        ("raise KeyError('gone')", "environment_error", "KeyError: 'gone' (line"),
        ("raise SystemExit", "environment_error", "SystemExit"),
        ("import os; os._exit(3)", "died", "status 3"),
    ],
)
def test_a_solution_outside_the_contract_is_the_environments_failure(bench, begun, solution, kind, detail):
    environment = begun(task(solution=solution))
    failure = failure_of(bench, environment.solution())
    assert failure.kind == kind
    assert detail in failure.detail
    assert failure_of(bench, environment.reset(0)).kind == kind


def test_criteria_are_told_in_order_and_anew_each_time(bench, begun):
    environment = begun(
        task(criteria=f"({LAMP}, lambda state: not state['lamp'], lambda state: state['seed'] == 3)")
    )
    assert bench.run(environment.check_criteria()) == [False, True, True]
    bench.run(environment.call_tool("lamp", {}))
    assert bench.run(environment.check_criteria()) == [True, False, True]


def test_what_counts_as_true(bench, begun):
    values = ["np.bool_(True)", "np.bool_(False)", "1", "''", "None", "[0]"]
    criteria = ", ".join(f"lambda state: {value}" for value in values)
    found = bench.run(begun(task(criteria=f"[{criteria}]")).check_criteria())
    assert found == [True, False, True, False, False, True]
    assert all(type(holds) is bool for holds in found)


def test_a_criterion_that_raises_tells_its_error_and_spoils_no_other(bench, begun):
    criteria = f"[lambda state: state['door'], {LAMP}, 'door', lambda: 1, lambda state: np.zeros(2)]"
    door, lamp, text, arguments, array = bench.run(begun(task(criteria=criteria)).check_criteria())
    assert door.startswith("KeyError: 'door' (line")
    assert lamp is False
    assert text == "TypeError: 'str' object is not callable"
    assert arguments.startswith("TypeError: ")
    assert array.startswith("ValueError: ")


def test_the_text_of_an_error_is_cut_and_may_be_hostile(bench, begun):
    criteria = """[lambda state: {}['x' * 9999], lambda state: Hostile().go()]

class Hostile(Exception):
    def go(self): raise self
    def __str__(self): raise KeyboardInterrupt"""
    source = task(criteria="MANY").replace("class TaskEnv", f"MANY = {criteria}\n\nclass TaskEnv")
    long, hostile = bench.run(begun(source).check_criteria())
    assert len(long) == protocol.MAX_DETAIL
    assert hostile.startswith("Hostile: (its text cannot be shown)")


@pytest.mark.parametrize("code", [game("pass"), task(criteria="[]"), task(criteria="()")])
def test_an_environment_without_criteria_has_none(bench, begun, code):
    assert bench.run(begun(code).check_criteria()) == []


@pytest.mark.parametrize(
    ("criteria", "kind", "detail"),
    [
        ("{'lamp': 1}", "invalid_output", "_message_criteria is of type dict"),
        (f"[{LAMP}] * 65", "invalid_output", "65 criteria"),
        ("[lambda state: (_ for _ in ()).throw(SystemExit)]", "environment_error", "SystemExit"),
        ("[lambda state: __import__('os')._exit(3)]", "died", "status 3"),
    ],
)
def test_criteria_outside_the_contract_are_the_environments_failure(bench, begun, criteria, kind, detail):
    failure = failure_of(bench, begun(task(criteria=criteria)).check_criteria())
    assert failure.kind == kind
    assert detail in failure.detail


@pytest.mark.parametrize(
    "code",
    [
        task(solution="while True: pass", criteria="[]"),
        task(criteria="[lambda state: [0 for _ in iter(int, 1)]]"),
    ],
)
def test_what_never_answers_is_a_timeout(bench, code):
    async def ask():
        async with await bench.hurried_pool.open(code) as environment:
            await environment.reset(0)
            await environment.check_criteria()
            await environment.solution()

    assert failure_of(bench, ask()).kind == "timeout"


# Bytes that a child writes in place of the runner's answer.
FORGED = """
import json, os, sys

def say(body):
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    body = json.dumps({"id": frame.f_locals["request"]["id"], **body}).encode()
    os.write(3, len(body).to_bytes(4, "little") + body)
    while True: pass
"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"observation": "x" * 70000, "succeeded": True}', "invalid_output"),
        ('{"observation": 5, "succeeded": True}', "protocol_violation"),
        ('{"observation": "x", "succeeded": 1}', "protocol_violation"),
        ('{"failure": "host_fault", "detail": "not my fault"}', "protocol_violation"),
    ],
)
def test_forged_solutions(bench, begun, body, kind):
    environment = begun(FORGED + task(solution=f"say({body})"))
    assert failure_of(bench, environment.solution()).kind == kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"criteria": [True] * 65}', "invalid_output"),
        ('{"criteria": [1]}', "protocol_violation"),
        ('{"criteria": [None]}', "protocol_violation"),
        ('{"criteria": [[True]]}', "protocol_violation"),
        ('{"criteria": {"a": True}}', "protocol_violation"),
        ('{"criteria": "yes"}', "protocol_violation"),
    ],
)
def test_forged_criteria(bench, begun, body, kind):
    environment = begun(FORGED + task(criteria=f"[lambda state: say({body})]"))
    assert failure_of(bench, environment.check_criteria()).kind == kind


def test_forged_texts_are_cut(bench, begun):
    """A forger may say anything that an honest child may, and no more."""
    said = 'lambda state: say({"criteria": [True, "x" * 9999]})'
    assert bench.run(begun(FORGED + task(criteria=f"[{said}]")).check_criteria()) == [True, "x" * 500]
