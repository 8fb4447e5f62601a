"""What the roles are told, and that a reply is read as it was written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.config import with_overrides
from spade_jax.errors import ContextOverflow
from spade_jax.memory.environment_memory import compact
from spade_jax.roles.agent import action_reply, first_message, next_message
from spade_jax.roles.designer import (
    design_reply,
    designer_messages,
    fitting_messages,
    read_design,
    repair_message,
)
from spade_jax.text.chat import NativeChat
from spade_jax.text.extract import ExtractionError, action_for_environment
from spade_jax.types import DesignContext, Document, EnvironmentSource, MemoryRecord
from tests.scripted import small_tokenizer
from tests.tiny import get_config

DOCUMENT = Document(document_id="d7", text="The  fox\nsold a drum,\ttwo bells and one kite near the mill.")


def record(name: str, *, win_rate: float) -> MemoryRecord:
    source = EnvironmentSource(
        environment_id=name,
        skill="Spatial Reasoning",
        code=f"class {name}Env:\n    size = 3\n    def reset(self): pass\n",
        hint="go",
    )
    return MemoryRecord(source=source, win_rate=win_rate, regret=0.25, cycle=1)


def context(**fields) -> DesignContext:
    return DesignContext(
        **{"environment_id": "e", "skill": "Spatial Reasoning", "document": DOCUMENT} | fields
    )


def test_the_designer_is_told_skill_document_and_memory_a_line_each():
    good, bad = record("Good", win_rate=0.5), record("Bad", win_rate=1.0)
    (message,) = designer_messages(
        context(positives=(good,), negative=bad), config=get_config(), excerpt_words=5
    )
    assert message.role == "user"
    assert message.content.splitlines() == [
        "Skill: Spatial Reasoning",
        "Document: The fox sold a drum,",
        f"Good: {compact(good)}",
        f"Bad: {compact(bad)}",
        "Design an environment.",
    ]


def test_without_document_and_memory_only_the_skill_is_left():
    (message,) = designer_messages(context(document=None), config=get_config(), excerpt_words=5)
    assert message.content.splitlines() == ["Skill: Spatial Reasoning", "Design an environment."]


def test_difficulty_and_change_have_a_line_where_they_are_asked_for():
    good, parent = record("Good", win_rate=0.5), record("Parent", win_rate=0.5)
    asked = context(difficulty="hard", positives=(good,), parent=parent, change="easier")
    (message,) = designer_messages(asked, config=get_config(), excerpt_words=2)
    assert message.content.splitlines() == [
        "Skill: Spatial Reasoning",
        "Difficulty: hard",
        "Document: The fox",
        f"Good: {compact(good)}",
        f"Make easier: {compact(parent)}",
        "Design an environment.",
    ]


def test_a_document_longer_than_a_prompt_stays_outside_it():
    document = Document(document_id="long", text=" ".join(f"word{number}" for number in range(100_000)))
    (message,) = designer_messages(context(document=document), config=get_config(), excerpt_words=24)
    assert message.content.split("\n")[1] == "Document: " + " ".join(f"word{number}" for number in range(24))


@pytest.fixture(scope="module")
def tokenizer():
    return small_tokenizer()


def drums(tokenizer, *overrides):
    """A config, and a designer's prompt with a document of a thousand words."""
    roomy = ["sampling.max_context=1024", "update.row_length=1024"]
    config = with_overrides(get_config(), [*roomy, *overrides])
    document = Document(document_id="drums", text="drum " * 1000)
    chat = NativeChat(tokenizer)
    return config, chat.prompt(fitting_messages(context(document=document), chat, config))


def test_a_document_gives_way_to_the_reply(tokenizer):
    config, prompt = drums(tokenizer, "corpus.excerpt_words=1000", "designer.max_tokens=600")
    assert len(prompt) + config.designer.max_tokens <= config.sampling.max_context
    text = tokenizer.decode(prompt)
    assert 10 < text.count("drum") < 1000
    assert text.endswith("Design an environment.<|end|><|assistant|>")


