"""The skeleton that all games of the warm start share, and how their observations are read.

An observation holds all that the next move depends on. All moves are among `MOVES`.
"""

import re
import textwrap
from collections.abc import Callable, Sequence

from spade_jax.warm_start.family import Parameters, by_level, class_name

DIGITS = [str(digit) for digit in range(10)]
LETTERS = list("ABCD")
MOVES = (*DIGITS, *LETTERS, "up", "down", "left", "right", "buy", "sell", "wait")


question_levels = by_level(
    "options rounds spare max_turns",
    [(options, 1, 0, 1) for options in (2, 3, 4)],
    [(options, rounds, 0, rounds) for rounds in (2, 3, 4, 5, 6) for options in (2, 3, 4)],
    [(options, rounds, 0, rounds) for rounds in (7, 8) for options in (2, 3, 4)],
)


def program(name: str, *, reset: str, observe: str, step: str) -> Callable[[Parameters, str], str]:
    """The source of a family: one skeleton around the lines that make its game.

    Args:
      reset: lines that draw the instance from `self.rng`.
      observe: lines of the method that returns the observation, in which `$word` stands for the word of
        the document; called once a turn, so it may draw too.
      step: lines that apply `move` and set `won` and `lost`.

    Returns:
      (parameters, word) to the program's text; `parameters` holds `max_turns`, and all of its other
      numbers become class attributes.
    """
    reset, observe, step = (
        textwrap.indent(textwrap.dedent(lines).strip(), " " * 8) for lines in (reset, observe, step)
    )

    def source(parameters: Parameters, word: str) -> str:
        numbers = {key: value for key, value in parameters.items() if key != "max_turns"}
        return f"""\
import random

class {class_name(name)}:
    {", ".join(numbers)} = {", ".join(map(str, numbers.values()))}
    def __init__(self, max_turns={parameters["max_turns"]}):
        self.max_turns = max_turns
    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.turn_count = 0
{reset}
        return self.observe(), {{}}
    def observe(self):
{observe.replace("$word", word)}
    def step(self, action):
        self.turn_count += 1
        move = action.removeprefix("\\\\boxed{{").removesuffix("}}")
{step}
        return self.observe(), float(won), won or lost, self.turn_count >= self.max_turns, {{}}
"""

    return source


def question_program(name: str, *, observe: str) -> Callable[[Parameters, str], str]:
    """The source of a family that asks a new question each turn.

    It is won by `rounds` right answers and lost by more than `spare` others.

    Args:
      observe: lines that draw a question, set `self.answer` to a string and return the question.
    """
    return program(
        name,
        reset="self.right = self.wrong = 0",
        observe=observe,
        step="""
            self.right += move == self.answer
            self.wrong += move != self.answer
            won, lost = self.right == self.rounds, self.wrong > self.spare
        """,
    )


def state(observations: Sequence[str]) -> str:
    """The latest observation after its colon: the state, without the question and the moves."""
    return observations[-1].split(": ", 1)[1]


def question(observations: Sequence[str]) -> str:
    """The latest observation before its colon."""
    return observations[-1].split(": ", 1)[0]


def number_after(text: str, word: str) -> int:
    """The number that follows the first `word`."""
    return int(re.findall(rf"\b{word} (\d+)", text)[0])


def shown_items(observations: Sequence[str]) -> dict[str, int]:
    """`A3 B7` in the latest observation as a mapping of letter to number, in the order shown."""
    return {name: int(number) for name, number in re.findall(r"\b([A-D])(\d)", state(observations))}


def asked_letters(observations: Sequence[str]) -> list[str]:
    """The letters in the question of the latest observation, in the order shown."""
    return re.findall(r"\b[A-D]\b", question(observations))


def asked_digits(observations: Sequence[str]) -> list[str]:
    """The digits in the question of the latest observation, in the order shown."""
    return [part for part in question(observations).split() if part in DIGITS]


def shown_letters(observations: Sequence[str]) -> list[str]:
    """The letters in the state of the latest observation, each once, in order."""
    return sorted(set(re.findall(r"[A-D]", state(observations))))
