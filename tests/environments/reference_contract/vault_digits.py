"""Logical Deduction | medium"""
# Helpers that end in Env before and after the one that plays; nothing of what is used is imported.

from abc import ABC, abstractmethod
from collections import Counter as TallyEnv


class RoundBaseEnv(ABC):
    @abstractmethod
    def reset(self, seed: Optional[int] = None) -> Tuple[str, Dict[str, Any]]: ...

    @abstractmethod
    def step(self, action: str): ...


class LockStateEnv:
    """Only holds data."""

    def __init__(self, digits: List[int]):
        self.digits = digits
        self.tried = deque(maxlen=3)


class VaultDigitsEnv(RoundBaseEnv):
    def __init__(self):
        self.max_turns = 8
        self.turn_count = 0
        self.state = None

    def reset(self, seed: Optional[int] = None) -> Tuple[str, Dict[str, Any]]:
        rng = random.Random(seed)
        self.turn_count = 0
        self.state = LockStateEnv(sorted(rng.sample(range(1, 7), 3)))
        self.report = ReportEnv(self)
        return "Three different digits from 1 to 6, in rising order. Guess as \\boxed{abc}.", {}

    def step(self, action: str) -> Tuple[str, float, bool, bool, Dict[str, Any]]:
        self.turn_count += 1
        truncated = self.turn_count >= self.max_turns
        match = re.search(r"\\boxed\{(\d{3})\}", action)
        if not match:
            return "Please guess as \\boxed{abc}.", 0.0, False, truncated, {}
        guess = [int(digit) for digit in match.group(1)]
        self.state.tried.append(match.group(1))
        overlap = TallyEnv(guess) & TallyEnv(self.state.digits)
        hits = sum(overlap.values())
        if guess == self.state.digits:
            return "The vault opens.", 1.0, True, False, {"hits": hits}
        return self.report.line(hits), hits / 4, False, truncated, {"hits": hits}


class ReportEnv:
    def __init__(self, owner):
        self.owner = owner

    def line(self, hits):
        return f"{hits} of them are right. Tried: {', '.join(self.owner.state.tried)}"
