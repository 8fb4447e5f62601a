"""Data Retrieval | medium"""
# The constructor demands max_turns, execute_tool is overridden, and records belong to the module.

import random

RECORDS = [
    {"id": number, "town": town, "year": 1900 + random.Random(number).randint(0, 99)}
    for number, town in enumerate(["Aland", "Borg", "Ceta", "Dorn"], start=1)
]
CALLS = []
print(f"{len(RECORDS)} records")


class ArchiveSearchEnv(ToolUseBaseEnv):
    def __init__(self, max_turns):
        self.cache = {}
        super().__init__(max_turns)

    def reset(self, seed=None):
        CALLS.clear()
        self.cache.clear()
        self.turn_count = 0
        self._tools = {
            "search": {
                "description": "Finds records.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "filter": {
                            "type": "object",
                            "properties": {"town": {"type": "array", "items": {"type": "string"}}},
                        },
                        "limit": {"type": "integer"},
                    },
                    "required": ["filter"],
                },
            },
        }
        self.wanted = random.Random(seed).choice(RECORDS)
        self._expected_answer = str(self.wanted["year"])
        return f"In which year was the record of {self.wanted['town']} made?", {}

    def execute_tool(self, name, arguments):
        CALLS.append(name)
        key = json.dumps([name, arguments], sort_keys=True)
        if key not in self.cache:
            self.cache[key] = super().execute_tool(name, arguments)
        result = dict(self.cache[key])
        result["output"] = f"#{len(CALLS)} {result['output']}"
        return result

    def tool_search(self, filter, limit=10):
        found = [record for record in RECORDS if record["town"] in filter["town"]]
        return found[:limit]

    def solution(self):
        return f"search, then <answer>{self._expected_answer}</answer>"
