"""Rungs that read a design and run nothing of it: extract, parse, held_out, novelty, judge."""

from spade_jax.config import ValidationConfig
from spade_jax.environments.validation.candidate import Candidate, Rejection
from spade_jax.text.extract import ExtractionError, extract_design


async def extract(candidate: Candidate) -> None:
    """The reply has a closed fence with a program and, where it needs one, a hint."""
    assert candidate.reply is not None, "only replies climb this rung"
    try:
        candidate.code, candidate.hint = extract_design(candidate.reply, needs_hint=candidate.needs_hint)
    except ExtractionError as error:
        raise Rejection(str(error)) from None


async def parse(candidate: Candidate) -> None:
    """The program is Python."""
    _ = candidate.tree, candidate.digest


async def held_out(candidate: Candidate) -> None:
    """It is not in the held-out set, up to wording."""
    if candidate.digest in candidate.surroundings.held_out:
        raise Rejection("the same program, up to wording, is in the held-out set")


async def novelty(candidate: Candidate) -> None:
    """It is less similar to any remembered program than `max_similarity`."""
    nearest = candidate.surroundings.nearest
    found = nearest(candidate.code) if nearest is not None else None
    if found is not None and found[1] >= candidate.config.max_similarity:
        raise Rejection(f"too similar to {found[0]}, which was designed before: {found[1]:.2f}")


async def judge(candidate: Candidate) -> None:
    """A model finds the program sound; without a verdict `judge_failure` decides."""
    ask = candidate.surroundings.judge
    if ask is None:
        raise ValueError("the rung `judge` is switched on and there is no judge; pass one to validate")
    await candidate.close()  # an answer may take minutes
    objection = judge_objection(await ask(candidate.code), candidate.config)
    if objection:
        raise Rejection(objection)


def judge_objection(verdict: bool | None, config: ValidationConfig) -> str:
    """Why a judge's verdict rejects, "" if it does not."""
    if verdict is None and config.judge_failure == "closed":
        return "the judge gave no verdict"
    return "the judge finds that it is unsound, or cannot be won" if verdict is False else ""
