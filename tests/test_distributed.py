"""Processes of one run: real ones on this machine, which meet at a loopback address."""

import dataclasses
import signal
import types

import jax
import pytest

from spade_jax import distributed
from spade_jax.distributed import Processes, place_on_host
from spade_jax.errors import DistributedError
from tests.processes import ROOT, flags, free_port, run_all

TRAIN = ROOT / "launch" / "train.py"


def test_flags_that_are_not_given_are_no_processes():
    assert Processes.from_flags(None, None, None) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("10.0.0.1:80", None, None), "--coordinator_address without --num_processes and --process_id"),
        ((None, 2, 1), "--num_processes and --process_id without --coordinator_address"),
        ((None, None, 0), "--process_id without --coordinator_address and --num_processes"),
        (("10.0.0.1", 2, 1), "is not host:port"),
        ((":80", 2, 1), "is not host:port"),
        (("10.0.0.1:http", 2, 1), "is not host:port"),
        (("10.0.0.1:80", 2, 2), "--process_id=2 with --num_processes=2; number the processes from 0 to 1"),
    ],
)
def test_flags_that_cannot_be(given, message):
    with pytest.raises(DistributedError, match=message):
        Processes.from_flags(*given)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("127.0.0.1:80", (1, 2)),
        ("localhost:80", (1, 2)),
        ("[::1]:80", (1, 2)),
        ("10.0.0.1:80", (0, 1)),
        ("node-0.cluster:80", (0, 1)),
    ],
)
def test_processes_share_the_cores_of_a_host_where_they_meet_at_its_loopback_address(address, place):
    assert place_on_host(Processes.from_flags(address, 2, 1)) == place
    assert place_on_host(None) == (0, 1)


ALONE = Processes(coordinator_address="10.0.0.1:80", num_processes=1, process_id=0)


@pytest.mark.parametrize(
    ("processes", "variables", "platforms", "method"),
    [
        (None, {}, "cpu", None),
        (None, {}, "", None),
        (None, {"SLURM_JOB_ID": "1", "SLURM_STEP_NUM_TASKS": "1"}, "cpu", None),
        (ALONE, {"SLURM_STEP_NUM_TASKS": "2"}, "tpu,cpu", None),
        (None, {"SLURM_STEP_NUM_TASKS": "2"}, "cpu", "slurm"),
        (None, {}, "tpu,cpu", "of the slice"),
        (dataclasses.replace(ALONE, num_processes=2), {"SLURM_STEP_NUM_TASKS": "2"}, "cpu", "deactivate"),
    ],
)
def test_what_the_others_are_looked_for_by(monkeypatch, processes, variables, platforms, method):
    """Recorded instead of done: SLURM and flags are tried for real below, a slice takes a slice."""
    looked_for_by = []
    monkeypatch.setattr(
        jax.distributed,
        "initialize",
        lambda **given: looked_for_by.append(given.get("cluster_detection_method", "of the slice")),
    )
    monkeypatch.setattr(distributed.jax, "config", types.SimpleNamespace(values={"jax_platforms": platforms}))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    distributed.join(processes, say=said.append)
    assert looked_for_by == ([] if method is None else [method])
    assert len(said) == len(looked_for_by)


def test_processes_with_other_flags_than_the_first_are_named_in_each(tmp_path):
    port = free_port()
    command = [TRAIN, f"--config={ROOT}/tests/tiny.py", f"--workdir={tmp_path}/run"]
    ended = run_all([[*command, *flags(index, port), f"--set=seed={index}"] for index in range(2)])
    for code, output in ended:
        assert code == 1, output
        assert (
            "error: the processes do not run the same: compared with process 0, process 1 another config"
            in (output)
        )
        assert "Traceback" not in output
    assert not (tmp_path / "run").exists()


def test_tasks_of_slurm_meet_without_flags_and_self_play_says_that_it_cannot_use_them(tmp_path):
    # The port that jax takes for a job of this number; below it are those that are handed out.
    job = {"SLURM_JOB_ID": str(free_port()), "SLURM_STEP_NODELIST": "127.0.0.1"}
    tasks = {"SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}
    env = [
        {**job, **tasks, "SLURM_PROCID": index, "SLURM_LOCALID": index, "JAX_NUM_CPU_DEVICES": "2"}
        for index in "01"
    ]
    command = [TRAIN, f"--config={ROOT}/tests/tiny.py", f"--workdir={tmp_path}/run"]
    for code, output in run_all([command, command], env=env):
        assert code == 1, output
        assert "error: 2 processes agree on a mesh of 4 devices, but self-play does not" in output
    assert not (tmp_path / "run").exists()


DYING = """
import os, signal, sys, time

import jax

from spade_jax import distributed
from spade_jax.config import MeshConfig
from spade_jax.interruption import listening_for_signals
from spade_jax.training.mesh import make_mesh

index, port, victim, fate = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
distributed._SHUTDOWN_SECONDS = 3
distributed.join(distributed.Processes.from_flags(f"127.0.0.1:{port}", 2, index), say=print)
mesh = make_mesh(MeshConfig())
distributed.check_agreement({}, mesh)
with listening_for_signals() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.requested
if index == victim:
    if fate == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("out of luck")
distributed.check_agreement({}, mesh)
"""


@pytest.mark.parametrize(("victim", "fate"), [(0, "killed"), (1, "killed"), (1, "fails")])
def test_signals_are_listened_for_after_jax_and_a_process_that_dies_ends_the_others_with_a_word(victim, fate):
    port = free_port()
    ended = run_all([["-c", DYING, str(index), str(port), str(victim), fate] for index in range(2)])
    (dead_code, _), (code, output) = ended[victim], ended[1 - victim]
    assert dead_code == (-signal.SIGKILL if fate == "killed" else -signal.SIGABRT)
    assert code not in (0, 1), output
    assert "another task died" in output
