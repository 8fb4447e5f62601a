import collections

import pytest

from spade_jax.grounding.builtin import NOUNS, builtin_documents
from spade_jax.grounding.excerpt import named_in

DOCUMENTS = [document for seed in range(5) for document in builtin_documents(seed)]


def test_nouns_are_short_and_none_contains_another():
    assert len(NOUNS) == len(set(NOUNS))
    assert all(noun.isascii() and noun.islower() and 3 <= len(noun) <= 7 for noun in NOUNS)
    assert not [(noun, other) for noun in NOUNS for other in NOUNS if noun != other and noun in other]


def nouns_in(text):
    return named_in(text, NOUNS)


@pytest.mark.parametrize("part", ["length", "nouns"])
def test_each_document_is_short_and_names_enough_things_early(part):
    for document in DOCUMENTS:
        words = document.text.split()
        if part == "length":
            assert 20 <= len(words) <= 40, document
            assert 2 <= document.text.count(".") <= 4, document
        else:
            early = nouns_in(" ".join(words[:24]))
            assert 4 <= len(early) <= 6, document
            assert nouns_in(document.text) == early


def test_documents_differ_and_use_the_whole_lexicon():
    documents = builtin_documents(0)
    assert len({document.text for document in documents}) == len(documents) == 400
    assert len({document.document_id for document in documents}) == len(documents)
    used = collections.Counter(noun for document in documents for noun in nouns_in(document.text))
    assert set(used) == set(NOUNS)
    assert len({nouns_in(document.text) for document in documents}) > 395


def test_a_seed_names_one_corpus():
    assert builtin_documents(3) == builtin_documents(3)
    assert builtin_documents(3) != builtin_documents(4)
