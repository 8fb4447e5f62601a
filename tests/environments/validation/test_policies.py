"""Players that understand nothing keep to what they see and to the tools' schemas, whatever those are."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.environments.validation.policies import (
    options,
    random_action,
    random_answer,
    random_call,
    words,
)
from spade_jax.sandbox.protocol import Tool
from spade_jax.text.tool_calls import ToolCall

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
kinds = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null", "odd"])
schemas = st.recursive(
    st.fixed_dictionaries({"type": kinds | st.lists(kinds, max_size=2) | json_values}) | json_values,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": kinds,
            "properties": st.dictionaries(st.text(max_size=5), inner, max_size=3) | json_values,
            "required": st.lists(st.text(max_size=5), max_size=2) | json_values,
            "items": inner,
            "enum": st.lists(json_values, max_size=3) | json_values,
            "anyOf": st.lists(inner, max_size=2) | json_values,
            "minimum": json_values,
            "maximum": json_values,
            "const": json_values,
        },
    ),
    max_leaves=6,
)


def tool(parameters) -> Tool:
    return Tool(name="f", description="", parameters=parameters)


@given(
    st.dictionaries(st.sampled_from(["properties", "required", "type"]), schemas),
    st.text(max_size=50),
    st.integers(0, 99),
)
def test_any_schema_can_be_called(parameters, observation, seed):
    call = random_call(tool(parameters), observation, random.Random(seed))
    assert call.name == "f"
    assert type(call.arguments) is dict
    assert len(json.dumps(call.arguments)) <= 20_000


def test_arguments_are_of_the_kinds_asked_for():
    parameters = {
        "type": "object",
        "properties": {
            "account": {"type": "string", "enum": ["main", "savings"]},
            "amount": {"type": "integer", "minimum": 5, "maximum": 6},
            "tags": {"type": "array", "items": {"type": "boolean"}},
            "to": {"type": "object", "properties": {"desk": {"type": ["null"]}}, "required": ["desk"]},
            "note": {"type": "string"},
            "maybe": {"const": 1},
        },
        "required": ["account", "amount", "tags", "to", "note"],
    }
    calls = [random_call(tool(parameters), "Pay 'rent' now", random.Random(seed)) for seed in range(50)]
    for call in calls:
        assert call.arguments["account"] in ("main", "savings")
        assert call.arguments["amount"] in (5, 6)
        assert call.arguments["tags"] in ([True], [False])
        assert call.arguments["to"] == {"desk": None}
        assert call.arguments["note"] == "rent"
    for name in ("account", "amount"):
        assert len({call.arguments[name] for call in calls}) == 2
    assert {len(call.arguments) for call in calls} == {5, 6}


def test_too_much_is_not_said_at_all():
    parameters = {"properties": {"a": {"enum": ["é" * 10_000]}}, "required": ["a"]}
    assert random_call(tool(parameters), "", random.Random(0)).arguments == {}


@pytest.mark.parametrize(
    ("observation", "found"),
    [
        ("Pick left, right or up.", ["left", "right", "up"]),
        ("Pick left, right, or up.", ["left", "right", "up"]),
        ("(red/blue|green)", ["red", "blue", "green"]),
        ("Say 'open sesame' or \"go\" or \\boxed{yes} or `no`.", ["yes", "open sesame", "go", "no"]),
        ("Add 3 and -4.5.", ["3", "-4.5"]),
        ("It isn't Ann's.", []),
        ("Nothing here", []),
    ],
)  # fmt: skip
def test_what_looks_like_a_choice(observation, found):
    assert sorted(options(observation)) == sorted(found)


@pytest.mark.parametrize(
    "text", ["a" * 60_000, "a, " * 20_000, "a" + " " * 60_000 + "b", "'" * 60_000, "a,or " * 12_000]
)
def test_long_observations_are_read_at_once(text):
    for _ in range(20):
        random_answer(text, random.Random(0), has_tools=False)


def test_answers_are_options_half_of_the_time():
    """One option among nine words: said 1/2 + 1/2 * 1/9 = 0.56 of the time."""
    text = "of nine words just one is a number 7"
    said = [random_answer(text, random.Random(seed), has_tools=False) for seed in range(2000)]
    assert said.count("\\boxed{7}") / 2000 == pytest.approx(5 / 9, abs=0.04)
    assert set(said) == {f"\\boxed{{{word}}}" for word in words(text)}


def test_with_tools_one_calls_them_or_answers():
    tools = [tool({}), Tool(name="g", description="", parameters={})]
    actions = [random_action("say it", tools, random.Random(seed)) for seed in range(400)]
    calls = [action.name for action in actions if isinstance(action, ToolCall)]
    assert len(calls) / 400 == pytest.approx(0.75, abs=0.07)
    assert set(calls) == {"f", "g"}
    answers = {action for action in actions if isinstance(action, str)}
    assert answers == {"<answer>done</answer>", "<answer>say</answer>", "<answer>it</answer>"}
