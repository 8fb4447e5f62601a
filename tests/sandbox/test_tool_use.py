"""Environments that are played by calling tools: the base class they find, the client that serves them."""

import pytest

from spade_jax.errors import EnvironmentFailure

# As the reference implementation's prompts ask for them: state, tools that change it, an answer.
SHOP = r"""
import random

class ShopEnv(ToolUseBaseEnv):
    def reset(self, seed=None):
        self.turn_count = 0
        self._call_history = []
        generator = random.Random(seed)
        self._state = {"price": generator.randint(2, 99), "basket": 0}
        self._tools = {
            "price": {"description": "The price of an apple.", "parameters": {"type": "object"}},
            "buy": {
                "description": "Puts apples into the basket.",
                "parameters": {
                    "type": "object",
                    "properties": {"count": {"type": "integer"}},
                    "required": ["count"],
                },
            },
            "stroll": {},
        }
        self._expected_answer = f"${3 * self._state['price']:,}.00"
        return "Buy three apples and answer with what they cost." + self._obs_suffix(), {}

    def tool_price(self):
        return str(self._state["price"])

    def tool_buy(self, count):
        if count < 1:
            raise ValueError("buy at least one")
        self._state["basket"] += count
        return self._state["basket"]

    def tool_stroll(self):
        return f"{len(self._call_history)} calls, {self.turn_count} turns"

    def solution(self):
        return "price, buy three, answer"
"""

# Instructions that come one by one.
STAGES = r"""
class StagesEnv(ToolUseBaseEnv):
    def __init__(self, max_turns=4, **kwargs):
        super().__init__(max_turns=max_turns, **kwargs)

    def reset(self, seed=None):
        self.turn_count = 0
        self._state = {"lamp": False, "door": False}
        self._tools = {name: {"description": f"Uses the {name}."} for name in self._state}
        self._user_messages = ["Switch the lamp on.", "Open the door."]
        self._message_criteria = [lambda state: state["lamp"], lambda state: state["door"]]
        self._current_msg = 0
        self._expected_answer = "done"
        return self._user_messages[0], {}

    def _advance_if_done(self):
        if self._current_msg < 2 and self._message_criteria[self._current_msg](self._state):
            self._current_msg += 1
            return " " + ["", "Open the door.", "All done."][self._current_msg]
        return ""

    def tool_lamp(self):
        self._state["lamp"] = True
        return "Light." + self._advance_if_done()

    def tool_door(self):
        self._state["door"] = True
        return "Open." + self._advance_if_done()

    def _check_answer(self, answer):
        return answer == "done" and self._current_msg == 2

    def solution(self):
        return "lamp, door, done"
"""


@pytest.fixture
def shop(bench, opened):
    game = opened(SHOP)
    bench.run(game.reset(5))
    return game


def test_tools_are_listed_with_their_schemas(bench, shop):
    assert [tool.name for tool in shop.tools] == ["price", "buy", "stroll"]
    buy = shop.tools[1]
    assert buy.description == "Puts apples into the basket."
    assert buy.parameters["required"] == ["count"]
    assert shop.tools[2].parameters == {"type": "object", "properties": {}}


def test_a_game_has_no_tools(bench, opened):
    game = opened(
        "class GameEnv:\n    def reset(self, seed=None): return '', {}\n    def step(self, action): pass"
    )
    bench.run(game.reset(0))
    assert game.tools == []


def test_an_episode_by_calls_and_an_answer(bench, shop):
    price = bench.run(shop.call_tool("price", {}))
    assert price.succeeded
    assert bench.run(shop.call_tool("buy", {"count": 3})) == ("3", True)
    step = bench.run(
        shop.step(f"<think>3 x {price.output}</think>\n<answer> {3 * int(price.output)} </answer>")
    )
    assert (step.reward, step.terminated, step.truncated) == (1.0, True, False)


def test_calls_take_no_turn_and_steps_do(bench, shop):
    for _ in range(20):
        assert bench.run(shop.call_tool("buy", {"count": 1})).succeeded
    assert bench.run(shop.call_tool("stroll", {})).output == "20 calls, 0 turns"
    step = bench.run(shop.step('<tool_call>{"name": "stroll", "arguments": {}}</tool_call>'))
    assert (step.observation, step.reward, step.terminated) == ("21 calls, 1 turns", 0.0, False)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("sell", {}, "price, buy, stroll"),
        ("buy", {}, "count"),
        ("buy", {"number": 3}, "number"),
        ("buy", {"count": 0}, "buy at least one"),
        ("buy", {"count": "three"}, "not supported"),
        ("", {}, "no tool"),
        ("\ud800", {"\ud800": "\ud800"}, "no tool"),
        ("buy", {"count": None, "x": float("inf"), "y": 10**400}, "unexpected"),
    ],
)
def test_a_call_that_fails_is_the_agents_doing(bench, shop, name, arguments, said):
    result = bench.run(shop.call_tool(name, arguments))
    assert not result.succeeded
    assert said in result.output
    # Nothing that failed is in the history, and the environment lives on.
    assert bench.run(shop.call_tool("stroll", {})).output == "0 calls, 0 turns"


