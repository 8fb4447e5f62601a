"""State Modification | medium"""
# Instructions one by one, as the multi-turn prompt asks for them.


class SmartHomeEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=15, **kwargs):
        super().__init__(max_turns=max_turns, **kwargs)

    def reset(self, seed=None):
        random.seed(seed)
        self.turn_count = 0
        self._call_history = []
        warm = random.randint(19, 24)
        self._state = {"lights": {"hall": "off", "kitchen": "off"}, "heating": 15, "locked": False}
        self._tools = {
            "set_light": {
                "description": "Switches one light.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "room": {"type": "string", "enum": ["hall", "kitchen"]},
                        "mode": {"type": "string", "enum": ["on", "off"]},
                    },
                    "required": ["room", "mode"],
                },
            },
            "set_heating": {
                "description": "Sets the heating in degrees.",
                "parameters": {
                    "type": "object",
                    "properties": {"degrees": {"type": "integer"}},
                    "required": ["degrees"],
                },
            },
            "lock_door": {"description": "Locks the door.", "parameters": {"type": "object", "properties": {}}},
            "play_music": {"description": "Plays music.", "parameters": {"type": "object", "properties": {}}},
        }
        self._user_messages = [
            "I am home. Light in the hall, please.",
            f"It is cold: make it {warm} degrees.",
            "Good night. Lock the door and switch the hall light off.",
        ]
        self._message_criteria = [
            lambda state: state["lights"]["hall"] == "on",
            lambda state: state["heating"] == warm,
            lambda state: state["locked"] and state["lights"]["hall"] == "off",
        ]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._user_messages[0], {}

    def _advance_if_done(self):
        if self._current_msg >= len(self._user_messages):
            return ""
        if not self._message_criteria[self._current_msg](self._state):
            return ""
        self._current_msg += 1
        if self._current_msg == len(self._user_messages):
            return "\n[ALL STEPS COMPLETE] Reply <answer>done</answer>."
        return (
            f"\n[STEP {self._current_msg} COMPLETE — NEW INSTRUCTION]\n"
            f"{self._user_messages[self._current_msg]}"
        )

    def tool_set_light(self, room, mode):
        self._state["lights"][room] = mode
        return f"The {room} light is {mode}." + self._advance_if_done()

    def tool_set_heating(self, degrees):
        self._state["heating"] = degrees
        return f"Heating at {degrees}." + self._advance_if_done()

    def tool_lock_door(self):
        self._state["locked"] = True
        return "Locked." + self._advance_if_done()

    def tool_play_music(self):
        return "La la la." + self._advance_if_done()

    def _check_answer(self, answer):
        return answer.strip().lower() == "done" and self._current_msg >= len(self._user_messages)

    def solution(self):
        return "set_light, set_heating, lock_door, set_light, done"
