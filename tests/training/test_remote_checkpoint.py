"""Checkpoints in Google Cloud Storage, on a fake one: kept, found damaged and set aside as on a disk."""

import logging

from spade_jax.files import any_path
from spade_jax.training.checkpoint import Checkpointer
from tests.gcs import bucket
from tests.training.test_checkpoint import ABSTRACT, HOST, assert_same_bits, state_of

__all__ = ["bucket"]


def test_saved_restored_and_set_aside(bucket, caplog):
    directory = any_path(f"{bucket}/checkpoints")
    with Checkpointer(str(directory), keep=2) as checkpointer:
        assert checkpointer.is_empty
        for cycle in (1, 2, 3):
            checkpointer.save(cycle, state_of(cycle), {**HOST, "cycle": cycle})
    (directory / "3" / "host" / "metadata").write_text("{")
    with Checkpointer(str(directory), keep=2) as checkpointer:
        with caplog.at_level(logging.WARNING):
            cycle, state, host_state = checkpointer.restore_latest(ABSTRACT)
        assert (cycle, host_state) == (2, {**HOST, "cycle": 2})
        assert_same_bits(state, state_of(2))
        assert "checkpoint of cycle 3 is damaged" in caplog.text
        checkpointer.save(3, state_of(3), HOST)
    assert {path.name for path in directory.iterdir()} >= {"2", "3", "damaged-3"}
