"""Designs for the warm start: what the designer is asked with the programs that answer it.

Programs come from the families at level 2, which is more than the agent can do yet: self-play finds
out what it can. Their content comes from the document in the prompt. A shown record of the memory is
varied more often than not, made harder where its win rate is high and easier where it is low (down to
level 1), and the family of the shown failure is avoided, so that the tiny designer knows what each
line of its prompt is for. The memory thereby moves the designs on as soon as the agent has moved on.
"""

import random
from collections.abc import Sequence

from spade_jax.seeding import derive_rng
from spade_jax.types import DesignContext, EnvironmentSource, MemoryRecord
from spade_jax.warm_start.family import Family, Parameters
from spade_jax.warm_start.grounds import Grounds

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


def example_designs(
    num: int, *, seed: int, grounds: Grounds, num_positives: int
) -> list[tuple[DesignContext, EnvironmentSource]]:
    """`num` contexts with the environments that answer them.

    Args:
      seed: of every choice made here.
      grounds: what the environments are about.
      num_positives: most records of the memory that a context has.
    """
    syllabus = grounds.syllabus
    families = list(syllabus.taught.values())
    examples = []
    for index in range(num):
        rng = derive_rng(seed, "warm_start/design", index)
        family = rng.choice(families)
        same_skill = syllabus.of_skill(family.skill)
        document = None if rng.random() < WITHOUT_DOCUMENT else rng.choice(grounds.documents)

        parameters = demanding(family, rng)
        positives: list[MemoryRecord] = []
        if num_positives and rng.random() < WITH_POSITIVES:
            positives = [
                _record(
                    other := rng.choice(same_skill),
                    rng.choice(other.taught),
                    rng.uniform(0.15, 0.85),
                    grounds,
                    rng,
                )
                for _ in range(rng.randint(1, num_positives))
            ]
            if rng.random() < VARY_A_POSITIVE:
                shown, win_rate = rng.choice(family.taught), rng.uniform(0.15, 0.85)
                positives[rng.randrange(len(positives))] = _record(family, shown, win_rate, grounds, rng)
                family, parameters = vary(family, shown, win_rate, same_skill, rng)
        negative = None
        avoided = [other for other in same_skill if other is not family]
        if avoided and rng.random() < WITH_NEGATIVE:
            win_rate = rng.choice((rng.uniform(0, 0.1), rng.uniform(0.9, 1)))
            other = rng.choice(avoided)
            negative = _record(other, rng.choice(other.taught), win_rate, grounds, rng)

        context = DesignContext(
            environment_id="",
            skill=family.skill,
            document=document,
            positives=tuple(positives),
            negative=negative,
        )
        examples.append((context, make_source(family, parameters, grounds.word_for(document))))
    return examples


def demanding(family: Family, rng: random.Random) -> Parameters:
    """Numbers of level 2, from its hard end more often than from its easy one."""
    medium = family.levels[1]
    return medium[max(rng.randrange(len(medium)) for _ in range(2))]


def vary(
    family: Family, shown: Parameters, win_rate: float, same_skill: Sequence[Family], rng: random.Random
) -> tuple[Family, Parameters]:
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
        other = rng.choice([other for other in same_skill if other is not family])
        return other, demanding(other, rng)
    return family, taught[min(max(rung, 0), len(taught) - 1)]


def _record(
    family: Family, parameters: Parameters, win_rate: float, grounds: Grounds, rng: random.Random
) -> MemoryRecord:
    source = make_source(family, parameters, rng.choice(grounds.subjects))
    return MemoryRecord(source=source, win_rate=win_rate, regret=rng.uniform(0.0, 0.9), cycle=0)
