"""The climb itself: which rungs there are and how a design goes up them."""

from collections.abc import Awaitable, Callable, Sequence

from spade_jax.config import ValidationConfig
from spade_jax.environments.validation import chance, contract, leaks, tasks, text_rungs
from spade_jax.environments.validation.candidate import (
    Candidate,
    Judge,
    Nearest,
    Rejection,
    Surroundings,
)
from spade_jax.environments.validation.static import static
from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.types import RUNGS, EnvironmentSource, Setting, ValidationReport, Verdict

# A rung returns if the design passes, and raises Rejection or EnvironmentFailure if not.
CHECKS: dict[str, Callable[[Candidate], Awaitable[None]]] = {
    "extract": text_rungs.extract,
    "parse": text_rungs.parse,
    "static": static,
    "held_out": text_rungs.held_out,
    "novelty": text_rungs.novelty,
    "load": contract.load,
    "play": contract.play,
    "replay": contract.replay,
    "ends": contract.ends,
    "criteria": tasks.criteria,
    "solution": tasks.solution,
    "constant": chance.constant,
    "random": chance.random_policy,
    "answer_hidden": leaks.answer_hidden,
    "hint": leaks.hint,
    "judge": text_rungs.judge,
}


async def validate(
    environment_id: str,
    reply: str,
    *,
    sandbox: SandboxPool,
    config: ValidationConfig,
    held_out: frozenset[str],
    setting: Setting,
    max_turns: int,
    needs_hint: bool = True,
    nearest: Nearest | None = None,
    judge: Judge | None = None,
) -> ValidationReport:
    """Climbs the ladder with one designer reply.

    The rung `extract` is climbed even where it is switched off, as without a program there is nothing else
    to look at; the rung `hint` only where the reply must have one.

    Args:
      environment_id: for the report.
      reply: the designer's text as sampled.
      sandbox: where the source runs; nothing of it runs anywhere else.
      config: the rungs in force and their numbers.
      held_out, setting, max_turns, nearest, judge: see `Surroundings`.
      needs_hint: whether hints come from the designs.

    Raises:
      ValueError: the rung `judge` is reached and there is no judge.
    """
    surroundings = Surroundings(
        sandbox=sandbox,
        config=config,
        held_out=held_out,
        setting=setting,
        max_turns=max_turns,
        nearest=nearest,
        judge=judge,
    )
    absent = set() if needs_hint else {"hint"}
    rungs = [rung for rung in RUNGS if rung in {*config.rungs, "extract"} - absent]
    async with Candidate(surroundings, reply=reply, needs_hint=needs_hint) as candidate:
        return await _climb(environment_id, candidate, rungs)


async def validate_source(
    source: EnvironmentSource,
    *,
    sandbox: SandboxPool,
    config: ValidationConfig,
    setting: Setting,
    max_turns: int,
    held_out: frozenset[str] = frozenset(),
    nearest: Nearest | None = None,
    judge: Judge | None = None,
) -> ValidationReport:
    """Climbs the ladder with a program that exists already, so that nothing is extracted.

    The rung `hint` is climbed where the source has one. Arguments and errors as for `validate`.
    """
    surroundings = Surroundings(
        sandbox=sandbox,
        config=config,
        held_out=held_out,
        setting=setting,
        max_turns=max_turns,
        nearest=nearest,
        judge=judge,
    )
    absent = {"extract"} if source.hint else {"extract", "hint"}
    rungs = [rung for rung in RUNGS if rung in config.rungs and rung not in absent]
    async with Candidate(surroundings, code=source.code, hint=source.hint) as candidate:
        return await _climb(source.environment_id, candidate, rungs)


async def validate_hint(
    source: EnvironmentSource,
    *,
    sandbox: SandboxPool,
    config: ValidationConfig,
    setting: Setting,
    max_turns: int,
) -> Verdict:
    """The verdict of the rung `hint` alone, for a hint that was written after its program had passed.

    A hint passes where the rung is switched off.

    Raises:
      HostFault: the sandbox failed; nothing is known about the hint.
    """
    surroundings = Surroundings(
        sandbox=sandbox, config=config, held_out=frozenset(), setting=setting, max_turns=max_turns
    )
    if "hint" not in config.rungs:
        return Verdict(rung="hint", passed=True)
    async with Candidate(surroundings, code=source.code, hint=source.hint) as candidate:
        return await _try(candidate, "hint")


async def _climb(environment_id: str, candidate: Candidate, rungs: Sequence[str]) -> ValidationReport:
    verdicts: list[Verdict] = []
    host_fault = False
    for rung in rungs:
        try:
            verdicts.append(await _try(candidate, rung))
        except HostFault:
            host_fault = True
            break
        if not verdicts[-1].passed:
            break
    return ValidationReport(environment_id=environment_id, verdicts=tuple(verdicts), host_fault=host_fault)


async def _try(candidate: Candidate, rung: str) -> Verdict:
    """What one rung finds; an environment that fails on it is rejected by it."""
    candidate.begin_rung()
    try:
        await CHECKS[rung](candidate)
    except (Rejection, EnvironmentFailure) as error:
        return Verdict(rung=rung, passed=False, detail=str(error))
    return Verdict(rung=rung, passed=True)
