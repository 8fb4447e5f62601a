"""The validation ladder: what a designer's reply must pass before anyone plays it.

Rungs in order; the first that fails ends the climb and names the rejection:

    extract   the reply has a closed Python fence and a hint
    parse     the text is Python
    held_out  it is not an environment of the held-out set in other words
    load      the source runs and its class constructs, in the sandbox
    play      two instances reset and answer some turns within the contract
    replay    the same seeds and actions in a fresh child of another zygote give the same answers

Passing says that the environment keeps its contract, not that it is a good one: that is what regret
and the plateau are for. A fault of the sandbox itself is no verdict on the design.
"""

import random
import re
from collections.abc import Sequence

from spade_jax.environments.fingerprint import fingerprint
from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.sandbox.environment import SandboxedEnvironment
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.text.extract import ExtractionError, extract_design
from spade_jax.types import ValidationReport, Verdict

PROBE_SEEDS = (0, 1)
PROBE_TURNS = 4


async def validate(
    environment_id: str, reply: str, *, sandbox: SandboxPool, held_out: frozenset[str]
) -> ValidationReport:
    """Climbs the ladder with one designer reply.

    Args:
      environment_id: for the report.
      reply: the designer's text as sampled.
      sandbox: where the source runs; nothing of it runs anywhere else.
      held_out: fingerprints of the held-out environments.
    """
    verdicts: list[Verdict] = []

    def report(*, host_fault: bool = False) -> ValidationReport:
        return ValidationReport(
            environment_id=environment_id, verdicts=tuple(verdicts), host_fault=host_fault
        )

    def passed(rung: str) -> None:
        verdicts.append(Verdict(rung=rung, passed=True))

    def rejected(rung: str, detail: str) -> ValidationReport:
        verdicts.append(Verdict(rung=rung, passed=False, detail=detail))
        return report()

    try:
        code, _ = extract_design(reply)
    except ExtractionError as error:
        return rejected("extract", str(error))
    passed("extract")

    try:
        digest = fingerprint(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return rejected("parse", str(error))
    passed("parse")

    if digest in held_out:
        return rejected("held_out", "the same program, up to wording, is in the held-out set")
    passed("held_out")

    rung = "load"
    try:
        async with await sandbox.open(code) as environment:
            passed(rung)
            rung = "play"
            transcript = await _probe(environment, actions=None)
            passed(rung)
        rung = "replay"
        async with await sandbox.open(code) as environment:
            again = await _probe(environment, actions=[action for action, _ in transcript])
    except EnvironmentFailure as failure:
        return rejected(rung, str(failure))
    except HostFault:
        return report(host_fault=True)
    if again != transcript:
        return rejected("replay", _first_difference(transcript, again))
    passed("replay")
    return report()


async def _probe(
    environment: SandboxedEnvironment, *, actions: Sequence[str] | None
) -> list[tuple[str, object]]:
    """Plays the probe seeds; actions are words of the observations, or those of an earlier probe."""
    transcript: list[tuple[str, object]] = []
    for seed in PROBE_SEEDS:
        rng = random.Random(seed)
        reset = await environment.reset(seed)
        observation = reset.observation
        transcript.append(("", reset))
        for _ in range(PROBE_TURNS):
            if actions is None:
                words = re.findall(r"\w+", observation) or ["1"]
                action = f"\\boxed{{{rng.choice(words)}}}"
            else:
                action = actions[len(transcript)]
            step = await environment.step(action)
            transcript.append((action, step))
            if step.terminated or step.truncated:
                break
            observation = step.observation
    return transcript


def _first_difference(first: list[tuple[str, object]], second: list[tuple[str, object]]) -> str:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return f"answer {index} was {one[1]!r} and then {other[1]!r}"[:500]
    return f"{len(first)} answers and then {len(second)}"