def test_a_prompt_that_fits_carries_the_whole_excerpt(tokenizer):
    _, prompt = drums(tokenizer, "corpus.excerpt_words=20")
    assert tokenizer.decode(prompt).count("drum") == 20


def test_a_context_without_room_for_any_prompt_is_an_error(tokenizer):
    with pytest.raises(ContextOverflow, match=r"raise max_context"):
        drums(tokenizer, "designer.max_tokens=1020")


# Without "<": what stands before a closing tag of thinking is no part of an answer.
lines = st.lists(st.text(st.characters(exclude_characters="<\r\n", exclude_categories=["Cs"])))


@settings(max_examples=200)
@given(body=lines, hint=st.text(st.characters(exclude_characters="<\r\n", exclude_categories=["Cs"])))
def test_a_design_is_read_back_character_by_character(body, hint):
    code = "".join(f"    {line}\n" for line in ["x = 1", *body])  # indented: no line is a fence
    if not hint.strip():
        hint += "go"
    source = read_design(context(), design_reply(code, hint))
    assert (source.code, source.hint) == (code, hint.strip())
    assert (source.environment_id, source.skill, source.document_id) == ("e", "Spatial Reasoning", "d7")


def test_a_design_without_grounding_has_no_document():
    source = read_design(context(document=None), design_reply("x = 1\n", "go"))
    assert source.document_id == ""


def test_a_design_whose_hint_is_asked_for_separately_brings_none():
    assert read_design(context(), "```python\nx = 1\n```\n", needs_hint=False).hint == ""
    assert read_design(context(), design_reply("x = 1\n", "go"), needs_hint=False).hint == ""


def test_a_rejected_design_is_asked_for_again_with_the_reason():
    message = repair_message("load: NameError: name 'rnd' is not defined (line 7)")
    assert message.role == "user"
    assert "load: NameError: name 'rnd' is not defined (line 7)" in message.content.splitlines()


@pytest.mark.parametrize("cut", [3, 14, 20, 25])
def test_a_reply_that_was_cut_off_is_not_completed(cut):
    reply = design_reply("x = 1\n", "go")
    assert read_design(context(), reply).code == "x = 1\n"
    with pytest.raises(ExtractionError):
        read_design(context(), reply[:cut])


def test_the_conditions_differ_in_the_hint_line_alone():
    plain, hinted = first_message("say 3", hint=None), first_message("say 3", hint="say what it says")
    assert hinted.role == plain.role == "user"
    assert hinted.content == plain.content + "\n\nHINT: say what it says"
    assert "HINT" not in plain.content
    assert plain.content.endswith("say 3")


@pytest.mark.parametrize("prompt", ["compact", "full"])
@pytest.mark.parametrize("setting", ["games", "tool_use"])
def test_in_every_wording_the_hint_line_is_the_only_difference(prompt, setting):
    plain, hinted = (
        first_message("say 3", hint=hint, prompt=prompt, setting=setting) for hint in (None, "say it")
    )
    assert hinted.content == plain.content + "\n\nHINT: say it"
    assert plain.content.endswith("say 3")


def test_a_game_is_explained_and_tools_are_not():
    assert first_message("say 3", hint=None).content == "Reply with \\boxed{action}.\nsay 3"
    full = first_message("say 3", hint=None, prompt="full").content
    assert "\\boxed{}" in full
    assert full.endswith("Observation:\nsay 3")
    for prompt in ("compact", "full"):
        assert first_message("say 3", hint=None, prompt=prompt, setting="tool_use").content == "say 3"


def test_later_observations_are_passed_on_as_they_are():
    assert next_message("now 4").content == "now 4"
    assert next_message("now 4").role == "user"


@given(action=st.text(st.characters(exclude_characters="<\\{}", exclude_categories=["Cs"])))
def test_an_action_is_read_back(action):
    assert action_for_environment(action_reply(action)) == f"\\boxed{{{action.strip()}}}"
