"""What a reply says: a designer's program and hint, an agent's action.

Nothing is repaired. A reply that lacks a part is a failure of a known kind, and text inside
`<think>` is never read as an answer.
"""

import re
from typing import Literal

from spade_jax.errors import SpadeError

MAX_HINT_CHARACTERS = 600

ExtractionKind = Literal["no_code", "unterminated_code", "empty_code", "no_hint", "long_hint"]

_FENCE_OPEN = re.compile(r"^```python[ \t]*\n", re.MULTILINE)
_FENCE_CLOSE = re.compile(r"^```[ \t]*$", re.MULTILINE)
_HINT = re.compile(r"^Hint:(.*)$", re.MULTILINE)
_BRACES = re.compile(r"\\boxed\{|\{|\}")


class ExtractionError(SpadeError):
    """A designer's reply lacks a part.

    Attributes:
      kind: which part is lacking, for counting.
    """

    def __init__(self, kind: ExtractionKind, detail: str):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


def extract_design(reply: str, *, needs_hint: bool = True) -> tuple[str, str]:
    """The program and the hint in a designer's reply.

    The program is all that stands between the first line "```python" and the next line "```",
    character by character. The hint is the rest of the first line after it that starts with "Hint:", or ""
    where a reply needs none.

    Returns:
      code, which ends with a line break, and the hint, stripped.

    Raises:
      ExtractionError: naming what the reply lacks.
    """
    answer = after_thinking(reply)
    opened = _FENCE_OPEN.search(answer)
    if opened is None:
        raise ExtractionError("no_code", "no line ```python; a design starts with one")
    closed = _FENCE_CLOSE.search(answer, opened.end())
    if closed is None:
        raise ExtractionError("unterminated_code", "no line ``` after the program; the reply may be cut off")
    code = answer[opened.end() : closed.start()]
    if not code.strip():
        raise ExtractionError("empty_code", "nothing between the lines ```python and ```")
    if not needs_hint:
        return code, ""
    found = _HINT.search(answer, closed.end())
    hint = found[1].strip() if found else ""
    if not hint:
        raise ExtractionError("no_hint", "no line `Hint: ...` with text after the program")
    if len(hint) > MAX_HINT_CHARACTERS:
        raise ExtractionError("long_hint", f"{len(hint)} characters, at most {MAX_HINT_CHARACTERS} are read")
    return code, hint


def extract_boxed(reply: str) -> str | None:
    r"""The content of the last `\boxed{...}` whose braces balance, None if there is none.

    The last one is the one that opens last, so of nested boxes the innermost counts.
    """
    answer = after_thinking(reply)
    # For each open brace: where the content of its box starts, or None for a plain brace.
    open_braces: list[int | None] = []
    best: tuple[int, int] | None = None
    for brace in _BRACES.finditer(answer):
        if brace[0] != "}":
            open_braces.append(brace.end() if brace[0] != "{" else None)
        elif open_braces:
            start = open_braces.pop()
            if start is not None and (best is None or start > best[0]):
                best = (start, brace.start())
    return answer[best[0] : best[1]] if best else None


def action_for_environment(reply: str) -> str:
    r"""What `step` is given: `\boxed{X}` for the last box, or the whole answer if it has none."""
    boxed = extract_boxed(reply)
    if boxed is None:
        return after_thinking(reply).strip()
    return f"\\boxed{{{boxed.strip()}}}"


def after_thinking(reply: str) -> str:
    """The answer: what follows the last `</think>`; nothing where thinking was never closed."""
    answer = reply.rpartition("</think>")[2]
    return "" if answer.lstrip().startswith("<think>") else answer
