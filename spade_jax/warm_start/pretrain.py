"""Tokenizer and supervised warm start: from generated text to a policy that can play both roles.

Nothing here runs twice for the same content: a finished warm start is kept in the user cache under a
digest of the config that shapes it and of the package's own source files that make the text, the
model and the update.
"""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh

import spade_jax
from spade_jax import config as config_module
from spade_jax.config import Config
from spade_jax.errors import CheckpointError, ConfigError
from spade_jax.grounding.corpus import BUILTIN, Corpus
from spade_jax.model.architecture import Architecture
from spade_jax.rl.packing import PackedBatch, pack
from spade_jax.roles.designer import design_reply, designer_messages, fitting_messages
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_rng, derive_seed
from spade_jax.text.chat import NativeChat, merge_tool_results, render_conversation, render_reply
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.training.state import abstract_params, create_state
from spade_jax.training.update import Updater
from spade_jax.types import DesignContext, Role, TokenStream, TrainingSequence
from spade_jax.user_cache import user_cache_dir
from spade_jax.warm_start.demonstrations import demonstrations
from spade_jax.warm_start.designs import example_designs
from spade_jax.warm_start.grounds import Grounds
from spade_jax.warm_start.syllabus import syllabus_of

# What makes the text, the model and the update, in this package and in the config.
SHAPING_SOURCES = (
    "seeding.py",
    "grounding",
    "model",
    "rl",
    "roles",
    "rollout",
    "sandbox/tool_use_base_env.py",
    "text",
    "training",
    "warm_start",
)
SHAPING_UPDATE = ("row_length", "logprob_chunk", "beta1", "beta2", "weight_decay", "max_grad_norm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmStart:
    """A tokenizer, the policy that was trained on its text, and the last supervised metrics."""

    tokenizer: Tokenizer
    params: Any
    metrics: dict[str, float]


async def warm_start(
    config: Config,
    *,
    corpus: Corpus | None,
    mesh: Mesh,
    sandbox: SandboxPool,
    track: Callable[[Sequence], Iterable],
) -> WarmStart:
    """The warm start of a config, from the cache where it is there.

    Args:
      corpus: of the run, or None without grounding.
      mesh: where the parameters live.
      sandbox: in which the demonstrations are played.
      track: wraps the supervised steps, to show progress.
    """
    grounds = grounds_for(config, corpus)
    folder = Path(config.warm_start.cache_dir or user_cache_dir() / "warm_start") / _digest(config, grounds)
    if not folder.exists():
        finished = await _train(config, grounds, mesh=mesh, sandbox=sandbox, track=track)
        _store(folder, finished)
    return _load(folder, config, mesh)


def grounds_for(config: Config, corpus: Corpus | None) -> Grounds:
    """What the warm start of a run with this corpus is about."""
    seed = derive_seed(config.seed, "warm_start")
    grounds = Grounds.builtin(
        seed, excerpt_words=config.corpus.excerpt_words, syllabus=syllabus_of(config.setting)
    )
    if corpus is None or config.corpus.path == BUILTIN:
        return grounds
    return grounds.with_corpus(corpus.documents, seed=seed)


async def _train(
    config: Config,
    grounds: Grounds,
    *,
    mesh: Mesh,
    sandbox: SandboxPool,
    track: Callable[[Sequence], Iterable],
) -> WarmStart:
    seed = derive_seed(config.seed, "warm_start")
    designs = [
        (context, design_reply(source.code, source.hint))
        for context, source in example_designs(
            config.warm_start.programs, seed=seed, grounds=grounds, num_positives=config.memory.positives
        )
    ]
    episodes = await demonstrations(
        config.warm_start.episodes,
        seed=seed,
        grounds=grounds,
        sandbox=sandbox,
        skill_without_hint=config.warm_start.skill_without_hint,
        skill_with_hint=config.warm_start.skill_with_hint,
        max_turns=config.agent.max_turns,
    )
    prompts = [
        message.content
        for context, _ in designs
        for message in designer_messages(context, config=config, excerpt_words=grounds.excerpt_words)
    ]
    spoken = [message.content for episode in episodes for message in merge_tool_results(episode)]
    tokenizer = Tokenizer.train(
        [*prompts, *(reply for _, reply in designs), *spoken],
        vocab_size=config.tokenizer.vocab_size,
        atoms=(*grounds.subjects, *grounds.syllabus.choices),
    )
    streams: dict[Role, list[TokenStream]] = {
        "designer": [_design_stream(config, tokenizer, context, reply) for context, reply in designs],
        "agent": [_stream(*render_conversation(tokenizer, episode)) for episode in episodes],
    }
    sequences = [
        TrainingSequence(role=role, stream=stream, advantage=1.0)
        for role, group in streams.items()
        for stream in group
    ]
    packed = pack(
        sequences,
        row_length=config.update.row_length,
        rows_multiple=config.warm_start.rows_per_step,
        pad_id=tokenizer.pad_id,
    )
    architecture = Architecture.from_config(config.model, tokenizer.vocab_size)
    updater = Updater(
        architecture,
        dataclasses.replace(
            config.update,
            learning_rate=config.warm_start.learning_rate,
            rows_per_microbatch=config.warm_start.rows_per_step,
        ),
        mesh,
        loss="cross_entropy",
        num_steps=config.warm_start.num_steps,
    )
    state = create_state(architecture, updater.optimizer, mesh, seed=derive_seed(config.seed, "init"))
    metrics: dict[str, float] = {}
    for rows in track(_row_order(config, packed.num_rows)):
        state, metrics = updater.update(state, _rows(packed, rows))
    return WarmStart(tokenizer=tokenizer, params=state.params, metrics=metrics)


def _design_stream(config: Config, tokenizer: Tokenizer, context: DesignContext, reply: str) -> TokenStream:
    chat = NativeChat(tokenizer)
    prompt = chat.prompt(fitting_messages(context, chat, config))
    sampled = render_reply(tokenizer, reply)
    if len(sampled) > config.designer.max_tokens:
        raise ConfigError(
            f"a design of the warm start has {len(sampled)} tokens and designer.max_tokens="
            f"{config.designer.max_tokens} would cut it off; raise that, or tokenizer.vocab_size (now "
            f"{config.tokenizer.vocab_size}), with which designs have fewer tokens"
        )
    return _stream([*prompt, *sampled], [False] * len(prompt) + [True] * len(sampled))


def _stream(tokens: list[int], loss_mask: list[bool]) -> TokenStream:
    return TokenStream(
        tokens=np.asarray(tokens, np.int32),
        loss_mask=np.asarray(loss_mask, np.bool_),
        behavior_logprobs=np.zeros(len(tokens), np.float32),
        temperature=1.0,
    )


def _row_order(config: Config, num_rows: int) -> list[np.ndarray]:
    """The rows of each step: shuffled passes over all of them, joined end to end."""
    rng = derive_rng(config.seed, "warm_start/order")
    needed = config.warm_start.num_steps * config.warm_start.rows_per_step
    order: list[int] = []
    while len(order) < needed:
        order += rng.sample(range(num_rows), num_rows)
    return list(np.asarray(order[:needed]).reshape(config.warm_start.num_steps, -1))


def _rows(batch: PackedBatch, rows: np.ndarray) -> PackedBatch:
    """Some rows of a batch, with weights that make the loss the mean over their trained tokens."""
    part = PackedBatch(
        **{field.name: getattr(batch, field.name)[rows] for field in dataclasses.fields(batch)}
    )
    weights = part.loss_mask / max(1, part.loss_mask.sum())
    return dataclasses.replace(part, weights=weights.astype(np.float32))


def _digest(config: Config, grounds: Grounds) -> str:
    values = config_module.to_dict(config)
    digest = hashlib.sha256(jax.__version__.encode())
    shaping = ("seed", "setting", "model", "mesh", "tokenizer", "warm_start", "update")
    parts = {name: values[name] for name in shaping}
    parts["warm_start"] = {name: value for name, value in values["warm_start"].items() if name != "cache_dir"}
    parts["update"] = {name: values["update"][name] for name in SHAPING_UPDATE}
    parts["excerpt_words"] = grounds.excerpt_words
    parts["room"] = (config.sampling.max_context, config.designer.max_tokens)
    parts["positives"] = config.memory.positives
    parts["max_turns"] = config.agent.max_turns
    parts["subjects"] = grounds.subjects
    parts["documents"] = [document.text for document in grounds.documents]
    digest.update(json.dumps(parts, sort_keys=True).encode())
    package = Path(spade_jax.__file__).parent
    for name in SHAPING_SOURCES:
        source = package / name
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _store(folder: Path, finished: WarmStart) -> None:
    """Keeps a warm start whole or not at all; one that is there already is the same and stays.

    Raises:
      CheckpointError: it could not be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as scratch:
            whole = Path(scratch) / "whole"
            whole.mkdir()
            (whole / "tokenizer.model").write_bytes(finished.tokenizer.to_bytes())
            (whole / "metrics.json").write_text(json.dumps(finished.metrics))
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(whole / "params", finished.params)
            try:
                whole.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"the warm start could not be kept in {folder.parent}: {error}. Free space or give access there, "
            "or choose another warm_start.cache_dir; then run the same command again"
        ) from error


def _load(folder: Path, config: Config, mesh: Mesh) -> WarmStart:
    tokenizer = Tokenizer.from_bytes((folder / "tokenizer.model").read_bytes())
    architecture = Architecture.from_config(config.model, tokenizer.vocab_size)
    with ocp.StandardCheckpointer() as checkpointer:
        params = checkpointer.restore(folder / "params", abstract_params(architecture, mesh))
    return WarmStart(
        tokenizer=tokenizer,
        params=params,
        metrics=json.loads((folder / "metrics.json").read_text()),
    )
