"""Designer conversations for the warm start: prompts with the programs that answer them.

Programs come from the families at level 2, which is more than the agent can do yet: self-play finds
out what it can. Their content comes from the document in the prompt. A shown record of the memory is
varied more often than not, made harder where its win rate is high and easier where it is low (down to
level 1), and the family of the shown failure is avoided, so that the tiny designer knows what each
line of its prompt is for. The memory thereby moves the designs on as soon as the agent has moved on.
"""

import random
from collections.abc import Sequence

from spade_jax.grounding.builtin import NOUNS, nouns_in
from spade_jax.roles.designer import design_reply, designer_messages, excerpt
from spade_jax.seeding import derive_rng
from spade_jax.text.chat import Message
from spade_jax.types import DesignContext, Document, EnvironmentSource, MemoryRecord
from spade_jax.warm_start.families import FAMILIES
from spade_jax.warm_start.families.base import Family, Parameters

NO_WORD = "item"
WITHOUT_DOCUMENT = 0.15
WITH_POSITIVES = 0.6
VARY_A_POSITIVE = 0.85
WITH_NEGATIVE = 0.5
TOO_HARD, TOO_EASY = 0.4, 0.6
LARGEST_STEP = 3


def make_source(
    family: Family, parameters: Parameters, word: str, *, environment_id: str = ""
) -> EnvironmentSource:
    """One environment of a family, about `word`."""
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
        family = rng.choice(families)
        same_skill = of_skill(family.skill)
        document = None if rng.random() < WITHOUT_DOCUMENT else rng.choice(documents)

        parameters = demanding(family, rng)
        positives: list[MemoryRecord] = []
        if num_positives and rng.random() < WITH_POSITIVES:
            positives = [
                _record(
                    other := rng.choice(same_skill), rng.choice(other.taught), rng.uniform(0.15, 0.85), rng
                )
                for _ in range(rng.randint(1, num_positives))
            ]
            if rng.random() < VARY_A_POSITIVE:
                shown, win_rate = rng.choice(family.taught), rng.uniform(0.15, 0.85)
                positives[rng.randrange(len(positives))] = _record(family, shown, win_rate, rng)
                family, parameters = vary(family, shown, win_rate, rng)
        negative = None
        avoided = [other for other in same_skill if other is not family]
        if avoided and rng.random() < WITH_NEGATIVE:
            win_rate = rng.choice((rng.uniform(0, 0.1), rng.uniform(0.9, 1)))
            other = rng.choice(avoided)
            negative = _record(other, rng.choice(other.taught), win_rate, rng)

        context = DesignContext(
            environment_id="",
            skill=family.skill,
            document=document,
            positives=tuple(positives),
            negative=negative,
        )
        source = make_source(family, parameters, word_for(document, excerpt_words))
        conversations.append(
            [
                *designer_messages(context, excerpt_words=excerpt_words),
                Message(role="assistant", content=design_reply(source.code, source.hint)),
            ]
        )
    return conversations


def of_skill(skill: str) -> list[Family]:
    """The families of a skill."""
    return [family for family in FAMILIES.values() if family.skill == skill]


def demanding(family: Family, rng: random.Random) -> Parameters:
    """Numbers of level 2, from its hard end more often than from its easy one."""
    medium = family.levels[1]
    return medium[max(rng.randrange(len(medium)) for _ in range(2))]


def vary(family: Family, shown: Parameters, win_rate: float, rng: random.Random) -> tuple[Family, Parameters]:
    """What to design after a program with these numbers was won that often.

    A harder one of its family after one that is won often, an easier one after one that is lost often,
    a similar one in between. Where the family has nothing harder, it is another family's turn.
    """
    taught = family.taught
    if win_rate > TOO_EASY:
        step = rng.randint(1, LARGEST_STEP)
    elif win_rate < TOO_HARD:
        step = -rng.randint(1, LARGEST_STEP)
    else:
        step = rng.randint(-1, 1)
    rung = taught.index(shown) + step
    if rung >= len(taught) and win_rate > TOO_EASY:
        other = rng.choice([other for other in of_skill(family.skill) if other is not family])
        return other, demanding(other, rng)
    return family, taught[min(max(rung, 0), len(taught) - 1)]


def _record(family: Family, parameters: Parameters, win_rate: float, rng: random.Random) -> MemoryRecord:
    source = make_source(family, parameters, rng.choice(NOUNS))
    return MemoryRecord(source=source, win_rate=win_rate, regret=rng.uniform(0.0, 0.9), cycle=0)
