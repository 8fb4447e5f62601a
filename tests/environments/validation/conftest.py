"""A sandbox with two fork servers and the means to climb the ladder in it."""

import pytest

from spade_jax.config import ValidationConfig
from spade_jax.environments.validation import validate_source
from spade_jax.types import RUNGS, EnvironmentSource
from tests.scripted import running_sandbox


@pytest.fixture(scope="package")
def sandbox():
    with running_sandbox() as running:
        yield running
        assert running.pool.num_live == 0


@pytest.fixture
def climb(sandbox):
    """Climbs with a program; all rungs but the judge's are on unless others are named."""

    def climb(code, *, rungs=RUNGS[:-1], hint="", config=None, setting=None, max_turns=10, **surroundings):
        source = EnvironmentSource(environment_id="e1", skill="", code=code, hint=hint)
        return sandbox.run(
            validate_source(
                source,
                sandbox=sandbox.pool,
                config=ValidationConfig(rungs=tuple(rungs), **(config or {})),
                setting=setting or ("tool_use" if "ToolUseBaseEnv" in code else "games"),
                max_turns=max_turns,
                **surroundings,
            )
        )

    return climb
