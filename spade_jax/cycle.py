"""One self-play cycle, in the order of the paper (arXiv 2608.19197, algorithm 1).

    draw contexts -> propose -> validate -> play without and with hint -> estimate regret
        -> reward the designs that are due, compare the agent's returns -> pack -> update -> remember

Designs are asked for every `designer.interval` cycles and played in all cycles until the next ones;
their hints are tried in the first. A design is rewarded, and trained on, `designer.delay` cycles after
it was written, for all plays in between; without a delay at once. The last cycle settles all that are
still open.

State is two values, a device `TrainState` and a host `SelfPlayState`; a cycle takes both and returns
both. What is built once for a run travels in `Machinery`.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from spade_jax.config import Config
from spade_jax.cycle_metrics import design_metrics, play_metrics
from spade_jax.environments.fingerprint import fingerprint
from spade_jax.grounding.corpus import Corpus
from spade_jax.memory.difficulty import difficulty_for
from spade_jax.memory.diversity import diversity
from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import Params
from spade_jax.rl.advantage import group_advantages, updated_baseline
from spade_jax.rl.designer_reward import balance_factor, designer_advantages, designer_rewards
from spade_jax.rl.learning_trackers import LearningTrackers
from spade_jax.rl.packing import PackedBatch, pack
from spade_jax.rl.regret import estimate_regret
from spade_jax.rollout.collect import plan_episodes, play_all
from spade_jax.rollout.episode import EpisodePlan
from spade_jax.rollout.propose import Advisor, Studio, propose
from spade_jax.sampling.engine import Engine
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_rng, derive_seed
from spade_jax.self_play import OpenDesign, SelfPlayState
from spade_jax.text.chat import Chat
from spade_jax.training.device_memory import device_memory
from spade_jax.training.mesh import num_row_shards
from spade_jax.training.state import TrainState
from spade_jax.training.update import Updater
from spade_jax.types import (
    Design,
    DesignContext,
    EnvironmentSource,
    MemoryRecord,
    PlayHistory,
    RegretEstimate,
    Role,
    TrainingSequence,
    Trajectory,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machinery:
    """What is built once for a run.

    Attributes:
      held_out: environments that no training may see.
      endpoint: for hints and judgements that the policy does not make, None where the config has none.
      reference_params: the policy at the start where the loss has a KL term, else None.
    """

    config: Config
    architecture: Architecture
    mesh: Mesh
    chat: Chat
    engine: Engine
    sandbox: SandboxPool
    updater: Updater
    corpus: Corpus | None
    held_out: list[EnvironmentSource]
    endpoint: Advisor | None = None
    reference_params: Params | None = None

    @functools.cached_property
    def held_out_fingerprints(self) -> frozenset[str]:
        return frozenset(fingerprint(source.code) for source in self.held_out)

    def studio(self, memory: EnvironmentMemory) -> Studio:
        """What designing needs, with the memory that a design has to differ from."""
        return Studio(
            config=self.config,
            engine=self.engine,
            sandbox=self.sandbox,
            chat=self.chat,
            held_out=self.held_out_fingerprints,
            remembered=[(record.source.environment_id, record.source.code) for record in memory.records],
            endpoint=self.endpoint,
        )

    async def play(
        self, plans: Sequence[EpisodePlan], *, advance: Callable[[], None] = lambda: None
    ) -> list[Trajectory]:
        """`spade_jax.rollout.collect.play_all` with this run's parts."""
        return await play_all(
            plans,
            engine=self.engine,
            sandbox=self.sandbox,
            chat=self.chat,
            config=self.config.agent,
            max_context=self.config.sampling.max_context,
            advance=advance,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleRecord:
    """What a cycle leaves behind for people to read.

    Attributes:
      estimates: of the environments whose hints were tried in this cycle.
      rewards: of the designs that were rewarded in this cycle.
      sequences: what the update learned from, in the order in which it was packed.
    """

    designs: list[Design]
    trajectories: list[Trajectory]
    estimates: dict[str, RegretEstimate]
    rewards: dict[str, float]
    sequences: list[TrainingSequence]
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plays:
    """The episodes of one environment in one cycle."""

    without_hint: list[Trajectory]
    with_hint: list[Trajectory]


async def run_cycle(
    machinery: Machinery,
    train_state: TrainState,
    self_play: SelfPlayState,
    *,
    advance: Callable[[], None],
) -> tuple[TrainState, SelfPlayState, CycleRecord]:
    """Runs one cycle with the weights that the engine holds, which are those of `train_state`.

    Of its metrics, `seconds/update_step` is the update alone, from the packed batch to the new weights, and
    `seconds/host_wait` the part of the cycle in which the device had neither that nor sampling to do: it
    waited for environments, prompts and packing. What is compiled meanwhile counts as the device's time.

    Args:
      advance: called after each of the three phases design, play and update.
    """
    config, cycle = machinery.config, self_play.cycle
    clock = _Clock(advance)
    sampled_before = machinery.engine.busy_seconds

    designs: list[Design] = []
    is_first_play = cycle % config.designer.interval == 0
    if is_first_play:
        designs, self_play = await renew(machinery, self_play)
    clock.lap("design")

    hinted = {source.environment_id for source in self_play.pool} if is_first_play else set()
    trajectories = await machinery.play(
        plan_episodes(self_play.pool, hinted=hinted, config=config.agent, run_seed=config.seed, cycle=cycle)
    )
    clock.lap("play")

    plays = group_plays(self_play.pool, trajectories)
    estimates = estimate_regrets(plays, config) if is_first_play else {}
    due, still_open = settle(self_play.open_designs, plays, estimates, config, cycle=cycle)
    rewards, trackers = reward_designs(due, config, self_play.trackers)

    agent, baselines = agent_sequences(plays, config, self_play.baselines)
    designer = designer_sequences(due, rewards)
    sequences = balance(
        designer if config.designer.train else [], agent if config.agent.train else [], config
    )
    batch = assemble(sequences, config, pad_id=machinery.chat.pad_id, mesh=machinery.mesh)
    step_started = time.perf_counter()
    train_state, update_metrics = machinery.updater.update(
        train_state, batch, reference_params=machinery.reference_params
    )
    update_step = time.perf_counter() - step_started
    clock.lap("update")

    self_play = dataclasses.replace(
        self_play,
        cycle=cycle + 1,
        memory=remember(self_play, estimates, config),
        corpus=machinery.corpus.state() if machinery.corpus is not None else None,
        open_designs=still_open,
        trackers=trackers,
        baselines=baselines,
    )
    metrics = {
        **design_metrics(designs, estimates, rewards, diversity=diversity),
        **play_metrics(trajectories),
        **{f"update/{name}": value for name, value in update_metrics.items()},
        "sandbox/level": float(machinery.sandbox.level.removeprefix("L")),
        "memory/num_records": float(len(self_play.memory.records)),
        "sample/num_tokens": float(_num_sampled(designs, trajectories)),
        "sample/num_compilations": float(machinery.engine.num_compilations),
        **device_memory(jax.local_devices()),
        "seconds/update_step": update_step,
        **clock.metrics(),
    }
    device_busy = machinery.engine.busy_seconds - sampled_before + update_step
    metrics["seconds/host_wait"] = metrics["seconds/cycle"] - device_busy
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
            sequences=sequences,
            metrics=metrics,
        ),
    )


