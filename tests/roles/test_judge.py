"""The model judge: what it is asked, and that its last word counts."""

import pytest

from spade_jax.roles.judge import judge_messages, read_verdict
from spade_jax.types import EnvironmentSource

SOURCE = EnvironmentSource(environment_id="e", skill="s", code="class TrapEnv:\n    pass\n", hint="go")


@pytest.mark.parametrize("setting", ["games", "tool_use"])
def test_the_source_and_the_form_of_the_verdict_are_in_the_question(setting):
    system, user = judge_messages(SOURCE, setting=setting)
    assert (system.role, user.role) == ("system", "user")
    assert "\\boxed{yes}" in system.content
    assert "\\boxed{no}" in system.content
    assert "hard is no fault" in system.content
    assert "```python\nclass TrapEnv:\n    pass\n```" in user.content


def test_criteria_are_a_matter_of_tool_use():
    games, tool_use = (
        judge_messages(SOURCE, setting=setting)[0].content for setting in ("games", "tool_use")
    )
    assert "criterion" in tool_use
    assert "criterion" not in games


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("\\boxed{yes}", True),
        ("\\boxed{no}", False),
        ("Fine. \\boxed{ Yes }\n", True),
        ("It would be \\boxed{yes} but for the goal: \\boxed{no}", False),
        ("\\boxed{no}? On reflection \\boxed{yes}.", True),
        ("The action is \\boxed{3}. \\boxed{no} as it takes \\boxed{4}.", False),
        ("<think>\\boxed{no}</think>\\boxed{yes}", True),
        ("<think>\\boxed{no}</think>", None),
        ("<think>\\boxed{yes}", None),
        ("", None),
        ("yes", None),
        ("\\boxed{maybe}", None),
        ("\\boxed{yes", None),
        ("\\boxed{yes or no}", None),
    ],
)
def test_the_last_verdict_counts_and_none_is_none(reply, verdict):
    assert read_verdict(reply) is verdict
