"""A checkpoint of four processes comes back on others and on other meshes, and so does the corpus."""

import hashlib
import json
import pathlib
import shutil

import jax
import numpy as np
import optax
import pytest

from spade_jax.config import MeshConfig
from spade_jax.grounding.corpus import Corpus
from spade_jax.training.checkpoint import Checkpointer
from spade_jax.training.mesh import make_mesh, replicated
from spade_jax.training.processes import any_process, on_all_processes
from spade_jax.training.state import TrainState, abstract_state
from spade_jax.types import Document
from tests.training.conftest import ARCHITECTURE
from tests.training.processes import run_together

HERE = "tests.training.test_processes"
OPTIMIZER = optax.adam(1e-2)
DOCUMENTS = [Document(document_id=f"d{index}", text=f"text {index}") for index in range(40)]


def mesh_of(sizes: str) -> jax.sharding.Mesh:
    data, fsdp, tensor = map(int, sizes.split("x"))
    return make_mesh(MeshConfig(data=data, fsdp=fsdp, tensor=tensor))


def state_of(cycle: int, mesh: jax.sharding.Mesh) -> TrainState:
    """A state on a mesh, whose arrays are different in every cycle."""
    rng = np.random.default_rng(cycle)

    def array(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        values = (100 * rng.normal(size=leaf.shape)).astype(leaf.dtype)
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda at: values[at])

    return jax.tree.map(array, abstract_state(ARCHITECTURE, OPTIMIZER, mesh))


def digest(state: TrainState, mesh: jax.sharding.Mesh) -> str:
    """Of all bits, in an order that does not depend on where they lie."""
    result = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.jit(lambda state: state, out_shardings=replicated(mesh))(state)):
        result.update(np.asarray(leaf).tobytes())
    return result.hexdigest()


def saves(directory: str, sizes: str) -> None:
    """Saves cycles 3 and 6 after seven and fourteen draws."""
    mesh = mesh_of(sizes)
    corpus = Corpus(DOCUMENTS, seed=5)
    with Checkpointer(directory, keep=2) as checkpointer:
        for cycle in (3, 6):
            drawn = [next(corpus).document_id for _ in range(7)]
            state = state_of(cycle, mesh)
            checkpointer.save(cycle, state, {"corpus": corpus.state()})
        print(json.dumps([digest(state, mesh), drawn]))


def restores(directory: str, sizes: str) -> None:
    mesh = mesh_of(sizes)
    corpus = Corpus(DOCUMENTS, seed=5)
    with Checkpointer(directory, keep=2) as checkpointer:
        cycle, state, host_state = checkpointer.restore_latest(abstract_state(ARCHITECTURE, OPTIMIZER, mesh))
        corpus.restore(host_state["corpus"])
        drawn = [next(corpus).document_id for _ in range(12)]
        print(json.dumps([cycle, digest(state, mesh), drawn]))
        checkpointer.save(cycle + 3, state, host_state)


@pytest.fixture(scope="module")
def saved_by_four(tmp_path_factory):
    directory = tmp_path_factory.mktemp("processes") / "checkpoints"
    said = run_together(f"{HERE}:saves", str(directory), "1x4x2", count=4, devices=2)
    assert len(set(said)) == 1
    return directory, *json.loads(said[0])


def copy_of(saved_by_four, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(saved_by_four[0], tmp_path / "checkpoints"))


@pytest.mark.parametrize(
    ("count", "devices", "sizes"), [(1, 8, "2x2x2"), pytest.param(2, 2, "2x1x2", marks=pytest.mark.slow)]
)
def test_saved_by_four_restored_by_others(saved_by_four, tmp_path, count, devices, sizes):
    directory = copy_of(saved_by_four, tmp_path)
    said = run_together(f"{HERE}:restores", str(directory), sizes, count=count, devices=devices)
    assert len(set(said)) == 1
    cycle, restored, drawn = json.loads(said[0])
    assert (cycle, restored) == (6, saved_by_four[1])
    with Corpus(DOCUMENTS, seed=5) as corpus:
        stream = [next(corpus).document_id for _ in range(26)]
    assert saved_by_four[2] == stream[7:14]
    assert drawn == stream[14:]
    assert (directory / "9").is_dir()


@pytest.mark.slow
def test_damage_to_the_share_of_one_is_seen_by_all(saved_by_four, tmp_path):
    """A process that could read its own share must not go on with it."""
    directory = copy_of(saved_by_four, tmp_path)
    largest = max(
        (path for path in (directory / "6").rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0x55
    largest.write_bytes(content)
    said = run_together(f"{HERE}:restores", str(directory), "1x4x1", count=2, devices=2)
    assert [json.loads(text)[0] for text in said] == [3, 3]
    assert (directory / "damaged-6").is_dir()


def agrees(which: str) -> None:
    me = jax.process_index()
    agreed = [any_process(str(me) == which), any_process(False)]
    try:
        on_all_processes(lambda: 1 / (str(me) != which))
    except (ZeroDivisionError, RuntimeError) as error:
        print(agreed, type(error).__name__)


def test_one_process_speaks_for_all():
    said = run_together(f"{HERE}:agrees", "1", count=2, devices=1)
    assert said == ["[True, False] RuntimeError", "[True, False] ZeroDivisionError"]
    assert [any_process(True), any_process(False)] == [True, False]
    assert on_all_processes(lambda: 3) == 3
    with pytest.raises(KeyError):
        on_all_processes(lambda: {}["nothing"])