async def renew(machinery: Machinery, self_play: SelfPlayState) -> tuple[list[Design], SelfPlayState]:
    """New environments to play: remembered ones that are due again, and new designs for the rest.

    Each reply is a design of its own, also where more than one is asked for until one is valid.
    """
    config, cycle = machinery.config, self_play.cycle
    memory = self_play.memory
    replayed = memory.replay(
        round(config.memory.replay * config.designer.environments),
        cycle=cycle,
        rng=derive_rng(config.seed, "replay", cycle),
        config=config.memory,
    )
    studio = machinery.studio(memory)
    designs: list[Design] = []
    wanted = list(range(config.designer.environments - len(replayed)))
    for attempt in range(config.designer.attempts):
        written = await propose(draw_contexts(machinery, self_play, wanted, attempt=attempt), studio)
        designs += written
        wanted = [index for index, design in zip(wanted, written, strict=True) if design.source is None]
    opened = [
        OpenDesign(
            cycle=cycle,
            stream=design.stream,
            rejected=bool(design.report.rejected_by),
            history=PlayHistory(
                environment_id=design.context.environment_id,
                skill=design.context.skill,
                returns=(),
                estimate=None,
            ),
        )
        for design in designs
        if not design.report.host_fault
    ]
    return designs, dataclasses.replace(
        self_play,
        pool=(
            *(record.source for record in replayed),
            *(design.source for design in designs if design.source is not None),
        ),
        replayed=frozenset(record.source.environment_id for record in replayed),
        open_designs=(*self_play.open_designs, *opened),
    )


