"""Every rung rejects what it is there for and, switched off, lets that pass to the top of the ladder."""

import dataclasses
from collections.abc import Callable

import pytest

from spade_jax.environments.fingerprint import fingerprint
from spade_jax.environments.validation import feedback
from spade_jax.environments.validation.ladder import CHECKS
from spade_jax.types import RUNGS
from tests.environments.validation.designs import BANK, SUMS, SUMS_HINT, single, spoilt

CLIMBED = tuple(rung for rung in RUNGS if rung not in ("extract", "judge"))


@dataclasses.dataclass(frozen=True)
class Case:
    """A design that one rung rejects.

    Attributes:
      says: in the verdict's detail.
      off: rungs that are off as well, as they would object too.
      passes_without: whether the design is valid with the rung off.
    """

    rung: str
    says: str
    code: str
    hint: str = SUMS_HINT
    off: tuple[str, ...] = ()
    passes_without: bool = True
    nearest: Callable[[str], tuple[str, float] | None] | None = None
    held_out: frozenset[str] = frozenset()


GATE = single('self.text = f"Gate {rng.randint(1, 9)} is shut."', 'move == "xyzzy"')
TALKING_GATE = single(
    'self.text = f"Gate {rng.randint(1, 9)} is shut."',
    'move == "xyzzy"',
    more='    def solution(self):\n        return "xyzzy"',
)

IMPORT_OS = "import os\n"
ECHO = """self.word = str(rng.randint(100, 999))
        self.text = f"Here, as before, we ask you to kindly repeat after me {self.word}\""""

