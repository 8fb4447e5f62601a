"""API Orchestration | medium"""
# A single task with a number as its answer; schemas with enum and required; a tool that raises.

import json
import random

from tool_use_base_env import ToolUseBaseEnv


class BankTransferEnv(ToolUseBaseEnv):
    def __init__(self, max_turns: int = 10, **kwargs):
        super().__init__(max_turns=max_turns, **kwargs)

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn_count = 0
        self._call_history = []
        self._state = {
            "accounts": {"current": rng.randint(500, 900) * 10, "savings": 1000, "holiday": 0},
            "log": [],
        }
        self._tools = {
            "get_balance": {
                "description": "The balance of one account.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "account": {"type": "string", "enum": ["current", "savings", "holiday"]},
                    },
                    "required": ["account"],
                },
            },
            "transfer": {
                "description": "Moves money between accounts.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "source": {"type": "string", "enum": ["current", "savings", "holiday"]},
                        "target": {"type": "string", "enum": ["current", "savings", "holiday"]},
                        "amount": {"type": "number", "minimum": 0},
                        "note": {"type": "object", "properties": {"text": {"type": "string"}}},
                    },
                    "required": ["source", "target", "amount"],
                },
            },
            "weather": {"description": "Not about money."},
        }
        self._expected_answer = self._state["accounts"]["current"] // 2
        return "Move half of the current account to holiday; answer with the new holiday balance.", {}

    def tool_get_balance(self, account: str) -> str:
        return json.dumps({"account": account, "balance": self._state["accounts"][account]})

    def tool_transfer(self, source, target, amount, note=None):
        accounts = self._state["accounts"]
        if amount > accounts[source]:
            raise ValueError(f"only {accounts[source]} in {source}")
        accounts[source] -= amount
        accounts[target] += amount
        self._state["log"].append(note)
        return json.dumps({"ok": True, "note": note})

    def tool_weather(self):
        return "Rain."

    def _check_answer(self, answer: str) -> bool:
        moved = self._state["accounts"]["holiday"] == self._expected_answer
        return moved and super()._check_answer(answer)

    def solution(self) -> str:
        return f"transfer half, then <answer>{self._expected_answer}</answer>"
