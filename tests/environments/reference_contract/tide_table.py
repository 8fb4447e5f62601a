"""Mathematical Reasoning | medium"""
# What is not a number raises in step.


class TideTableEnv:
    def __init__(self, max_turns=6):
        self.max_turns = max_turns
        self.turn_count = 0

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn_count = 0
        self.low, self.high = rng.randint(1, 4), rng.randint(6, 9)
        return f"Low water {self.low} m, high water {self.high} m. The mean? \\boxed{{number}}", {}

    def step(self, action):
        self.turn_count += 1
        value = float(action[len("\\boxed{") : -1])
        wanted = statistics.mean([self.low, self.high])
        if math.isclose(value, wanted):
            return "Right.", 1.0, True, False, {}
        return "Too high." if value > wanted else "Too low.", 0.0, False, self.turn_count >= self.max_turns, {}