def test_text_and_numbers_reach_a_tool_unchanged(bench, opened):
    game = opened(
        SHOP.replace("def tool_stroll(self):", "def tool_stroll(self, **all):").replace(
            'f"{len(self._call_history)} calls, {self.turn_count} turns"', "ascii(sorted(all.items()))"
        )
    )
    bench.run(game.reset(0))
    sent = {"big": 10**30, "deep": [{"a": [None, True]}], "half": 0.5, "text": "é漢\ud800\x00\n"}
    assert bench.run(game.call_tool("stroll", sent)).output == ascii(sorted(sent.items()))


def test_a_call_longer_than_an_action_is_refused_before_it_is_made(bench, shop):
    with pytest.raises(ValueError, match="at most 100000"):
        bench.run(shop.call_tool("buy", {"count": "x" * 100_000}))
    assert bench.run(shop.call_tool("price", {})).succeeded


@pytest.mark.parametrize(
    ("action", "reward", "said"),
    [
        ("Let me think.", -0.1, "<answer>result</answer>"),
        ("<tool_call>price()</tool_call>", -0.1, "no JSON"),
        ("<tool_call>[1]</tool_call>", -0.1, "object"),
        ('<tool_call>{"name": "sell"}</tool_call>', 0.0, "price, buy, stroll"),
        ('<tool_call>{"name": "buy", "arguments": "three"}</tool_call>', -0.1, "object"),
        ('<tool_call>{"name": "price", "arguments": null}</tool_call>', 0.0, ""),
        ('<tool_call>{"name": "buy", "arguments": {"count": 3}}</tool_call>', 0.0, "3"),
        ("<answer>7</answer>", 0.0, "wrong"),
        ('<answer>7</answer><tool_call>{"name": "price"}</tool_call>', 0.0, "wrong"),
        ("<answer>7", -0.1, "<answer>result</answer>"),
    ],
)
def test_what_a_step_costs(bench, shop, action, reward, said):
    step = bench.run(shop.step(action))
    assert (step.reward, step.terminated, step.truncated) == (reward, False, False)
    assert said in step.observation


@pytest.mark.parametrize(
    "last", ["Let me think.", "<answer>7</answer>", '<tool_call>{"name": "price"}</tool_call>']
)
def test_the_last_turn_shows_a_solution(bench, shop, last):
    assert shop.max_turns == 10
    for _ in range(9):
        assert not bench.run(shop.step('<tool_call>{"name": "price"}</tool_call>')).truncated
    step = bench.run(shop.step(last))
    assert (step.reward, step.terminated, step.truncated) == (0.0, False, True)
    assert step.observation.endswith("price, buy three, answer")


@pytest.mark.parametrize("last", ["Let me think.", "<answer>7</answer>"])
def test_the_last_turn_of_a_source_without_a_solution_says_just_that(bench, opened, last):
    game = opened(SHOP[: SHOP.index("    def solution")].replace("turn_count = 0", "turn_count = 9"))
    bench.run(game.reset(5))
    step = bench.run(game.step(last))
    assert (step.reward, step.terminated, step.truncated) == (0.0, False, True)
    assert step.observation.endswith("\n\nThat was the last turn.")
    assert bench.run(game.solution()) is None


def test_the_right_answer_counts_on_the_last_turn(bench, opened):
    game = opened(SHOP.replace("turn_count = 0", "turn_count = 9"))
    bench.run(game.reset(5))
    price = int(bench.run(game.call_tool("price", {})).output)
    step = bench.run(game.step(f"<answer>{3 * price}</answer>"))
    assert (step.reward, step.terminated, step.truncated) == (1.0, True, False)


@pytest.mark.parametrize(
    ("expected", "answer", "right"),
    [
        ("'Blue'", "blue", True),
        ("'$1,234.50'", "1234.505", True),
        ("'$1,234.50'", "1234.52", False),
        ("12", "12.0", True),
        ("'12'", "twelve", False),
        ("None", "none", True),
        ("['a', 'b']", "['a', 'b']", True),
    ],
)
def test_answers_are_compared_as_text_or_as_numbers(bench, opened, expected, answer, right):
    game = opened(SHOP.replace("""f"${3 * self._state['price']:,}.00\"""", expected))
    bench.run(game.reset(0))
    step = bench.run(game.step(f"<answer>{answer}</answer>"))
    assert (step.terminated, step.reward) == (right, float(right))


