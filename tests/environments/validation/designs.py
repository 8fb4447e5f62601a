"""Two environments that pass every rung, to be spoilt in one place at a time."""

SUMS_HINT = "Add the tens first, then the ones."
# Two sums in a row, four turns, wrong answers cost a turn.
SUMS = r"""
import random

class SumsEnv:
    def __init__(self, max_turns=4):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.turn_count = self.right = 0
        return self.ask(), {}

    def ask(self):
        self.a, self.b = self.rng.randint(20, 60), self.rng.randint(20, 60)
        return f"What is {self.a} plus {self.b}? Put it in a box."

    def step(self, action):
        self.turn_count += 1
        over = self.turn_count >= self.max_turns
        if action != self.answer():
            return "No.", 0.0, False, over, {}
        self.right += 1
        return self.ask(), float(self.right == 2), self.right == 2, over, {}

    def answer(self):
        return "\\boxed{%d}" % (self.a + self.b)

    def solution(self):
        return self.answer()
"""

# Two instructions; the first needs a number that only a tool tells.
BANK = r"""
class BankEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=6, **kwargs):
        super().__init__(max_turns=max_turns, **kwargs)

    def reset(self, seed=None):
        self.turn_count = 0
        self._call_history = []
        self._state = {"savings": random.Random(seed).randint(100, 999), "closed": False, "log": {}}
        self._tools = {
            "balance": {"description": "What the savings account holds."},
            "withdraw": {
                "description": "Takes money out of the savings account.",
                "parameters": {
                    "type": "object",
                    "properties": {"amount": {"type": "integer", "minimum": 1}},
                    "required": ["amount"],
                },
            },
            "close": {"description": "Closes the empty savings account."},
        }
        self._user_messages = ["Empty the savings account.", "Close it."]
        self._message_criteria = [lambda state: state["savings"] == 0, lambda state: state["closed"]]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._user_messages[0], {}

    def _advance_if_done(self):
        while self._current_msg < 2 and self._message_criteria[self._current_msg](self._state):
            self._current_msg += 1
        return " " + ["", "Close it.", "All done."][self._current_msg]

    def tool_balance(self):
        return f"{self._state['savings']} crowns"

    def tool_withdraw(self, amount):
        if amount > self._state["savings"]:
            raise ValueError("not so much is there")
        self._state["savings"] -= amount
        self._state["log"]["withdrawn"] = amount
        return "Withdrawn." + self._advance_if_done()

    def tool_close(self):
        if self._state["savings"]:
            raise ValueError("not empty")
        self._state["closed"] = True
        return "Closed." + self._advance_if_done()

    def _check_answer(self, answer):
        return answer == "done" and self._current_msg == 2

    def solution(self):
        return (
            '<tool_call>{"name": "withdraw", "arguments": {"amount": %d}}</tool_call>\n'
            '<tool_call>{"name": "close", "arguments": {}}</tool_call>\n<answer>done</answer>'
        ) % self._state["savings"]
"""


def single(ask: str, wins: str, *, more: str = "") -> str:
    """A game of one kind of question with four tries.

    Args:
      ask: lines that may draw from `rng` and set `self.text`, the observation.
      wins: whether `move`, without its box, wins.
      more: further methods.
    """
    return f"""
import random

class QuestionEnv:
    max_turns = 4

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn_count = 0
        {ask}
        return self.text, {{}}

    def step(self, action):
        self.turn_count += 1
        move = action.removeprefix("\\\\boxed{{").removesuffix("}}")
        won = {wins}
        return "Well.", float(won), bool(won), self.turn_count >= 4, {{}}
{more}
"""


def spoilt(code: str, old: str, new: str) -> str:
    """The program with one piece exchanged."""
    assert code.count(old) == 1, f"{code.count(old)} times {old!r}"
    return code.replace(old, new)
