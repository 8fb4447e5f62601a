"""How many different programs a set of programs amounts to."""

from collections.abc import Sequence

import numpy as np

from spade_jax.memory.novelty import similarities


def diversity(codes: Sequence[str]) -> float:
    """The Vendi score over n: 1/n where all programs are the same, 1 where no two share anything.

    exp(-sum_i l_i log l_i) / n with l the eigenvalues of K / n and K the similarities of all pairs
    (Friedman and Dieng 2023, "The Vendi Score"). The exponential is the effective number of different
    programs. K is of the programs' tokens; a score over embeddings of their text is another number.

    Args:
      codes: n programs.

    Raises:
      ValueError: without programs, of which no diversity is known.
    """
    if not codes:
        raise ValueError("diversity is of one program at least, got none")
    eigenvalues = np.linalg.eigvalsh(similarities(codes) / len(codes))
    present = eigenvalues[eigenvalues > 0]  # rounding makes zeros slightly negative; 0 log 0 is 0
    return float(np.exp(-(present * np.log(present)).sum()) / len(codes))
