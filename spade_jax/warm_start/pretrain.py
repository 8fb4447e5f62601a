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
from spade_jax.errors import CheckpointError
from spade_jax.grounding.builtin import NOUNS, builtin_documents
from spade_jax.model.architecture import Architecture
from spade_jax.rl.packing import PackedBatch, pack
from spade_jax.roles.agent import action_reply
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.seeding import derive_rng, derive_seed
from spade_jax.text.chat import Message, render_conversation
from spade_jax.text.tokenizer import Tokenizer
from spade_jax.training.state import abstract_params, create_state
from spade_jax.training.update import Updater
from spade_jax.types import Role, TokenStream, TrainingSequence
from spade_jax.user_cache import user_cache_dir
from spade_jax.warm_start.demonstrations import demonstrations
from spade_jax.warm_start.designs import design_conversations
from spade_jax.warm_start.families.base import LETTERS, MOVES

# What a policy must be able to choose by itself is never glued to its surroundings, and a move is one
# choice: one token.
ATOMS = (*NOUNS, *LETTERS, *map(action_reply, MOVES))
# What makes the text, the model and the update, in this package and in the config.
SHAPING_SOURCES = ("seeding.py", "grounding", "model", "rl", "roles", "text", "training", "warm_start")
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
    mesh: Mesh,
    sandbox: SandboxPool,
    track: Callable[[Sequence], Iterable],
) -> WarmStart:
    """The warm start of a config, from the cache where it is there.

    Args:
      mesh: where the parameters live.
      sandbox: in which the demonstrations are played.
      track: wraps the supervised steps, to show progress.
    """
    folder = Path(config.warm_start.cache_dir or user_cache_dir() / "warm_start") / _digest(config)
    if not folder.exists():
        finished = await _train(config, mesh=mesh, sandbox=sandbox, track=track)
        _store(folder, finished)
    return _load(folder, config, mesh)


async def conversations(config: Config, *, sandbox: SandboxPool) -> dict[Role, list[list[Message]]]:
    """The supervised text of both roles."""
    seed = derive_seed(config.seed, "warm_start")
    documents = builtin_documents(seed)
    return {
        "designer": design_conversations(
            config.warm_start.programs,
            seed=seed,
            documents=documents,
            excerpt_words=config.corpus.excerpt_words,
            num_positives=config.memory.positives,
        ),
        "agent": await demonstrations(
            config.warm_start.episodes,
            seed=seed,
            documents=documents,
            excerpt_words=config.corpus.excerpt_words,
            sandbox=sandbox,
            skill_without_hint=config.warm_start.skill_without_hint,
            skill_with_hint=config.warm_start.skill_with_hint,
            max_turns=config.agent.max_turns,
        ),
    }


async def _train(
    config: Config, *, mesh: Mesh, sandbox: SandboxPool, track: Callable[[Sequence], Iterable]
) -> WarmStart:
    spoken = await conversations(config, sandbox=sandbox)
    texts = [message.content for role in spoken.values() for talk in role for message in talk]
    tokenizer = Tokenizer.train(texts, vocab_size=config.tokenizer.vocab_size, atoms=ATOMS)
    sequences = [
        TrainingSequence(role=role, stream=_stream(tokenizer, talk), advantage=1.0)
        for role, talks in spoken.items()
        for talk in talks
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


def _stream(tokenizer: Tokenizer, messages: list[Message]) -> TokenStream:
    tokens, loss_mask = render_conversation(tokenizer, messages)
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


def _digest(config: Config) -> str:
    values = config_module.to_dict(config)
    digest = hashlib.sha256(jax.__version__.encode())
    shaping = ("seed", "model", "mesh", "tokenizer", "warm_start", "update")
    parts = {name: values[name] for name in shaping}
    parts["warm_start"] = {name: value for name, value in values["warm_start"].items() if name != "cache_dir"}
    parts["update"] = {name: values["update"][name] for name in SHAPING_UPDATE}
    parts["excerpt_words"] = config.corpus.excerpt_words
    parts["positives"] = config.memory.positives
    parts["max_turns"] = config.agent.max_turns
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
