"""Which rung of the validation ladder rejects a program that exists already."""

import ast

from spade_jax.environments.validation import validate_source
from spade_jax.environments.validation.candidate import Surroundings
from spade_jax.types import EnvironmentSource, Setting, ValidationReport

_TOOL_NAMES = {"ToolUseBaseEnv", "get_tools"}


def setting_of(tree: ast.Module) -> Setting:
    """What a program means to be: tool use where it names the base class, or lists tools itself."""
    names = {
        node.id if isinstance(node, ast.Name) else node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.alias | ast.FunctionDef)
    }
    return "tool_use" if names & _TOOL_NAMES else "games"


async def judge(source: EnvironmentSource, surroundings: Surroundings) -> ValidationReport:
    """The verdicts of the ladder up to the first rung that rejects."""
    return await validate_source(
        source,
        sandbox=surroundings.sandbox,
        config=surroundings.config,
        setting=surroundings.setting,
        max_turns=surroundings.max_turns,
        held_out=surroundings.held_out,
    )
