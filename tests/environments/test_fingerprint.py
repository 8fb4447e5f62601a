"""What makes two programs the same environment."""

import pytest

from spade_jax.environments.fingerprint import fingerprint
from tests.scripted import game

CODE = game("One")


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(lambda code: code.replace("\n", "  # a remark\n", 3), id="comments"),
        pytest.param(lambda code: code.replace("    ", "  "), id="indentation"),
        pytest.param(lambda code: code.replace("    def", "\n\n    def"), id="blank lines"),
        pytest.param(lambda code: code.replace('"wrong"', "'not this one'"), id="wording"),
        pytest.param(lambda code: code.replace("say {", "name {"), id="wording of an f-string"),
        pytest.param(lambda code: code.replace("(10, 99)", "(10,\n            99)"), id="line breaks"),
    ],
)
def test_layout_comments_and_wording_do_not_matter(same):
    assert same(CODE) != CODE
    assert fingerprint(same(CODE)) == fingerprint(CODE)


@pytest.mark.parametrize(
    ("old", "new"), [("(10, 99)", "(10, 98)"), ("turns = 1", "turns = 2"), ("-1.0", "0.0"), ("True", "False")]
)
def test_numbers_and_rules_do(old, new):
    assert fingerprint(CODE.replace(old, new)) != fingerprint(CODE)


@pytest.mark.parametrize("text", ["def (", "if True:", "class A\n"])
def test_what_is_not_python_has_none(text):
    with pytest.raises(SyntaxError):
        fingerprint(text)
