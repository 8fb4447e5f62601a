"""The designer at work: contexts in, validated designs with their hints out.

    prompts -> replies -> validation -> judge -> repairs -> hints

Each phase is done for all designs before the next begins, so that what is sampled together never
depends on timing. Only a design's first reply is ever trained on: what a repair turn mended is played
and remembered like any other environment, and its design counts as rejected.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from spade_jax.config import Config
from spade_jax.environments.validation import feedback, judge_objection, validate, validate_hint
from spade_jax.errors import EndpointError, HostFault
from spade_jax.memory.novelty import NoveltyIndex
from spade_jax.roles.designer import fitting_messages, read_design, repair_message
from spade_jax.roles.hints import hint_messages, read_hint
from spade_jax.roles.judge import judge_messages, read_verdict
from spade_jax.rollout.conversation import Conversation, Reply
from spade_jax.sampling.engine import Engine, Session
from spade_jax.sampling.methods import SamplingParams
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_seed
from spade_jax.text.chat import Chat, Message
from spade_jax.text.extract import ExtractionError
from spade_jax.types import Design, DesignContext, EnvironmentSource, TokenStream, ValidationReport, Verdict

Nearest = Callable[[str], tuple[str, float] | None]

_LOG = logging.getLogger(__name__)


class Advisor(Protocol):
    """A model elsewhere (`spade_jax.roles.endpoint.Endpoint`)."""

    async def ask(self, messages: Sequence[Message], *, max_tokens: int, temperature: float) -> str:
        """The answer to a conversation.

        Raises:
          EndpointError: there is none.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Studio:
    """What designing needs.

    Attributes:
      held_out: fingerprints of the held-out environments.
      remembered: programs that a design has to differ from, with their ids.
      endpoint: for hints and judgements that the policy does not make.
    """

    config: Config
    engine: Engine
    sandbox: SandboxPool
    chat: Chat
    held_out: frozenset[str]
    remembered: Sequence[tuple[str, str]]
    endpoint: Advisor | None


class Written(NamedTuple):
    """A reply of the policy and the tokens that it was sampled in."""

    reply: Reply
    stream: TokenStream


async def propose(contexts: Sequence[DesignContext], studio: Studio) -> list[Design]:
    """One design for each context, in their order."""
    config = studio.config
    prompts = [fitting_messages(context, studio.chat, config) for context in contexts]
    written = await _write(prompts, [context.seed for context in contexts], studio)
    replies = [reply.text for reply, _ in written]
    reports = await _validate(contexts, replies, studio)
    designs = [
        Design(
            context=context,
            reply=reply,
            stream=stream,
            source=_source(context, reply, report, config),
            report=report,
        )
        for context, reply, (_, stream), report in zip(contexts, replies, written, reports, strict=True)
    ]
    if config.designer.repair_turns:
        designs = await _repair(designs, prompts, studio)
    if config.hint.source != "design":
        designs = await _add_hints(designs, studio)
    return designs


async def _validate(
    contexts: Sequence[DesignContext], replies: Sequence[str], studio: Studio
) -> list[ValidationReport]:
    """Climbs the ladder with each reply; the judge, who may be the policy itself, comes last."""
    config, nearest = studio.config, _novelty(studio)
    rungs = tuple(rung for rung in config.validation.rungs if rung != "judge")
    before_judge = dataclasses.replace(config.validation, rungs=rungs)
    reports = await asyncio.gather(
        *(
            validate(
                context.environment_id,
                reply,
                sandbox=studio.sandbox,
                config=before_judge,
                setting=config.setting,
                max_turns=config.agent.max_turns,
                held_out=studio.held_out,
                needs_hint=config.hint.source == "design",
                nearest=nearest(context),
            )
            for context, reply in zip(contexts, replies, strict=True)
        )
    )
    if "judge" not in config.validation.rungs:
        return list(reports)
    passed = [index for index, report in enumerate(reports) if report.valid]
    answers = await _consult(
        [
            judge_messages(_read(contexts[index], replies[index], config), setting=config.setting)
            for index in passed
        ],
        [derive_seed(contexts[index].seed, "judge") for index in passed],
        studio,
        by=config.validation.judge,
        max_tokens=config.validation.judge_max_tokens,
        temperature=config.validation.judge_temperature,
    )
    for index, answer in zip(passed, answers, strict=True):
        objection = judge_objection(None if answer is None else read_verdict(answer), config.validation)
        verdict = Verdict(rung="judge", passed=not objection, detail=objection)
        reports[index] = dataclasses.replace(reports[index], verdicts=(*reports[index].verdicts, verdict))
    return list(reports)


def _novelty(studio: Studio) -> Callable[[DesignContext], Nearest | None]:
    """For each context, what finds the nearest remembered program; a change may be near its parent."""
    if "novelty" not in studio.config.validation.rungs:
        return lambda context: None
    index = NoveltyIndex(studio.remembered)

    def nearest(context: DesignContext) -> Nearest:
        if context.parent is None:
            return index.nearest
        parent = context.parent.source.environment_id
        return NoveltyIndex(pair for pair in studio.remembered if pair[0] != parent).nearest

    return nearest


