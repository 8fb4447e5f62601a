"""One run from config to summary: build, restore, loop, evaluate, save.

The order of the loop is what makes a run that was killed print the numbers of one that was not: an
evaluation is due before a cycle, a cycle ends with the memory updated, then its files and its row of
metrics are written, and only then the checkpoint, which holds the number of the next cycle. On resume
everything at and after that number is cut and made again, equal to the last bit.
"""

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import jax
from jax.sharding import Mesh

from spade_jax.archive.write import ArchiveWriter, discard_from
from spade_jax.config import Config, LossConfig, to_dict
from spade_jax.cycle import CycleRecord, Machinery, run_cycle
from spade_jax.distributed import Processes, check_agreement, join, place_on_host
from spade_jax.environments.sandboxed import start_sandbox
from spade_jax.errors import CheckpointError, ConfigError, DistributedError
from spade_jax.evaluation.held_out import held_out_environments
from spade_jax.evaluation.solve_rate import evaluate
from spade_jax.grounding.corpus import Corpus
from spade_jax.interruption import listening_for_signals
from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.metrics import MetricsWriter, read_rows, summarise
from spade_jax.model.architecture import Architecture
from spade_jax.model.transformer import Params
from spade_jax.reporting import Reporter, cycle_line
from spade_jax.sampling.engine import Engine
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_seed
from spade_jax.self_play import SelfPlayState
from spade_jax.text.chat import NativeChat
from spade_jax.training.checkpoint import Checkpointer
from spade_jax.training.mesh import make_mesh
from spade_jax.training.processes import any_process
from spade_jax.training.state import TrainState, abstract_state, state_from_params
from spade_jax.training.update import Updater
from spade_jax.types import Role
from spade_jax.user_cache import user_cache_dir
from spade_jax.warm_start.pretrain import warm_start
from spade_jax.workdir import Workdir


def train(
    config: Config,
    *,
    workdir: str | Path,
    allow_changed_config: bool = False,
    processes: Processes | None = None,
    profile_cycles: Collection[int] = (),
) -> bool:
    """Runs a config in a workdir, from its newest usable checkpoint where there is one.

    The first SIGINT or SIGTERM ends the run after the cycle in progress with a checkpoint, SIGTERM after
    `checkpoint.grace` seconds without that cycle; a second one stops at once.

    Args:
      config: of the run.
      workdir: the folder that the run writes to; made if it is not there.
      allow_changed_config: continue a run that was started with another config.
      processes: of the run, as its flags name them; None where SLURM or a TPU pod knows, or there is one.
      profile_cycles: of which a trace for the profiler is written to the workdir.

    Returns:
      Whether the run reached its last cycle.

    Raises:
      SpadeError: of the boundary that was crossed, saying what to do.
    """
    jax.config.update("jax_compilation_cache_dir", str(user_cache_dir() / "xla"))
    for cycle in profile_cycles:
        if not 0 <= cycle < config.num_cycles:
            raise ConfigError(
                f"--profile_cycles: no cycle {cycle} in a run of {config.num_cycles}, numbered from 0"
            )
    with Reporter() as reporter:
        return asyncio.run(
            _run(
                config,
                workdir,
                reporter,
                allow_changed_config=allow_changed_config,
                processes=processes,
                profile_cycles=profile_cycles,
            )
        )