CASES = {
    "not Python": Case("parse", "'(' was never closed", "x = (", passes_without=False),
    "a brace in an f-string": Case(
        "parse", "f-string", spoilt(SUMS, "What is {self.a}", "What is { {self.a"), passes_without=False
    ),
    "a module without use": Case("static", "line 2: import shutil", f"\nimport shutil{SUMS}"),
    "evaluated text": Case("static", "eval()", spoilt(SUMS, "self.a + self.b", "eval('self.a + self.b')")),
    "held out": Case("held_out", "held-out", SUMS, held_out=frozenset([fingerprint(SUMS)])),
    "a near copy": Case("novelty", "c00001-e002", SUMS, nearest=lambda code: ("c00001-e002", 0.9)),
    "an error while loading": Case("load", "ZeroDivisionError", f"1 / 0\n{SUMS}", passes_without=False),
    "a large reward": Case("play", "reward of 50", spoilt(SUMS, '"No.", 0.0', '"No.", 50.0')),
    "a blank observation": Case(
        "play", "blank", spoilt(SUMS, "return self.ask(), {}", 'self.ask(); return "\\n", {}')
    ),
    "no tools": Case(
        "play",
        "no tools",
        spoilt(BANK, "self._user_messages = [", "self._tools = {}; self._user_messages = ["),
        off=("solution", "random", "constant"),
    ),
    "a boolean reward": Case(
        "play", "reward is of type bool", spoilt(SUMS, '"No.", 0.0', '"No.", False'), passes_without=False
    ),
    "a crash on odd words": Case(
        "play", "ValueError", spoilt(SUMS, "over = ", "int(action[7:-1]); over = "), passes_without=False
    ),
    "a tool that stops everything": Case(
        "play",
        "SystemExit",
        spoilt(BANK, 'return f"{self', 'raise SystemExit; f"{self'),
        passes_without=False,
    ),
    "another answer in each process": Case(
        "replay",
        "answer 0 was",
        IMPORT_OS + spoilt(SUMS, "in a box.", "in a box, {os.getpid(), id(self)}."),
        off=("static",),
    ),
    "other tools in each process": Case(
        "replay",
        "answer 0 was",
        IMPORT_OS + spoilt(BANK, '"Closes', 'f"{os.getpid(), id(self)} Closes'),
        off=("static",),
    ),
    "no end": Case(
        "ends", "4 turns, its own max_turns", spoilt(SUMS, "self.turn_count >= self.max_turns", "False")
    ),
    "no end and no limit": Case(
        "ends",
        "10 turns, the agent's",
        spoilt(
            spoilt(SUMS, "self.turn_count >= self.max_turns", "False"), "self.max_turns = max_turns", "pass"
        ),
    ),
    "a crash on the last turn": Case(
        "ends",
        "ZeroDivisionError",
        spoilt(SUMS, "over = ", "1 // (6 - self.turn_count); over = ").replace("max_turns=4", "max_turns=7"),
        passes_without=False,
    ),
    "a criterion that fails": Case(
        "criteria",
        "criterion 1 fails after reset: KeyError",
        spoilt(BANK, 'lambda state: state["savings"] == 0', 'lambda state: state["log"]["withdrawn"] > 99'),
    ),
    "a first criterion that holds": Case(
        "criteria",
        "the first criterion already holds",
        spoilt(BANK, 'lambda state: state["savings"] == 0', "lambda state: True"),
    ),
    "criteria that mostly hold": Case(
        "criteria",
        "2 of 3 criteria",
        spoilt(
            BANK, 'lambda state: state["closed"]]', 'lambda state: not state["closed"], lambda state: True]'
        ),
    ),
    "a solution that loses": Case(
        "solution", "does not win: 45, 45", spoilt(SUMS, "return self.answer()", "return str(self.a + 1)")
    ),
    "a solution that crashes": Case(
        "solution",
        "ZeroDivisionError",
        spoilt(SUMS, "return self.answer()", "return 1 / 0"),
        passes_without=False,
    ),
    "a tool-use solution that loses": Case(
        "solution", "withdraw", spoilt(BANK, '% self._state["savings"]', "% 5")
    ),
    "a last answer that need not be right": Case(
        "solution",
        "win as well",
        spoilt(SUMS, "if action != self.answer()", "if not self.right and action != self.answer()"),
    ),
    "always yes": Case(
        "constant", "'yes'", single('self.text = f"Is {rng.randint(1, 9)} below ten?"', 'move == "yes"')
    ),
    "done at once": Case(
        "constant", "'done'", spoilt(BANK, " and self._current_msg == 2", ""), off=("random",)
    ),
    "an echo": Case("constant", "last word", single(ECHO, "move == self.word")),
    "most of the choices": Case(
        "random",
        "random actions",
        single(
            'self.text = "Choose: red, green, blue or grey. Not gold."', 'move in ("red", "green", "blue")'
        ),
    ),
    "an answer that is told": Case(
        "answer_hidden",
        "'90' in 'What is 44 plus 46? It is 90",
        spoilt(SUMS, "Put it in", "It is {self.a + self.b} indeed. Put it in"),
    ),
    "a password": Case("hint", "'xyzzy', wins", GATE, hint="At the gate one says xyzzy."),
    "a password in a box": Case("hint", "saying the hint", GATE, hint="xyzzy"),
    "a password among boxes": Case(
        "hint", "spells out", GATE, hint="First \\boxed{hello}, then \\boxed{xyzzy}."
    ),
    "the only answer": Case("hint", "contains the answer", TALKING_GATE, hint="At the gate one says xyzzy."),
    "a long hint": Case("hint", "601 characters", SUMS, hint="x" * 601),
}


@pytest.mark.parametrize("code", [SUMS, BANK], ids=["a game", "tool use"])
def test_a_good_design_passes_every_rung(climb, code):
    report = climb(code, hint=SUMS_HINT)
    assert feedback(report) == ""
    assert report.valid
    assert report.environment_id == "e1"
    assert tuple(verdict.rung for verdict in report.verdicts) == CLIMBED


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_rung_rejects_and_only_where_it_is_on(climb, case):
    surroundings = {"hint": case.hint, "nearest": case.nearest, "held_out": case.held_out}
    rungs = [rung for rung in CLIMBED if rung not in case.off]
    report = climb(case.code, rungs=rungs, **surroundings)
    assert (report.rejected_by, report.host_fault) == (case.rung, False), feedback(report)
    assert case.says in report.verdicts[-1].detail
    assert [verdict.rung for verdict in report.verdicts] == rungs[: rungs.index(case.rung) + 1]
    assert f"`{case.rung}`" in feedback(report)
    assert case.says in feedback(report)

    rungs.remove(case.rung)
    without = climb(case.code, rungs=rungs, **surroundings)
    assert without.valid == case.passes_without, feedback(without)


def test_every_rung_has_a_check_and_a_case():
    assert tuple(CHECKS) == RUNGS
    assert {case.rung for case in CASES.values()} == set(CLIMBED)


def test_without_rungs_nothing_is_found(climb):
    report = climb("x = (", rungs=())
    assert report.valid
    assert report.verdicts == ()
