"""The update over the devices of two processes is the update on one device."""

import json

import jax
import pytest

from spade_jax.rl.packing import pack
from spade_jax.training.state import create_state
from tests.processes import ROOT, free_port, run_all

SCRIPT = """
import json, runpy, sys

import jax

from spade_jax.config import MeshConfig, UpdateConfig
from spade_jax.distributed import Processes, join
from spade_jax.rl.packing import pack
from spade_jax.training.mesh import make_mesh
from spade_jax.training.state import create_state
from spade_jax.training.update import Updater

path, address, index = sys.argv[1:]
join(Processes.from_flags(address, 2, int(index)), say=print)
mesh = make_mesh(MeshConfig(data=1, fsdp=2))
here = runpy.run_path(path)
config = UpdateConfig(row_length=24, rows_per_microbatch=2, logprob_chunk=8, learning_rate=1e-2)
updater = Updater(here["ARCHITECTURE"], config, mesh)
state = create_state(here["ARCHITECTURE"], updater.optimizer, mesh, seed=0)
assert not state.params["embedder"]["table"].is_fully_addressable
batch = pack(here["ragged_sequences"](), row_length=24, rows_multiple=2, pad_id=0)
for _ in range(2):
    state, metrics = updater.update(state, batch)
print(json.dumps(metrics))
"""


def test_two_processes_compute_the_same_and_what_one_does(architecture, mesh, updater, sequences):
    batch = pack(sequences, row_length=24, rows_multiple=2, pad_id=0)
    state = create_state(architecture, updater.optimizer, mesh, seed=0)
    for _ in range(2):
        state, alone = updater.update(state, batch)
    assert jax.process_count() == 1

    path, address = ROOT / "tests/training/conftest.py", f"127.0.0.1:{free_port()}"
    ended = run_all([["-c", SCRIPT, path, address, str(index)] for index in range(2)])
    assert [code for code, _ in ended] == [0, 0], ended
    first, second = [json.loads(output.splitlines()[-1]) for _, output in ended]
    assert first == second
    assert first == pytest.approx(alone, rel=1e-4, abs=1e-6)