async def _run(
    config: Config,
    path: str | Path,
    reporter: Reporter,
    *,
    allow_changed_config: bool,
    processes: Processes | None,
    profile_cycles: Collection[int],
) -> bool:
    lap = time.perf_counter()
    async with contextlib.AsyncExitStack() as stack:
        sandbox, mesh = await start(config, stack, processes, say=reporter.say)
        stop = stack.enter_context(listening_for_signals(grace=config.checkpoint.grace))
        workdir = stack.enter_context(Workdir.open(path, to_dict(config), allow_changed=allow_changed_config))
        machinery, params = await build(
            config,
            stack,
            sandbox=sandbox,
            mesh=mesh,
            track=lambda steps: stop.checked(reporter.track(steps)),
        )
        checkpointer = stack.enter_context(
            Checkpointer(
                workdir.checkpoints_dir, keep=config.checkpoint.keep, keep_every=config.checkpoint.keep_every
            )
        )
        if checkpointer.is_empty:
            train_state, self_play = begin(machinery, params)
            del params
        else:
            del params  # first: two sets of weights do not always fit on a device
            train_state, self_play = restore(machinery, checkpointer)
        saved = self_play.cycle
        workdir.discard_from(self_play.cycle)
        process = {"process_index": jax.process_index(), "process_count": jax.process_count()}
        discard_from(workdir.archive_dir, self_play.cycle, **process)
        archive = None
        if config.archive.enabled:
            archive = stack.enter_context(ArchiveWriter(workdir.archive_dir, **process))
        writer = stack.enter_context(
            MetricsWriter(workdir.metrics_path, workdir.tensorboard_dir, from_cycle=self_play.cycle)
        )
        reporter.say(
            f"sandbox {machinery.sandbox.level}, "
            f"{machinery.architecture.num_parameters():,} parameters on "
            f"{machinery.mesh.devices.size} device(s), "
            f"{'resuming at' if self_play.cycle else 'starting with'} "
            f"cycle {self_play.cycle} of {config.num_cycles} in {workdir.path}"
        )
        # All at once: a run that resumes has then compiled what one that was not stopped has.
        machinery.engine.load_weights(train_state.params, version=self_play.cycle)
        machinery.engine.warm_up()

        async def measure() -> dict[str, float]:
            evaluation_started = time.perf_counter()
            num_episodes = len(machinery.held_out) * config.evaluation.episodes
            with reporter.bar("evaluation", num_episodes) as bar:
                metrics = await evaluate(
                    machinery.held_out,
                    episodes=config.evaluation.episodes,
                    play=functools.partial(machinery.play, advance=bar.advance),
                )
            return {**metrics, "seconds/evaluation": time.perf_counter() - evaluation_started}

        async def play_cycle() -> tuple[TrainState, SelfPlayState, CycleRecord]:
            cycle = self_play.cycle
            machinery.engine.load_weights(train_state.params, version=cycle)
            metrics = await measure() if cycle % config.evaluation.every == 0 else {}
            with reporter.bar(f"cycle {cycle}", 3) as phases, contextlib.ExitStack() as profiled:
                if cycle in profile_cycles:
                    profiled.enter_context(jax.profiler.trace(workdir.profile_dir(cycle)))
                new_state, new_self_play, record = await run_cycle(
                    machinery, train_state, self_play, advance=phases.advance
                )
            return new_state, new_self_play, dataclasses.replace(record, metrics=metrics | record.metrics)

        def save() -> None:
            # The archive first: what lies before a checkpoint is never made again.
            if archive is not None:
                archive.wait()
            checkpointer.save(self_play.cycle, train_state, self_play.to_json())

        with reporter.bar("self-play", config.num_cycles) as bar:
            bar.advance(self_play.cycle)
            while self_play.cycle < config.num_cycles and not any_process(stop.requested):
                cycle = self_play.cycle
                # Several processes sample in step, which one of them cannot leave in the middle.
                alone = jax.process_count() == 1
                played = await (stop.in_time(play_cycle()) if alone else play_cycle())
                if played is None:
                    reporter.say(
                        f"cycle {cycle} did not end within {config.checkpoint.grace:g} s of SIGTERM and is "
                        "given up"
                    )
                    break
                train_state, self_play, record = played
                write_record(workdir, record, cycle)
                if archive is not None:
                    archive.write(
                        cycle,
                        environments=self_play.pool,
                        designs=record.designs,
                        trajectories=record.trajectories,
                        rewards=record.rewards,
                        sequences=record.sequences,
                    )
                metrics = dict(record.metrics)
                lap, metrics["seconds/total"] = _lap(lap)
                writer.write(cycle, metrics)
                reporter.say(cycle_line(cycle, metrics))
                bar.advance()
                if self_play.cycle % config.checkpoint.every == 0:
                    save()
                    saved = self_play.cycle
        if saved < self_play.cycle:
            save()
        checkpointer.wait()
        if self_play.cycle < config.num_cycles:
            reporter.say(
                f"stopped before cycle {self_play.cycle}, which is saved; run the same command again to go on"
            )
            return False

        machinery.engine.load_weights(train_state.params, version=self_play.cycle)
        metrics = await measure()
        lap, metrics["seconds/total"] = _lap(lap)
        writer.write(self_play.cycle, metrics)
        summary = summarise(read_rows(workdir.metrics_path))
        workdir.write_summary(summary)
        reporter.summary(summary)
        return True


