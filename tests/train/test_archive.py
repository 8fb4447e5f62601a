"""A run keeps its episodes, and learning from what it kept gives the weights that it came to."""

import json
import shutil

import jax
import numpy as np

from spade_jax import config as config_lib
from spade_jax.archive.read import open_archive
from spade_jax.cycle import assemble
from spade_jax.model.architecture import Architecture
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.training.checkpoint import Checkpointer
from spade_jax.training.mesh import make_mesh
from spade_jax.training.state import abstract_state
from spade_jax.training.update import Updater


def test_every_episode_is_kept_with_the_environment_and_the_weights_that_made_it(reference):
    archive = open_archive(reference / "archive")
    assert list(archive) == [0, 1, 2, 3]
    rows = [json.loads(line) for line in (reference / "metrics.jsonl").read_text().splitlines()]
    for number, cycle in archive.items():
        assert len(cycle.designs) == 6
        assert len(cycle.episodes) == 2 * 4 * len(cycle.environments)
        won = [
            row.episode_return > 0
            for row in cycle.episodes
            if row.condition == "without_hint" and not row.failure
        ]
        assert np.mean(won) == rows[number]["play/win_rate"]
        assert {row.environment_id for row in cycle.episodes} == cycle.environments.keys()
        assert {row.weights_version for row in cycle.streams} == {number}
        sampled = sum(int(cycle.stream(index).loss_mask.sum()) for index in range(len(cycle.streams)))
        assert sampled == rows[number]["sample/num_tokens"]


def test_updates_from_the_archive_are_the_updates_of_the_run(reference, cache_dir, tmp_path):
    """From the checkpoint of cycle 2 to that of cycle 4, bit for bit, without playing anything."""
    config = config_lib.from_dict(json.loads((reference / "config.json").read_text()))
    # Other tests keep warm starts of other configs there, but the reference run was the first.
    model = min(cache_dir.glob("*/tokenizer.model"), key=lambda path: path.stat().st_mtime_ns)
    tokenizer = Tokenizer.from_bytes(model.read_bytes())
    architecture = Architecture.from_config(config.model, tokenizer.vocab_size)
    mesh = make_mesh(config.mesh)
    updater = Updater(architecture, config.update, mesh)

    def saved(cycle):
        shutil.copytree(reference / "checkpoints" / str(cycle), tmp_path / str(cycle) / str(cycle))
        with Checkpointer(tmp_path / str(cycle), keep=None) as checkpointer:
            return checkpointer.restore_latest(abstract_state(architecture, updater.optimizer, mesh)).state

    state = saved(2)
    archive = open_archive(reference / "archive")
    for cycle in (2, 3):
        sequences = archive[cycle].training_sequences()
        batch = assemble(sequences, config, pad_id=tokenizer.pad_id, mesh=mesh)
        state, _ = updater.update(state, batch)
    for got, wanted in zip(jax.tree.leaves(state), jax.tree.leaves(saved(4)), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(wanted).tobytes()
