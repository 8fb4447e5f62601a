"""One complete environment for each setting, shown to the designer.

Each keeps every rule that its prompt states and passes validation. They are short, and about something
that no document or idea is likely to be about, so that their form is copied and not their subject.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """A program and the hint that goes with it."""

    code: str
    hint: str


GAME = Example(
    code=r'''import random
import re

FORMAT = "Reply with one command in \\boxed{}: turn NAME STEPS, with STEPS from 1 to 9."


class LinkedDialsEnv:
    """Turning a dial may drag another one along; which drags which is hidden."""

    def __init__(self, max_turns=8):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.turn_count = 0
        chain = rng.sample(["A", "B", "C"], 3)
        self.drags = {chain[0]: (chain[1], rng.randint(1, 3)), chain[1]: (chain[2], rng.randint(1, 3))}
        self.dials = {name: rng.randrange(10) for name in "ABC"}
        self.goal = {name: (self.dials[name] + rng.randint(1, 9)) % 10 for name in "ABC"}
        self.plan = self._make_plan(chain)
        rules = (
            "The dials A, B and C show a digit each; after 9 comes 0. A turn of one dial may move another"
            " one too, always in the same way. Bring all dials to their goals."
        )
        return rules + "\n" + self._show() + "\n" + FORMAT, {}

    def step(self, action):
        self.turn_count += 1
        truncated = self.turn_count >= self.max_turns
        command = re.fullmatch(r"\\boxed\{\s*turn\s+([ABC])\s+([1-9])\s*\}", action.strip())
        if command is None:
            return "That is not a command. " + FORMAT, 0.0, False, truncated, {}
        self._turn(self.dials, command[1], int(command[2]))
        if self.dials == self.goal:
            return "All dials stand at their goals.", 1.0, True, False, {}
        return self._show() + "\n" + FORMAT, 0.0, False, truncated, {}

    def solution(self):
        return "\n".join("\\boxed{" + command + "}" for command in self.plan)

    def _show(self):
        dials = ", ".join(f"{name} {self.dials[name]} (goal {self.goal[name]})" for name in "ABC")
        return f"Dials: {dials}. Turns left: {self.max_turns - self.turn_count}."

    def _turn(self, dials, name, steps):
        dials[name] = (dials[name] + steps) % 10
        if name in self.drags:
            other, factor = self.drags[name]
            dials[other] = (dials[other] + factor * steps) % 10

    def _make_plan(self, chain):
        dials, plan = dict(self.dials), []
        for name in chain:
            steps = (self.goal[name] - dials[name]) % 10
            if steps:
                plan.append(f"turn {name} {steps}")
                self._turn(dials, name, steps)
        return plan
''',
    hint=(
        "Turn single dials by one step first and watch which other dial moves along. Then set the dial that"
        " no other moves, next the one that it drags, and last the one that drags nothing."
    ),
)

TOOL_USE = Example(
    code=r'''import json
import random


def describe(text, **properties):
    """A tool's entry in _tools, with every argument required."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"description": text, "parameters": parameters}


