import pytest

from tests.cycle.stage import perform
from tests.scripted import running_sandbox, small_tokenizer


@pytest.fixture(scope="package")
def sandbox():
    with running_sandbox() as running:
        yield running
        assert running.pool.num_live == 0


@pytest.fixture(scope="package")
def tokenizer():
    return small_tokenizer()


@pytest.fixture(scope="package")
def stage(sandbox, tokenizer):
    """`tests.cycle.stage.perform` in the sandbox of all tests here."""

    def run(laps, **parts):
        return sandbox.run(perform(laps, **{"tokenizer": tokenizer, "pool": sandbox.pool} | parts))

    return run