def test_instructions_that_come_one_by_one(bench, opened):
    game = opened(STAGES)
    assert game.max_turns == 4
    assert bench.run(game.reset(0)).observation == "Switch the lamp on."
    assert bench.run(game.call_tool("lamp", {})).output == "Light. Open the door."
    early = bench.run(game.step("<answer>done</answer>"))
    assert not early.terminated
    assert "Step 2 of 2" in early.observation
    assert "Open the door." in early.observation
    assert bench.run(game.call_tool("door", {})).output == "Open. All done."
    assert bench.run(game.step("<answer>done</answer>"))[1:3] == (1.0, True)
    # The next episode starts afresh.
    bench.run(game.reset(1))
    assert not bench.run(game.step("<answer>done</answer>")).terminated


def test_tools_may_change_from_episode_to_episode(bench, opened):
    code = SHOP.replace('"stroll": {},', '**({"stroll": {}} if seed else {}),')
    game = opened(code)
    for seed, count in ((0, 2), (1, 3), (0, 2)):
        bench.run(game.reset(seed))
        assert len(game.tools) == count


@pytest.mark.parametrize(
    "statement",
    [
        "from tool_use_base_env import ToolUseBaseEnv",
        "import tool_use_base_env as base; ToolUseBaseEnv = base.ToolUseBaseEnv",
        "",
    ],
)
def test_the_base_class_may_be_imported(bench, opened, statement):
    game = opened(f"{statement}\n{SHOP}")
    bench.run(game.reset(0))
    assert len(game.tools) == 3


def failure_of(bench, code, call=("price", {})):
    async def play():
        async with await bench.pool.open(code) as game:
            await game.reset(0)
            await game.call_tool(*call)

    with pytest.raises(EnvironmentFailure) as caught:
        bench.run(play())
    return caught.value


def with_method(body):
    return SHOP + "\n" + "\n".join("    " + line for line in body.splitlines())


@pytest.mark.parametrize(
    ("method", "detail"),
    [
        ("def get_tools(self): return {}", "want a list"),
        ("def get_tools(self): return ['price']", "function"),
        ("def get_tools(self): return [{'function': {'name': 3}}]", "function"),
        ("def get_tools(self): return [{'function': {'name': 'a', 'parameters': []}}]", "parameters as dict"),
        (
            "def get_tools(self): return [{'function': {'name': 'a', 'parameters': {'x': object()}}}]",
            "no JSON",
        ),
        (
            "def get_tools(self): return [{'function': {'name': 'a', 'parameters': {'x': '\\ud800'}}}]",
            "no JSON",
        ),
        ("def get_tools(self): return [{'function': {'name': 'a b', 'parameters': {}}}]", "'a b'"),
        ("def get_tools(self): return 2 * [{'function': {'name': 'a', 'parameters': {}}}]", "same name"),
        ("def get_tools(self): return [{'function': {'name': 'a', 'description': 'x' * 70000}}]", "70"),
        ("def execute_tool(self, name, arguments): return 'text'", "execute_tool returned"),
        ("def execute_tool(self, name, arguments): return {'output': 1, 'returncode': 0}", "observation"),
        ("def execute_tool(self, name, arguments): return {'output': '', 'returncode': '0'}", "returncode"),
        ("def execute_tool(self, name, arguments): return {'output': 'x' * 65537, 'returncode': 0}", "65537"),
    ],
)
def test_tools_outside_the_contract_are_invalid(bench, method, detail):
    failure = failure_of(bench, with_method(method))
    assert (failure.kind, detail in failure.detail) == ("invalid_output", True), failure.detail


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (with_method("def get_tools(self): raise KeyError('gone')"), "KeyError"),
        (with_method("def tool_price(self): raise SystemExit"), "SystemExit"),
        ("class BareEnv(ToolUseBaseEnv): pass", "BareEnv defines no reset"),
        (
            "class PlainEnv:\n    def reset(self, seed=None): return ''\n    def step(self, action): pass",
            "execute_tool",
        ),
    ],
)
def test_tools_that_raise_are_the_environments_fault(bench, code, detail):
    failure = failure_of(bench, code)
    assert (failure.kind, detail in failure.detail) == ("environment_error", True), failure.detail


def test_a_tool_that_never_returns_is_a_timeout(bench):
    async def play():
        async with await bench.hurried_pool.open(
            SHOP.replace('return str(self._state["price"])', "while True: pass")
        ) as game:
            await game.reset(0)
            await game.call_tool("price", {})

    with pytest.raises(EnvironmentFailure) as caught:
        bench.run(play())
    assert caught.value.kind == "timeout"
