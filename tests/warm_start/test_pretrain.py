"""A warm start is made once for its content, kept whole or not at all, and loaded as it was made."""

import asyncio
import dataclasses
import pathlib
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

import spade_jax
from spade_jax import config as config_lib
from spade_jax.environments.sandboxed import start_sandbox
from spade_jax.errors import CheckpointError, ConfigError
from spade_jax.grounding.builtin import NOUNS
from spade_jax.grounding.corpus import Corpus
from spade_jax.roles.designer import designer_messages
from spade_jax.training.mesh import make_mesh
from spade_jax.types import DesignContext, Document
from spade_jax.warm_start import pretrain
from tests.tiny import get_config

OVERRIDES = ["warm_start.num_steps=3", "warm_start.programs=200", "warm_start.episodes=16"]


def tiny(*overrides):
    return config_lib.with_overrides(get_config(), [*OVERRIDES, *overrides])


# Two topics, in words that the built-in corpus does not have.
DOCUMENTS = [
    Document(
        document_id=str(number),
        text=f"Learning objectives of section {number}: the {topic} and {number} exercises on a {topic}",
    )
    for number in range(300)
    for topic in ("magnet", "hormone")
]


OWN = "corpus.path=textbook.jsonl"


def own(documents):
    return Corpus(documents, seed=0)


def warmed(config, corpus=None):
    """The warm start of a config, and how many supervised steps were taken for it."""
    steps = []

    def track(items):
        for item in items:
            steps.append(1)
            yield item

    async def main():
        async with await start_sandbox(config.sandbox) as sandbox:
            mesh = make_mesh(config.mesh)
            return await pretrain.warm_start(config, corpus=corpus, mesh=mesh, sandbox=sandbox, track=track)

    return asyncio.run(main()), len(steps)


def assert_same(one, other):
    assert one.tokenizer.to_bytes() == other.tokenizer.to_bytes()
    assert one.metrics == other.metrics
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


def test_made_once_kept_whole_and_loaded_as_it_was_made(tmp_path, monkeypatch):
    config = tiny(f"warm_start.cache_dir={tmp_path}")

    def full(*_):
        raise OSError(28, "No space left on device")

    # What a full disk or a crash leaves half written is not taken for a warm start.
    with monkeypatch.context() as patched:
        patched.setattr(ocp.StandardCheckpointer, "save", full)
        with pytest.raises(CheckpointError, match=r"No space left on device.*warm_start\.cache_dir"):
            warmed(config)
    assert list(tmp_path.iterdir()) == []

    first, num_steps = warmed(config)
    assert num_steps == 3
    second, num_steps = warmed(config)
    assert num_steps == 0
    assert_same(first, second)
    assert np.isfinite(first.metrics["loss"])

    # Two runs may finish the same warm start; the second one finds it there.
    (folder,) = tmp_path.iterdir()
    pretrain._store(folder, first)
    assert list(tmp_path.iterdir()) == [folder]


def test_another_cache_makes_the_same_again(tmp_path):
    one, _ = warmed(tiny(f"warm_start.cache_dir={tmp_path / 'one'}"))
    other, num_steps = warmed(tiny(f"warm_start.cache_dir={tmp_path / 'other'}"))
    assert num_steps == 3
    assert_same(one, other)


SHAPING = [
    "seed=1",
    "model.mlp_width=96",
    "tokenizer.vocab_size=1000",
    "corpus.excerpt_words=9",
    "memory.positives=2",
    "agent.max_turns=5",
    "designer.max_tokens=63",
    "sampling.max_context=191",
    "update.row_length=200",
    "update.beta1=0.8",
    "update.beta2=0.9",
    "update.weight_decay=0.1",
    "update.max_grad_norm=0.5",
    "warm_start.num_steps=4",
    "warm_start.learning_rate=0.02",
    "warm_start.programs=201",
    "warm_start.episodes=24",
    "warm_start.skill_with_hint=0.5",
]
NOT_SHAPING = [
    "num_cycles=9",
    "corpus.path=elsewhere.jsonl",
    "sampling.num_slots=8",
    "designer.temperature=0.9",
    "update.learning_rate=0.01",
    "agent.loss.clip_low=0.3",
    "evaluation.every=7",
    "checkpoint.every=7",
    "warm_start.cache_dir=elsewhere",
]


