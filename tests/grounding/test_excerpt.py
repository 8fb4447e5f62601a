import random

from hypothesis import given
from hypothesis import strategies as st

from spade_jax.grounding.builtin import NOUNS
from spade_jax.grounding.excerpt import common_subjects, excerpt, named_in
from spade_jax.types import Document

TOPICS = ("magnet", "velocity", "hormone", "tariff")
FILLERS = ("about", "section", "which", "these", "there", "would")


@given(text=st.text(), num_words=st.integers(1, 30))
def test_an_excerpt_is_one_line_of_the_first_words(text, num_words):
    words = excerpt(text, num_words).split(" ")
    assert len(words) <= num_words
    assert words == (text.split()[:num_words] or [""])
    assert len(excerpt(text, num_words).splitlines()) <= 1


def test_subjects_named_are_distinct_whole_words_in_order_of_appearance():
    text = "A Drum, the lamp; drums and a DRUM by the mill. Figs? fig."
    assert named_in(text, NOUNS) == ("drum", "lamp", "mill", "fig")
    assert named_in("Nothing of the kind", NOUNS) == ()


def textbook(*, topic_first=True):
    """Forty documents, each on one topic among words that all of them have."""
    rng = random.Random(0)
    documents = []
    for number in range(40):
        topic = TOPICS[number % len(TOPICS)]
        head = [topic, *rng.sample(FILLERS, 5)]
        body = [*rng.choices(FILLERS, k=80), *[topic] * 5]
        words = head + body if topic_first else body + head
        documents.append(Document(document_id=str(number), text=" ".join(words).capitalize() + "."))
    return documents


def chosen(documents, **changed):
    parts = {"num": 4, "excerpt_words": 6, "reserved": ()} | changed
    return common_subjects(documents, **parts)


def test_subjects_are_what_tells_documents_apart_not_what_they_share():
    assert set(chosen(textbook())) == set(TOPICS)
    assert not set(chosen(textbook(), num=99)) - {*TOPICS, *FILLERS}


def test_subjects_stand_where_a_prompt_shows_them():
    assert not set(chosen(textbook(topic_first=False))) & set(TOPICS)


def test_what_means_something_else_is_no_subject():
    assert "magnet" not in chosen(textbook(), num=99, reserved={"magnet"})


def test_no_subject_contains_another_and_none_is_long_or_short():
    texts = ["cell cells", "cellular walls", "extraordinarily", "ion ions", "nucleus", "atom 4 2", "atoms"]
    documents = [Document(document_id=text, text=text) for text in texts]
    found = chosen(documents, num=99)
    assert {"cell", "nucleus", "walls", "ions", "atom"} == set(found)


def test_the_order_of_documents_is_no_matter_and_a_corpus_without_words_has_none():
    documents = textbook()
    assert chosen(documents[::-1], num=99) == chosen(documents, num=99)
    assert chosen([Document(document_id="n", text="1 2 3"), Document(document_id="m", text="4")]) == ()
    assert chosen([]) == ()
