"""When two programs are the same program, and when they are nearly.

The same is what `normalise_code` makes equal. Nearly is the Jaccard similarity of their shingles (runs
of five tokens), estimated by MinHash (Broder 1997), so that a design can be held against the whole
memory, and a folder of environments against itself, in milliseconds.

What an environment says is not what it does: comments, docstrings, layout and the wording of strings
count for nothing. Names and numbers count, each with the few shingles that it stands in, so that a
renamed class or a changed number leaves a long program nearly the same.

Hashes and permutations are fixed: the same programs give the same numbers in every process with the
same Python. Signatures are never stored, so that this is all they have to agree on.
"""

import ast
import functools
import re
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
from datasketch import MinHash

_SHINGLE_TOKENS = 5
# P; the estimate's standard deviation is sqrt(J * (1 - J) / P): 0.022 at most, 0.013 at J = 0.9.
_NUM_PERMUTATIONS = 512
_EMPTY = MinHash(num_perm=_NUM_PERMUTATIONS, seed=1, scheme="affine32")

# An operator of two characters is two tokens, which the shingles hold together again.
_TOKEN = re.compile(r"\w+|[^\w\s]")

# All of these are ways of not parsing.
_NOT_PARSED = (SyntaxError, ValueError, RecursionError, MemoryError)


@functools.lru_cache(maxsize=1024)
def normalise_code(code: str) -> str:
    """The program without what does not change it: comments, blank lines, layout, quote style.

    Text that is not Python is taken as it is, apart from white space at the ends of its lines.
    """
    try:
        return ast.unparse(_parse(code))
    except _NOT_PARSED:
        return "\n".join(line.rstrip() for line in code.strip().splitlines())


def shingles(code: str) -> set[str]:
    """All runs of five tokens of the program, strings emptied, docstrings and comments left out.

    A program of fewer tokens is one shingle. Text that is not Python is split into tokens as it is.
    """
    try:
        text = ast.unparse(_Skeleton().visit(_parse(code)))
    except _NOT_PARSED:
        text = code
    tokens = _TOKEN.findall(text)
    starts = range(max(1, len(tokens) - _SHINGLE_TOKENS + 1))
    return {" ".join(tokens[start : start + _SHINGLE_TOKENS]) for start in starts}


def similarities(codes: Sequence[str]) -> np.ndarray:
    """Estimated similarity of all pairs: float64 [n, n], symmetric, 1 on the diagonal.

    Positive semi-definite, as the mean over the permutations of "both have the same minimum".
    """
    return _all_pairs(_signatures(codes))


class NoveltyIndex:
    """Programs to hold another one against."""

    def __init__(self, programs: Iterable[tuple[str, str]]) -> None:
        """Indexes (id, code) pairs; a code that was indexed lately costs nothing again."""
        pairs = list(programs)
        self._ids = [program_id for program_id, _ in pairs]
        self._signatures = _signatures([code for _, code in pairs])

    def nearest(self, code: str) -> tuple[str, float] | None:
        """The most similar program's id and its similarity in [0, 1]; None from an empty index.

        Of equally similar ones it is the first.
        """
        if not self._ids:
            return None
        similarity = _agreement(self._signatures, _signature(code))
        best = int(similarity.argmax())
        return self._ids[best], float(similarity[best])

    def clusters(self, threshold: float) -> list[list[str]]:
        """Groups of two or more programs joined by chains of pairs with a similarity >= `threshold`.

        Ids stand in the order of the index, and groups in the order of their first ids.
        """
        groups: list[list[int]] = []
        for row, similarity in enumerate(_all_pairs(self._signatures)):
            near = set(np.flatnonzero(similarity[:row] >= threshold).tolist())
            joined = [group for group in groups if not near.isdisjoint(group)]
            groups = [group for group in groups if near.isdisjoint(group)]
            groups.append([*(member for group in joined for member in group), row])
        return [
            [self._ids[row] for row in sorted(group)] for group in sorted(groups, key=min) if len(group) > 1
        ]


class _Skeleton(ast.NodeTransformer):
    """Empties strings and leaves out statements that do nothing: docstrings and `pass`."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None


def _parse(code: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.parse(code)


@functools.lru_cache(maxsize=4096)
def _signature(code: str) -> np.ndarray:
    """uint32 [P]: the least hash of the program's shingles under each permutation."""
    minhash = _EMPTY.copy()
    minhash.update_batch([shingle.encode(errors="surrogatepass") for shingle in shingles(code)])
    return minhash.hashvalues


def _signatures(codes: Sequence[str]) -> np.ndarray:
    return np.array([_signature(code) for code in codes], np.uint32).reshape(-1, _NUM_PERMUTATIONS)


def _agreement(signatures: np.ndarray, signature: np.ndarray) -> np.ndarray:
    return (signatures == signature).mean(axis=1)


def _all_pairs(signatures: np.ndarray) -> np.ndarray:
    num = len(signatures)
    return np.array([_agreement(signatures, signature) for signature in signatures]).reshape(num, num)
