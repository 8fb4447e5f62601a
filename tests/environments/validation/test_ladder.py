"""The climb: what a reply, a source and a hint climb, what that takes, and whose fault is whose."""

import dataclasses

import pytest

from spade_jax.config import ValidationConfig
from spade_jax.environments.validation import candidate, feedback, validate, validate_hint, validate_source
from spade_jax.environments.validation.ladder import CHECKS
from spade_jax.errors import HostFault
from spade_jax.roles.designer import design_reply
from spade_jax.types import RUNGS, EnvironmentSource, ValidationReport, Verdict
from tests.environments.validation.designs import BANK, SUMS, SUMS_HINT, single, spoilt
from tests.scripted import FaultySandbox

REPLY = design_reply(SUMS, SUMS_HINT)
WITHOUT_HINT = f"```python\n{SUMS}```\n"
FENCELESS = "class SumsEnv: ..."


@pytest.fixture
def report(sandbox):
    def report_on(reply, *, rungs=RUNGS[:-1], config=None, pool=sandbox.pool, **surroundings):
        return sandbox.run(
            validate(
                "e7",
                reply,
                sandbox=pool,
                config=ValidationConfig(rungs=tuple(rungs), **(config or {})),
                held_out=frozenset(),
                setting="games",
                max_turns=10,
                **surroundings,
            )
        )

    return report_on


def judge_of(answer):
    """A judge, and the programs that it was shown."""
    shown = []

    async def judge(code):
        shown.append(code)
        return answer

    return judge, shown


def test_a_good_reply_passes_every_rung(report):
    found = report(REPLY)
    assert found.valid, feedback(found)
    assert (found.environment_id, found.rejected_by, feedback(found)) == ("e7", "", "")
    assert tuple(verdict.rung for verdict in found.verdicts) == RUNGS[:-1]


def test_a_hint_is_asked_for_only_where_hints_come_from_designs(report):
    assert report(WITHOUT_HINT).rejected_by == "extract"
    found = report(WITHOUT_HINT, needs_hint=False)
    assert found.valid, feedback(found)
    assert tuple(verdict.rung for verdict in found.verdicts) == RUNGS[:-2]
    # Nor is one looked at that nobody asked for.
    assert report(design_reply(SUMS, "x" * 601), needs_hint=False).valid
    assert report(design_reply(SUMS, "x" * 601)).rejected_by == "extract"


def test_without_a_program_there_is_nothing_to_climb_with(report):
    found = report(FENCELESS, rungs=("held_out",))
    assert found.rejected_by == "extract"
    assert "```python" in feedback(found)
    found = report(REPLY, rungs=("held_out",))
    assert [verdict.rung for verdict in found.verdicts] == ["extract", "held_out"]


@pytest.mark.parametrize("rung", ["static", "held_out"])
def test_what_a_rung_needs_of_one_that_is_off_it_gets_itself(report, rung):
    assert report(design_reply("x = (\n", "go"), rungs=(rung,)).rejected_by == rung


@pytest.mark.parametrize("rung", ["play", "replay", "ends", "criteria", "solution", "constant", "hint"])
def test_a_program_that_does_not_run_fails_the_first_rung_that_runs_it(report, rung):
    found = report(design_reply("1 / 0\n", "go"), rungs=(rung,))
    assert found.rejected_by == rung
    assert "ZeroDivisionError" in feedback(found)


@pytest.mark.parametrize(
    ("answer", "failure", "valid"),
    [
        (True, "closed", True),
        (False, "open", False),
        (None, "closed", False),
        (None, "open", True),
    ],
)
def test_the_judge_decides_last(report, sandbox, answer, failure, valid):
    judge, shown = judge_of(answer)
    found = report(REPLY, rungs=RUNGS, config={"judge_failure": failure}, judge=judge)
    assert found.valid == valid
    assert found.rejected_by == ("" if valid else "judge")
    assert shown == [SUMS]
    assert tuple(verdict.rung for verdict in found.verdicts) == RUNGS


def test_no_child_waits_for_the_judge(report, sandbox):
    async def judge(code):
        assert sandbox.pool.num_live == 0
        return True

    assert report(REPLY, rungs=RUNGS, judge=judge).valid


def test_the_judge_sees_nothing_that_was_rejected_before(report):
    judge, shown = judge_of(True)
    assert (
        report(design_reply(f"import shutil\n{SUMS}", "go"), rungs=RUNGS, judge=judge).rejected_by == "static"
    )
    assert shown == []


def test_a_judge_that_is_asked_for_must_be_there(report):
    with pytest.raises(ValueError, match="no judge"):
        report(REPLY, rungs=RUNGS)


def test_two_children_serve_the_whole_ladder(report, sandbox):
    before = sandbox.pool.num_opened
    assert report(REPLY).valid
    assert sandbox.pool.num_opened - before == 2


