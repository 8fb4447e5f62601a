import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.text.extract import (
    MAX_HINT_CHARACTERS,
    ExtractionError,
    action_for_environment,
    extract_boxed,
    extract_design,
)

CODE = "class WalkEnv:\n\n    text = '``` {'\n\tpass  \n"


def reply(code: str = CODE, hint: str = "go up") -> str:
    return f"```python\n{code}```\nHint: {hint}"


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        (reply(), CODE, "go up"),
        ("Here it is.\n" + reply() + "\nGood luck.", CODE, "go up"),
        (reply(hint="  spaces \t"), CODE, "spaces"),
        (reply() + "\nHint: a second one", CODE, "go up"),
        ("Hint: too early\n" + reply(), CODE, "go up"),
        (reply() + "\n" + reply("other = 1\n", "other"), CODE, "go up"),
        (f"```python  \n{CODE}```  \n\nHint: go up\n", CODE, "go up"),
        ("<think>\n" + reply("draft = 1\n", "draft") + "</think>\n" + reply(), CODE, "go up"),
        (reply(hint="x" * MAX_HINT_CHARACTERS), CODE, "x" * MAX_HINT_CHARACTERS),
        # What does not run is for the sandbox to find, not for the parser to mend.
        (reply("def f(:\n"), "def f(:\n", "go up"),
    ],
)
def test_a_design_is_found_as_it_was_written(text: str, code: str, hint: str):
    assert extract_design(text) == (code, hint)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "no_code"),
        ("class WalkEnv: pass\nHint: go up", "no_code"),
        (reply().replace("python", "py"), "no_code"),
        (reply().replace("python\n", "python "), "no_code"),
        ("text ```python\npass\n```\nHint: go up", "no_code"),
        ("<think>" + reply(), "no_code"),
        ("<think>" + reply() + "</think>", "no_code"),
        ("```python\npass\n", "unterminated_code"),
        ("```python\npass```\nHint: go up", "unterminated_code"),
        ("```python\npass\n```Hint: go up", "unterminated_code"),
        (reply(""), "empty_code"),
        (reply("  \n\n"), "empty_code"),
        ("```python\npass\n```\n", "no_hint"),
        ("```python\npass\n```\nhint: go up", "no_hint"),
        ("Hint: go up\n```python\npass\n```", "no_hint"),
        (reply(hint="  "), "no_hint"),
        (reply(hint="\nHint: below an empty one"), "no_hint"),
        (reply(hint="x" * (MAX_HINT_CHARACTERS + 1)), "long_hint"),
    ],
)
def test_each_missing_part_has_its_kind(text: str, kind: str):
    with pytest.raises(ExtractionError) as caught:
        extract_design(text)
    assert caught.value.kind == kind
    assert str(caught.value).startswith(kind)


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        ("", None),
        ("up", None),
        ("\\boxed{up}", "up"),
        ("I go \\boxed{up} now", "up"),
        ("\\boxed{up} or \\boxed{down}", "down"),
        ("\\boxed{up} or \\boxed{down", "up"),
        ("\\boxed{oops \\boxed{up}", "up"),
        ("\\boxed{}", ""),
        ("\\boxed{ up }", " up "),
        ("\\boxed{a{b}c}", "a{b}c"),
        ("\\boxed{{a}}", "{a}"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\boxed{3}}", "3"),
        ("\\boxed{a{b}", None),
        ("\\boxed{a}}", "a"),
        ("} } \\boxed{a} {", "a"),
        ("{ \\boxed{a}", "a"),
        ("boxed{a} \\boxed a \\boxed {a}", None),
        ("\\boxed{two\nlines}", "two\nlines"),
        ("<think>\\boxed{up}</think>", None),
        ("<think>\\boxed{up}</think>\\boxed{down}", "down"),
        ("\\boxed{up}</think>no", None),
        ("<think>a</think>\\boxed{up}</think>\\boxed{down}", "down"),
        ("  <think>\\boxed{up}", None),
    ],
)
def test_the_last_complete_box_counts(text: str, boxed: str | None):
    assert extract_boxed(text) == boxed


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("\\boxed{up}", "\\boxed{up}"),
        ("I say \\boxed{ up }.", "\\boxed{up}"),
        ("  up\n", "up"),
        ("<think>\\boxed{left}</think> up ", "up"),
        ("<think>never closed \\boxed{left}", ""),
        ("\\boxed{}", "\\boxed{}"),
        ("", ""),
    ],
)
def test_an_action_is_a_box_or_the_whole_answer(text: str, action: str):
    assert action_for_environment(text) == action


def test_a_hint_that_is_asked_for_elsewhere_is_not_read():
    assert extract_design(f"```python\n{CODE}```\n", needs_hint=False) == (CODE, "")
    assert extract_design(reply(hint="x" * (MAX_HINT_CHARACTERS + 1)), needs_hint=False) == (CODE, "")
    with pytest.raises(ExtractionError, match="no_code"):
        extract_design("Hint: go up", needs_hint=False)


BALANCED = st.recursive(
    st.text(alphabet="ab \n", max_size=3),
    lambda inner: st.lists(inner | inner.map("{{{}}}".format), max_size=3).map("".join),
    max_leaves=6,
)


@given(
    before=st.text(alphabet="ab{}\\ \n", max_size=10), content=BALANCED, after=st.text("ab \n{", max_size=5)
)
def test_a_balanced_box_is_found_in_any_surroundings(before: str, content: str, after: str):
    assert extract_boxed(f"{before}\\boxed{{{content}}}{after}") == content


@given(text=st.text(alphabet="\\boxed{}<think>/ `python\nHit:", max_size=60))
def test_no_text_breaks_the_parsers(text: str):
    boxed = extract_boxed(text)
    assert boxed is None or f"\\boxed{{{boxed}}}" in text
    try:
        code, hint = extract_design(text)
    except ExtractionError:
        return
    assert code in text
    assert hint in text
