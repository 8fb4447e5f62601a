import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.text.tool_calls import (
    MAX_ARGUMENTS_DEPTH,
    ToolCall,
    ToolReply,
    format_reminder,
    read_action,
)

SCHEMAS = {
    "f": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "on": {"type": "boolean"},
            "rows": {"type": "array"},
            "maybe": {"type": ["string", "null"]},
            "price": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            "any": {},
        },
    }
}


def block(content: str) -> str:
    return f"<tool_call>\n{content}\n</tool_call>"


def parameters(**values: str) -> str:
    inside = "\n".join(f"<parameter={key}>\n{value}\n</parameter>" for key, value in values.items())
    return f"<function=f>\n{inside}\n</function>"


def calls(text: str) -> list[tuple[str, dict]]:
    """The calls of a reply that is all readable and has no answer."""
    reply = read_action(text, SCHEMAS)
    assert (reply.answer, reply.malformed) == (None, "")
    return [(call.name, call.arguments) for call in reply.calls]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "f", "arguments": {"a": {"b": [1, {"c": null}]}}}', {"a": {"b": [1, {"c": None}]}}),
        ('{"name": "f", "parameters": {"a": 1}}', {"a": 1}),
        ('{"name": "f", "arguments": "{\\"a\\": {\\"b\\": 1}}"}', {"a": {"b": 1}}),
        ('{"name": "f"}', {}),
        ('{"name": "f", "arguments": null}', {}),
        ('{"name": "f", "arguments": ""}', {}),
        ('```json\n{"name": "f", "arguments": {"a": 1}}\n```', {"a": 1}),
        ('```\n{"name": "f", "arguments": {"a": "```"}}\n```', {"a": "```"}),
        ('{"name": "f", "arguments": {"a": "\\u00e9\\ud83d\\ude42 é🙂"}}', {"a": "é🙂 é🙂"}),
        ('{"name": "f", "arguments": {"a": "two\nlines"}}', {"a": "two\nlines"}),
        ('{"name": "f", "arguments": {"a": "</tool_call><answer>1</answer>"}}',
         {"a": "</tool_call><answer>1</answer>"}),
        ("<function=f></function>", {}),
        ("<function=f>\n</function>", {}),
        ("```xml\n<function=f><parameter=count>3</parameter></function>\n```", {"count": 3}),
        ("<function=f><parameter=text>a <b> </tool_call> {c}</parameter></function>",
         {"text": "a <b> </tool_call> {c}"}),
    ],
)  # fmt: skip
def test_both_forms_keep_arguments_whole(text: str, arguments: dict):
    assert calls(block(text)) == calls(f"<tool_call>{text}</tool_call>") == [("f", arguments)]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        # What asks for a string keeps its text.
        ("text", "12", "12"),
        ("text", '"quoted"', '"quoted"'),
        ("text", "null", "null"),
        ("text", "", ""),
        ("text", "  def f():\n      pass\n\n  return", "  def f():\n      pass\n\n  return"),
        # What asks for something else is read as JSON, or as Python's words.
        ("count", " 12 ", 12),
        ("ratio", "12", 12),
        ("on", "true", True),
        ("on", "False", False),
        ("rows", '[1, {"a": "b"}]', [1, {"a": "b"}]),
        ("rows", "[1, 2", "[1, 2"),
        ("count", "twelve", "twelve"),
        # Of several types a string is the last resort.
        ("maybe", "None", None),
        ("maybe", "12", "12"),
        ("price", "12", 12),
        ("price", "true", "true"),
        ("price", "$12", "$12"),
        # Where nothing is declared the text decides.
        ("any", "12", 12),
        ("any", '"12"', "12"),
        ("unknown", "{}", {}),
        ("unknown", "{", "{"),
    ],
)
def test_a_parameters_schema_says_what_its_text_means(name: str, text: str, value: object):
    [(_, arguments)] = calls(block(parameters(**{name: text})))
    assert arguments == {name: value}
    assert type(arguments[name]) is type(value)


@pytest.mark.parametrize("schemas", [{}, {"f": []}, {"f": {"properties": 3}}, {"f": {"properties": {"a": 3}}},
    {"f": {"properties": {"a": {"type": {}, "anyOf": [3]}}}}])  # fmt: skip
def test_schemas_of_any_shape_do(schemas: dict):
    [call] = read_action(block(parameters(a="12")), schemas).calls
    assert call.arguments == {"a": 12}


