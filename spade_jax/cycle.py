"""One self-play cycle, in the order of the paper (arXiv 2608.19197, algorithm 1).

    draw contexts -> propose -> validate -> play without and with hint -> estimate regret
        -> reward the designer, compare the agent's returns -> pack -> update -> remember

State is two values, a device `TrainState` and a host `SelfPlayState`; a cycle takes both and returns
both. What is built once for a run travels in `Machinery`.
"""

import asyncio
import contextlib
import dataclasses
import functools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from spade_jax.config import Config
from spade_jax.environments.fingerprint import fingerprint
from spade_jax.environments.validation import validate
from spade_jax.grounding.corpus import Corpus
from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import Params
from spade_jax.rl.advantage import group_advantages
from spade_jax.rl.designer_reward import designer_advantages, designer_reward
from spade_jax.rl.packing import pack
from spade_jax.rl.regret import estimate_regret
from spade_jax.roles.designer import designer_prompt, read_design
from spade_jax.rollout.collect import plan_pairs, play_all
from spade_jax.rollout.episode import EpisodePlan
from spade_jax.sampling.engine import Engine, Session
from spade_jax.sampling.methods import SamplingParams
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_rng, derive_seed
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.training.state import TrainState
from spade_jax.training.update import Updater
from spade_jax.types import (
    Design,
    DesignContext,
    EnvironmentSource,
    MemoryRecord,
    RegretEstimate,
    TokenStream,
    TrainingSequence,
    Trajectory,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfPlayState:
    """What a run must remember on the host between cycles.

    Attributes:
      cycle: the next cycle to run.
      memory: past environments.
      corpus: the position in the grounding documents (`Corpus.state`), or None without grounding.
    """

    cycle: int
    memory: EnvironmentMemory
    corpus: dict[str, Any] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machinery:
    """What is built once for a run.

    Attributes:
      held_out: environments that no training may see.
      reference_params: the warm-started policy where the loss has a KL term, else None.
    """

    config: Config
    architecture: Architecture
    mesh: Mesh
    tokenizer: Tokenizer
    engine: Engine
    sandbox: SandboxPool
    updater: Updater
    corpus: Corpus | None
    held_out: list[EnvironmentSource]
    reference_params: Params | None = None

    @functools.cached_property
    def held_out_fingerprints(self) -> frozenset[str]:
        return frozenset(fingerprint(source.code) for source in self.held_out)

    async def play(
        self, plans: Sequence[EpisodePlan], *, advance: Callable[[], None] = lambda: None
    ) -> list[Trajectory]:
        """`spade_jax.rollout.collect.play_all` with this run's parts."""
        return await play_all(
            plans,
            engine=self.engine,
            sandbox=self.sandbox,
            tokenizer=self.tokenizer,
            config=self.config.agent,
            max_context=self.config.sampling.max_context,
            advance=advance,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleRecord:
    """What a cycle leaves behind for people to read."""

    designs: list[Design]
    trajectories: list[Trajectory]
    estimates: dict[str, RegretEstimate]
    rewards: dict[str, float]
    metrics: dict[str, float]


async def run_cycle(
    machinery: Machinery,
    train_state: TrainState,
    self_play: SelfPlayState,
    *,
    advance: Callable[[], None],
) -> tuple[TrainState, SelfPlayState, CycleRecord]:
    """Runs one cycle with the weights that the engine holds, which are those of `train_state`.

    Args:
      advance: called after each of the three phases design, play and update.
    """
    config, cycle = machinery.config, self_play.cycle
    clock = _Clock(advance)

    contexts = draw_contexts(machinery, self_play)
    designs = await propose(machinery, contexts, cycle)
    clock.lap("design")

    sources = [design.source for design in designs if design.source is not None]
    plans = plan_pairs(sources, episodes=config.agent.episodes, run_seed=config.seed, cycle=cycle)
    trajectories = await machinery.play(plans)
    clock.lap("play")

    groups: dict[str, tuple[list[Trajectory], list[Trajectory]]] = {
        source.environment_id: ([], []) for source in sources
    }
    for trajectory in trajectories:
        groups[trajectory.environment_id][trajectory.condition == "with_hint"].append(trajectory)
    estimates = {
        environment_id: estimate
        for environment_id, (without_hint, with_hint) in groups.items()
        if (estimate := estimate_regret(without_hint, with_hint)) is not None
    }
    rewards = reward_designs(designs, estimates, config)

    sequences: list[TrainingSequence] = []
    if config.designer.train:
        sequences += designer_sequences(designs, rewards)
    if config.agent.train:
        sequences += agent_sequences([without_hint for without_hint, _ in groups.values()])
    batch = pack(
        sequences,
        row_length=config.update.row_length,
        rows_multiple=config.update.rows_per_microbatch,
        pad_id=machinery.tokenizer.pad_id,
        role_weights={"designer": config.designer.loss_weight, "agent": config.agent.loss_weight},
    )
    train_state, update_metrics = machinery.updater.update(
        train_state, batch, reference_params=machinery.reference_params
    )
    clock.lap("update")

    records = [
        MemoryRecord(
            source=source,
            win_rate=estimates[source.environment_id].win_rate,
            regret=estimates[source.environment_id].regret,
            cycle=cycle,
        )
        for source in sources
        if source.environment_id in estimates
    ]
    self_play = SelfPlayState(
        cycle=cycle + 1,
        memory=self_play.memory.insert(records),
        corpus=machinery.corpus.state() if machinery.corpus is not None else None,
    )
    metrics = {
        **design_metrics(designs, estimates, rewards),
        **play_metrics(trajectories),
        **{f"update/{name}": value for name, value in update_metrics.items()},
        "sandbox/level": float(machinery.sandbox.level.removeprefix("L")),
        "memory/num_records": float(len(self_play.memory.records)),
        "sample/num_tokens": float(_num_sampled(designs, trajectories)),
        "sample/num_compilations": float(machinery.engine.num_compilations),
        **clock.metrics(),
    }
    metrics["sample/tokens_per_second"] = metrics["sample/num_tokens"] / (
        metrics["seconds/design"] + metrics["seconds/play"]
    )
    return (
        train_state,
        self_play,
        CycleRecord(
            designs=designs,
            trajectories=trajectories,
            estimates=estimates,
            rewards=rewards,
            metrics=metrics,
        ),
    )


def draw_contexts(machinery: Machinery, self_play: SelfPlayState) -> list[DesignContext]:
    """A skill, a document and memory records for each design of the cycle."""
    config, cycle = machinery.config, self_play.cycle
    skills = active_skills(config.designer.skills, config.designer.skills_per_cycle, cycle)
    contexts = []
    for index in range(config.designer.environments):
        rng = derive_rng(config.seed, "context", cycle, index)
        skill = skills[index % len(skills)]
        contexts.append(
            DesignContext(
                environment_id=f"c{cycle:05d}-e{index:03d}",
                skill=skill,
                document=next(machinery.corpus) if machinery.corpus is not None else None,
                **_recall(self_play.memory, skill, rng, config),
            )
        )
    return contexts


def active_skills(skills: Sequence[str], per_cycle: int, cycle: int) -> list[str]:
    """A window of `per_cycle` skills that moves round by its own length each cycle; all if 0."""
    if per_cycle == 0 or per_cycle >= len(skills):
        return list(skills)
    return [skills[(cycle * per_cycle + offset) % len(skills)] for offset in range(per_cycle)]


def _recall(memory: EnvironmentMemory, skill: str, rng: random.Random, config: Config) -> dict[str, Any]:
    if not config.memory.enabled:
        return {}
    return {
        "positives": tuple(memory.positives(skill, config.memory.positives, rng, config.memory)),
        "negative": memory.negative(skill, rng, config.memory),
    }


async def propose(machinery: Machinery, contexts: Sequence[DesignContext], cycle: int) -> list[Design]:
    """One sampled reply for each context, validated in the sandbox."""
    config, tokenizer = machinery.config, machinery.tokenizer

    async def write(index: int, context: DesignContext, session: Session) -> tuple[str, TokenStream]:
        with session:
            completion = await session.generate(
                designer_prompt(context, tokenizer, config),
                SamplingParams(
                    max_tokens=config.designer.max_tokens,
                    temperature=config.designer.temperature,
                    seed=derive_seed(config.seed, "designer", cycle, index),
                    stop_ids=(tokenizer.end_id,),
                ),
            )
            stopped = completion.finish_reason == "stop"
            reply = tokenizer.decode(completion.tokens[:-1] if stopped else completion.tokens)
            return reply, session.stream(config.designer.temperature)

    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(machinery.engine.session((index,))) for index in range(len(contexts))]
        replies = await asyncio.gather(*map(write, range(len(contexts)), contexts, sessions))

    reports = await asyncio.gather(
        *(
            validate(
                context.environment_id,
                reply,
                sandbox=machinery.sandbox,
                held_out=machinery.held_out_fingerprints,
            )
            for context, (reply, _) in zip(contexts, replies, strict=True)
        )
    )
    return [
        Design(
            context=context,
            reply=reply,
            stream=stream,
            source=read_design(context, reply) if report.valid else None,
            report=report,
        )
        for context, (reply, stream), report in zip(contexts, replies, reports, strict=True)
    ]


def reward_designs(
    designs: Sequence[Design], estimates: dict[str, RegretEstimate], config: Config
) -> dict[str, float]:
    """A reward for each design of which something is known.

    A rejected design has the configured reward. A valid one whose regret could not be estimated, and
    one that met a host fault, has none: it is left out, never given a neutral number.
    """
    rewards = {}
    for design in designs:
        environment_id = design.context.environment_id
        if environment_id in estimates:
            rewards[environment_id] = designer_reward(estimates[environment_id], config.designer)
        elif design.report.rejected_by:
            rewards[environment_id] = config.designer.rejected_reward
    return rewards


def designer_sequences(designs: Sequence[Design], rewards: dict[str, float]) -> list[TrainingSequence]:
    """Rewarded designs with advantages centred within their skill."""
    rewarded = [design for design in designs if design.context.environment_id in rewards]
    advantages = designer_advantages(
        [rewards[design.context.environment_id] for design in rewarded],
        [design.context.skill for design in rewarded],
    )
    return [
        TrainingSequence(role="designer", stream=design.stream, advantage=advantage)
        for design, advantage in zip(rewarded, advantages, strict=True)
    ]


def agent_sequences(groups: Sequence[Sequence[Trajectory]]) -> list[TrainingSequence]:
    """Episodes without hint, compared within their environment; groups that agree teach nothing."""
    sequences = []
    for group in groups:
        good = [trajectory for trajectory in group if not trajectory.failure]
        advantages = group_advantages([trajectory.episode_return for trajectory in good])
        if advantages is None:
            continue
        sequences += [
            TrainingSequence(role="agent", stream=trajectory.stream, advantage=float(advantage))
            for trajectory, advantage in zip(good, advantages, strict=True)
            if trajectory.stream.loss_mask.any()
        ]
    return sequences


def design_metrics(
    designs: Sequence[Design], estimates: dict[str, RegretEstimate], rewards: dict[str, float]
) -> dict[str, float]:
    """Counts by rung and means over what is known; a mean over nothing is left out."""
    valid = [design.source for design in designs if design.source is not None]
    metrics = {
        "design/num_designs": float(len(designs)),
        "design/num_valid": float(len(valid)),
        "design/valid_rate": len(valid) / len(designs),
        "design/num_host_faults": float(sum(design.report.host_fault for design in designs)),
    }
    for design in designs:
        if design.report.rejected_by:
            name = f"design/rejected/{design.report.rejected_by}"
            metrics[name] = metrics.get(name, 0.0) + 1.0
    if valid:
        metrics["design/distinct_rate"] = len({source.code for source in valid}) / len(valid)
    if rewards:
        metrics["design/reward"] = float(np.mean(list(rewards.values())))
    if estimates:
        metrics["design/regret"] = float(np.mean([item.regret for item in estimates.values()]))
        spreads = [item.standard_error for item in estimates.values() if item.num_pairs > 1]
        if spreads:
            metrics["design/regret_standard_error"] = float(np.mean(spreads))
        in_band = [0.2 <= item.win_rate <= 0.8 for item in estimates.values()]
        metrics["design/learnable_rate"] = float(np.mean(in_band))
    return metrics


def play_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Win rates over good episodes in each condition, and failures by kind."""
    metrics = {"play/num_episodes": float(len(trajectories)), "play/num_failed": 0.0}
    for condition, name in (("without_hint", "play/win_rate"), ("with_hint", "play/win_rate_with_hint")):
        wins = [
            trajectory.episode_return > 0
            for trajectory in trajectories
            if trajectory.condition == condition and not trajectory.failure
        ]
        if wins:
            metrics[name] = float(np.mean(wins))
    for trajectory in trajectories:
        if trajectory.failure:
            metrics["play/num_failed"] += 1.0
            name = f"play/failed/{trajectory.failure}"
            metrics[name] = metrics.get(name, 0.0) + 1.0
    good = [trajectory for trajectory in trajectories if not trajectory.failure]
    if good:
        metrics["play/num_turns"] = float(np.mean([len(trajectory.turns) for trajectory in good]))
        metrics["play/truncated_rate"] = float(np.mean([trajectory.truncated for trajectory in good]))
    return metrics


def _num_sampled(designs: Sequence[Design], trajectories: Sequence[Trajectory]) -> int:
    streams = [design.stream for design in designs] + [trajectory.stream for trajectory in trajectories]
    return sum(int(stream.loss_mask.sum()) for stream in streams)


class _Clock:
    """Seconds of each phase and of the whole cycle."""

    def __init__(self, advance: Callable[[], None]) -> None:
        self._advance = advance
        self._start = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[f"seconds/{name}"] = now - self._last
        self._last = now
        self._advance()

    def metrics(self) -> dict[str, float]:
        return {**self._laps, "seconds/cycle": time.perf_counter() - self._start}