async def _repair(
    designs: Sequence[Design], prompts: Sequence[list[Message]], studio: Studio
) -> list[Design]:
    """Tells the designer what was wrong, and takes the first environment that is right."""
    designs = list(designs)
    talks = {
        index: [*prompts[index], Message(role="assistant", content=design.reply)]
        for index, design in enumerate(designs)
        if design.source is None and not design.report.host_fault
    }
    reports = {index: designs[index].report for index in talks}
    for turn in range(studio.config.designer.repair_turns):
        indices = sorted(talks)
        for index in indices:
            talks[index].append(repair_message(feedback(reports[index])))
        seeds = [derive_seed(designs[index].context.seed, "repair", turn) for index in indices]
        written = await _write([talks[index] for index in indices], seeds, studio)
        contexts = [designs[index].context for index in indices]
        replies = [reply.text for reply, _ in written]
        for index, reply, report in zip(
            indices, replies, await _validate(contexts, replies, studio), strict=True
        ):
            source = _source(designs[index].context, reply, report, studio.config)
            if source is not None or report.host_fault:
                designs[index] = dataclasses.replace(designs[index], source=source)
                del talks[index]
            else:
                talks[index].append(Message(role="assistant", content=reply))
                reports[index] = report
    return designs


async def _add_hints(designs: Sequence[Design], studio: Studio) -> list[Design]:
    """Asks for a hint to each environment; one that is unusable is named and left out."""
    config = studio.config
    designs = list(designs)
    indices = [index for index, design in enumerate(designs) if design.source is not None]
    sources = [design.source for design in designs if design.source is not None]
    answers = await _consult(
        [hint_messages(source, setting=config.setting) for source in sources],
        [derive_seed(designs[index].context.seed, "hint") for index in indices],
        studio,
        by="endpoint" if config.hint.source == "endpoint" else "self",
        max_tokens=config.hint.max_tokens,
        temperature=config.hint.temperature,
    )
    hinted = await asyncio.gather(*map(_hinted, sources, answers, [studio] * len(sources)))
    for index, (source, failure) in zip(indices, hinted, strict=True):
        designs[index] = dataclasses.replace(designs[index], source=source, hint_failure=failure)
    return designs


async def _hinted(
    source: EnvironmentSource, answer: str | None, studio: Studio
) -> tuple[EnvironmentSource, str]:
    """The environment with its hint, or without one and why."""
    if answer is None:
        return source, "no_answer"
    try:
        with_hint = dataclasses.replace(source, hint=read_hint(answer))
    except ExtractionError as error:
        return source, error.kind
    if "hint" not in studio.config.validation.rungs:
        return with_hint, ""
    try:
        verdict = await validate_hint(
            with_hint,
            sandbox=studio.sandbox,
            config=studio.config.validation,
            setting=studio.config.setting,
            max_turns=studio.config.agent.max_turns,
        )
    except HostFault:
        return source, "host_fault"
    return (with_hint, "") if verdict.passed else (source, "leak")


async def _consult(
    prompts: Sequence[list[Message]],
    seeds: Sequence[int],
    studio: Studio,
    *,
    by: str,
    max_tokens: int,
    temperature: float,
) -> list[str | None]:
    """An answer to each prompt, by the policy or the endpoint; None where there was none."""
    if by == "endpoint":
        endpoint = studio.endpoint
        assert endpoint is not None, "a config that needs an endpoint is built with one"

        async def ask(prompt: list[Message]) -> str | None:
            try:
                return await endpoint.ask(prompt, max_tokens=max_tokens, temperature=temperature)
            except EndpointError as error:
                _LOG.warning("%s", error)
                return None

        return await asyncio.gather(*map(ask, prompts))
    written = await _write(prompts, seeds, studio, max_tokens=max_tokens, temperature=temperature)
    return [reply.text if reply.finished else None for reply, _ in written]


async def _write(
    prompts: Sequence[list[Message]],
    seeds: Sequence[int],
    studio: Studio,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
) -> list[Written]:
    """Samples a reply to each prompt, all side by side, by default as the designer."""
    designer = studio.config.designer

    async def write(prompt: list[Message], seed: int, session: Session) -> Written:
        with session:
            conversation = Conversation(
                session,
                studio.chat,
                sampling=SamplingParams(
                    max_tokens=max_tokens or designer.max_tokens,
                    temperature=temperature or designer.temperature,
                    top_p=designer.top_p,
                    top_k=designer.top_k,
                    seed=seed,
                    stop_ids=studio.chat.stop_ids,
                ),
                max_context=studio.config.sampling.max_context,
                thinking=designer.thinking,
            )
            reply = await conversation.ask(prompt)
            (stream,) = conversation.streams()
            return Written(reply or Reply(text="", finished=False), stream)

    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(studio.engine.session((index,))) for index in range(len(prompts))]
        return await asyncio.gather(*map(write, prompts, seeds, sessions))


def _source(
    context: DesignContext, reply: str, report: ValidationReport, config: Config
) -> EnvironmentSource | None:
    return _read(context, reply, config) if report.valid else None


def _read(context: DesignContext, reply: str, config: Config) -> EnvironmentSource:
    return read_design(context, reply, needs_hint=config.hint.source == "design")
