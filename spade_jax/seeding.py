"""The only source of host randomness: seeds derived from names.

Every random choice of a run comes from (run seed, purpose, indices), never from time, arrival
order or Python's salted `hash`, so that a resumed run draws what an uninterrupted one draws.
"""

import hashlib
import random


def derive_seed(run_seed: int, purpose: str, *indices: int) -> int:
    """A 31-bit seed for one named purpose, equal on every host, process and Python version."""
    text = ":".join([str(run_seed), purpose, *map(str, indices)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little") >> 1


def derive_rng(run_seed: int, purpose: str, *indices: int) -> random.Random:
    """A generator of its own for one named purpose."""
    return random.Random(derive_seed(run_seed, purpose, *indices))
