"""Spatial Reasoning | medium"""
# Numpy everywhere: its booleans, floats, strings and arrays leave the environment as they are.

import numpy as np


class BeaconGridEnv:
    def __init__(self, max_turns=6):
        self.max_turns = np.int64(max_turns)

    def reset(self, seed=None):
        rng = np.random.RandomState(seed)
        self.turn_count = np.int64(0)
        self.beacon = rng.randint(1, 5, size=2)
        self.place = np.zeros(2, dtype=int)
        return np.str_(self._view()), {"beacon": self.beacon, "distance": np.abs(self.beacon).sum()}

    def _view(self):
        away = np.abs(self.beacon - self.place).sum()
        return f"You stand at {self.place.tolist()}; the beacon is {away} steps away. \\boxed{{dx,dy}} jumps."

    def step(self, action):
        self.turn_count += 1
        numbers = re.findall(r"-?\d+", str(action))
        if len(numbers) == 2:
            self.place = self.place + np.array(numbers, dtype=int)
        away = np.abs(self.beacon - self.place).sum()
        terminated = away == 0
        truncated = self.turn_count >= self.max_turns
        reward = np.float32(1.0) if terminated else np.float32(0.5) / (1 + away)
        info = {"away": away, "place": self.place, "found": terminated}
        return np.str_(self._view()), reward, terminated, np.logical_and(truncated, ~terminated), info
