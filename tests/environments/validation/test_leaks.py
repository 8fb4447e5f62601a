"""Where an answer stands, what is read off there, and who wins by reading."""

import random

import pytest

from spade_jax.environments.validation import feedback
from spade_jax.environments.validation.leaks import MAX_ANSWER, Instance, Place, _places, _read
from tests.environments.validation.designs import BANK, SUMS, spoilt


def test_the_places_of_an_answer():
    """`a 7 a 7`: distances from both ends, and after the first and the second `a`."""
    assert _places(Instance("A 7, a 7!", ["7"])) == {
        Place("start", "", 1),
        Place("start", "", 3),
        Place("end", "", 2),
        Place("end", "", 0),
        Place("after", "a", 1),
        Place("after", "a", 2),
    }
    assert _places(Instance("A 7", ["8"])) == set()


@pytest.mark.parametrize(
    ("text", "place", "sizes", "pieces"),
    [
        ("is -3 it", Place("start", "", 1), [1], ["-3"]),
        ("go up, up, left", Place("start", "", 1), [1, 1, 1], ["up", "up", "left"]),
        ("say Open sesame!", Place("end", "", 0), [2], ["Open sesame"]),
        ("-3 OR 4.5 ok", Place("after", "or", 1), [2], ["4.5"]),
        ("or a or b", Place("after", "or", 2), [1], ["b"]),
        ("or a", Place("after", "or", 2), [1], []),
        ("a b", Place("start", "", 1), [2], []),
        ("a b", Place("end", "", 1), [2], []),
        ("a b", Place("start", "", 0), [0, 1], ["a"]),
    ],
)
def test_what_is_read_at_a_place(text, place, sizes, pieces):
    assert _read(place, text, sizes) == pieces


# Three moves in a row; the first wrong one ends the game.
WALK = r"""
import random

class WalkEnv:
    max_turns = 3

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.way = [rng.choice(["north", "east", "south", "west"]) for _ in range(3)]
        self.turn_count = 0
        return f"A labyrinth. {SHOWN}", {}

    def step(self, action):
        right = action == "\\boxed{%s}" % self.way[self.turn_count]
        self.turn_count += 1
        over = not right or self.turn_count == 3
        return "On.", float(right and over), over, over, {}

    def solution(self):
        return " ".join("\\boxed{%s}" % move for move in self.way)
"""


@pytest.mark.parametrize(
    ("shown", "leaks"),
    [
        ("The way is {' '.join(self.way)}, they say.", True),
        ("The way is {', '.join(self.way).upper()}!", False),  # the moves are in lower case
        ("North, east, south and west are open. Go {self.way[0]}, they say.", False),
        ("Backwards: {' '.join(self.way[::-1])}.", False),
        ("{'Hm. ' * self.way.index(max(self.way))}The way, {' '.join(self.way)}, is it.", True),
    ],
)
def test_a_way_that_is_told(climb, shown, leaks):
    report = climb(WALK.replace("{SHOWN}", shown), rungs=("answer_hidden",))
    assert report.rejected_by == ("answer_hidden" if leaks else ""), feedback(report)


TOLD = spoilt(SUMS, "What is", "It is {self.a + self.b}, and that is what is")
LONG = f"return '\\\\boxed{{' + '7 ' * {MAX_ANSWER + 1} + '}}'"
DRAW = "self.a, self.b = self.rng.randint(20, 60), self.rng.randint(20, 60)"


@pytest.mark.parametrize(
    ("code", "leaks"),
    [
        (TOLD, True),
        # Told in the first round alone, which wins nothing.
        (spoilt(SUMS, "What is", "{'' if self.right else self.a + self.b} is"), False),
        # The same in every instance.
        (spoilt(TOLD, DRAW, "self.a = self.b = 9"), False),
        (spoilt(SUMS, "return self.answer()", LONG), False),
        (BANK, False),
    ],
)
def test_answers_that_are_told(climb, code, leaks):
    report = climb(code, rungs=("answer_hidden",))
    assert report.rejected_by == ("answer_hidden" if leaks else ""), feedback(report)


def test_an_answer_to_tools_that_is_told(climb):
    code = spoilt(
        BANK, '"Empty the savings account."', "f\"Empty it; the word is w{self._state['savings']}.\""
    )
    code = spoilt(code, 'answer == "done" and self._current_msg == 2', 'answer == f"w{self.word}"')
    code = spoilt(code, "self._call_history = []", "self.word = random.Random(seed).randint(100, 999)")
    code = code.replace("<answer>done</answer>'", "<answer>w%d</answer>'").replace(
        ') % self._state["savings"]', ') % (self._state["savings"], self.word)'
    )
    assert climb(code, rungs=("solution",)).valid
    assert climb(code, rungs=("answer_hidden",)).rejected_by == "answer_hidden"


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        ("Odd ways lead out.", ""),
        ("North, south, east and west are all of use.", ""),
        ("Try north first.", ""),
        ("{WAY} leads out in the first labyrinth.", "contains the answer"),
    ],
)
def test_hints_about_four_moves(climb, hint, says):
    """A walk of four moves in one instance is an answer, though it helps in no other."""
    walk = WALK.replace("{SHOWN}", "").replace("range(3)", "range(4)").replace("= 3", "= 4")
    rng = random.Random(0)
    way = ", ".join(rng.choice(["north", "east", "south", "west"]) for _ in range(4))
    report = climb(walk, rungs=("hint",), hint=hint.replace("{WAY}", way))
    assert (report.rejected_by == "hint") == bool(says), feedback(report)
    assert says in feedback(report)