def draw_contexts(
    machinery: Machinery, self_play: SelfPlayState, indices: Sequence[int], *, attempt: int = 0
) -> list[DesignContext]:
    """A skill, a document and what the memory has to show, for each design that is asked for."""
    config, cycle, memory = machinery.config, self_play.cycle, self_play.memory
    skills = active_skills(
        config.designer.skills, config.designer.skills_per_cycle, cycle // config.designer.interval
    )
    num_mutated = round(config.memory.mutate * config.designer.environments)
    contexts = []
    for index in indices:
        at = (cycle, index, attempt) if attempt else (cycle, index)
        rng = derive_rng(config.seed, "context", *at)
        context = DesignContext(
            environment_id="-".join([f"c{cycle:05d}-e{index:03d}", *([f"a{attempt}"] if attempt else [])]),
            skill=skills[index % len(skills)],
            document=next(machinery.corpus) if machinery.corpus is not None else None,
            seed=derive_seed(config.seed, "designer", *at),
        )
        if config.memory.enabled:
            context = dataclasses.replace(
                context,
                positives=memory.positives(context.skill, config.memory.positives, rng, config.memory),
                negative=memory.negative(context.skill, rng, config.memory),
            )
        if index < num_mutated and (drawn := memory.parent(context.skill, rng, config.memory)) is not None:
            parent, change = drawn
            context = dataclasses.replace(context, parent=parent, change=change)
        difficulty = config.designer.difficulty
        if difficulty == "adaptive":
            difficulty = difficulty_for(memory, context.skill)
        contexts.append(dataclasses.replace(context, difficulty=difficulty))
    return contexts


def active_skills(skills: Sequence[str], per_cycle: int, turn: int) -> list[str]:
    """A window of `per_cycle` skills that moves round by its own length each turn; all if 0."""
    if per_cycle == 0 or per_cycle >= len(skills):
        return list(skills)
    return [skills[(turn * per_cycle + offset) % len(skills)] for offset in range(per_cycle)]


def group_plays(pool: Sequence[EnvironmentSource], trajectories: Sequence[Trajectory]) -> dict[str, Plays]:
    """The episodes of each environment in play, by its id."""
    plays = {source.environment_id: Plays(without_hint=[], with_hint=[]) for source in pool}
    for trajectory in trajectories:
        both = plays[trajectory.environment_id]
        (both.with_hint if trajectory.condition == "with_hint" else both.without_hint).append(trajectory)
    return plays


def estimate_regrets(plays: Mapping[str, Plays], config: Config) -> dict[str, RegretEstimate]:
    """The regret of each environment of which something is known."""
    paired = config.agent.paired and config.agent.hint_episodes in (0, config.agent.episodes)
    return {
        environment_id: estimate
        for environment_id, both in plays.items()
        if (estimate := estimate_regret(both.without_hint, both.with_hint, paired=paired)) is not None
    }


def settle(
    open_designs: Sequence[OpenDesign],
    plays: Mapping[str, Plays],
    estimates: Mapping[str, RegretEstimate],
    config: Config,
    *,
    cycle: int,
) -> tuple[list[OpenDesign], tuple[OpenDesign, ...]]:
    """Adds the cycle's plays, and parts the designs that are due now from those that stay open.

    A design that is due after a delay has had its plays; in the run's last cycle all are due.
    """
    due: list[OpenDesign] = []
    still_open: list[OpenDesign] = []
    for design in open_designs:
        is_due = cycle >= design.cycle + config.designer.delay
        environment_id = design.history.environment_id
        if environment_id in plays and not (is_due and config.designer.delay):
            both = plays[environment_id]
            design = design.with_plays(both.without_hint, both.with_hint, estimates.get(environment_id))
        (due if is_due or cycle == config.num_cycles - 1 else still_open).append(design)
    return due, tuple(still_open)


def reward_designs(
    due: Sequence[OpenDesign], config: Config, trackers: LearningTrackers
) -> tuple[dict[str, float], LearningTrackers]:
    """A reward for each design of which something is known.

    A rejected design has the configured reward, or none. A valid one of whose plays nothing is known has
    none: it is left out, never given a neutral number.
    """
    histories = [design.history for design in due if not design.rejected]
    rewards, trackers = designer_rewards(histories, config.reward, trackers)
    if config.designer.rejected == "reward":
        rewards |= {
            design.history.environment_id: config.designer.rejected_reward
            for design in due
            if design.rejected
        }
    return rewards, trackers


