"""The audit command with the policy of a run, which it leaves as it is."""

import json
import shutil
import subprocess
import sys

from tests.train.command import ROOT


def audit(*flags, code=0):
    result = subprocess.run(
        [sys.executable, ROOT / "launch" / "audit.py", *flags], capture_output=True, text=True
    )
    assert result.returncode == code, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def test_a_runs_own_environments_are_played_by_its_newest_policy(reference, tmp_path):
    before = {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()}
    found = audit(
        f"--environments={reference / 'environments'}",
        f"--model={reference}",
        "--seeds=4",
        "--episodes=4",
        f"--json={tmp_path / 'audit.json'}",
    )
    assert f"policy of {reference} before cycle 4" in found.stdout
    assert {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()} == before

    rows = json.loads((tmp_path / "audit.json").read_bytes())
    programs = {str(path.relative_to(reference / "environments")) for path in before if path.suffix == ".py"}
    assert {row["file"] for row in rows} == programs
    assert len(rows) > 4
    for row in rows:
        # The run's own ladder let them pass, and they have hints: each is played in both conditions.
        about = json.loads((reference / "environments" / row["file"]).with_suffix(".json").read_bytes())
        assert (row["environment_id"], row["skill"]) == (about["environment_id"], about["skill"])
        assert (row["num_episodes"], row["num_failed"], row["num_without_room"]) == (8, 0, 0)
        assert 0 <= row["solve_rate_low"] <= row["solve_rate"] <= row["solve_rate_high"] <= 1
        assert row["num_pairs"] == 4
        assert row["tokens"] > row["tokens_sampled"] > 0
        assert row["max_turns"] is None or row["turns"] <= row["max_turns"]
    # A policy that plays at all wins somewhere.
    assert max(row["solve_rate"] for row in rows) > 0


def test_a_run_without_a_checkpoint_is_named(reference, tmp_path):
    shutil.copy(reference / "config.json", tmp_path)
    failed = audit(f"--environments={reference / 'environments'}", f"--model={tmp_path}", code=1)
    assert failed.stderr == f"error: no checkpoint in {tmp_path}/checkpoints; wait for the run's first one\n"
    nowhere = audit(f"--environments={reference / 'environments'}", f"--model={tmp_path / 'x'}", code=1)
    assert nowhere.stderr.startswith(f"error: no run in {tmp_path / 'x'}")
