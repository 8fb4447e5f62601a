"""Past environments, and which of them a designer is shown.

Shown are some of the environments of its skill that taught most (high regret, neither solved nor
hopeless) and one that taught nothing. A memory is a value: `insert` returns a new one, so that a
checkpoint of a cycle holds the memory of exactly that cycle. Every draw takes its generator, so that
the memory itself has no random state.
"""

import ast
import dataclasses
import random
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec

from spade_jax.config import MemoryConfig
from spade_jax.memory.novelty import normalise_code
from spade_jax.types import MemoryRecord

_OUTLINE_CHARACTERS = 80


@dataclasses.dataclass(frozen=True)
class EnvironmentMemory:
    """The newest `capacity` environments, each program once.

    Attributes:
      records: oldest first.
      capacity: records kept; the oldest go first.
    """

    records: tuple[MemoryRecord, ...]
    capacity: int

    def insert(self, records: Sequence[MemoryRecord]) -> "EnvironmentMemory":
        """This memory with `records` added in order; of equal programs the newest record stays."""
        newest: dict[str, MemoryRecord] = {}
        for record in (*self.records, *records):
            program = normalise_code(record.source.code)
            newest.pop(program, None)  # so that the program moves to the end
            newest[program] = record
        return EnvironmentMemory(tuple(newest.values())[-self.capacity :], self.capacity)

    def positives(
        self, skill: str, num_records: int, rng: random.Random, config: MemoryConfig
    ) -> tuple[MemoryRecord, ...]:
        """At most `num_records` of the skill's best records, best first.

        The best are those with the highest regret among the records whose win rate lies in
        [min_win_rate, max_win_rate]; drawn are some of the first max(3 * num_records, 10).
        """
        candidates = [
            index
            for index, record in enumerate(self.records)
            if record.source.skill == skill and config.min_win_rate <= record.win_rate <= config.max_win_rate
        ]
        # Of equal regrets the newest goes first.
        candidates.sort(key=lambda index: (self.records[index].regret, index), reverse=True)
        pool = candidates[: max(3 * num_records, 10)]
        drawn = sorted(rng.sample(range(len(pool)), min(num_records, len(pool))))
        return tuple(self.records[pool[rank]] for rank in drawn)

    def negative(self, skill: str, rng: random.Random, config: MemoryConfig) -> MemoryRecord | None:
        """One of the skill's records that were too hard or too easy, None where there is none."""
        candidates = [
            record
            for record in self.records
            if record.source.skill == skill and not config.too_hard <= record.win_rate <= config.too_easy
        ]
        return rng.choice(candidates) if candidates else None

    def to_json(self) -> dict[str, Any]:
        """The memory as JSON-ready builtins."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "EnvironmentMemory":
        """The inverse of `to_json`.

        Raises:
          msgspec.ValidationError: naming the field that does not fit.
        """
        return msgspec.convert(values, cls)


def compact(record: MemoryRecord) -> str:
    """One short line for small models: class name, class-level constants, win rate and regret.

    For example `TrapWalkEnv size, traps = 4, 2 | win 0.4 regret 0.3`. The part before the bar is cut at
    80 characters. A program without a class statement at its top is shown by its first line.
    """
    outline = " ".join(_outline(record.source.code).split())[:_OUTLINE_CHARACTERS].rstrip()
    return f"{outline} | win {_one_decimal(record.win_rate)} regret {_one_decimal(record.regret)}"


def _outline(code: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        statements = ast.parse(code).body
    for statement in statements:
        if isinstance(statement, ast.ClassDef) and statement.name.endswith("Env"):
            # The source segment, as `ast.unparse` writes tuples differently from one Python to the next.
            constants = [
                ast.get_source_segment(code, node) or ""
                for node in statement.body
                if isinstance(node, ast.Assign | ast.AnnAssign)
            ]
            return f"{statement.name} {'; '.join(constants)}"
    return code.strip().partition("\n")[0]


def _one_decimal(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"  # + 0.0 turns -0.0 into 0.0
