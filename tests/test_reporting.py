import io

import pytest

from spade_jax import reporting
from spade_jax.reporting import Reporter, cycle_line

METRICS = {
    "design/num_valid": 11.0,
    "design/num_designs": 12.0,
    "play/win_rate": 0.41,
    "play/win_rate_with_hint": 0.66,
    "design/regret": -0.02,
    "design/reward": 0.5,
    "heldout/solve_rate": 0.312,
    "sample/tokens_per_second": 5210.4,
    "seconds/design": 0.41,
    "seconds/play": 0.7,
    "seconds/update": 0.33,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _capable_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves a second each time that it is read."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(reporting.time, "monotonic", lambda: float(next(seconds)))


def test_cycle_line():
    assert cycle_line(12, METRICS) == (
        "cycle   12 | valid 11/12 | win 0.41, with hint 0.66 | regret -0.02 | designer +0.50 | held-out 0.312"
        " | 5210 tok/s | design 0.4 s play 0.7 s update 0.3 s"
    )


@pytest.mark.parametrize("name", sorted(METRICS))
def test_what_is_not_known_is_a_dash_and_nothing_else_changes(name):
    known = {key: value for key, value in METRICS.items() if key != name}
    whole, line = cycle_line(3, METRICS).split(), cycle_line(3, known).split()
    (changed,) = [(old, new) for old, new in zip(whole, line, strict=True) if old != new]
    assert "-" in changed[1]
    assert cycle_line(3, {}).count("-") >= len(METRICS)


@pytest.mark.parametrize("force_color", ["", "1"])
def test_without_a_terminal_there_are_plain_lines_and_few_of_them(monkeypatch, clock, force_color):
    monkeypatch.setenv("FORCE_COLOR", force_color)
    stream = io.StringIO()
    with Reporter(stream) as reporter:
        assert list(reporter.track(range(200), "warm start")) == list(range(200))
        reporter.say("a line that is longer than any terminal is wide [red]" + "x" * 200)
        reporter.summary({"heldout/solve_rate": 0.4, "seconds/total": 61.0})
    text = stream.getvalue()
    assert text.replace("\n", "").isprintable()
    lines = [line for line in text.splitlines() if line.startswith("warm start")]
    assert 200 // 15 < len(lines) < 2 * 200 // 10 + 1  # the clock moves once or twice a step
    assert all(line.endswith(" left") for line in lines)
    assert "wide [red]" + "x" * 200 in text


def test_time_left_is_that_of_the_steps_to_come(clock):
    stream = io.StringIO()
    with Reporter(stream) as reporter, reporter.bar("evaluation", 4000) as bar:
        bar.advance(1000)
        for _ in range(20):
            bar.advance(0)
    (line, *_) = stream.getvalue().splitlines()
    assert line.startswith("evaluation 1000/4000, ")
    seconds = int(line.split(", ")[1].split()[0])
    assert 3 * 8 <= seconds <= 3 * 12


def test_on_a_terminal_bars_come_and_go():
    stream = Terminal()
    with Reporter(stream) as reporter:
        with reporter.bar("cycles", 3) as outer, reporter.bar("cycle 0", 2) as inner:
            inner.advance()
            reporter.say("a line above")
            outer.advance()
            reporter.progress.refresh()
            assert len(reporter.progress.tasks) == 2
        assert not reporter.progress.tasks
    text = stream.getvalue()
    assert "cycles" in text
    assert "1/2" in text
    assert "a line above\n" in text.replace("\r", "")


def test_a_bar_goes_when_the_work_fails():
    with Reporter(Terminal()) as reporter:
        with pytest.raises(KeyError), reporter.bar("evaluation", 3):
            raise KeyError
        assert not reporter.progress.tasks


def test_summary_shows_start_and_end_with_their_intervals():
    stream = io.StringIO()
    summary = {
        "heldout/solve_rate_start": 0.2,
        "heldout/solve_rate_start_low": 0.15,
        "heldout/solve_rate_start_high": 0.25,
        "heldout/solve_rate": 0.5,
        "design/reward": 0.4,
        "seconds/total": 3725.0,
    }
    with Reporter(stream) as reporter:
        reporter.summary(summary)
    text = stream.getvalue()
    (solve_rate,) = [line for line in text.splitlines() if "held-out" in line]
    assert "0.200 [0.150, 0.250]" in solve_rate
    assert "0.500" in solve_rate
    assert "1 h 02 min" in text
    assert "regret" not in text