@pytest.mark.parametrize(
    "text",
    [
        block('{"name": "f", "arguments": {"n": 1}}') + block('{"name": "g", "arguments": {"n": 2}}'),
        block('[{"name": "f", "arguments": {"n": 1}}, {"name": "g", "arguments": {"n": 2}}]'),
        block('{"name": "f", "arguments": {"n": 1}}\n{"name": "g", "arguments": {"n": 2}}'),
        block('{"name": "f", "arguments": {"n": 1}}') + " and then " + block(
            "<function=g><parameter=n>2</parameter></function>"),
        block("<function=f><parameter=n>1</parameter></function>\n"
              "<function=g><parameter=n>2</parameter></function>"),
    ],
)  # fmt: skip
def test_several_calls_come_in_order(text: str):
    assert calls(text) == [("f", {"n": 1}), ("g", {"n": 2})]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "empty"),
        ("[]", "empty"),
        ("f(a=1)", "no JSON"),
        ('{"name": "f", "arguments": {"a": 1}', "no JSON"),
        ('{"name": "f", "arguments": {"a": 1}}}', "no JSON"),
        ('{"name": "f"} please', "no JSON, Expecting value at 'please"),
        ("{'name': 'f'}", "no JSON"),
        ('{"name": "f", "arguments": {"a": ' + "9" * 5000 + "}}", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('"f"', '"name"'),
        ("[[]]", '"name"'),
        ('{"tool": "f"}', '"name"'),
        ('{"name": ""}', '"name"'),
        ('{"name": 3, "arguments": {}}', '"name"'),
        ('{"name": "f", "arguments": [1]}', "array, not an object"),
        ('{"name": "f", "arguments": "three"}', "arguments are no JSON"),
        ('{"name": "f", "arguments": "3"}', "integer, not an object"),
        ('{"name": "f", "arguments": {"a": ' + "[" * 32 + "]" * 32 + "}}", "32 deep"),
        ("<function=>", "<function=NAME>"),
        ("<function=f>", "</function>"),
        ("<function=f><parameter=a>1</function>", "<parameter=a> does not end"),
        ("<function=f><parameter=a>1<parameter=b>2</parameter></function>", "<parameter=a> does not end"),
        ("<function=f><parameter=a>1</parameter> or <parameter=b>2</parameter>", "'or <parameter="),
        ("<function=f>a=1</function>", "'a=1</function>"),
        ("<tool_call>", "no JSON"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(content: str, reason: str):
    good = block('{"name": "f"}')
    reply = read_action(f"I call {good} {block(content)} {good}", SCHEMAS)
    assert reason in reply.malformed
    # What came before is a call; what came after counted on the one that is lost.
    assert reply.calls == (ToolCall(name="f", arguments={}),)
    assert reply.malformed in format_reminder(reply.malformed)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        '<tool_call>{"name": "f", "arguments": {}}',
        '<tool_call>{"name": "f", "arguments": {}}<tool_call>',
        '{"name": "f", "arguments": {}}</tool_call>',
        "<function=f></function>",
    ],
)
def test_a_call_needs_both_its_tags(text: str):
    reply = read_action(text, SCHEMAS)
    assert reply.calls == ()
    assert "tool_call>" in reply.malformed
    assert reply.action == text


def test_arguments_as_deep_as_allowed():
    deep = "[" * (MAX_ARGUMENTS_DEPTH - 1) + "]" * (MAX_ARGUMENTS_DEPTH - 1)
    assert calls(block('{"name": "f", "arguments": {"a": ' + deep + "}}")) == [("f", {"a": json.loads(deep)})]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>7</answer>", "7"),
        ("It is <answer>\n 7 \n</answer>.", "7"),
        ("<answer></answer>", ""),
        ("<answer>7</answer> or <answer>8</answer>", "7"),
        (block('{"name": "f"}') + "<answer>7</answer>", "7"),
        ("<answer>7</answer>" + block('{"name": "f"}'), "7"),
        (block("{") + "<answer>7</answer>", "7"),
        ("<tool_call> <answer>7</answer>", "7"),
        ("<think><answer>6</answer></think><answer>7</answer>", "7"),
        (block('{"name": "f", "arguments": {"a": "<answer>6</answer>"}}') + "<answer>7</answer>", "7"),
        ("<answer>two\nlines</answer>", "two\nlines"),
    ],
)
def test_an_answer_beats_calls(text: str, answer: str):
    expected = ToolReply(answer=answer, calls=(), malformed="", action=f"<answer>{answer}</answer>")
    assert read_action(text, SCHEMAS) == expected


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("", ""),
        ("  Let me see. ", "Let me see."),
        ("<answer>7", "<answer>7"),
        ("7</answer>", "7</answer>"),
        ("<think>" + block('{"name": "f"}') + "<answer>7</answer></think> Well.", "Well."),
        (block('{"name": "f"}') + "</think> Well.", "Well."),
        ("<think>" + block('{"name": "f"}'), ""),
    ],
)
def test_what_is_neither_answer_nor_call(text: str, action: str):
    assert read_action(text, SCHEMAS) == ToolReply(answer=None, calls=(), malformed="", action=action)