def designer_sequences(due: Sequence[OpenDesign], rewards: Mapping[str, float]) -> list[TrainingSequence]:
    """Rewarded designs with advantages centred within their skill."""
    rewarded = [design for design in due if design.history.environment_id in rewards]
    advantages = designer_advantages(
        [rewards[design.history.environment_id] for design in rewarded],
        [design.history.skill for design in rewarded],
    )
    return [
        TrainingSequence(role="designer", stream=design.stream, advantage=advantage)
        for design, advantage in zip(rewarded, advantages, strict=True)
    ]


def agent_sequences(
    plays: Mapping[str, Plays], config: Config, baselines: Mapping[str, float]
) -> tuple[list[TrainingSequence], dict[str, float]]:
    """Episodes without hint, compared within their environment, and the environments' new baselines.

    An episode of several streams has its weight spread over them by their trained tokens, so that it
    weighs as much as any other and each of its tokens as much as the next. One that trains nothing is
    there too, for an aggregation that counts it.
    """
    sequences: list[TrainingSequence] = []
    new_baselines: dict[str, float] = {}
    for environment_id, both in plays.items():
        good = [trajectory for trajectory in both.without_hint if not trajectory.failure]
        returns = [trajectory.episode_return for trajectory in good]
        baseline = baselines.get(environment_id, 0.0)
        advantages = group_advantages(returns, config.agent, baseline=baseline)
        if config.agent.advantage == "ema":
            new_baselines[environment_id] = updated_baseline(baseline, returns, config.agent)
        if advantages is None:
            continue
        for trajectory, advantage in zip(good, advantages, strict=True):
            streams = trajectory.streams
            if trajectory.truncated and config.agent.mask_truncated:
                streams = tuple(
                    dataclasses.replace(stream, loss_mask=np.zeros_like(stream.loss_mask))
                    for stream in streams
                )
            trained = [int(stream.loss_mask.sum()) for stream in streams]
            shares = [num / sum(trained) if any(trained) else 1 / len(streams) for num in trained]
            sequences += [
                TrainingSequence(role="agent", stream=stream, advantage=float(advantage), weight=share)
                for stream, share in zip(streams, shares, strict=True)
                if share
            ]
    return sequences, new_baselines


def balance(
    designer: list[TrainingSequence], agent: list[TrainingSequence], config: Config
) -> list[TrainingSequence]:
    """Both roles' sequences; where they are pooled, the designer's advantages make up for their number."""
    if config.update.role_balance != "per_role":
        factor = balance_factor(
            len(designer), len(agent), interval=config.designer.interval, cap=config.update.max_balance
        )
        designer = [
            dataclasses.replace(sequence, advantage=factor * sequence.advantage) for sequence in designer
        ]
    return [*designer, *agent]


def assemble(
    sequences: Sequence[TrainingSequence], config: Config, *, pad_id: int, mesh: Mesh
) -> PackedBatch:
    """One packed batch of both roles, weighed as the config says, with rows for the mesh's shards."""
    role_weights: dict[Role, float] | None = None
    if config.update.role_balance == "per_role":
        role_weights = {"designer": config.designer.loss.weight, "agent": config.agent.loss.weight}
    return pack(
        sequences,
        row_length=config.update.row_length,
        rows_multiple=config.update.rows_per_microbatch,
        pad_id=pad_id,
        role_weights=role_weights,
        aggregation={"designer": config.designer.loss.aggregation, "agent": config.agent.loss.aggregation},
        num_shards=num_row_shards(mesh),
    )


def remember(
    self_play: SelfPlayState, estimates: Mapping[str, RegretEstimate], config: Config
) -> EnvironmentMemory:
    """The memory after a cycle's plays: new environments come in, replayed ones are scored again."""
    cycle, replayed = self_play.cycle, self_play.replayed
    outcomes = {environment_id: estimates.get(environment_id) for environment_id in replayed}
    memory = self_play.memory.played(outcomes, cycle=cycle, config=config.memory)
    return memory.insert(
        [
            MemoryRecord(
                source=source,
                win_rate=estimate.win_rate,
                regret=estimate.regret,
                cycle=cycle,
                last_played=cycle,
            )
            for source in self_play.pool
            if (estimate := estimates.get(source.environment_id)) is not None
            and source.environment_id not in replayed
        ]
    )


def _num_sampled(designs: Sequence[Design], trajectories: Sequence[Trajectory]) -> int:
    streams = [design.stream for design in designs]
    streams += [stream for trajectory in trajectories for stream in trajectory.streams]
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
