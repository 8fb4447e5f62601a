"""The default corpus: short everyday scenes that the project writes itself from a seed.

Each scene names a few concrete things early on, so that even a small designer, which sees only the
first words of a document, finds nouns to build an environment from. The scenes make no claim to be
true or interesting; they exist to make environments differ with the document.
"""

import random

from spade_jax.seeding import derive_rng
from spade_jax.types import Document

# Few enough that a small model meets each often and learns to copy it. No noun contains another, so
# that `noun in text` never finds one word inside another; and none is a word that programs of the warm
# start use for something else (door, key, goal, trap, house, lever).
_THINGS = tuple(
    """
    apple axe bell brick broom cake candle carrot chain clock coat coin crown drum fan fig flute
    hammer harp helmet kettle kite knife lamp lemon mirror needle onion peach plum pumpkin
    ribbon rope saddle shovel spoon torch violin wagon wheel
    """.split()  # noqa: SIM905
)
_ANIMALS = tuple(
    """
    bear camel crab duck fox goose horse lion mouse owl robin wolf
    """.split()  # noqa: SIM905
)
_PLACES = tuple(
    """
    barn bridge castle cave farm harbor inn mill pond stable temple tower
    """.split()  # noqa: SIM905
)

NOUNS: tuple[str, ...] = tuple(sorted(_THINGS + _ANIMALS + _PLACES))

_NUM_DOCUMENTS = 400

# The longest choice of each part adds up to 24 words by the last new noun, and to 40 in all.
_OPENERS = (
    "Early today",
    "After the rain",
    "Before the feast",
    "At first light",
    "Late last night",
    "On Monday",
    "Last winter",
    "One quiet evening",
    "When summer came",
    "Around noon",
)
_PEOPLE = (
    "Mara",
    "Tom",
    "Ines",
    "Old Yusuf",
    "a young sailor",
    "the baker",
    "the tall painter",
    "two children",
    "my aunt",
    "a tired farmer",
    "the new teacher",
    "our neighbor",
)
_VERBS = ("left", "found", "hid", "cleaned", "carried", "painted", "sold", "counted", "mended", "washed")
_BY_PLACE = ("near", "behind", "beside", "inside", "outside", "above")
_ANIMAL_VERBS = ("slept", "waited", "rested", "stood", "sat", "played")
_NOT_FAR = ("watched quietly", "waited nearby", "soon followed", "slept there too")
_MIDDLES = (
    "Nobody had asked for the {first} that day",
    "The {last} was heavy and rather old",
    "People said that the {first} was worth more",
    "It took an hour to bring back the {last}",
    "The {first} and the {last} looked almost new",
    "Rain fell on the {last} until dark",
)
_ENDINGS = (
    "In the end everyone went home happy",
    "Then the wind turned cold",
    "The {first} is still there",
    "Nobody remembers why",
    "The next day it all began again",
)


def builtin_documents(seed: int) -> list[Document]:
    """The corpus for one seed: 400 scenes of 20 to 40 words in two to four sentences.

    Each names four to six distinct `NOUNS` within its first 24 words, and no other later on.
    """
    return [
        Document(document_id=f"builtin-{index:03d}", text=_scene(derive_rng(seed, "builtin_corpus", index)))
        for index in range(_NUM_DOCUMENTS)
    ]


def _scene(rng: random.Random) -> str:
    things = rng.sample(_THINGS, rng.choice((2, 3)))
    place, other_place = rng.sample(_PLACES, 2)
    animal = _with_article(rng.choice(_ANIMALS))
    *most, last = [_with_article(thing) for thing in things]
    who_did = f"{rng.choice(_OPENERS)} {rng.choice(_PEOPLE)} {rng.choice(_VERBS)}"
    where = f"{rng.choice(_BY_PLACE)} the {place}"
    elsewhere = f"{rng.choice(_ANIMAL_VERBS)} {rng.choice(_BY_PLACE)} the {other_place}"
    sentences = [
        f"{who_did} {', '.join(most)} and {last} {where}",
        f"{animal} {rng.choice((elsewhere, rng.choice(_NOT_FAR)))}",
        rng.choice(_MIDDLES).format(first=things[0], last=things[-1]),
    ]
    if rng.random() < 0.5:
        sentences.append(rng.choice(_ENDINGS).format(first=things[0]))
    return " ".join(sentence[0].upper() + sentence[1:] + "." for sentence in sentences)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
