"""The audit itself: read, judge, measure, compare, have them played, report."""

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spade_jax.audit import report
from spade_jax.audit.entries import Entry, read_entries
from spade_jax.audit.levels import find_level
from spade_jax.audit.measure import measure, measure_levels
from spade_jax.audit.syntax import parse
from spade_jax.audit.verdict import judge, setting_of
from spade_jax.config import SandboxConfig, ValidationConfig
from spade_jax.environments.sandboxed import start_sandbox
from spade_jax.environments.validation.candidate import Surroundings
from spade_jax.errors import AuditError
from spade_jax.memory.novelty import NoveltyIndex
from spade_jax.reporting import Reporter
from spade_jax.types import DEFAULT_RUNGS

if TYPE_CHECKING:
    from spade_jax.cycle import Machinery

# Turns that an agent has where no run says otherwise: those of the reference implementation's recipes.
MAX_TURNS = 25


def audit(
    environments: Path,
    *,
    model: Path | None = None,
    num_seeds: int = 32,
    num_episodes: int = 16,
    json_path: Path | None = None,
    csv_path: Path | None = None,
) -> list[report.Row]:
    """Audits a set of environments, prints the tables and writes the files.

    Args:
      environments: a folder or JSONL file (`spade_jax.audit.entries.read_entries`).
      model: workdir of a run whose policy plays them, by its own config; None leaves the playing out.
      num_seeds: instances that each environment is measured on.
      num_episodes: plays of each environment in each condition.

    Returns:
      A row for each environment, in the order of the set.

    Raises:
      SpadeError: of the boundary that was crossed, saying what to do.
    """
    entries = read_entries(environments)
    outputs = [
        (path, render) for path, render in ((json_path, report.to_json), (csv_path, report.to_csv)) if path
    ]
    for path, _ in outputs:
        if not path.parent.is_dir():
            raise AuditError(f"cannot write {path}: there is no folder {path.parent}; make it")
    with Reporter() as reporter:
        rows = asyncio.run(
            _audit(entries, model=model, num_seeds=num_seeds, num_episodes=num_episodes, reporter=reporter)
        )
        reporter.table(report.environments_table(rows))
        if model is not None:
            reporter.table(report.plays_table(rows))
        for line in report.summary_lines(rows):
            reporter.say(line)
    for path, render in outputs:
        try:
            path.write_bytes(render(rows))
        except OSError as error:
            raise AuditError(f"cannot write {path}: {error.strerror}") from error
    return rows


async def examine(entry: Entry, surroundings: Surroundings, *, num_seeds: int) -> report.Row:
    """All that is found out about one environment without a policy."""
    if entry.source is None:
        return report.unreadable_row(entry)
    code = entry.source.code
    tree = parse(code)
    surroundings = dataclasses.replace(surroundings, setting=setting_of(tree))
    parameter = find_level(tree)
    return report.environment_row(
        entry,
        await judge(entry.source, surroundings),
        await measure(code, surroundings, num_seeds=num_seeds),
        parameter,
        await measure_levels(code, parameter, surroundings, num_seeds=num_seeds),
        setting=surroundings.setting,
    )


async def _audit(
    entries: Sequence[Entry],
    *,
    model: Path | None,
    num_seeds: int,
    num_episodes: int,
    reporter: Reporter,
) -> list[report.Row]:
    async with contextlib.AsyncExitStack() as stack:
        machinery = None
        if model is None:
            sandbox = await stack.enter_async_context(await start_sandbox(SandboxConfig()))
            surroundings = Surroundings(
                sandbox=sandbox,
                config=ValidationConfig(),
                held_out=frozenset(),
                setting="games",
                max_turns=MAX_TURNS,
            )
        else:
            # Here alone, so that an audit without a policy starts without jax.
            from spade_jax.audit.plays import load_policy

            machinery = await load_policy(model, stack, reporter)
            surroundings = _surroundings_of(machinery)
        cores = asyncio.Semaphore(len(os.sched_getaffinity(0)))
        with reporter.bar("environments", len(entries)) as bar:

            async def examine_in_turn(entry: Entry) -> report.Row:
                async with cores:
                    row = await examine(entry, surroundings, num_seeds=num_seeds)
                bar.advance()
                return row

            rows = await asyncio.gather(*map(examine_in_turn, entries))
        programs = [(entry.file, entry.source.code) for entry in entries if entry.source is not None]
        report.add_clusters(rows, NoveltyIndex(programs).clusters(surroundings.config.max_similarity))
        if machinery is not None:
            await _add_plays(rows, entries, machinery, num_episodes=num_episodes, reporter=reporter)
        return rows


def _surroundings_of(machinery: "Machinery") -> Surroundings:
    """A run's own, with every rung of the ladder but the judge's."""
    config = machinery.config
    return Surroundings(
        sandbox=machinery.sandbox,
        config=dataclasses.replace(config.validation, rungs=DEFAULT_RUNGS),
        held_out=machinery.held_out_fingerprints,
        setting=config.setting,
        max_turns=config.agent.max_turns,
    )


async def _add_plays(
    rows: Sequence[report.Row],
    entries: Sequence[Entry],
    machinery: "Machinery",
    *,
    num_episodes: int,
    reporter: Reporter,
) -> None:
    """Has those environments played that load and reset, valid or not."""
    from spade_jax.audit.plays import play_environments

    sources = [
        dataclasses.replace(entry.source, environment_id=entry.file)
        for entry, row in zip(entries, rows, strict=True)
        if entry.source is not None and row["num_seeds"] is not None
    ]
    num_plays = sum(num_episodes * (2 if source.hint else 1) for source in sources)
    with reporter.bar("plays", num_plays) as bar:
        figures = await play_environments(machinery, sources, num_episodes=num_episodes, advance=bar.advance)
    for row in rows:
        row |= {**dict.fromkeys(report.PLAY_FIELDS), **figures.get(row["file"], {})}
