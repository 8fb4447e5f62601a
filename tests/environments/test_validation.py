"""The six rungs of tiny runs: each rejects what it is there for, and nothing climbs past it."""

import pytest

from spade_jax.config import ValidationConfig
from spade_jax.environments.fingerprint import fingerprint
from spade_jax.environments.validation import validate
from spade_jax.roles.designer import design_reply
from tests.scripted import FaultySandbox, game, running_sandbox

RUNGS = ("extract", "parse", "held_out", "load", "play", "replay")
CONFIG = ValidationConfig(rungs=RUNGS, num_seeds=2)
HELD_OUT = frozenset([fingerprint(game("Kept"))])
CODE = game("One", turns=2)


@pytest.fixture(scope="module")
def sandbox():
    with running_sandbox() as running:
        yield running
        assert running.pool.num_live == 0


@pytest.fixture
def report(sandbox):
    def report_on(reply, *, pool=sandbox.pool):
        return sandbox.run(
            validate(
                "e1",
                reply,
                sandbox=pool,
                config=CONFIG,
                held_out=HELD_OUT,
                setting="games",
                max_turns=10,
            )
        )

    return report_on


def test_a_good_design_passes_every_rung(report):
    found = report(design_reply(CODE, "obey"))
    assert found.valid
    assert found.environment_id == "e1"
    assert tuple(verdict.rung for verdict in found.verdicts) == RUNGS
    assert found.rejected_by == ""


def program(step: str) -> str:
    """A program whose step is one line; it remembers `self.count`, the number of steps so far."""
    return f"""
import os
class OddEnv:
    def reset(self, seed=None):
        self.count = 0
        return f"seed {{seed}} go", {{}}
    def step(self, action):
        self.count += 1
        {step}
"""


REJECTED = {
    "no program": ("extract", "Hint: obey"),
    "an open fence": ("extract", f"```python\n{CODE}Hint: obey"),
    "no hint": ("extract", f"```python\n{CODE}```\n"),
    "an answer inside thoughts": ("extract", f"<think>{design_reply(CODE, 'obey')}"),
    "not Python": ("parse", design_reply("class AEnv(:\n", "obey")),
    "a NUL": ("parse", design_reply("x = 1\0\n", "obey")),
    "brackets too deep to parse": ("parse", design_reply(f"x = {'(' * 5000}{')' * 5000}\n", "obey")),
    "a held-out program": ("held_out", design_reply(game("Kept"), "obey")),
    "a held-out program in other words": (
        "held_out",
        design_reply(game("Kept").replace("say {", "# now\\n{").replace("    ", "  "), "other"),
    ),
    "no environment class": ("load", design_reply("x = 1\n", "obey")),
    "an error while loading": ("load", design_reply("1 / 0\n" + CODE, "obey")),
    "a reset without info": (
        "play",
        design_reply(CODE.replace("self.observe(), {}\n    def obs", "1\n    def obs"), "o"),
    ),
    "a step of four": ("play", design_reply(program('return "x", 0.0, False, {}'), "obey")),
    "a reward that is no number": (
        "play",
        design_reply(program('return "x", float("nan"), False, False, {}'), "obey"),
    ),
    "an error in the third turn": (
        "play",
        design_reply(program('return "x", 1 / (3 - self.count), False, False, {}'), "obey"),
    ),
    "an observation that differs from process to process": (
        "replay",
        design_reply(program("return str((os.getpid(), id(self))), 0.0, False, False, {}"), "obey"),
    ),
    "a reward that differs from process to process": (
        "replay",
        design_reply(program('return "x", hash((os.getpid(), id(self))) / 2**64, False, False, {}'), "obey"),
    ),
}


@pytest.mark.parametrize(("rung", "reply"), REJECTED.values(), ids=REJECTED)
def test_the_rung_that_rejects(report, rung, reply):
    found = report(reply)
    assert not found.valid
    assert found.rejected_by == rung
    assert not found.host_fault
    passed = tuple(verdict.rung for verdict in found.verdicts if verdict.passed)
    assert passed == RUNGS[: RUNGS.index(rung)]
    assert found.verdicts[-1].detail


def test_nothing_is_repaired(report):
    """The nearest thing to a valid program is still an invalid one."""
    broken = CODE.replace("return self.observe(), {}", "return self.observe(), {")
    assert report(design_reply(broken, "obey")).rejected_by == "parse"


@pytest.mark.parametrize("after", [0, 1], ids=["at the first child", "at the replay"])
def test_a_fault_of_the_sandbox_is_no_verdict(report, sandbox, after):
    found = report(design_reply(CODE, "obey"), pool=FaultySandbox(sandbox.pool, "One", after=after))
    assert found.host_fault
    assert not found.valid
    assert found.rejected_by == ""


def test_the_same_reply_has_the_same_report(report):
    for _, reply in [("", design_reply(CODE, "obey")), *list(REJECTED.values())[-5:-2]]:
        assert report(reply) == report(reply)
