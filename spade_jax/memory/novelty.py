"""When two programs are the same program."""

import ast
import warnings


def normalise_code(code: str) -> str:
    """The program without what does not change it: comments, blank lines, layout, quote style.

    Text that is not Python is taken as it is, apart from white space at the ends of its lines.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.unparse(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # all of these are ways of not parsing
        return "\n".join(line.rstrip() for line in code.strip().splitlines())
