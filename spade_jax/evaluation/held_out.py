"""The fixed held-out set: environments that no training sees.

It holds every family at level 3, harder than any text of the warm start, and two families that the
warm start does not have. The set depends on nothing but its size, so that runs with other seeds and
configs are compared on the same instances. Validation rejects a design that equals one of its
programs up to wording.
"""

from collections.abc import Sequence

from spade_jax.rollout.episode import EpisodePlan
from spade_jax.seeding import derive_rng, derive_seed
from spade_jax.types import EnvironmentSource, Setting
from spade_jax.warm_start.designs import make_source
from spade_jax.warm_start.grounds import Grounds
from spade_jax.warm_start.syllabus import syllabus_of

HELD_OUT_SEED = 20260819
EXCERPT_WORDS = 24


def held_out_environments(num: int, setting: Setting = "games") -> list[EnvironmentSource]:
    """`num` environments: the families in turn, so that each has as many as any other (up to one)."""
    families = syllabus_of(setting).families
    grounds = Grounds.builtin(HELD_OUT_SEED, excerpt_words=EXCERPT_WORDS)
    sources = []
    for index in range(num):
        rng = derive_rng(HELD_OUT_SEED, "held_out", index)
        family = families[index % len(families)]
        word = grounds.word_for(rng.choice(grounds.documents))
        name = f"held-out-{index:03d}-{family.name}"
        sources.append(make_source(family, rng.choice(family.levels[2]), word, environment_id=name))
    return sources


def held_out_plans(sources: Sequence[EnvironmentSource], *, episodes: int) -> list[EpisodePlan]:
    """The same instances and sampling seeds at every evaluation, without hints."""
    return [
        EpisodePlan(
            source=source,
            condition="without_hint",
            instance_seed=derive_seed(HELD_OUT_SEED, "instance", index, play),
            sampling_seed=derive_seed(HELD_OUT_SEED, "sampling", index, play),
        )
        for index, source in enumerate(sources)
        for play in range(episodes)
    ]
