"""Honest designs that a careless rung would reject."""

import pytest

from spade_jax.environments.validation import feedback
from spade_jax.environments.validation.chance import ANSWERS
from tests.environments.validation.designs import BANK, SUMS, SUMS_HINT, single, spoilt

# The answer is always shown: it is one of five numbers.
LARGEST = """self.numbers = rng.sample(range(10, 100), 5)
        self.best = str(max(self.numbers))
        self.text = f"Largest of {self.numbers}? One try in a box, others are shut." """
SOLUTION = "    def solution(self):\n        return self.best"
# Words of a text in a fixed order, all of them moves.
MOVES = """self.best = rng.choice(["north", "east", "south", "west"])
        self.text = "move north, move east, move south, move west" + " stop." * len(self.best)"""

# The answer is told at once and asked for three turns later.
MEMORY = """
import random

class MemoryEnv:
    max_turns = 5

    def reset(self, seed=None):
        self.turn_count = 0
        self.code = random.Random(seed).randint(1000, 9999)
        return f"Remember {self.code} until you are asked.", {}

    def step(self, action):
        self.turn_count += 1
        if self.turn_count < 4:
            return "Not yet, wait." if self.turn_count < 3 else "Now?", 0.0, False, False, {}
        return "Over.", float(action == self.solution()), True, False, {}

    def solution(self):
        return "\\\\boxed{%d}" % self.code
"""

HONEST = {
    "an answer to be remembered": (MEMORY, "Keep saying the number to yourself."),
    "an answer among others": (
        single(LARGEST, "move == self.best", more=SOLUTION).replace("turn_count >= 4", "turn_count >= 1"),
        "Look at the tens first.",
    ),
    "moves that are listed, and named by the hint": (
        single(MOVES, "move == self.best", more=SOLUTION).replace("turn_count >= 4", "turn_count >= 1"),
        "Short words mean east or west, long ones north or south.",
    ),
    "numpy values": (
        spoilt(
            spoilt(SUMS, "self.turn_count >= self.max_turns", "np.bool_(self.turn_count >= self.max_turns)"),
            "float(self.right == 2), self.right == 2",
            "np.float32(self.right == 2), np.bool_(self.right == 2)",
        ),
        SUMS_HINT,
    ),
    "a solution in prose": (spoilt(SUMS, "return self.answer()", 'return "Add them up."'), SUMS_HINT),
    "a solution as moves": (
        spoilt(SUMS, "return self.answer()", 'return f"I say {self.answer()} now."'),
        SUMS_HINT,
    ),
    "a bare solution that a box takes": (
        spoilt(SUMS, "return self.answer()", "return str(self.a + self.b)"),
        SUMS_HINT,
    ),
    "a bare solution without a box": (
        spoilt(
            spoilt(SUMS, "return self.answer()", "return str(self.a + self.b)"), '"\\\\boxed{%d}"', '"%d"'
        ),
        SUMS_HINT,
    ),
    "no solution": (spoilt(SUMS, "def solution", "def other"), SUMS_HINT),
    "a tool-use solution in prose": (
        spoilt(BANK, "<answer>done</answer>'", "and that is all'"),
        "Ask for the balance before anything else.",
    ),
    "a later criterion that holds at first": (
        spoilt(BANK, 'lambda state: state["closed"]]', 'lambda state: not state["closed"]]').replace(
            '"log": {}}', '"log": {}}; self.begun = False'
        ),
        "Ask for the balance before anything else.",
    ),
    "no criteria": (
        spoilt(
            spoilt(BANK, "self._current_msg == 2", 'self._state["closed"]'),
            "self._message_criteria = [lambda",
            "self.other = [lambda",
        ).replace("self._message_criteria[", "self.other["),
        "Ask for the balance before anything else.",
    ),
    "a bare string from reset": (spoilt(SUMS, "return self.ask(), {}", "return self.ask()"), SUMS_HINT),
    "a helper class that ends in Env": (f"{SUMS}\nclass HelperEnv:\n    pass\n", SUMS_HINT),
    "printing": (spoilt(SUMS, "over = ", "print(action); over = "), SUMS_HINT),
}


@pytest.mark.parametrize(("code", "hint"), HONEST.values(), ids=HONEST)
def test_it_passes(climb, code, hint):
    report = climb(code, hint=hint)
    assert report.valid, feedback(report)


def lottery(wins: str) -> str:
    """A game of one turn in which `wins` says of which instances any answer wins."""
    code = single('self.seed = seed; self.text = "A draw."', wins)
    return code.replace("turn_count >= 4", "turn_count >= 1")


@pytest.mark.parametrize(
    ("wins", "rate", "rejected"),
    [
        ("self.seed < 4", 0.5, False),  # 4 of 8 are half
        ("self.seed < 5", 0.5, True),
        ("self.seed > 2", 0.5, True),
        ("self.seed > 3", 0.5, False),
        ("self.seed == 7", 0.0, True),
        ("self.seed == 8", 0.0, False),  # not among the first eight
        ("True", 1.0, False),
    ],
)
def test_more_than_the_allowed_share_is_too_much(climb, wins, rate, rejected):
    for rung in ("constant", "random"):
        report = climb(lottery(wins), rungs=(rung,), config={"max_random_win_rate": rate})
        assert report.rejected_by == (rung if rejected else "")


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_constant_answer_is_tried(climb, answer):
    box = f"\\boxed{{{answer}}}" if answer else ""
    code = single('self.text = "Well?"', f"action == {box!r}")
    report = climb(code, rungs=("constant",))
    assert report.rejected_by == "constant"
    assert repr(answer) in feedback(report)
