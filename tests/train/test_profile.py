"""Profiler traces of chosen cycles, which change nothing else."""

import pytest

from spade_jax.config import load
from spade_jax.errors import ConfigError
from spade_jax.train import train
from tests.train.command import CONFIG, arguments, differences, run


def test_cycles_that_are_asked_for_leave_a_trace_and_the_same_numbers(reference, cache_dir, tmp_path):
    workdir = tmp_path / "run"
    run([*arguments(workdir, cache_dir), "--profile_cycles=1,2"])
    assert differences(workdir, reference) == {}
    assert sorted(path.name for path in (workdir / "profiles").iterdir()) == ["cycle_00001", "cycle_00002"]
    for folder in (workdir / "profiles").iterdir():
        (trace,) = folder.rglob("*.xplane.pb")
        assert b"jit(decode)" in trace.read_bytes()


def test_a_cycle_that_the_run_does_not_have(tmp_path):
    with pytest.raises(ConfigError, match="--profile_cycles: no cycle 4 in a run of 4, numbered from 0"):
        train(load(str(CONFIG)), workdir=tmp_path / "run", profile_cycles=[1, 4])
    assert not (tmp_path / "run").exists()
