"""What the warm start of each setting teaches, and what only its evaluation sees."""

import dataclasses
from collections.abc import Callable, Mapping

from spade_jax.roles.agent import action_reply
from spade_jax.types import Setting
from spade_jax.warm_start.families import FAMILIES, HELD_OUT_FAMILIES
from spade_jax.warm_start.families.base import LETTERS, MOVES
from spade_jax.warm_start.family import Family
from spade_jax.warm_start.tool_families import HELD_OUT_TOOL_FAMILIES, REPLIES, TOOL_FAMILIES
from spade_jax.warm_start.tool_families.base import KEYS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Syllabus:
    """The families of one setting.

    Attributes:
      taught: of the warm start, by name.
      held_out: of the held-out set alone, by name.
      choices: what a policy must be able to choose by itself, and so is one token, never glued to its
        surroundings.
      reply: an action to the reply that plays it.
    """

    taught: Mapping[str, Family]
    held_out: Mapping[str, Family]
    choices: tuple[str, ...]
    reply: Callable[[str], str]

    @property
    def families(self) -> list[Family]:
        """All of them, those that are taught first."""
        return [*self.taught.values(), *self.held_out.values()]

    def of_skill(self, skill: str) -> list[Family]:
        """The taught families of a skill."""
        return [family for family in self.taught.values() if family.skill == skill]


GAMES = Syllabus(
    taught=FAMILIES,
    held_out=HELD_OUT_FAMILIES,
    choices=(*LETTERS, *map(action_reply, MOVES)),
    reply=action_reply,
)

TOOL_USE = Syllabus(
    taught=TOOL_FAMILIES,
    held_out=HELD_OUT_TOOL_FAMILIES,
    choices=(*KEYS, *REPLIES),
    reply=str,
)


def syllabus_of(setting: Setting) -> Syllabus:
    """What a setting's warm start teaches."""
    return {"games": GAMES, "tool_use": TOOL_USE}[setting]
