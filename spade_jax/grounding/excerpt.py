"""What a prompt shows of a document, and the words there that an environment can be about."""

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence

from spade_jax.types import Document

_WORD = re.compile(r"[^\W\d_]+")
_SHORTEST, _LONGEST = 4, 10
_VOTES = 3


def excerpt(text: str, num_words: int) -> str:
    """The first words of a document, with runs of white space made one space."""
    return " ".join(text.split()[:num_words])


def named_in(text: str, subjects: Collection[str]) -> tuple[str, ...]:
    """The distinct `subjects`, which are lower-case words, that `text` names, in order of appearance."""
    return tuple(dict.fromkeys(word for word in words_of(text) if word in subjects))


def common_subjects(
    documents: Sequence[Document], *, num: int, excerpt_words: int, reserved: Collection[str]
) -> tuple[str, ...]:
    """Words that tell the documents of a corpus apart and stand where a prompt shows them.

    Each document votes for the three words of its excerpt that are most its own: those with the
    greatest count in it times the logarithm of one over the share of documents that have them (tf-idf;
    Spärck Jones 1972). The words with the most votes are chosen, so that most excerpts name one and a
    small model meets each often.

    Args:
      documents: the corpus.
      num: most words to choose.
      excerpt_words: words of a document that a prompt shows.
      reserved: lower-case words that mean something else already.

    Returns:
      At most `num` lower-case words of four to ten letters, the most voted for first; no one contains
      another. Where the documents are not written in words there may be none.
    """
    counts = [Counter(words_of(document.text)) for document in documents]
    num_with = Counter(word for count in counts for word in count)
    votes: Counter[str] = Counter()
    for document, count in zip(documents, counts, strict=True):
        shown = {
            word
            for word in words_of(excerpt(document.text, excerpt_words))
            if _SHORTEST <= len(word) <= _LONGEST and word not in reserved and num_with[word] < len(documents)
        }
        own = {word: count[word] * math.log(len(documents) / num_with[word]) for word in shown}
        votes.update(sorted(own, key=lambda word: (-own[word], word))[:_VOTES])

    chosen: list[str] = []
    for word in sorted(votes, key=lambda word: (-votes[word], word)):
        if len(chosen) == num:
            break
        if not any(word in other or other in word for other in chosen):
            chosen.append(word)
    return tuple(chosen)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return _WORD.findall(text.lower())
