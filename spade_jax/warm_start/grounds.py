"""What the examples of the warm start are about: documents, and the words of theirs that programs name.

The built-in scenes and their nouns are always among them, since the held-out set is made of them; a
run with a corpus of its own adds that.
"""

import dataclasses
from collections.abc import Sequence
from functools import cached_property

from spade_jax.grounding.builtin import NOUNS, builtin_documents
from spade_jax.grounding.excerpt import common_subjects, excerpt, named_in, words_of
from spade_jax.seeding import derive_rng
from spade_jax.types import Document
from spade_jax.warm_start.syllabus import GAMES, Syllabus

NO_WORD = "item"
MOST_DOCUMENTS = 800
MOST_SUBJECTS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grounds:
    """Documents to draw from, and the families of programs that are about them.

    Attributes:
      syllabus: of the setting.
      documents: at least one.
      subjects: lower-case words that a program may be about.
      excerpt_words: words of a document that a prompt shows.
    """

    syllabus: Syllabus
    documents: Sequence[Document]
    subjects: tuple[str, ...]
    excerpt_words: int

    @classmethod
    def builtin(cls, seed: int, *, excerpt_words: int, syllabus: Syllabus = GAMES) -> "Grounds":
        """The built-in scenes and their nouns."""
        return cls(
            syllabus=syllabus,
            documents=builtin_documents(seed),
            subjects=NOUNS,
            excerpt_words=excerpt_words,
        )

    def with_corpus(self, documents: Sequence[Document], *, seed: int) -> "Grounds":
        """These, and of a corpus up to 800 documents and the 64 words that name most of those.

        Args:
          documents: the corpus.
          seed: of the choice where it has more.
        """
        if len(documents) > MOST_DOCUMENTS:
            documents = derive_rng(seed, "warm_start/documents").sample(documents, MOST_DOCUMENTS)
        added = common_subjects(
            documents,
            num=MOST_SUBJECTS,
            excerpt_words=self.excerpt_words,
            reserved=self._words_of_programs() | self._known,
        )
        return dataclasses.replace(
            self, documents=[*self.documents, *documents], subjects=(*self.subjects, *added)
        )

    def word_for(self, document: Document | None) -> str:
        """What a program is about: the first subject that a prompt shows, else nothing special."""
        if document is None:
            return NO_WORD
        named = named_in(excerpt(document.text, self.excerpt_words), self._known)
        return named[0] if named else NO_WORD

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.subjects)

    def _words_of_programs(self) -> frozenset[str]:
        """What programs and hints say whatever they are about; one set of numbers is as good as another."""
        texts = [
            family.source(family.taught[0], NO_WORD) + family.hint(family.taught[0])
            for family in self.syllabus.families
        ]
        return frozenset(words_of("\n".join(texts)))
