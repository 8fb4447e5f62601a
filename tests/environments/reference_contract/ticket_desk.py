"""Error Recovery | hard"""
# Tools that raise and tools that take whatever comes; criteria that raise before there is anything to see.


class TicketDeskEnv(ToolUseBaseEnv):
    def __init__(self):
        super().__init__()

    def reset(self, seed: Optional[int] = None):
        rng = random.Random(seed)
        self.turn_count = 0
        self._call_history = []
        self._state = {"tickets": {}, "failures": 0}
        self.code = rng.randint(100, 999)
        names = ["open_ticket", "close_ticket", "read_manual"]
        self._tools = {name: {"description": name.replace("_", " ")} for name in names}
        self._user_messages = ["Open a ticket about the printer.", "Close it with the code of the manual."]
        self._message_criteria = [
            lambda s: s["tickets"]["printer"]["status"] in ("open", "closed"),
            lambda s: s["tickets"]["printer"]["status"] == "closed",
        ]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._user_messages[self._current_msg], {"messages": self._user_messages}

    def _advance_if_done(self):
        total = len(self._user_messages)
        try:
            met = self._current_msg < total and self._message_criteria[self._current_msg](self._state)
        except KeyError:
            met = False
        if not met:
            return ""
        self._current_msg += 1
        if self._current_msg == total:
            return " [ALL STEPS COMPLETE]"
        return f" [STEP {self._current_msg} COMPLETE — NEW INSTRUCTION] {self._user_messages[self._current_msg]}"

    def tool_open_ticket(self, subject, **kwargs):
        self._state["tickets"][subject] = {"status": "open", **kwargs}
        return json.dumps(self._state["tickets"][subject], sort_keys=True) + self._advance_if_done()

    def tool_close_ticket(self, subject, code, *_, **extra):
        ticket = self._state["tickets"][subject]
        if int(code) != self.code:
            self._state["failures"] += 1
            raise PermissionError(f"code {code} is wrong")
        ticket["status"] = "closed"
        return "closed" + self._advance_if_done()

    def tool_read_manual(self, page=1):
        return (f"The code is {self.code}." if page == 7 else f"Page {page}: see page 7.") + self._advance_if_done()

    def _check_answer(self, answer):
        return str(answer).strip().lower() == "done" and self._current_msg == len(self._user_messages)

    def solution(self):
        return "open_ticket, read_manual, close_ticket, done"
