import itertools
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spade_jax.memory.novelty import NoveltyIndex, normalise_code, shingles, similarities
from spade_jax.warm_start.families import FAMILIES

PROGRAMS = {name: family.source(family.levels[0][0], "river") for name, family in FAMILIES.items()}
WALK = PROGRAMS["trap_walk"]

codes = st.one_of(st.text(max_size=40), st.sampled_from(list(PROGRAMS.values())))


def similarity(one, other):
    return similarities([one, other])[0, 1]


def exact_jaccard(one, other):
    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x = 1", "x=1  # one\n\n", True),
        ("print('a')", 'print("a")', True),
        ("x = 1", "x = 2", False),
        ("print('a')", "print('b')", False),
        ("if x:\n  y()", "if x:\n    y()", True),
        ("not python (", "not python (   \n", True),
        ("not python (", "not python [", False),
        ("\0", "\0\n", True),
    ],
)
def test_programs_are_equal_up_to_layout(one, other, same):
    assert (normalise_code(one) == normalise_code(other)) is same


def test_shingles_are_runs_of_five_tokens():
    assert shingles("x = 1  # one") == {"x = 1"}
    assert shingles("x = y + 2 * z") == {"x = y + 2", "= y + 2 *", "y + 2 * z"}
    assert shingles("") == {""}
    assert shingles("not python (") == {"not python ("}


def test_what_a_program_says_is_left_out():
    plain = "class A:\n    def f(self, x):\n        return f'{x:.1f} and {x}' + 'b'\n    def g(self): pass"
    told = """
# A note.
class A:
    'What A is.'

    def f(
        self,
        x,
    ):
        'What f does.'
        return (f"only {x:.2f}{x}"
                "!" + u"another")
    def g(self):
        'Nothing.'
"""
    assert shingles(plain) == shingles(told)
    assert similarity(plain, told) == 1.0


def test_another_document_is_no_other_program():
    assert similarity(WALK, FAMILIES["trap_walk"].source(FAMILIES["trap_walk"].levels[0][0], "castle")) == 1.0


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS)
def test_a_renamed_class_is_nearly_the_same_program(code):
    renamed = re.sub(r"class \w+", "class OtherEnv", code)
    assert 0.9 < similarity(code, renamed) < 1.0


def test_names_and_numbers_count():
    assert similarity("a = b + c + 3", "a = b + c + 4") < 1
    assert similarity("a = b + c + 3", "a = b + d + 3") < 1


def test_families_are_different_programs():
    values = similarities([PROGRAMS[name] for name in ("trap_walk", "reach_goal", "find_missing", "trade")])
    assert values[~np.eye(4, dtype=bool)].max() < 0.5


def test_the_estimate_is_near_the_exact_similarity():
    programs = list(PROGRAMS.values())
    pairs = list(itertools.combinations(range(len(programs)), 2))
    estimates = similarities(programs)
    errors = [abs(estimates[i, j] - exact_jaccard(programs[i], programs[j])) for i, j in pairs]
    # One standard deviation is at most 0.022.
    assert max(errors) < 0.07
    assert np.mean(errors) < 0.022


def test_an_estimate_by_hand():
    # 20 and 20 shingles, of which 10 are shared: 10 / 30.
    one = " ".join(f"a{i}" for i in range(24))
    other = " ".join(f"a{i}" for i in range(10, 34))
    assert exact_jaccard(one, other) == pytest.approx(1 / 3)
    assert similarity(one, other) == pytest.approx(1 / 3, abs=0.06)


@given(codes, codes)
def test_similarity_is_symmetric_and_between_nothing_and_the_same(one, other):
    values = similarities([one, other])
    assert values[0, 1] == values[1, 0]
    assert 0 <= values[0, 1] <= 1
    assert values[0, 0] == values[1, 1] == 1
    assert shingles(one) != shingles(other) or values[0, 1] == 1


@given(st.text(max_size=40))
@example("\ud800")
@example("(" * 5000 + ")" * 5000)
def test_any_text_has_a_similarity(code):
    assert NoveltyIndex([("one", code)]).nearest(code) == ("one", 1.0)


def test_the_nearest_program():
    index = NoveltyIndex((name, code) for name, code in PROGRAMS.items())
    renamed = WALK.replace("TrapWalkEnv", "SnakePitEnv")
    assert index.nearest(WALK) == ("trap_walk", 1.0)
    assert index.nearest(renamed) == ("trap_walk", similarity(WALK, renamed))
    assert NoveltyIndex([("first", "x = 1"), ("second", "x=1")]).nearest("x = 1") == ("first", 1.0)
    assert NoveltyIndex([]).nearest(WALK) is None


def test_clusters_are_chains_of_near_duplicates():
    # Runs of 104 tokens have 100 shingles; two shifted by 10 share 90 of 110 (0.82), by 20 80 of 120 (0.67).
    run = {shift: " ".join(f"a{i}" for i in range(shift, shift + 104)) for shift in (0, 10, 20)}
    index = NoveltyIndex(
        [
            ("left", run[0]),
            ("alone", WALK),
            ("right", run[20]),
            ("b", "x = 1"),
            ("middle", run[10]),
            ("c", "x=1"),
        ]
    )
    assert index.clusters(0.75) == [["left", "right", "middle"], ["b", "c"]]
    assert index.clusters(1.0) == [["b", "c"]]
    assert NoveltyIndex([]).clusters(0.5) == []


def test_every_process_finds_the_same_similarity():
    one, other = PROGRAMS["trap_walk"], PROGRAMS["reach_goal"]
    script = (
        "import sys; from spade_jax.memory.novelty import similarities; "
        "print(similarities(sys.argv[1:])[0, 1].hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script, one, other],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for salt in ("1", "2")
    }
    assert found == {float(similarity(one, other)).hex()}
