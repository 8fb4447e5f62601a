"""Whether an environment can be asked for another level of difficulty, and its program at that level.

Neither contract of the reference implementation has a level; some programs take one all the same, as an
argument of their constructor or of reset. That is read off the syntax tree. The program at a level is the
program with a subclass at its end that passes the argument on, so that it loads and plays like any other.
"""

import ast
from typing import Any, NamedTuple

from spade_jax.environments.validation.static import lineage, played_class

NAMES = ("difficulty", "level", "difficulty_level")
WORDS = ("easy", "medium", "hard")
NUMBERS = (1, 2, 3)
FRACTIONS = (0.0, 0.5, 1.0)

_AT_LEVEL = """
{code}


class AtLevel{class_name}({class_name}):
    def {method}(self, *args, **kwargs):
        return super().{method}(*args, **{{"{name}": {value!r}, **kwargs}})
"""


class LevelParameter(NamedTuple):
    """An argument that sets the difficulty.

    Attributes:
      class_name: of the class that is played.
      method: `__init__` or `reset`.
      values: to try, its default among them.
    """

    class_name: str
    method: str
    name: str
    values: tuple[Any, ...]


def find_level(tree: ast.Module) -> LevelParameter | None:
    """The parameter that sets a program's difficulty; None where it has none."""
    played = played_class(tree)
    if played is None:
        return None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for method in ("__init__", "reset"):
        definition = next(
            (
                statement
                for node in lineage(played, classes)
                for statement in node.body
                if isinstance(statement, ast.FunctionDef) and statement.name == method
            ),
            None,
        )
        for argument, default in _arguments(definition) if definition is not None else ():
            if argument.arg in NAMES:
                return LevelParameter(played.name, method, argument.arg, _values(argument, default))
    return None


def at_level(code: str, parameter: LevelParameter, value: Any) -> str:
    """The program that has one level where nothing else is asked of it."""
    return _AT_LEVEL.format(
        code=code, class_name=parameter.class_name, method=parameter.method, name=parameter.name, value=value
    )


def _arguments(definition: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr | None]]:
    """The arguments that can be given by name, with their defaults."""
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(positional) - len(arguments.defaults)), *arguments.defaults]
    by_position = list(zip(positional, defaults, strict=True))[len(arguments.posonlyargs) :]
    return [*by_position, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]


def _values(argument: ast.arg, default: ast.expr | None) -> tuple[Any, ...]:
    """Levels of the kind that the default has or, where that says nothing, the annotation."""
    annotation = ast.unparse(argument.annotation) if argument.annotation is not None else ""
    value = default.value if isinstance(default, ast.Constant) else None
    kind = type(value).__name__ if isinstance(value, str | int | float) else annotation
    usual = NUMBERS if "int" in kind else FRACTIONS if "float" in kind else WORDS
    return usual if value is None or value in usual else (value, *usual)