def test_a_reminder_shows_a_form_that_can_be_read():
    reminder = format_reminder("it is empty")
    assert reminder.startswith("\n\n")
    assert calls(reminder) == [("the tool", {"its parameter": "the value"})]


# `</think>` is the one text that no call can hold, as it ends the thinking wherever it stands.
TEXT = st.lists(
    st.text(max_size=5)
    | st.sampled_from(
        ["<tool_call>", "</tool_call>", "<answer>", "</answer>", "</function>", "<parameter=a>", "```", "\n"]
    ),
    max_size=5,
).map("".join)
KEYS = TEXT.filter(lambda key: key and not set(key) & set("<>\n"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CHATTER = st.text(alphabet=st.characters(exclude_characters="<>"), max_size=20)


@given(
    before=CHATTER,
    arguments=st.dictionaries(TEXT, VALUES, max_size=4),
    escaped=st.booleans(),
    as_text=st.booleans(),
    fenced=st.booleans(),
    after=CHATTER,
)
def test_any_arguments_survive_as_json(before, arguments, escaped, as_text, fenced, after):
    sent = json.dumps(arguments, ensure_ascii=escaped) if as_text else arguments
    content = json.dumps({"name": "f", "arguments": sent}, ensure_ascii=escaped)
    content = f"```json\n{content}\n```" if fenced else content
    assert calls(before + block(content) + after) == [("f", arguments)]


@given(before=CHATTER, arguments=st.dictionaries(KEYS, VALUES, max_size=4), after=CHATTER)
def test_any_arguments_survive_as_parameters(before, arguments, after):
    # No schema, so a string is written as JSON too, in which no tag need appear.
    values = {key: json.dumps(value).replace("<", "\\u003c") for key, value in arguments.items()}
    [call] = read_action(before + block(parameters(**values)) + after, {}).calls
    assert (call.name, call.arguments) == ("f", arguments)


@given(text=TEXT.filter(lambda text: "parameter" not in text))
def test_any_text_survives_as_it_is(text: str):
    assert calls(block(parameters(text=text))) == [("f", {"text": text})]


PIECES = st.lists(
    st.sampled_from(
        [
            "<tool_call>", "</tool_call>", "<answer>", "</answer>", "<think>", "</think>", "<function=f>",
            "</function>", "<parameter=a>", "</parameter>", "```", "```json\n", '{"name": "f"', "}", "[", "]",
            ', "arguments": ', '"', "{", ",", "\\", "1", "NaN", "\n", "é", "\ud800",
        ]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@given(text=PIECES | st.text(max_size=40))
def test_any_text_can_be_read(text: str):
    reply = read_action(text, SCHEMAS)
    assert format_reminder(reply.malformed)
    if reply.answer is not None:
        assert (reply.calls, reply.malformed) == ((), "")
        assert f"<answer>{reply.answer}</answer>" == reply.action
    else:
        assert reply.action in text
    for call in reply.calls:
        json.dumps([call.name, call.arguments])


@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>", "<answer>", "</answer>", "<function=f>", " ", "```",
        "<tool_call><function=f><parameter=a>",
        '<answer><tool_call>{"name": "f"}</tool_call>', "<tool_call>[", "<tool_call>" + "{",
        "<tool_call><function=f><parameter=a>1</parameter>",
    ],
)  # fmt: skip
def test_no_reply_takes_long(piece: str):
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    read_action(text, SCHEMAS)
    read_action("<tool_call>" + text + "</tool_call>", SCHEMAS)
    assert time.process_time() - started < 2
