"""The audit's results: one flat row an environment, as a table, as JSON and as CSV.

What is not known is null in JSON, empty in CSV and `-` in the table, never 0.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from spade_jax.audit.entries import Entry
from spade_jax.audit.levels import LevelParameter
from spade_jax.audit.measure import Level, Measures
from spade_jax.metrics import rate_with_interval
from spade_jax.reporting import printable
from spade_jax.types import Setting, ValidationReport

Row = dict[str, Any]

FIELDS = (
    "file",
    "environment_id",
    "skill",
    "setting",
    "valid",
    "rejected_by",
    "detail",
    "has_hint",
    "near_duplicates",
    "failure",
    "num_seeds",
    "distinct_observations",
    "distinct_instances",
    "distinct_solutions",
    "level_parameter",
    "distinct_levels",
    "levels",
    "random_win_rate",
    "random_win_rate_low",
    "random_win_rate_high",
    "solution_win_rate",
    "solution_turns",
    "max_turns",
    "num_tools",
    "seconds_load",
    "seconds_reset",
    "seconds_step",
)
PLAY_FIELDS = (
    "num_episodes",
    "num_failed",
    "num_without_room",
    "solve_rate",
    "solve_rate_low",
    "solve_rate_high",
    "solve_rate_with_hint",
    "solve_rate_with_hint_low",
    "solve_rate_with_hint_high",
    "regret",
    "regret_low",
    "regret_high",
    "regret_standard_error",
    "num_pairs",
    "truncated",
    "turns",
    "tokens",
    "tokens_sampled",
    "seconds_episode",
)
UNREADABLE = "unreadable"


def unreadable_row(entry: Entry) -> Row:
    """The row of an entry of which there is nothing but the reason why it cannot be read."""
    return _row(file=entry.file, valid=False, rejected_by=UNREADABLE, detail=entry.problem)


def environment_row(
    entry: Entry,
    report: ValidationReport,
    measures: Measures,
    parameter: LevelParameter | None,
    levels: Sequence[Level],
    *,
    setting: Setting,
) -> Row:
    """The row of an environment, without its near-duplicates and plays.

    Where the sandbox failed, whether it is valid is not known.
    """
    source = entry.source
    assert source is not None, "an entry that cannot be read has no measures"
    instances, blind = measures.instances, measures.blind
    row = _row(
        file=entry.file,
        environment_id=source.environment_id,
        skill=source.skill,
        setting=setting,
        valid=None if report.host_fault else report.valid,
        rejected_by=report.rejected_by,
        detail="the sandbox failed"
        if report.host_fault
        else "".join(verdict.detail for verdict in report.verdicts if not verdict.passed),
        has_hint=bool(source.hint),
        near_duplicates=[],
        failure=measures.failure,
        level_parameter="" if parameter is None else f"{parameter.method}({parameter.name})",
        levels=list(map(_level, levels)),
        **_solution(measures),
    )
    if parameter is not None:
        row["distinct_levels"] = _num_distinct(levels)
    if instances is not None:
        row |= {
            "num_seeds": len(instances.observations),
            "distinct_observations": len(set(instances.observations)),
            "max_turns": instances.max_turns,
            "num_tools": instances.num_tools,
            "seconds_load": instances.seconds_load,
            "seconds_reset": instances.seconds_reset,
        }
    if blind is not None:
        row |= rate_with_interval("random_win_rate", sum(blind.won), len(blind.won))
        row["distinct_instances"] = len(set(blind.transcripts))
        row["seconds_step"] = blind.seconds_step
    return row


def add_clusters(rows: Iterable[Row], clusters: Iterable[Sequence[str]]) -> None:
    """Writes down for each row which others are nearly the same program."""
    others = {file: [other for other in cluster if other != file] for cluster in clusters for file in cluster}
    for row in rows:
        row["near_duplicates"] = others.get(row["file"], row["near_duplicates"])


def to_json(rows: Sequence[Row]) -> bytes:
    """A list with an object for each environment."""
    return json.dumps(rows, indent=2).encode() + b"\n"


def to_csv(rows: Sequence[Row]) -> bytes:
    """A line for each environment, lists in their cells as JSON."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}
        )
    return text.getvalue().encode(errors="backslashreplace")


