"""Tool Selection | medium"""
# Helpers that end in Env on both sides, one of which could play; numpy in the state; the history is read.

from tool_use_base_env import ToolUseBaseEnv as AgentToolsEnv


class DeskBaseEnv(AgentToolsEnv):
    def reset(self, seed=None):
        raise RuntimeError("this one is a base")

    def _schema(self, **properties):
        return {"type": "object", "properties": properties, "required": list(properties)}


class FlightDeskEnv(DeskBaseEnv):
    def reset(self, seed=None):
        rng = np.random.RandomState(seed)
        self.turn_count = 0
        self._call_history = []
        self.cabin = CabinEnv(rng.permutation(np.arange(1, 7)))
        self._state = {"rows": self.cabin.rows, "taken": np.zeros(6, dtype=bool)}
        self._tools = {
            "list_rows": {"description": "Free rows, best first.", "parameters": self._schema()},
            "book_row": {"description": "Books a row.", "parameters": self._schema(row={"type": "integer"})},
            "book_meal": {"description": "Books a meal.", "parameters": self._schema(kind={"type": "string"})},
        }
        self._expected_answer = self.cabin.rows[0]
        return "Book the best row and answer with its number.", {"rows": np.int64(6)}

    def tool_list_rows(self):
        return self._state["rows"].tolist()

    def tool_book_row(self, row):
        self._state["taken"][row - 1] = True
        return np.int64(row)

    def tool_book_meal(self, kind):
        return f"{kind}, with pleasure"

    def _check_answer(self, answer):
        booked = [call["arguments"]["row"] for call in self._call_history if call["name"] == "book_row"]
        return np.bool_(booked == [self._expected_answer]) & super()._check_answer(answer)

    def solution(self):
        return f"book_row {self._expected_answer}"


class CabinEnv:
    def __init__(self, rows):
        self.rows = rows
