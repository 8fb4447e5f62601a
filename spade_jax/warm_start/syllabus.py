"""What the warm start of each setting teaches, and what only its evaluation sees."""

import dataclasses
from collections.abc import Callable, Mapping

from spade_jax.errors import ConfigError
from spade_jax.roles.agent import action_reply
from spade_jax.types import Setting
from spade_jax.warm_start.families import FAMILIES, HELD_OUT_FAMILIES
from spade_jax.warm_start.families.base import LETTERS, MOVES, Family


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


def syllabus_of(setting: Setting) -> Syllabus:
    """What a setting's warm start teaches.

    Raises:
      ConfigError: there are no families for it.
    """
    if setting == "games":
        return GAMES
    raise ConfigError(f"setting={setting} has no warm start and no held-out set; only setting=games has them")