def environments_table(rows: Iterable[Row]) -> Table:
    """What is known of each environment without a policy."""
    table = _table(
        "file", "setting", "valid", "seeds", "levels", "random", "solution", "copies", "load", "reset", "step"
    )
    for row in rows:
        table.add_row(
            printable(row["file"]),
            row["setting"] or "-",
            "?" if row["valid"] is None else "yes" if row["valid"] else f"no: {row['rejected_by']}",
            _of(row["distinct_instances"], row["num_seeds"]),
            _of(row["distinct_levels"], len(row["levels"] or ())),
            _number(row["random_win_rate"], ".2f"),
            _number(row["solution_win_rate"], ".2f"),
            "-" if row["near_duplicates"] is None else str(len(row["near_duplicates"])),
            *(_milliseconds(row[f"seconds_{name}"]) for name in ("load", "reset", "step")),
        )
    return table


def plays_table(rows: Iterable[Row]) -> Table:
    """What the policy makes of each environment that could be played."""
    table = _table(
        "file",
        "solved",
        "with hint",
        "regret",
        "failed",
        "truncated",
        "turns",
        "tokens",
        "sampled",
        "seconds",
    )
    for row in rows:
        if row["num_episodes"] is not None:
            table.add_row(
                printable(row["file"]),
                _interval(row, "solve_rate", ".2f"),
                _interval(row, "solve_rate_with_hint", ".2f"),
                _interval(row, "regret", "+.2f"),
                _of(row["num_failed"], row["num_episodes"]),
                _number(row["truncated"], ".2f"),
                _number(row["turns"], ".1f"),
                _number(row["tokens"], ".0f"),
                _number(row["tokens_sampled"], ".0f"),
                _number(row["seconds_episode"], ".3f"),
            )
    return table


def summary_lines(rows: Sequence[Row]) -> list[str]:
    """How many are valid, why each other one is not, and what else is amiss."""
    num_valid = sum(row["valid"] is True for row in rows)
    rungs = Counter(row["rejected_by"] for row in rows if row["rejected_by"])
    by_rung = ", ".join(f"{count} by {rung}" for rung, count in rungs.most_common())
    lines = [f"{num_valid} of {len(rows)} valid" + (f"; rejected: {by_rung}" if by_rung else "")]
    for row in rows:
        if row["valid"] is not True:
            what = row["detail"].strip().partition("\n")[0]
            lines.append(printable(f"  {row['file']}: {row['rejected_by'] or 'not known'}: {what}"))
        elif row["failure"]:
            lines.append(printable(f"  {row['file']}: valid, and yet failed later: {row['failure']}"))
    for row in rows:
        if row.get("num_without_room"):
            plays = _of(row["num_without_room"], row["num_episodes"])
            lines.append(
                printable(
                    f"  {row['file']}: in {plays} plays the policy's context has no room for a first reply"
                )
            )
    return lines


def _row(**known: Any) -> Row:
    return {**dict.fromkeys(FIELDS), **known}


def _level(level: Level) -> dict[str, Any]:
    measures = level.measures
    blind = measures.blind
    return {
        "value": level.value,
        "failure": measures.failure,
        "max_turns": None if measures.instances is None else measures.instances.max_turns,
        "random_win_rate": None if blind is None else sum(blind.won) / len(blind.won),
        **_solution(measures),
    }


def _solution(measures: Measures) -> dict[str, Any]:
    """How many solutions there are, how they fare, and the fewest and most turns that they take."""
    own = measures.own_solution
    texts = set() if own is None else {text for text in own.texts if text is not None}
    played = own is not None and bool(own.won)
    return {
        "distinct_solutions": len(texts) or None,
        "solution_win_rate": sum(own.won) / len(own.won) if own is not None and played else None,
        "solution_turns": [min(own.turns), max(own.turns)] if own is not None and played else None,
    }


def _num_distinct(levels: Iterable[Level]) -> int:
    """Levels that differ from each other in what they say to the same actions, or in what solves them."""
    return len(
        {
            (measures.instances.max_turns, measures.blind.transcripts, measures.own_solution)
            for _, measures in levels
            if measures.instances is not None and measures.blind is not None
        }
    )


def _table(*names: str) -> Table:
    table = Table()
    for name in names:
        is_text = name in ("file", "setting", "valid")
        table.add_column(name, justify="left" if is_text else "right", overflow="fold")
    return table


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _of(part: int | None, whole: int | None) -> str:
    return "-" if part is None else f"{part}/{whole}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.2f} ms"


def _interval(row: Mapping[str, Any], name: str, spec: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    bounds = "" if low is None else f" [{low:{spec}}, {high:{spec}}]"
    return _number(row[name], spec) + bounds
