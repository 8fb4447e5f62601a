"""The syntax tree of a program that may be none."""

import ast
import warnings


def parse(code: str) -> ast.Module:
    """The program's tree; an empty one where the text is not Python, which the ladder says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])
