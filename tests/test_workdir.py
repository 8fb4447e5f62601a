import dataclasses
import errno
import json
import math
import os
import pathlib
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest

from spade_jax.config import Config, ModelConfig, to_dict, with_overrides
from spade_jax.errors import WorkdirError
from spade_jax.types import (
    Design,
    DesignContext,
    Document,
    EnvironmentSource,
    RegretEstimate,
    TokenStream,
    Trajectory,
    Turn,
    ValidationReport,
    Verdict,
)
from spade_jax.workdir import Workdir

CONFIG = Config(
    num_cycles=3,
    model=ModelConfig(num_layers=1, width=8, num_heads=1, num_kv_heads=1, head_width=8, mlp_width=8),
)
VALUES = to_dict(CONFIG)
OTHER = to_dict(with_overrides(CONFIG, ["agent.temperature=0.7", "num_cycles=9"]))

_STREAM = TokenStream(
    tokens=np.zeros(1, np.int32),
    loss_mask=np.ones(1, bool),
    behavior_logprobs=np.zeros(1, np.float32),
    temperature=1.0,
)
_CODE = "class WalkEnv:\n    size = 4\n    name = 'Ångström \\n'\n"


def design(*, valid=True, environment_id="c00012-e03", hint_failure=""):
    context = DesignContext(
        environment_id=environment_id,
        skill="Mathematical Reasoning",
        document=Document(document_id="builtin-007", text="A lamp."),
    )
    source = EnvironmentSource(
        environment_id=environment_id,
        skill=context.skill,
        code=_CODE,
        hint="walk on",
        document_id="builtin-007",
    )
    verdicts = (Verdict(rung="parse", passed=True), Verdict(rung="load", passed=valid, detail="half \ud83d"))
    return Design(
        context=context,
        reply="a reply",
        stream=_STREAM,
        source=source if valid else None,
        report=ValidationReport(environment_id=environment_id, verdicts=verdicts),
        hint_failure=hint_failure,
    )


def estimate(standard_error=0.1):
    return RegretEstimate(
        environment_id="c00012-e03",
        return_without_hint=0.25,
        return_with_hint=0.5,
        win_rate=0.25,
        win_rate_with_hint=0.5,
        regret=0.25,
        standard_error=standard_error,
        num_pairs=4,
    )


def episode(condition, seed, observation="you 0,0\n```\n# not a heading"):
    return Trajectory(
        environment_id="c00012-e03",
        condition=condition,
        instance_seed=seed,
        turns=(Turn(observation=observation, reply="\\boxed{up}", reward=0.5),),
        last_observation="done \ud83d",
        streams=(_STREAM,),
        episode_return=1.0,
        terminated=True,
        truncated=False,
    )


