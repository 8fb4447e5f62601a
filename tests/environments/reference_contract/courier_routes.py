"""Multi-Step Workflows | medium"""
# `solution` is stored as text, the turn limit is the environment's own, unknown options are swallowed.


class CourierRoutesEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=3, verbose=True, **kwargs):
        self.verbose = verbose
        super().__init__(max_turns=max_turns, verbose=verbose, depot="north", **kwargs)

    def reset(self, seed=None):
        generator = random.Random(seed)
        self.turn_count = 0
        self._state = {"legs": [generator.randint(3, 30) for _ in range(4)], "driven": []}
        self._tools = {
            "drive": {
                "description": "Drives one leg.",
                "parameters": {
                    "type": "object",
                    "properties": {"leg": {"type": "integer", "enum": [0, 1, 2, 3]}},
                    "required": ["leg"],
                },
            }
        }
        self._expected_answer = f"${sum(self._state['legs']):,.2f}"
        self.solution = f"drive all four legs and answer {self._expected_answer}"
        return "Drive legs 0 to 3 and answer with the whole length as $x.xx.", {"legs": 4}

    def tool_drive(self, leg):
        if self.verbose:
            print("driving", leg)
        self._state["driven"].append(leg)
        return {"leg": leg, "length": self._state["legs"][leg]}

    def _check_answer(self, answer):
        return sorted(self._state["driven"]) == [0, 1, 2, 3] and super()._check_answer(answer)
