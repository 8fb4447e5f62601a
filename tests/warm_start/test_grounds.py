"""Examples are about the built-in scenes, and about a corpus of the user's own where there is one."""

import pytest

from spade_jax.grounding.builtin import NOUNS
from spade_jax.types import Document
from spade_jax.warm_start.grounds import NO_WORD, Grounds
from spade_jax.warm_start.syllabus import GAMES, TOOL_USE

BUILTIN = Grounds.builtin(3, excerpt_words=8)


def corpus(num):
    """Documents about a magnet or a hormone, which also say what programs say."""
    return [
        Document(
            document_id=str(number),
            text=f"Section {number} {('trap magnet', 'price hormone')[number % 2]} " + "and so on " * 9,
        )
        for number in range(num)
    ]


def test_the_first_subject_of_the_excerpt_is_the_word():
    def word(text):
        return BUILTIN.word_for(Document(document_id="", text=text))

    assert word("Mara left a Kite and a lamp by the mill") == "kite"
    assert word("one two three four five six seven eight kite") == NO_WORD
    assert BUILTIN.word_for(None) == NO_WORD


def test_a_corpus_adds_its_documents_and_subjects():
    documents = corpus(30)
    grounds = BUILTIN.with_corpus(documents, seed=0)
    assert list(grounds.documents) == [*BUILTIN.documents, *documents]
    assert grounds.subjects[: len(NOUNS)] == NOUNS
    assert [grounds.word_for(document) for document in documents[:2]] == ["magnet", "hormone"]
    assert {grounds.word_for(document) for document in BUILTIN.documents} <= {*NOUNS, NO_WORD}


def test_of_a_large_corpus_the_seed_chooses_a_part():
    documents = corpus(2000)
    parts = [
        BUILTIN.with_corpus(documents, seed=seed).documents[len(BUILTIN.documents) :] for seed in (0, 0, 1)
    ]
    assert parts[0] == parts[1] != parts[2]
    assert [len({document.document_id for document in part}) for part in parts] == [800] * 3


@pytest.mark.parametrize("family", [*GAMES.families, *TOOL_USE.families], ids=lambda f: f.name)
def test_no_subject_is_a_word_that_programs_use_for_something_else(family):
    subjects = BUILTIN.with_corpus(corpus(30), seed=0).subjects
    words = family.source(family.taught[-1], NO_WORD) + family.hint(family.taught[-1])
    assert not [subject for subject in subjects if f" {subject} " in words]


def test_a_corpus_that_is_not_written_in_words_adds_no_subject():
    grounds = BUILTIN.with_corpus([Document(document_id="n", text="3 1 4 1 5")], seed=0)
    assert grounds.subjects == NOUNS
