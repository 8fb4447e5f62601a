"""What a run must remember on the host between cycles, as one value that a checkpoint can hold."""

import base64
import dataclasses
from typing import Any

import msgspec
import numpy as np

from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.rl.learning_trackers import LearningTrackers
from spade_jax.types import EnvironmentSource, PlayHistory, RegretEstimate, TokenStream, Trajectory


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenDesign:
    """A design that has not been rewarded yet.

    Attributes:
      cycle: in which it was written.
      stream: what the designer sampled.
      rejected: whether validation rejected it; then it has no plays.
      history: of the plays so far.
    """

    cycle: int
    stream: TokenStream
    rejected: bool
    history: PlayHistory

    def with_plays(
        self,
        without_hint: list[Trajectory],
        with_hint: list[Trajectory],
        estimate: RegretEstimate | None,
    ) -> "OpenDesign":
        """With one more cycle's plays; its first cycle's estimate stays."""
        history = self.history
        good = tuple(play.episode_return for play in without_hint if not play.failure)
        timed_out = any(play.failure == "timeout" for play in (*without_hint, *with_hint))
        return dataclasses.replace(
            self,
            history=dataclasses.replace(
                history,
                returns=(*history.returns, good),
                estimate=history.estimate or estimate,
                timed_out=history.timed_out or timed_out,
            ),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfPlayState:
    """The host's half of a run's state.

    Attributes:
      cycle: the next cycle to run.
      memory: past environments.
      corpus: the position in the grounding documents (`Corpus.state`), or None without grounding.
      pool: the environments in play.
      replayed: ids of those among them that come from the memory.
      open_designs: designs that wait for their plays, oldest first.
      trackers: of the learning potential.
      baselines: mean return of each environment in play, where the agent's advantage needs it.
    """

    cycle: int
    memory: EnvironmentMemory
    corpus: dict[str, Any] | None
    pool: tuple[EnvironmentSource, ...] = ()
    replayed: frozenset[str] = frozenset()
    open_designs: tuple[OpenDesign, ...] = ()
    trackers: LearningTrackers = dataclasses.field(default_factory=LearningTrackers)
    baselines: dict[str, float] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The state as JSON-ready builtins."""
        return msgspec.to_builtins(self, enc_hook=_array_to_json)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "SelfPlayState":
        """The inverse of `to_json`.

        Raises:
          msgspec.ValidationError: naming the field that does not fit.
        """
        return msgspec.convert(values, cls, dec_hook=_array_from_json)


def _array_to_json(array: Any) -> dict[str, Any]:
    if not isinstance(array, np.ndarray):
        raise NotImplementedError(f"a {type(array).__name__} has no place in a checkpoint")
    return {"dtype": array.dtype.str, "base64": base64.b64encode(array.tobytes()).decode()}


def _array_from_json(kind: type, value: Any) -> np.ndarray:
    if kind is not np.ndarray:
        raise NotImplementedError(f"no {kind.__name__} is written to checkpoints")
    return np.frombuffer(base64.b64decode(value["base64"]), value["dtype"])