async def start(
    config: Config,
    stack: contextlib.AsyncExitStack,
    processes: Processes | None = None,
    *,
    say: Callable[[str], None] = print,
) -> tuple[SandboxPool, Mesh]:
    """The sandbox and the mesh, in the one order in which they can be had; signals are set after it.

    Args:
      stack: closes the sandbox.
      processes: as for `train`.
      say: is told what is waited for.

    Raises:
      DistributedError: there are several processes, which do not find each other, do not agree, or are
        ready for what self-play cannot do yet.
    """
    # Its fork servers are started before the other processes and the devices are reached for, whose
    # threads they must not inherit.
    index, count = place_on_host(processes)
    sandbox = await stack.enter_async_context(
        await start_sandbox(config.sandbox, process_index=index, num_processes=count)
    )
    join(processes, say=say)
    mesh = make_mesh(config.mesh)
    check_agreement(to_dict(config), mesh)
    if jax.process_count() > 1:
        raise DistributedError(
            f"{jax.process_count()} processes agree on a mesh of {mesh.devices.size} devices, but self-play "
            "does not share out its environments and samples among processes yet; start one process, on a "
            "slice or node with one host"
        )
    return sandbox, mesh


async def build(
    config: Config,
    stack: contextlib.AsyncExitStack,
    *,
    sandbox: SandboxPool,
    mesh: Mesh,
    track: Callable[[Sequence], Iterable],
) -> tuple[Machinery, Params]:
    """What a run needs once, and the warm-started policy.

    Args:
      stack: closes what has to be closed.
      sandbox, mesh: from `start`.
      track: wraps the supervised steps of the warm start, to show progress.
    """
    corpus = None
    if config.corpus.path:
        seed = derive_seed(config.seed, "corpus")
        corpus = stack.enter_context(Corpus.open(config.corpus.path, seed=seed))
    endpoint = None
    if _asks_endpoint(config):
        # Here alone, as its package is an extra.
        from spade_jax.roles.endpoint import Endpoint

        endpoint = await stack.enter_async_context(Endpoint(config.endpoint))
    warmed = await warm_start(config, corpus=corpus, mesh=mesh, sandbox=sandbox, track=track)
    architecture = Architecture.from_config(config.model, warmed.tokenizer.vocab_size)
    losses: dict[Role, LossConfig] = {"designer": config.designer.loss, "agent": config.agent.loss}
    updater = Updater(architecture, config.update, mesh, losses=losses)
    machinery = Machinery(
        config=config,
        architecture=architecture,
        mesh=mesh,
        chat=NativeChat(warmed.tokenizer),
        engine=Engine(
            architecture,
            mesh,
            num_slots=config.sampling.num_slots,
            max_context=config.sampling.max_context,
            decode_steps=config.sampling.decode_steps,
            pad_id=warmed.tokenizer.pad_id,
        ),
        sandbox=sandbox,
        updater=updater,
        corpus=corpus,
        held_out=held_out_environments(config.evaluation.environments, config.setting),
        endpoint=endpoint,
        reference_params=warmed.params if updater.uses_reference else None,
    )
    return machinery, warmed.params


def _asks_endpoint(config: Config) -> bool:
    judged = "judge" in config.validation.rungs and config.validation.judge == "endpoint"
    return judged or config.hint.source == "endpoint"


def write_record(workdir: Workdir, record: CycleRecord, cycle: int) -> None:
    """Writes a cycle's environments, rewards and some of its episodes for people to read."""
    rewards = dict(record.rewards)
    for design in record.designs:
        environment_id = design.context.environment_id
        workdir.write_environment(
            design,
            cycle=cycle,
            estimate=record.estimates.get(environment_id),
            reward=rewards.pop(environment_id, None),
        )
    workdir.write_rewards(rewards, cycle=cycle)
    workdir.write_episodes(record.trajectories, cycle=cycle)


def begin(machinery: Machinery, params: Params) -> tuple[TrainState, SelfPlayState]:
    """Both states of a run that starts from `params`."""
    parts = machinery.architecture, machinery.updater.optimizer, machinery.mesh
    return state_from_params(*parts, params=params), SelfPlayState(
        cycle=0,
        memory=EnvironmentMemory(records=(), capacity=machinery.config.memory.capacity),
        corpus=machinery.corpus.state() if machinery.corpus is not None else None,
    )


def restore(machinery: Machinery, checkpointer: Checkpointer) -> tuple[TrainState, SelfPlayState]:
    """Both states from the newest usable checkpoint.

    Raises:
      CheckpointError: there is none.
    """
    restored = checkpointer.restore_latest(
        abstract_state(machinery.architecture, machinery.updater.optimizer, machinery.mesh)
    )
    if restored is None:
        raise CheckpointError("there is no checkpoint to resume from")
    self_play = SelfPlayState.from_json(restored.host_state)
    if machinery.corpus is not None and self_play.corpus is not None:
        machinery.corpus.restore(self_play.corpus)
    return restored.state, self_play


def _lap(since: float) -> tuple[float, float]:
    now = time.perf_counter()
    return now, now - since
