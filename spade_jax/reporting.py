"""What a person sees: progress with the time left, one line a cycle, a table at the end.

On a terminal the progress bars stand below the lines. Anywhere else (a file, a pipe, a pod's log)
progress is plain lines without control characters, at most one every ten seconds.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

_LINE_EVERY = 10.0
_UNBOUNDED = 10_000

_T = TypeVar("_T")


class Bar:
    """One piece of work whose length is known; moved by `advance`."""

    def __init__(self, reporter: "Reporter", description: str, total: int):
        self._reporter = reporter
        self._description = description
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._task: TaskID | None = None
        if reporter.progress is not None:
            self._task = reporter.progress.add_task(description, total=total)

    def advance(self, steps: int = 1) -> None:
        """Counts steps as done."""
        self._done += steps
        if self._reporter.progress is not None and self._task is not None:
            self._reporter.progress.advance(self._task, steps)
        elif self._done < self._total:
            self._reporter.say_sometimes(f"{self._description} {self._done}/{self._total}{self._time_left()}")

    def close(self) -> None:
        """Takes the bar away."""
        if self._reporter.progress is not None and self._task is not None:
            self._reporter.progress.remove_task(self._task)
            self._task = None

    def _time_left(self) -> str:
        if not self._done:
            return ""
        seconds = (time.monotonic() - self._started) / self._done * (self._total - self._done)
        return f", {_duration(seconds)} left"


class Reporter:
    """Prints to one stream; bars and lines through the same object, so that they do not mix."""

    def __init__(self, stream: TextIO | None = None):
        """Starts reporting.

        Args:
          stream: where to, standard output by default.
        """
        stream = stream or sys.stdout
        # Asked of the stream itself: rich takes a file for a terminal when FORCE_COLOR is set.
        self._console = Console(
            file=stream,
            force_terminal=stream.isatty(),
            width=None if stream.isatty() else _UNBOUNDED,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._last_line = time.monotonic()
        self.progress: Progress | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self.progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                refresh_per_second=4,
                transient=True,
            )
            self.progress.start()

    def say(self, line: str) -> None:
        """Prints one line, unbroken."""
        self._last_line = time.monotonic()
        self._console.print(line, soft_wrap=True)

    def say_sometimes(self, line: str) -> None:
        """Prints a line that may be left out, at most one in ten seconds."""
        if time.monotonic() - self._last_line >= _LINE_EVERY:
            self.say(line)

    @contextlib.contextmanager
    def bar(self, description: str, total: int) -> Iterator[Bar]:
        """A bar for the work inside; bars may be nested."""
        bar = Bar(self, description, total)
        try:
            yield bar
        finally:
            bar.close()

    def track(self, items: Sequence[_T], description: str = "warm start") -> Iterator[_T]:
        """Yields `items` with a bar that counts them."""
        with self.bar(description, len(items)) as bar:
            for item in items:
                yield item
                bar.advance()

    def table(self, table: Table) -> None:
        """Prints a table, at its full width where there is no terminal to fit it to."""
        self._console.print(table)

    def summary(self, summary: Mapping[str, float]) -> None:
        """Prints the table that ends a run."""
        self.table(_summary_table(summary))

    def close(self) -> None:
        """Takes all bars away and leaves the terminal as it was."""
        if self.progress is not None:
            self.progress.stop()

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def printable(text: str) -> str:
    """Untrusted text without the characters that a terminal would obey."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def cycle_line(cycle: int, metrics: Mapping[str, float]) -> str:
    """One cycle in one line; what is not known is `-`."""

    def show(name: str, spec: str) -> str:
        return format(metrics[name], spec) if name in metrics else "-"

    return (
        f"cycle {cycle:>4}"
        f" | valid {show('design/num_valid', '.0f')}/{show('design/num_designs', '.0f')}"
        f" | win {show('play/win_rate', '.2f')}, with hint {show('play/win_rate_with_hint', '.2f')}"
        f" | regret {show('design/regret', '+.2f')}"
        f" | designer {show('design/reward', '+.2f')}"
        f" | held-out {show('heldout/solve_rate', '.3f')}"
        f" | {show('sample/tokens_per_second', '.0f')} tok/s"
        f" | design {show('seconds/design', '.1f')} s"
        f" play {show('seconds/play', '.1f')} s"
        f" update {show('seconds/update', '.1f')} s"
    )


_SUMMARY_ROWS = (
    ("held-out solve rate", "heldout/solve_rate", ".3f"),
    ("valid designs", "design/valid_rate", ".3f"),
    ("distinct designs", "design/distinct_rate", ".3f"),
    ("designer reward", "design/reward", "+.3f"),
    ("regret", "design/regret", "+.3f"),
    ("win rate", "play/win_rate", ".3f"),
    ("win rate with hint", "play/win_rate_with_hint", ".3f"),
)


def _summary_table(summary: Mapping[str, float]) -> Table:
    title = "Summary"
    if "seconds/total" in summary:
        title += f" after {_duration(summary['seconds/total'])}"
    table = Table("", "start", "end", title=title, title_justify="left")
    for label, name, spec in _SUMMARY_ROWS:
        cells = [_with_interval(summary, f"{name}_start", spec), _with_interval(summary, name, spec)]
        if any(cell != "-" for cell in cells):
            table.add_row(label, *cells)
    return table


def _with_interval(summary: Mapping[str, float], name: str, spec: str) -> str:
    if name not in summary:
        return "-"
    text = format(summary[name], spec)
    low, high = summary.get(f"{name}_low"), summary.get(f"{name}_high")
    if low is not None and high is not None:
        text += f" [{low:{spec}}, {high:{spec}}]"
    return text


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
