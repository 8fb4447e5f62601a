"""Designer conversations for the warm start: prompts with the programs that answer them.

Programs come from the families at levels 1 and 2. Their content comes from the document in the
prompt, a shown record of the memory is varied at its level more often than not, and the family of the
shown failure is avoided, so that the tiny designer knows what each line of its prompt is for. The
memory thereby moves the designs on as soon as the agent has moved on.
"""

import random
from collections.abc import Sequence

from spade_jax.grounding.builtin import NOUNS, nouns_in
from spade_jax.roles.designer import design_reply, designer_messages, excerpt
from spade_jax.seeding import derive_rng
from spade_jax.text.chat import Message
from spade_jax.types import DesignContext, Document, EnvironmentSource, MemoryRecord
from spade_jax.warm_start.families import FAMILIES
from spade_jax.warm_start.families.base import Family

NO_WORD = "item"
WITHOUT_DOCUMENT = 0.15
WITH_POSITIVES = 0.6
VARY_A_POSITIVE = 0.85
WITH_NEGATIVE = 0.5
EASY = 0.25


def make_source(
    family: Family, level: int, word: str, rng: random.Random, *, environment_id: str = ""
) -> EnvironmentSource:
    """One environment of a family at a level, about `word`."""
    parameters = family.parameters(rng, level)
    return EnvironmentSource(
        environment_id=environment_id,
        skill=family.skill,
        code=family.source(parameters, word),
        hint=family.hint(parameters),
    )


def word_for(document: Document | None, excerpt_words: int) -> str:
    """What a program is about: the first noun in the visible part of a document, else nothing special."""
    nouns = nouns_in(excerpt(document.text, excerpt_words)) if document is not None else ()
    return nouns[0] if nouns else NO_WORD


def design_conversations(
    num: int, *, seed: int, documents: Sequence[Document], excerpt_words: int, num_positives: int
) -> list[list[Message]]:
    """`num` prompts with their replies.

    Args:
      seed: of every choice made here.
      documents: to draw from.
      excerpt_words: words of a document that the prompt shows.
      num_positives: most records of the memory that the prompt shows.
    """
    families = list(FAMILIES.values())
    conversations = []
    for index in range(num):
        rng = derive_rng(seed, "warm_start/design", index)
        family, level = rng.choice(families), _level(rng)
        same_skill = [other for other in families if other.skill == family.skill]
        document = None if rng.random() < WITHOUT_DOCUMENT else rng.choice(documents)

        positives: list[MemoryRecord] = []
        if num_positives and rng.random() < WITH_POSITIVES:
            shown = [(rng.choice(same_skill), _level(rng)) for _ in range(rng.randint(1, num_positives))]
            if rng.random() < VARY_A_POSITIVE:
                shown[rng.randrange(len(shown))] = family, level
            positives = [
                _record(*other, rng, win_rate=rng.uniform(0.15, 0.85), regret=rng.uniform(0.1, 0.9))
                for other in shown
            ]
        negative = None
        avoided = [other for other in same_skill if other is not family]
        if avoided and rng.random() < WITH_NEGATIVE:
            win_rate = rng.choice((rng.uniform(0, 0.1), rng.uniform(0.9, 1)))
            negative = _record(rng.choice(avoided), _level(rng), rng, win_rate=win_rate, regret=0.0)

        context = DesignContext(
            environment_id="",
            skill=family.skill,
            document=document,
            positives=tuple(positives),
            negative=negative,
        )
        source = make_source(family, level, word_for(document, excerpt_words), rng)
        conversations.append(
            [
                *designer_messages(context, excerpt_words=excerpt_words),
                Message(role="assistant", content=design_reply(source.code, source.hint)),
            ]
        )
    return conversations


def _level(rng: random.Random) -> int:
    """Mostly more than the agent can do yet: self-play finds out what it can."""
    return 1 if rng.random() < EASY else 2


def _record(
    family: Family, level: int, rng: random.Random, *, win_rate: float, regret: float
) -> MemoryRecord:
    source = make_source(family, level, rng.choice(NOUNS), rng)
    return MemoryRecord(source=source, win_rate=win_rate, regret=regret, cycle=0)
