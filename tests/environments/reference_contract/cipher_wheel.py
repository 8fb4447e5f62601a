"""Pattern Recognition | medium"""
# `solution` is an attribute that hides a method, actions may be anything, info holds anything.

from __future__ import annotations

import dataclasses
from typing import ClassVar


@dataclasses.dataclass
class Wheel:
    shift: int
    alphabet: ClassVar[str] = string.ascii_lowercase

    def turn(self, text: str) -> str:
        table = str.maketrans(self.alphabet, self.alphabet[self.shift :] + self.alphabet[: self.shift])
        return text.translate(table)


class CipherWheelEnv:
    WORDS = ("harbour", "lantern", "orchard", "compass")

    def __init__(self, max_turns: int = 10, difficulty: str = "medium", **kwargs):
        self.max_turns = max_turns
        self.difficulty = difficulty
        self.solution = None

    def reset(self, seed: int | None = None) -> tuple[str, dict]:
        rng = random.Random(seed)
        self.turn_count = 0
        self.solution = rng.choice(self.WORDS)
        self.wheel = Wheel(rng.randint(1, 25))
        info = {"wheel": self.wheel, "tags": ["text"], "nothing": None, "words": len(self.WORDS), 3: "three"}
        return f"What word was '{self.wheel.turn(self.solution)}'? One of {', '.join(self.WORDS)}.", info

    def step(self, action) -> tuple[str, float, bool, bool, dict]:
        self.turn_count += 1
        if action is None:
            action = ""
        if not isinstance(action, str):
            action = str(action)
        right = self.solution in action
        info = {"guess": action, "right": right, "seen": {"turn": self.turn_count}, "share": 0.25}
        truncated = not right and self.turn_count >= self.max_turns
        return ("Yes." if right else "No."), float(right), right, truncated, info

    def solution(self) -> str:
        return "the word"

    def render(self):
        print(self.wheel)

    def close(self):
        self.wheel = None


if __name__ == "__main__":
    raise SystemExit("this is no program")