def digest(*overrides, corpus=None):
    config = tiny(*overrides)
    return pretrain._digest(config, pretrain.grounds_for(config, corpus))


def test_the_key_follows_the_config_that_shapes_it_and_no_other():
    key = digest()
    keys = {override: digest(override) for override in SHAPING}
    assert key not in keys.values()
    assert len(set(keys.values())) == len(SHAPING)
    assert {override: digest(override) for override in NOT_SHAPING} == dict.fromkeys(NOT_SHAPING, key)
    grounded = [digest(OWN, corpus=own(documents)) for documents in (DOCUMENTS, DOCUMENTS[1:])]
    assert len({key, *grounded}) == 3


def test_a_corpus_of_ones_own_enters_the_warm_start(tmp_path):
    made, _ = warmed(tiny(f"warm_start.cache_dir={tmp_path}", OWN), own(DOCUMENTS))
    assert {"magnet", "hormone", *NOUNS} <= set(made.tokenizer.atoms)
    context = DesignContext(environment_id="", skill="Optimization", document=DOCUMENTS[0])
    (prompt,) = designer_messages(context, config=tiny(), excerpt_words=8)
    # The words of the corpus are pieces: in characters it would be a hundred tokens.
    assert len(made.tokenizer.encode(prompt.content)) <= 20


def test_designs_that_the_reply_limit_would_cut_off_are_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"designer\.max_tokens=20 would cut it off; raise that"):
        warmed(tiny(f"warm_start.cache_dir={tmp_path}", "designer.max_tokens=20"))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def copied_package(tmp_path, monkeypatch):
    """The key is made of the sources in this copy."""
    package = pathlib.Path(spade_jax.__file__).parent
    copy = tmp_path / "spade_jax"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(spade_jax, "__file__", str(copy / "__init__.py"))
    return copy


@pytest.mark.parametrize(
    ("path", "shapes"),
    [
        ("warm_start/families/spatial.py", True),
        ("warm_start/tool_families/error_recovery.py", True),
        ("sandbox/tool_use_base_env.py", True),
        ("warm_start/designs.py", True),
        ("text/tokenizer.py", True),
        ("model/transformer.py", True),
        ("training/optimizer.py", True),
        ("rl/losses.py", True),
        ("roles/agent.py", True),
        ("grounding/builtin.py", True),
        ("seeding.py", True),
        ("cycle.py", False),
        ("reporting.py", False),
        ("evaluation/solve_rate.py", False),
    ],
)
def test_the_key_follows_the_sources_that_shape_it_and_no_other(copied_package, path, shapes):
    key = digest()
    with (copied_package / path).open("a") as file:
        file.write("\n# changed\n")
    assert (digest() != key) == shapes


def test_training_lowers_the_loss(tmp_path):
    """The steps are real: after thirty of them the text is better known than after three."""
    losses = []
    for num_steps in (3, 30):
        config = tiny(f"warm_start.cache_dir={tmp_path}", f"warm_start.num_steps={num_steps}")
        losses.append(warmed(config)[0].metrics["loss"])
    assert losses[1] < 0.7 * losses[0]


def test_the_row_order_is_shuffled_passes_over_all_rows():
    config = dataclasses.replace(tiny(), warm_start=dataclasses.replace(tiny().warm_start, num_steps=5))
    order = np.concatenate(pretrain._row_order(config, 10))
    assert len(order) == 5 * config.warm_start.rows_per_step
    for start in range(0, len(order) - 9, 10):
        assert sorted(order[start : start + 10]) == list(range(10))
    assert list(order[:10]) != list(order[10:20])