def tree(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_folder_is_made_and_taken_up_again_by_the_same_config(tmp_path):
    path = tmp_path / "runs" / "first"
    for _ in range(2):
        with Workdir.open(path, VALUES) as workdir:
            assert json.loads(workdir.config_path.read_text()) == VALUES


def test_another_config_is_refused_with_what_differs_and_nothing_changes(tmp_path):
    with Workdir.open(tmp_path, VALUES):
        before = tree(tmp_path)
    with pytest.raises(WorkdirError) as caught:
        Workdir.open(tmp_path, OTHER)
    message = str(caught.value)
    assert "agent.temperature: 1.0 -> 0.7" in message
    assert "num_cycles: 3 -> 9" in message
    assert "another --workdir" in message
    assert "--allow_changed_config" in message
    assert tree(tmp_path) == before
    with Workdir.open(tmp_path, OTHER, allow_changed=True):
        pass
    with Workdir.open(tmp_path, OTHER):
        pass


def test_a_config_that_cannot_be_read_is_not_written_over(tmp_path):
    (tmp_path / "config.json").write_text('{"num_cyc')
    with pytest.raises(WorkdirError, match=r"cannot read .*config.json"):
        Workdir.open(tmp_path, VALUES, allow_changed=True)
    assert (tmp_path / "config.json").read_text() == '{"num_cyc'


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_the_way(tmp_path, below):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(WorkdirError, match="a file is in the way"):
        Workdir.open(tmp_path / "run" / below, VALUES)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_folder_that_cannot_be_made():
    with pytest.raises(WorkdirError, match=r"cannot make --workdir=/proc/run: .*choose one"):
        Workdir.open("/proc/run", VALUES)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(WorkdirError, match="Read-only file system"):
        Workdir.open(tmp_path, VALUES)


def test_a_disk_that_takes_no_more_leaves_the_last_summary(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Workdir.open(tmp_path, VALUES) as workdir:
        workdir.write_summary({"play/win_rate": 0.5})
        before = tree(tmp_path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
        try:
            with pytest.raises(WorkdirError, match=r"cannot write .*summary.json.*: File too large"):
                workdir.write_summary({f"metric{index}": 0.5 for index in range(100)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert tree(tmp_path) == before


_HOLD = """
import os, sys, time
from spade_jax.workdir import Workdir
workdir = Workdir.open(sys.argv[1], {"seed": 0})
if os.fork() == 0:
    time.sleep(60)  # a child, as the sandbox has, that outlives its parent
    os._exit(0)
print("held", flush=True)
time.sleep(60)
"""


def test_two_processes_cannot_hold_one_folder_and_a_killed_one_lets_go(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        cwd=pathlib.Path(__file__).resolve().parents[1],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(WorkdirError, match=f"process {holder.pid} is running in"):
            Workdir.open(tmp_path, {"seed": 0})
        holder.kill()
        holder.wait()
        with Workdir.open(tmp_path, {"seed": 0}):
            pass
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()


def test_a_valid_environment_is_written_as_sampled_with_all_that_is_known(tmp_path):
    with Workdir.open(tmp_path, VALUES) as workdir:
        workdir.write_environment(design(), cycle=12, estimate=estimate(math.nan), reward=0.75)
    folder = tmp_path / "environments" / "cycle_00012"
    stem = folder / "c00012-e03_mathematical_reasoning"
    assert stem.with_suffix(".py").read_text(encoding="utf-8") == _CODE
    about = json.loads(stem.with_suffix(".json").read_bytes())
    assert about["valid"] is True
    assert (about["rewarded_in"], about["hint_failure"]) == (12, "")
    assert (about["reward"], about["hint"], about["document_id"]) == (0.75, "walk on", "builtin-007")
    assert about["estimate"] == dataclasses.asdict(estimate()) | {"standard_error": None}
    assert [verdict["rung"] for verdict in about["verdicts"]] == ["parse", "load"]


def test_a_rejected_design_leaves_its_reply_and_no_source(tmp_path):
    with Workdir.open(tmp_path, VALUES) as workdir:
        workdir.write_environment(design(valid=False), cycle=12, estimate=None, reward=None)
    (path,) = (tmp_path / "environments" / "cycle_00012").iterdir()
    about = json.loads(path.read_bytes())
    assert (about["valid"], about["rejected_by"], about["reply"]) == (False, "load", "a reply")
    assert about["estimate"] is about["reward"] is about["rewarded_in"] is about["hint"] is None


def test_why_a_hint_is_missing_is_written(tmp_path):
    with Workdir.open(tmp_path, VALUES) as workdir:
        failed = design(hint_failure="no hint in the reply")
        workdir.write_environment(failed, cycle=12, estimate=None, reward=None)
    (path,) = tmp_path.glob("environments/*/*.json")
    assert json.loads(path.read_bytes())["hint_failure"] == "no hint in the reply"


def test_a_reward_settled_later_reaches_its_environment_and_is_taken_back_by_a_resume(tmp_path):
    """As if the process had died after cycle 7 was written, with a checkpoint of the beginning of cycle 6."""

    def cycles(workdir, numbers):
        for cycle in numbers:
            late = design(environment_id=f"c{cycle:05d}-e000")
            workdir.write_environment(late, cycle=cycle, estimate=None, reward=None)
            workdir.write_rewards({f"c{cycle - 2:05d}-e000": cycle / 10}, cycle=cycle)

    def settled():
        paths = sorted(tmp_path.glob("environments/*/*.json"))
        return {
            path.name[:6]: tuple(map(json.loads(path.read_bytes()).get, ("reward", "rewarded_in")))
            for path in paths
        }

    pending = (None, None)
    with Workdir.open(tmp_path, VALUES) as workdir:
        cycles(workdir, range(3, 8))
        before = {"c00003": (0.5, 5), "c00004": (0.6, 6), "c00005": (0.7, 7)}
        assert settled() == {**before, "c00006": pending, "c00007": pending}
        at_once = design(environment_id="c00002-e000")
        workdir.write_environment(at_once, cycle=2, estimate=None, reward=0.9)
        written = tree(tmp_path)

        workdir.discard_from(6)
        kept = {"c00002": (0.9, 2), "c00003": (0.5, 5)}
        assert settled() == {**kept, "c00004": pending, "c00005": pending}
        cycles(workdir, range(6, 8))
    assert tree(tmp_path) == written


def test_an_environments_file_that_was_spoilt_stops_a_later_reward_with_a_word(tmp_path):
    with Workdir.open(tmp_path, VALUES) as workdir:
        workdir.write_environment(design(), cycle=12, estimate=None, reward=None)
        (path,) = tmp_path.glob("environments/*/*.json")
        path.write_text('{"reward": nu')
        with pytest.raises(WorkdirError, match=r"cannot read .*c00012-e03.*remove it"):
            workdir.write_rewards({"c00012-e03": 0.5}, cycle=13)
        path.unlink()
        workdir.write_rewards({"c00012-e03": 0.5}, cycle=13)
    assert not path.exists()


def test_transcripts_show_a_few_episodes_of_both_conditions(tmp_path):
    episodes = [episode("without_hint", seed) for seed in range(5)]
    episodes += [episode("with_hint", seed) for seed in range(5)]
    with Workdir.open(tmp_path, VALUES) as workdir:
        workdir.write_episodes(episodes, cycle=12)
    text = (tmp_path / "episodes" / "cycle_00012" / "c00012-e03.md").read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# c00012-e03",
        "## without_hint, instance seed 0: return 1, terminated",
        "## without_hint, instance seed 1: return 1, terminated",
        "## with_hint, instance seed 0: return 1, terminated",
        "## with_hint, instance seed 1: return 1, terminated",
    ]
    assert "    \\boxed{up}" in text


def test_resuming_discards_only_what_is_made_again(tmp_path):
    with Workdir.open(tmp_path, VALUES) as workdir:
        for cycle in (0, 3, 4, 11):
            workdir.write_environment(design(), cycle=cycle, estimate=None, reward=None)
            workdir.write_episodes([episode("with_hint", 0)], cycle=cycle)
        (tmp_path / "environments" / "cycle_notes").mkdir()
        workdir.discard_from(4)
    kept = {"cycle_00000", "cycle_00003"}
    assert {path.name for path in (tmp_path / "environments").iterdir()} == kept | {"cycle_notes"}
    assert {path.name for path in (tmp_path / "episodes").iterdir()} == kept
