"""When two environment sources are the same environment."""

import ast
import hashlib
import warnings


def fingerprint(code: str) -> str:
    """A digest of the program up to layout, comments and the wording of its strings.

    Raises:
      SyntaxError: the text is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()
