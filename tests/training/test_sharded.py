"""The update on many devices is the update on one. Each case is a process with eight CPU devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import runpy, sys

import jax
import numpy as np

jax.config.update("jax_num_cpu_devices", 8)

from spade_jax.config import LossConfig, MeshConfig, UpdateConfig
from spade_jax.rl.packing import pack
from spade_jax.training.checkpoint import Checkpointer
from spade_jax.training.mesh import make_mesh
from spade_jax.training.state import abstract_state, create_state
from spade_jax.training.update import Updater

here = runpy.run_path(sys.argv[1])
architecture = here["ARCHITECTURE"]
config = UpdateConfig(row_length=24, rows_per_microbatch=8, logprob_chunk=16, learning_rate=1e-2)
batch = pack(here["ragged_sequences"]() * 3, row_length=24, rows_multiple=8, pad_id=0, num_shards=8)
losses = {"designer": LossConfig(kind="gspo"), "agent": LossConfig()}  # by sequence and by token


def run(data, fsdp, tensor):
    devices = jax.devices()[: data * fsdp * tensor]
    mesh = make_mesh(MeshConfig(data=data, fsdp=fsdp, tensor=tensor), devices=devices)
    updater = Updater(architecture, config, mesh, losses=losses)
    state = create_state(architecture, updater.optimizer, mesh, seed=0)
    for _ in range(2):
        state, metrics = updater.update(state, batch)
    assert updater.num_compilations == 3, updater.num_compilations
    return mesh, updater, state, metrics


_, _, wanted_state, wanted_metrics = run(1, 1, 1)
previous = jax.tree.map(np.array, wanted_state)
with Checkpointer(sys.argv[2], keep=2) as checkpointer:
    checkpointer.save(0, wanted_state, {})
    for cycle, shape in enumerate(sys.argv[3:], start=1):
        mesh, updater, state, metrics = run(*map(int, shape.split("x")))
        table = state.params["embedder"]["table"]
        assert len(table.sharding.device_set) == 8
        num_shards = mesh.shape["fsdp"] * mesh.shape["tensor"]
        assert table.addressable_shards[0].data.size * num_shards == table.size
        moments = [leaf for leaf in jax.tree.leaves(state.optimizer_state) if leaf.shape == table.shape]
        assert [leaf.sharding for leaf in moments] == [table.sharding] * 2

        assert metrics.keys() == wanted_metrics.keys()
        for name, wanted in wanted_metrics.items():
            np.testing.assert_allclose(metrics[name], wanted, rtol=1e-4, atol=1e-6, err_msg=name)
        # Two Adam steps of 1e-2: a gradient near 0 may differ in sign, so the bound is not relative.
        for got, wanted in zip(jax.tree.leaves(state.params), jax.tree.leaves(wanted_state.params)):
            np.testing.assert_allclose(got, wanted, atol=2e-4)

        # The checkpoint before came from another mesh, and its checksums hold on this one.
        restored = checkpointer.restore_latest(abstract_state(architecture, updater.optimizer, mesh)).state
        assert restored.params["embedder"]["table"].sharding == table.sharding
        for got, kept in zip(jax.tree.leaves(restored), jax.tree.leaves(previous)):
            np.testing.assert_array_equal(got, kept)
        previous = jax.tree.map(np.array, state)
        checkpointer.save(cycle, state, {})
print("done")
"""


def check(shapes: list[str], directory: Path) -> None:
    conftest = Path(__file__).with_name("conftest.py")
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(conftest), str(directory), *shapes],
        # What is compared is the partitioning; without the backend's optimizations it compiles sooner.
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout.strip() == "done", process.stderr


def test_sharded_equals_unsharded(tmp_path):
    check(["2x2x2"], tmp_path)


@pytest.mark.slow
def test_every_mesh_equals_one_device_and_restores_the_others_checkpoint(tmp_path):
    check(["8x1x1", "1x8x1", "4x1x2", "1x4x2", "2x4x1", "2x2x2"], tmp_path)
