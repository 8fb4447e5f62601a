import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.seeding import derive_rng, derive_seed

_CHECKOUT = pathlib.Path(__file__).resolve().parents[1]

seeds = st.integers(0, 2**31 - 1)
indices = st.lists(st.integers(0, 10**6), max_size=3)


@given(seeds, st.sampled_from(["", "agent", "designer", "ä:1"]), indices)
def test_a_seed_fits_31_bits_and_is_a_function_of_its_names(seed, purpose, index):
    derived = derive_seed(seed, purpose, *index)
    assert 0 <= derived < 2**31
    assert derived == derive_seed(seed, purpose, *index)
    assert derive_rng(seed, purpose, *index).random() == derive_rng(seed, purpose, *index).random()


def test_names_near_each_other_give_unlike_seeds():
    derived = {
        derive_seed(seed, purpose, cycle, index)
        for seed in range(3)
        for purpose in ("designer", "agent")
        for cycle in range(20)
        for index in range(20)
    }
    assert len(derived) == 3 * 2 * 20 * 20
    assert derive_seed(0, "a", 1, 23) != derive_seed(0, "a", 12, 3)
    assert derive_seed(0, "a") != derive_seed(0, "a", 0)


@pytest.mark.parametrize("salt", ["0", "1"])
def test_seeds_are_the_same_in_every_process(salt):
    code = "from spade_jax.seeding import derive_seed; print(derive_seed(7, 'designer', 3, 1))"
    printed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=_CHECKOUT,
        env={**os.environ, "PYTHONHASHSEED": salt},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert int(printed) == derive_seed(7, "designer", 3, 1) == 338727025


def test_a_generator_leaves_the_others_alone():
    one, other = derive_rng(0, "a"), derive_rng(0, "b")
    first = one.random()
    one, other = derive_rng(0, "a"), derive_rng(0, "b")
    other.random()
    assert one.random() == first