@pytest.mark.parametrize(
    ("after", "passed"), [(0, "novelty"), (1, "play")], ids=["at the first child", "at the replay"]
)
def test_a_fault_of_the_sandbox_is_no_verdict(report, sandbox, after, passed):
    found = report(REPLY, pool=FaultySandbox(sandbox.pool, "Sums", after=after))
    assert (found.host_fault, found.valid, found.rejected_by, feedback(found)) == (True, False, "", "")
    assert found.verdicts[-1] == Verdict(rung=passed, passed=True)


def test_the_same_reply_has_the_same_report(report):
    assert report(REPLY) == report(REPLY)
    lucky = design_reply(
        single(
            'self.text = "Choose: red, green, blue or grey. Not gold."', 'move in ("red", "green", "blue")'
        ),
        "go",
    )
    assert report(lucky) == report(lucky)
    assert report(lucky).rejected_by == "random"


# Hints that come later.


def source(hint: str, code: str = SUMS) -> EnvironmentSource:
    return EnvironmentSource(environment_id="e9", skill="", code=code, hint=hint)


@pytest.fixture
def hint_verdict(sandbox):
    def verdict_on(code, hint, *, pool=sandbox.pool, rungs=("hint",)):
        return sandbox.run(
            validate_hint(
                source(hint, code),
                sandbox=pool,
                config=ValidationConfig(rungs=rungs),
                setting="games",
                max_turns=10,
            )
        )

    return verdict_on


def test_a_hint_of_its_own_is_held_to_the_same_rung(hint_verdict):
    gate = single('self.text = "A gate."', 'move == "xyzzy"')
    assert hint_verdict(SUMS, SUMS_HINT) == Verdict(rung="hint", passed=True)
    refused = hint_verdict(gate, "Say xyzzy.")
    assert (refused.rung, refused.passed) == ("hint", False)
    assert "xyzzy" in refused.detail
    assert hint_verdict(gate, "Say xyzzy.", rungs=("play",)).passed
    assert not hint_verdict(SUMS, "").passed


def test_a_fault_while_a_hint_is_tried_says_nothing_of_it(hint_verdict, sandbox):
    with pytest.raises(HostFault):
        hint_verdict(SUMS, SUMS_HINT, pool=FaultySandbox(sandbox.pool, "Sums"))
    assert sandbox.pool.num_live == 0


def test_a_source_without_a_hint_leaves_its_rung_out(climb):
    rungs = [verdict.rung for verdict in climb(SUMS).verdicts]
    assert "hint" not in rungs
    assert "extract" not in rungs
    assert climb(SUMS, hint="x" * 601).rejected_by == "hint"


# Limits.

ENDLESS = spoilt(spoilt(SUMS, "self.turn_count >= self.max_turns", "False"), "max_turns=4", "max_turns=10**6")


def test_a_rung_stops_after_its_turns_and_rejects_for_nothing_that_it_did_not_see(climb, monkeypatch):
    assert climb(ENDLESS, hint=SUMS_HINT).valid
    monkeypatch.setattr(candidate, "MAX_TURNS", 3)
    assert climb(spoilt(ENDLESS, "10**6", "3"), rungs=("ends",)).rejected_by == "ends"
    assert climb(spoilt(ENDLESS, "10**6", "4"), rungs=("ends",)).valid
    assert climb(spoilt(SUMS, "return self.answer()", "return '1'"), rungs=("solution",)).valid


def test_an_environment_that_takes_all_day_is_rejected(climb, monkeypatch):
    monkeypatch.setattr(candidate, "MAX_SECONDS", 1e-6)
    found = climb(SUMS, rungs=("constant",))
    assert found.rejected_by == "constant"
    assert "too slow: 1 turns" in feedback(found)


@pytest.mark.parametrize("rung", RUNGS)
def test_feedback_names_the_rung_and_says_what_it_wants(rung):
    passed = [Verdict(rung=other, passed=True) for other in RUNGS[: RUNGS.index(rung)]]
    report = ValidationReport(
        environment_id="e",
        verdicts=(*passed, Verdict(rung=rung, passed=False, detail="line 3: that")),
    )
    first, last = feedback(report).splitlines()
    assert first.startswith(f"Rejected by the check `{rung}`. ")
    assert last == "line 3: that"
    assert feedback(dataclasses.replace(report, verdicts=tuple(passed))) == ""


def test_the_ladder_has_the_rungs_that_configs_name():
    assert tuple(CHECKS) == RUNGS


def test_sources_that_are_held_out_or_remembered(sandbox):
    found = sandbox.run(
        validate_source(
            source(SUMS_HINT, BANK),
            sandbox=sandbox.pool,
            config=ValidationConfig(max_similarity=0.8),
            setting="tool_use",
            max_turns=10,
            nearest=lambda code: ("c00003-e001", 0.8),
        )
    )
    assert found.rejected_by == "novelty"
    assert "c00003-e001" in feedback(found)
    assert "0.80" in feedback(found)
