"""A small run with tools, as a user starts it: designs hold, tools are called, tasks done, weights learn."""

import json

import pytest

from spade_jax.types import TOOL_USE_SKILLS
from tests.train.command import arguments, run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tool_use")
    skills = json.dumps(TOOL_USE_SKILLS)
    overrides = ["setting=tool_use", f"designer.skills={skills}", "num_cycles=2", "agent.episodes=6"]
    run(arguments(folder / "run", folder / "cache", *overrides))
    return folder / "run"


def test_its_metrics_are_those_of_tasks_that_take_several_turns(workdir):
    *cycles, last = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert len(cycles) == 2
    assert sum(row["design/num_valid"] for row in cycles) >= 6
    assert any(row["play/win_rate"] > 0 for row in cycles)
    assert max(row["play/num_turns"] for row in cycles) > 1.5
    assert not any(row["update/skipped_empty"] for row in cycles)
    assert [row["heldout/num_failed"] for row in (cycles[0], last)] == [0, 0]


def test_its_environments_are_tool_use_programs_and_its_episodes_calls_of_their_tools(workdir):
    sources = [path.read_text() for path in (workdir / "environments").rglob("*.py")]
    assert sum("Env(ToolUseBaseEnv):" in source for source in sources) >= 6
    episodes = "\n".join(path.read_text() for path in (workdir / "episodes").rglob("*.md"))
    assert '<tool_call>{"name": ' in episodes
    assert "<answer>" in episodes
