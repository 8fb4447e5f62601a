"""Optimization | medium"""
# State and generators of the module, printing everywhere, a constructor that takes whatever comes.

import random
import sys

GOODS = ["salt", "cloth", "tin"]
PRICES = {good: random.randint(10, 20) for good in GOODS}
_GENERATOR = random.Random(2024)
HISTORY = []
episodes = 0
print("loading the market", PRICES)


def log(*words):
    HISTORY.append(words)
    print(*words)
    print(*words, file=sys.stderr)
    sys.stdout.write("".join(map(str, words)) + "\n")
    sys.stdout.flush()


class MarketDaysEnv:
    def __init__(self, max_turns=5, **kwargs):
        self.max_turns = max_turns
        self.options = kwargs
        log("constructed with", kwargs)

    def reset(self, seed=None):
        global episodes
        random.seed(seed)
        episodes += 1
        HISTORY.clear()
        self.turn_count = 0
        self.goal = random.choice(GOODS)
        self.bonus = _GENERATOR.randint(1, 9)
        log("new episode", self.goal)
        return f"Market no. {episodes}. Buy {self.goal} with \\boxed{{name}}.", {"episodes": episodes}

    def step(self, action):
        self.turn_count += 1
        log("action", action)
        bought = next((good for good in GOODS if good in action.lower()), None)
        if bought is None:
            text, reward = f"There is {', '.join(GOODS)}.", 0.0
        elif bought == self.goal:
            return f"Bought, at {PRICES[bought]}.", 1.0, True, False, {"entries": len(HISTORY)}
        else:
            text, reward = f"You did not need {bought}.", 0.1
        return text, reward, False, self.turn_count >= self.max_turns, {"entries": len(HISTORY)}