class LibraryDeskEnv(ToolUseBaseEnv):
    """A library's desk: books are lent, moved and announced."""

    def reset(self, seed=None):
        rng = random.Random(seed)
        titles = ["River Maps", "Night Trains", "Salt and Iron", "Glass Gardens", "Quiet Engines"]
        names = ["Amina", "Jonas", "Mei"]
        books = {f"B{number}": title for number, title in zip(rng.sample(range(100, 1000), 5), titles)}
        readers = {f"R{number}": name for number, name in zip(rng.sample(range(10, 100), 3), names)}
        lent, moved, beside = rng.sample(sorted(books), 3)
        borrower, waiting = rng.sample(sorted(readers), 2)
        shelves = rng.sample("ABCDEFGH", 5)
        days = rng.randint(5, 30)

        self.turn_count = 0
        self._call_history = []
        self._state = {
            "books": {
                book: {"title": books[book], "shelf": shelf, "reader": "nobody", "days": 0}
                for book, shelf in zip(sorted(books), shelves)
            },
            "readers": readers,
            "notices": [],
        }
        text, number = {"type": "string"}, {"type": "integer"}
        kind = {"type": "string", "enum": ["ready", "overdue", "lost"]}
        self._tools = {
            "find_book": describe("Finds a book by its title.", title=text),
            "find_reader": describe("Finds the card of a reader by name.", name=text),
            "lend": describe("Lends a book for some days.", book_id=text, reader_id=text, days=number),
            "move": describe("Puts a book on a shelf.", book_id=text, shelf=text),
            "notify": describe("Sends a notice about a book.", reader_id=text, book_id=text, kind=kind),
            "opening_hours": describe("Tells the opening hours."),
        }

        shelf = self._state["books"][beside]["shelf"]
        notice = [waiting, moved, "ready"]
        self._user_messages = [
            f"{readers[borrower]} wants to borrow '{books[lent]}' for {days} days. Please lend it.",
            f"Put '{books[moved]}' on the shelf where '{books[beside]}' stands.",
            f"Tell {readers[waiting]} that '{books[moved]}' is ready.",
        ]
        self._message_criteria = [
            lambda state: state["books"][lent]["reader"] == borrower and state["books"][lent]["days"] == days,
            lambda state: state["books"][moved]["shelf"] == shelf,
            lambda state: notice in state["notices"],
        ]
        self._current_msg = 0
        self._expected_answer = "done"
        self._plan = [
            ("find_book", {"title": books[lent]}),
            ("find_reader", {"name": readers[borrower]}),
            ("lend", {"book_id": lent, "reader_id": borrower, "days": days}),
            ("find_book", {"title": books[moved]}),
            ("find_book", {"title": books[beside]}),
            ("move", {"book_id": moved, "shelf": shelf}),
            ("find_reader", {"name": readers[waiting]}),
            ("notify", {"reader_id": waiting, "book_id": moved, "kind": "ready"}),
        ]
        return self._user_messages[0], {}

    def tool_find_book(self, title):
        for book, entry in self._state["books"].items():
            if entry["title"].lower() == str(title).lower():
                return self._say(f"{book}: shelf {entry['shelf']}, lent to {entry['reader']}.")
        return self._say("There is no book of that title.")

    def tool_find_reader(self, name):
        found = [reader for reader, known in self._state["readers"].items() if known == name]
        return self._say(f"Card {found[0]}." if found else "There is no reader of that name.")

    def tool_lend(self, book_id, reader_id, days):
        if book_id not in self._state["books"] or reader_id not in self._state["readers"]:
            return self._say("Nothing was lent: unknown book or card.")
        self._state["books"][book_id].update(reader=reader_id, days=days)
        return self._say(f"{book_id} is lent to {reader_id} for {days} days.")

    def tool_move(self, book_id, shelf):
        if book_id not in self._state["books"]:
            return self._say("Nothing was moved: unknown book.")
        self._state["books"][book_id]["shelf"] = shelf
        return self._say(f"{book_id} stands on shelf {shelf}.")

    def tool_notify(self, reader_id, book_id, kind):
        self._state["notices"].append([reader_id, book_id, kind])
        return self._say("The notice is sent.")

    def tool_opening_hours(self):
        return self._say("Open from 9 to 18.")

    def solution(self):
        calls = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in self._plan]
        return "\n".join([f"<tool_call>{call}</tool_call>" for call in calls] + ["<answer>done</answer>"])

    def _say(self, text):
        return text + self._advance_if_done()

    def _advance_if_done(self):
        before, total = self._current_msg, len(self._user_messages)
        while self._current_msg < total and self._message_criteria[self._current_msg](self._state):
            self._current_msg += 1
        if self._current_msg == before:
            return ""
        if self._current_msg == total:
            return "\n[ALL STEPS DONE] Finish with <answer>done</answer>."
        done = f"[STEP {self._current_msg} OF {total} DONE]"
        return f"\n{done} New instruction: {self._user_messages[self._current_msg]}"

    def _check_answer(self, answer):
        return answer.strip().lower() == "done" and self._current_msg == len(self._user_messages)
''',
    hint=(
        "Instructions come one at a time. For each, first look up the id of every book and reader that it"
        " names, then make the one call that changes something, with exactly what the instruction says. Read"
        " each result: it brings the next instruction, and when all are done end with <answer>done</answer>."
    ),
)
