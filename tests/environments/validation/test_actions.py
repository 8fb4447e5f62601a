"""What a solution's text is read as, and how an action is spoilt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.environments.validation.actions import read_solution, said, say, spoil
from spade_jax.sandbox.protocol import Tool
from spade_jax.text.tool_calls import ToolCall

TOOLS = [Tool(name="f", description="", parameters={"properties": {"code": {"type": "string"}}})]
CALL = '<tool_call>{"name": "f", "arguments": {"a": {"b": [1]}}}</tool_call>'


def call(**arguments):
    return ToolCall(name="f", arguments=arguments)


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("42", [["\\boxed{42}"], ["42"]]),
        (" -3.5\n", [["\\boxed{-3.5}"], ["-3.5"]]),
        ("left", [["\\boxed{left}"], ["left"]]),
        ("\\boxed{a}", [["\\boxed{a}"]]),
        ("First \\boxed{ up }, then \\boxed{f{x}}.", [["\\boxed{up}", "\\boxed{f{x}}"]]),
        ("\\boxed{\\boxed{a}}", [["\\boxed{\\boxed{a}}"]]),
        ("\\boxed{a", []),
        ("} \\boxed{a}", [["\\boxed{a}"]]),
        ("go north and dig", []),
        ("up,up,left", []),
        ("", []),
        ("x" * 65, []),
        ("\\boxed{a}" * 1000, []),
    ],
)
def test_solutions_of_games(text, ways):
    assert read_solution(text, []) == ways


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        (f"{CALL}\n<answer> done </answer>", [call(a={"b": [1]}), "<answer>done</answer>"]),
        (f"1. {CALL}, 2. <answer>7</answer>", [call(a={"b": [1]}), "<answer>7</answer>"]),
        ('<tool_call>{"name": "f"}</tool_call><answer>7</answer>', [call(), "<answer>7</answer>"]),
        (
            "<tool_call><function=f><parameter=code>007</parameter></function></tool_call><answer>7</answer>",
            [call(code="007"), "<answer>7</answer>"],
        ),
        (
            '<tool_call>{"name": "f", "arguments": {"code": "<answer>1</answer>"}}</tool_call>'
            "<answer>7</answer>",
            [call(code="<answer>1</answer>"), "<answer>7</answer>"],
        ),
        ("<answer>7</answer>", ["<answer>7</answer>"]),
    ],
)
def test_solutions_with_tools(text, actions):
    assert read_solution(text, TOOLS) == [actions]


@pytest.mark.parametrize(
    "text",
    [
        "price, buy three, answer",
        f"First search, then {CALL}<answer>7</answer>",
        CALL,
        "42",
        "<tool_call>f(1)</tool_call><answer>7</answer>",
        f"{CALL}<answer>7",
        f"{CALL}<answer>7</answer> it is",
        "<tool_call>[1]</tool_call><answer>7</answer>",
        '<tool_call>{"name": 1}</tool_call><answer>7</answer>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call><answer>7</answer>',
        "<tool_call>" + "[" * 5000 + "</tool_call><answer>7</answer>",
        "<tool_call>" + "9" * 5000 + "</tool_call><answer>7</answer>",
    ],
)
def test_prose_and_broken_calls_cannot_be_played(text):
    assert read_solution(text, TOOLS) == []


@given(st.text(max_size=200) | st.text('\\boxed{}<>answer/tool_call" 1:,', max_size=60), st.booleans())
def test_any_text_can_be_looked_at(text, has_tools):
    for way in read_solution(text, TOOLS if has_tools else []):
        assert way
        assert all(said(action) is not None for action in way if isinstance(action, str))


@given(st.text("ab1 {}.", min_size=1, max_size=20), st.booleans())
def test_what_is_said_is_what_was_to_be_said(text, has_tools):
    assert said(say(text, has_tools=has_tools)) == text.strip()


@pytest.mark.parametrize(
    ("action", "wrong"),
    [
        ("\\boxed{7}", ["\\boxed{8}", "\\boxed{zq}"]),
        ("\\boxed{-1}", ["\\boxed{0}", "\\boxed{zq}"]),
        ("<answer>1.5</answer>", ["<answer>2.5</answer>", "<answer>zq</answer>"]),
        ("left", ["lefx", "zq"]),
        ("\\boxed{ax}", ["\\boxed{ay}", "\\boxed{zq}"]),
        ("\\boxed{}", ["\\boxed{x}", "\\boxed{zq}"]),
    ],
)
def test_spoilt_actions(action, wrong):
    assert spoil(action) == wrong


def test_nothing_is_said_without_a_word():
    assert say("", has_tools=True) == say("", has_tools=False) == ""
