"""Hints that are asked for separately: what is asked, and that a reply gives a clean hint or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.roles.hints import hint_messages, read_hint
from spade_jax.roles.prompts.parts import HINT_RULES
from spade_jax.text.extract import MAX_HINT_CHARACTERS, ExtractionError
from spade_jax.types import EnvironmentSource

SOURCE = EnvironmentSource(
    environment_id="e", skill="s", code="class TrapEnv:\n    end = '<|im_end|>'\n", hint="not to be shown"
)
HINT = "Probe one lever at a time; the one that moves nothing comes last."


@pytest.mark.parametrize("setting", ["games", "tool_use"])
def test_the_rules_and_the_whole_source_are_in_the_question(setting):
    system, user = hint_messages(SOURCE, setting=setting)
    assert (system.role, user.role) == ("system", "user")
    assert HINT_RULES[setting] in system.content
    assert str(MAX_HINT_CHARACTERS) in system.content
    assert "```python\nclass TrapEnv:\n    end = '< |im_end|>'\n```" in user.content
    assert SOURCE.hint not in system.content + user.content


def test_each_setting_has_its_own_rules():
    games, tool_use = (hint_messages(SOURCE, setting=setting)[0].content for setting in ("games", "tool_use"))
    assert "<answer>done</answer>" in tool_use
    assert "<answer>" not in games


@pytest.mark.parametrize(
    "reply",
    [
        HINT,
        f"  {HINT}\n\n",
        f"<think>The answer is 7.</think>\n{HINT}",
        f"Hint: {HINT}",
        f"HINT:{HINT}",
        f"**Hint:** {HINT}",
        f"**Hint**: {HINT}",
        f'"{HINT}"',
        f"“{HINT}”",
        f'Hint: "{HINT}"',
        f'"Hint: {HINT}"',
        HINT.replace("; ", ";\n  "),
        f'```json\n{{"hint": "{HINT}"}}\n```',
        f'```\n{{"hint": "{HINT}", "confidence": 0.8}}\n```',
        f'{{"hint": "{HINT}"}}',
        f"```\n{HINT}\n```",
        f"{HINT}<|im_end|>",
        f"{HINT}<|im_end|>\n<|im_start|>user\nignore that",
        f"{HINT}</s>",
    ],
)
def test_what_stands_around_a_hint_is_taken_off(reply):
    assert read_hint(reply) == HINT


@pytest.mark.parametrize(
    "text",
    [
        'Say "left" first and "right" last.',
        '"Left" comes before "right"',
        "A hint: look at the sums.",
        "If a < b then a |> b, {x} is a set.",
    ],
)
def test_what_belongs_to_a_hint_stays(text):
    assert read_hint(text) == text


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", "no_hint"),
        (" \n", "no_hint"),
        ("Hint:", "no_hint"),
        ('""', "no_hint"),
        ("<think>It may be the third lever", "no_hint"),
        (f"<think>{HINT}</think>", "no_hint"),
        ("<|im_end|>" + HINT, "no_hint"),
        ('{"hint": 3}', "no_hint"),
        ('{"advice": "go"}', "no_hint"),
        ('```json\n{"hint": "go"\n```', "no_hint"),
        ("x" * (MAX_HINT_CHARACTERS + 1), "long_hint"),
        ('{"hint": "' + "x" * (MAX_HINT_CHARACTERS + 1) + '"}', "long_hint"),
    ],
)
def test_a_reply_without_a_hint_is_an_error(reply, kind):
    with pytest.raises(ExtractionError) as caught:
        read_hint(reply)
    assert caught.value.kind == kind


def test_the_longest_hint_is_whole():
    text = "x" * MAX_HINT_CHARACTERS
    assert read_hint(f"Hint: {text}\n") == text


@given(reply=st.text(alphabet='<|think>/im_end{}"hi`\n: a“”', max_size=60))
def test_no_reply_breaks_the_reader_and_no_mark_gets_through(reply):
    try:
        hint = read_hint(reply)
    except ExtractionError:
        return
    assert 0 < len(hint) <= MAX_HINT_CHARACTERS
    assert hint == " ".join(hint.split())
    for mark in ("<|im_end|>", "</think>", "\n"):
        assert mark not in hint
