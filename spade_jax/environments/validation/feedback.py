"""What a designer is told about a design that was rejected, so that it can mend it."""

from spade_jax.types import ValidationReport

_WANTED = {
    "extract": "The reply must hold the whole program in one block, from a line ```python to a line ```.",
    "parse": "The program must be valid Python; in an f-string, a brace that is meant as text is doubled.",
    "static": "The program must define one class to play and use only what the sandbox has.",
    "held_out": "The environment must not be one of those that the agent is examined with.",
    "novelty": "The environment must differ from earlier ones in what has to be done, not in its wording.",
    "load": "The program must run, and its class construct, without an error.",
    "play": "reset(seed) must return (str, dict) and step(action) (str, float, bool, bool, dict), whatever "
    "the action.",
    "replay": "The same seed and actions must give the same episode; draw from random.Random(seed) alone.",
    "ends": "step must end each episode, by truncation at the latest, within max_turns turns.",
    "criteria": "After reset every criterion must be computable from the state and, the first and most of "
    "the others, still unmet.",
    "solution": "solution() must win when it is played, and a wrong answer must not.",
    "constant": "An answer that ignores the task must not win.",
    "random": "Guessing must not win; ask for more right decisions in a row, or offer more choices.",
    "answer_hidden": "The first observation must pose the task without giving its answer.",
    "hint": "The hint must help to find the answer without being the answer or containing it.",
    "judge": "The task must be solvable, and every win must be deserved.",
}


def feedback(report: ValidationReport) -> str:
    """The rung that rejected a design, what it wants and what it found; "" where none did."""
    for verdict in report.verdicts:
        if not verdict.passed:
            return f"Rejected by the check `{verdict.rung}`. {_WANTED[verdict.rung]}\n{verdict.detail}"
    return ""
