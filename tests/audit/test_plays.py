"""Plays by a policy whose replies are written down, so that every figure can be worked out on paper."""

import dataclasses
import math

import pytest

from spade_jax.audit.plays import play_environments, regret_interval
from spade_jax.config import AgentConfig, Config, ModelConfig, SamplingConfig
from spade_jax.cycle import Machinery
from spade_jax.text.chat import NativeChat
from tests.scripted import ScriptedEngine, game_source, right, running_sandbox, small_tokenizer

CONFIG = Config(
    num_cycles=1,
    model=ModelConfig(num_layers=1, width=8, num_heads=1, num_kv_heads=1, head_width=8, mlp_width=8),
    sampling=SamplingConfig(max_context=256),
    # What an audit does not take over from a run: its own number of plays, unpaired conditions.
    agent=AgentConfig(episodes=3, hint_episodes=5, paired=False, max_turns=3, max_tokens=24),
)
NUM_EPISODES = 4
LONG = dataclasses.replace(
    game_source("Long"), code=game_source("Long").code.replace("say {", "word " * 300 + "say {")
)
SOURCES = [
    game_source("One"),
    game_source("Crash"),
    game_source("Two", turns=2),
    dataclasses.replace(game_source("Bare"), hint=""),
    dataclasses.replace(LONG, hint=""),
]
# Of each play in order: without hint, then with it.
OUTCOMES = {
    "One": ("win", "lose", "lose", "lose", "win", "win", "win", "lose"),
    "Crash": ("crash", "crash", "crash", "win", "win", "win", "win", "win"),
    "Two": ("stay", "win", "win", "win", "win", "win", "win", "win"),
    "Bare": ("win", "lose", "win", "lose"),
}


def played(sources, reply, *, num_episodes):
    """The figures, and the engine with all that it was asked."""
    engine = ScriptedEngine(NativeChat(small_tokenizer()), reply)
    engine.num_slots = 64  # all at once: the number of a play is its key
    advanced = []
    with running_sandbox() as sandbox:
        machinery = Machinery(
            config=CONFIG,
            architecture=None,
            mesh=None,
            chat=engine.chat,
            engine=engine,
            sandbox=sandbox.pool,
            updater=None,
            corpus=None,
            held_out=[],
        )
        figures = sandbox.run(
            play_environments(
                machinery, sources, num_episodes=num_episodes, advance=lambda: advanced.append(1)
            )
        )
    assert len(advanced) == sum(num_episodes * (2 if source.hint else 1) for source in sources)
    return figures, engine


@pytest.fixture(scope="module")
def figures():
    outcomes = [outcome for group in OUTCOMES.values() for outcome in group]

    def reply(key, talk):
        said = {"lose": "\\boxed{0}", "crash": "\\boxed{crash}", "stay": "\\boxed{stay}"}
        return said.get(outcomes[key[0]]) or right(talk)

    return played(SOURCES, reply, num_episodes=NUM_EPISODES)[0]


def test_rates_and_paired_regret(figures):
    one = figures["One"]
    assert (one["num_episodes"], one["num_failed"], one["num_without_room"]) == (8, 0, 0)
    assert (one["solve_rate"], one["solve_rate_with_hint"]) == (0.25, 0.75)
    # Returns are 1 and -1, so the differences are 0, 2, 2, 0: mean 1, variance 4/3.
    assert (one["regret"], one["num_pairs"]) == (1.0, 4)
    assert one["regret_standard_error"] == pytest.approx(math.sqrt(4 / 3 / 4))
    # Student's quantile of 3 degrees of freedom.
    half = 3.182446 * math.sqrt(1 / 3)
    assert one["regret_low"] == pytest.approx(1 - half, rel=1e-6)
    assert one["regret_high"] == pytest.approx(1 + half, rel=1e-6)
    assert (one["turns"], one["truncated"]) == (1.0, 0.0)


def test_a_failed_play_counts_nowhere_but_among_the_failed(figures):
    crash = figures["Crash"]
    assert (crash["num_episodes"], crash["num_failed"]) == (8, 3)
    assert (crash["solve_rate"], crash["solve_rate_with_hint"], crash["turns"]) == (1.0, 1.0, 1.0)
    # One pair is no interval.
    assert (crash["regret"], crash["num_pairs"], crash["regret_standard_error"]) == (0.0, 1, None)
    assert "regret_low" not in crash


def test_truncation_and_turns(figures):
    two = figures["Two"]
    # One play of 3 turns, cut off, and seven of 2.
    assert (two["truncated"], two["turns"]) == (1 / 8, 17 / 8)


def test_without_a_hint_there_is_no_regret(figures):
    bare = figures["Bare"]
    assert (bare["num_episodes"], bare["solve_rate"]) == (4, 0.5)
    assert "solve_rate_with_hint" not in bare
    assert "regret" not in bare


def test_a_prompt_that_the_context_cannot_hold_shows(figures):
    long = figures["Long"]
    assert (long["num_without_room"], long["truncated"], long["turns"], long["tokens"]) == (4, 1.0, 0.0, 0.0)


def test_what_a_play_costs(figures):
    for figure in (figures[name] for name in OUTCOMES):
        assert 0 < figure["tokens_sampled"] < figure["tokens"] < CONFIG.sampling.max_context
    # Seconds are shared out by tokens.
    per_token = [figures[name]["seconds_episode"] / figures[name]["tokens"] for name in OUTCOMES]
    assert per_token == pytest.approx([per_token[0]] * len(OUTCOMES))
    assert figures["Long"]["seconds_episode"] == 0


def test_an_environment_plays_the_same_alone_and_among_others():
    def asked(*sources):
        _, engine = played(sources, lambda key, talk: right(talk), num_episodes=2)
        return {(talk, params.seed) for _, talk, params in engine.requests}

    one, two = game_source("One"), game_source("Two", turns=2)
    assert len(asked(one)) == 4
    assert asked(one) | asked(two) == asked(two, one)


@pytest.mark.parametrize(("error", "num_pairs"), [(math.nan, 1), (0.0, 8)])
def test_no_interval_without_a_spread(error, num_pairs):
    assert regret_interval(0.5, error, num_pairs) is None
