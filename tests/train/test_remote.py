"""A run in Google Cloud Storage, here a fake one, says what a run on a disk says."""

import pytest

from spade_jax.files import local_folder
from tests.gcs import bucket
from tests.train.command import arguments, differences, killed, run

__all__ = ["bucket"]

ROW_WRITTEN = {"function": "spade_jax.metrics:MetricsWriter.write", "after": True}


@pytest.mark.slow
def test_killed_and_resumed_in_a_bucket(reference, cache_dir, bucket):
    flags = arguments(f"{bucket}/run", cache_dir)
    killed(flags, at={**ROW_WRITTEN, "call": 3})
    done = run(flags)
    assert "resuming at cycle 2 of 4" in done.stdout
    with local_folder(f"{bucket}/run") as workdir:
        assert differences(workdir, reference) == {}
