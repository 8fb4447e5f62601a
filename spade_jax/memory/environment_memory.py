"""Past environments, and which of them a designer is shown.

Shown are some of the environments of its skill that taught most (high regret, neither solved nor
hopeless) and one that taught nothing; or one of them is given as the parent of a changed environment.
Some may be played again, which measures them anew.

A memory is a value: `insert` and `played` return a new one, so that a checkpoint of a cycle holds the
memory of exactly that cycle. Every draw takes its generator, so that the memory itself has no random
state. Programs are kept whole: 200 of 10 kB are 2 MB of JSON.
"""

import ast
import dataclasses
import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from spade_jax.config import MemoryConfig
from spade_jax.memory.novelty import normalise_code
from spade_jax.memory.replay import draw_without_replacement, replay_probabilities
from spade_jax.types import MemoryRecord, RegretEstimate

# The win rates that changes of an environment and the asked-for difficulty aim at.
AIM_LOW, AIM_HIGH = 0.4, 0.6

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

    def parent(
        self, skill: str, rng: random.Random, config: MemoryConfig
    ) -> tuple[MemoryRecord, Literal["harder", "easier", "different"]] | None:
        """One of the skill's best records and the change that should make a new environment of it.

        Small changes of what scored high, as in ACCEL (Parker-Holder et al. 2022), here in a direction:
        harder above a win rate of `AIM_HIGH`, easier below `AIM_LOW`, different in between. Drawn from
        the records that one positive is drawn from; None where there is none.
        """
        drawn = self.positives(skill, 1, rng, config)
        return (drawn[0], _change(drawn[0].win_rate)) if drawn else None

    def replay(
        self, num: int, *, cycle: int, rng: random.Random, config: MemoryConfig
    ) -> tuple[MemoryRecord, ...]:
        """At most `num` distinct records of any skill to be played again in `cycle`, in drawn order.

        Raises:
          ValueError: for a record that was last played after `cycle`.
        """
        probabilities = replay_probabilities(self.records, cycle=cycle, config=config)
        drawn = draw_without_replacement(probabilities, num, rng)
        return tuple(self.records[index] for index in drawn)

    def played(
        self, outcomes: Mapping[str, RegretEstimate | None], *, cycle: int, config: MemoryConfig
    ) -> "EnvironmentMemory":
        """This memory after some of its environments were played again in `cycle`.

        A played record is no longer stale. With `rescore` it takes its new win rate and regret. It is
        forgotten where the new win rate lies outside [retire_below, retire_above]. Records keep their
        places: playing one does not make it newer.

        Args:
          outcomes: by environment id, None where it was played and nothing came of it; ids that are not
            remembered count for nothing.
        """
        records = []
        for record in self.records:
            environment_id = record.source.environment_id
            if environment_id in outcomes:
                outcome = outcomes[environment_id]
                if outcome and not config.retire_below <= outcome.win_rate <= config.retire_above:
                    continue
                record = dataclasses.replace(record, last_played=cycle)
                if outcome and config.rescore:
                    record = dataclasses.replace(record, win_rate=outcome.win_rate, regret=outcome.regret)
            records.append(record)
        return EnvironmentMemory(tuple(records), self.capacity)

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


def _change(win_rate: float) -> Literal["harder", "easier", "different"]:
    if win_rate > AIM_HIGH:
        return "harder"
    if win_rate < AIM_LOW:
        return "easier"
    return "different"


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
