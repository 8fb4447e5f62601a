"""One cycle with known designs and known play: every number is worked out on paper here.

Two skills take turns over eight designs, two of which are valid, and each rung of the ladder rejects
one of the others:

    Spatial Reasoning   0 One (valid)    2 parse      4 load    6 replay
    Logical Deduction   1 extract        3 held_out   5 play    7 Two (valid)
"""

import dataclasses
import math

import numpy as np
import pytest

from spade_jax.config import (
    AgentConfig,
    Config,
    CorpusConfig,
    DesignerConfig,
    LossConfig,
    MemoryConfig,
    MeshConfig,
    SamplingConfig,
    UpdateConfig,
    ValidationConfig,
)
from spade_jax.cycle import (
    active_skills,
    draw_contexts,
)
from spade_jax.grounding.corpus import Corpus
from spade_jax.memory.diversity import diversity
from spade_jax.model.architecture import Architecture
from spade_jax.rl.packing import ROLES
from spade_jax.roles.designer import design_reply
from spade_jax.training.mesh import make_mesh
from spade_jax.training.state import create_state
from spade_jax.training.update import Updater
from spade_jax.types import Document
from tests.cycle.stage import MODEL, Lap, changed, packed_as, unpacked
from tests.scripted import FaultySandbox, game

CONFIG = Config(
    num_cycles=9,
    model=MODEL,
    corpus=CorpusConfig(path=""),
    memory=MemoryConfig(positives=2),
    sampling=SamplingConfig(max_context=1024),
    designer=DesignerConfig(
        environments=8,
        skills=("Spatial Reasoning", "Logical Deduction"),
        max_tokens=600,
        loss=LossConfig(weight=2.0),
    ),
    validation=ValidationConfig(rungs=("extract", "parse", "held_out", "load", "play", "replay")),
    agent=AgentConfig(episodes=4, max_turns=3, max_tokens=24, loss=LossConfig(weight=0.5)),
    update=UpdateConfig(row_length=1024, rows_per_microbatch=2),
)
BAD_STEP = game("Bad").replace('return "wrong", -1.0, True, False, {}', 'return "wrong"')
DESIGNS = [
    design_reply(game("One"), "obey One"),
    "no program here",
    design_reply("class OneEnv(:\n", "obey"),
    design_reply(f"# mine\n{game('Kept')}", "obey"),
    design_reply("1 / 0\n", "obey"),
    design_reply(BAD_STEP, "obey"),
    design_reply(f"import os\n{game('Odd').replace('say', '{os.getpid()} {id(self)} say')}", "obey"),
    design_reply(game("Two", turns=2), "obey Two"),
]
# Of the valid designs in order.
PLAYS = ["wlll|wwwl", "wclw|wwcl"]


@pytest.fixture
def cycle(stage):
    """Runs cycles; returns the last states and record, and the machinery with its recordings."""

    def run(*, config=CONFIG, designs=DESIGNS, plays=PLAYS, cycles=1, **parts):
        show = stage([Lap(designs, plays)] * cycles, config=config, **parts)
        return show.state, show.self_play, show.record, show.machinery

    return run


def test_the_device_waits_for_the_host_while_it_has_nothing_to_do(cycle):
    """The scripted engine takes no time of the device, so the update alone does."""
    _, _, record, _ = cycle()
    seconds = {
        name: record.metrics[f"seconds/{name}"] for name in ("cycle", "update", "update_step", "host_wait")
    }
    assert 0 < seconds["update_step"] < seconds["update"]
    assert seconds["host_wait"] == pytest.approx(seconds["cycle"] - seconds["update_step"])


def test_the_counts_and_means_of_a_cycle(cycle):
    _, _, record, machinery = cycle()
    metrics = {name: value for name, value in record.metrics.items() if not name.startswith("seconds/")}
    assert metrics.pop("sample/tokens_per_second") > 0
    sampled = [
        stream.loss_mask.sum()
        for stream in (*(d.stream for d in record.designs), *(t.streams[0] for t in record.trajectories))
    ]
    assert metrics == pytest.approx(
        {
            "design/num_designs": 8,
            "design/num_valid": 2,
            "design/valid_rate": 0.25,
            "design/num_host_faults": 0,
            "design/rejected/extract": 1,
            "design/rejected/parse": 1,
            "design/rejected/held_out": 1,
            "design/rejected/load": 1,
            "design/rejected/play": 1,
            "design/rejected/replay": 1,
            "design/num_repaired": 0,
            "design/distinct_rate": 1,
            "design/diversity": diversity([game("One"), game("Two", turns=2)]),
            "design/reward": (0.64 + 0.44 - 6 * 0.5) / 8,
            "design/regret": (1 - 1) / 2,
            # One: differences 0, 2, 2, 0; Two: 0 and -2.
            "design/regret_standard_error": (math.sqrt(4 / 3) / 2 + math.sqrt(2) / math.sqrt(2)) / 2,
            "design/learnable_rate": 1,
            "play/num_episodes": 16,
            "play/num_failed": 2,
            "play/failed/environment_error": 2,
            "play/win_rate": (1 + 2) / (4 + 3),
            "play/win_rate_with_hint": (3 + 2) / (4 + 3),
            # One ends in its first turn; Two takes two turns to win and one to lose.
            "play/num_turns": (8 * 1 + 2 + 1 + 2 + 2 + 2 + 1) / 14,
            "play/truncated_rate": 0,
            "play/malformed_rate": 0,
            "update/loss": 0.125,
            "sandbox/level": int(machinery.sandbox.level[1:]),
            "memory/num_records": 2,
            "sample/num_tokens": sum(sampled),
            "sample/num_compilations": 0,
        }
    )


def test_estimates_and_rewards(cycle):
    _, _, record, _ = cycle()
    one, two = record.estimates.values()
    assert list(record.estimates) == ["c00000-e000", "c00000-e007"]
    assert (one.return_without_hint, one.return_with_hint, one.regret) == (-0.5, 0.5, 1.0)
    assert (one.win_rate, one.win_rate_with_hint, one.num_pairs) == (0.25, 0.75, 4)
    # The instance that crashed in one condition is left out of the comparison in both.
    assert (two.return_without_hint, two.return_with_hint, two.regret) == (1.0, 0.0, -1.0)
    assert (two.win_rate, two.win_rate_with_hint, two.num_pairs) == (2 / 3, 2 / 3, 2)
    assert record.rewards == pytest.approx(
        {
            # 0.6 of the plateau, which falls over 0.25 outside [0.4, 0.6], and 0.4 for enough regret.
            "c00000-e000": 0.6 * (1 - 0.15 / 0.25) + 0.4,
            **{f"c00000-e{index:03d}": -0.5 for index in range(1, 7)},
            "c00000-e007": 0.6 * (1 - (2 / 3 - 0.6) / 0.25),
        }
    )


def test_each_rung_rejects_its_design(cycle):
    _, _, record, _ = cycle()
    assert [design.report.rejected_by for design in record.designs] == [
        "",
        "extract",
        "parse",
        "held_out",
        "load",
        "play",
        "replay",
        "",
    ]
    for design, reply in zip(record.designs, DESIGNS, strict=True):
        assert design.reply == reply
        assert (design.source is not None) == design.report.valid
        if design.source is not None:
            assert design_reply(design.source.code, design.source.hint) == reply


def test_the_batch_holds_both_roles_with_their_advantages(cycle):
    state, _, record, machinery = cycle()
    assert state == 1
    (batch,) = machinery.updater.batches

    spatial, logical = (0.64 - 1.5) / 4, (0.44 - 1.5) / 4
    designer = [0.64 - spatial, -0.5 - logical, -0.5 - spatial, -0.5 - logical]
    designer += [-0.5 - spatial, -0.5 - logical, -0.5 - spatial, 0.44 - logical]
    deviation, other = math.sqrt(0.75), math.sqrt(8 / 9)  # of 1, -1, -1, -1 and of 1, -1, 1
    agent = [1.5 / deviation, *[-0.5 / deviation] * 3]
    agent += [2 / 3 / other, None, -4 / 3 / other, 2 / 3 / other]  # the crashed one teaches nothing
    plain = [item for item in record.trajectories if item.condition == "without_hint"]
    streams = [*(design.stream for design in record.designs), *(item.streams[0] for item in plain)]
    assert len(unpacked(batch)) == 8 + 7
    for stream, advantage in zip(streams, [*designer, *agent], strict=True):
        packed = packed_as(batch, stream)
        if advantage is None:
            assert packed is None
            continue
        assert packed.mask == tuple(stream.loss_mask)
        assert packed.advantage == pytest.approx(advantage)


def test_each_role_has_its_weight_in_the_loss(cycle):
    *_, machinery = cycle()
    (batch,) = machinery.updater.batches
    for role, weight in (("designer", 2.0), ("agent", 0.5)):
        assert batch.weights[batch.role_ids == ROLES.index(role)].sum() == pytest.approx(weight)


@pytest.mark.parametrize(
    ("designer", "agent", "roles"),
    [(False, True, {"agent"}), (True, False, {"designer"}), (False, False, set())],
)
def test_a_role_that_is_not_trained_is_left_out_of_the_update_alone(cycle, designer, agent, roles):
    config = changed(CONFIG, designer={"train": designer}, agent={"train": agent})
    _, self_play, record, machinery = cycle(config=config)
    (batch,) = machinery.updater.batches
    assert {packed.role for packed in unpacked(batch)} == roles
    _, all_self_play, all_record, _ = cycle()
    assert record.rewards == all_record.rewards
    assert self_play == all_self_play


def test_masks_are_true_exactly_on_what_was_sampled(cycle, tokenizer):
    _, _, record, _ = cycle()

    def sampled(stream):
        return tokenizer.decode(stream.tokens[stream.loss_mask])

    for design in record.designs:
        assert sampled(design.stream) == f"{design.reply}<|end|>"
    for trajectory in record.trajectories:
        replies = [turn.reply for turn in trajectory.turns]
        if trajectory.failure:
            replies.append("\\boxed{crash}")
        assert sampled(trajectory.streams[0]) == "".join(f"{reply}<|end|>" for reply in replies)


def test_both_conditions_play_the_same_instances_and_one_of_them_sees_the_hint(cycle, tokenizer):
    _, _, record, _ = cycle()
    for environment_id, hint in (("c00000-e000", "HINT: obey One"), ("c00000-e007", "HINT: obey Two")):
        episodes = [item for item in record.trajectories if item.environment_id == environment_id]
        plain, hinted = episodes[:4], episodes[4:]
        assert [item.instance_seed for item in plain] == [item.instance_seed for item in hinted]
        assert len({item.instance_seed for item in plain}) == 4
        for one, other in zip(plain, hinted, strict=True):
            assert one.turns[0].observation == other.turns[0].observation
            assert (one.condition, other.condition) == ("without_hint", "with_hint")
            assert "HINT" not in tokenizer.decode(one.streams[0].tokens)
            assert tokenizer.decode(other.streams[0].tokens).count(hint) == 1


def test_defect_1_the_conditions_are_played_alike_but_for_the_hint(cycle):
    """As many times, with the same limits and sampling; only what is drawn differs."""
    _, _, record, machinery = cycle()
    conditions = [item.condition for item in record.trajectories]
    assert conditions.count("with_hint") == conditions.count("without_hint") == 8
    asked = [(talk, params) for _, talk, params in machinery.engine.requests if "say " in talk]
    hinted = [params for talk, params in asked if "HINT: " in talk]
    plain = [params for talk, params in asked if "HINT: " not in talk]
    assert {dataclasses.replace(params, seed=0) for params in hinted} == {
        dataclasses.replace(params, seed=0) for params in plain
    }
    assert not {params.seed for params in hinted} & {params.seed for params in plain}


def test_the_memory_keeps_what_was_played(cycle):
    _, self_play, record, _ = cycle()
    assert self_play.cycle == 1
    one, two = self_play.memory.records
    assert (one.source, two.source) == (record.designs[0].source, record.designs[7].source)
    assert (one.win_rate, one.regret, one.cycle) == (0.25, 1.0, 0)
    assert (two.win_rate, two.regret, two.cycle) == (2 / 3, -1.0, 0)
    assert (one.source.skill, two.source.skill) == ("Spatial Reasoning", "Logical Deduction")


def test_the_next_cycle_is_shown_what_the_memory_has(cycle):
    _, self_play, record, machinery = cycle(cycles=2)
    assert self_play.cycle == 2
    # Both programs came back; of equal ones the newest stays.
    assert [item.cycle for item in self_play.memory.records] == [1, 1]
    shown = {design.context.skill: design.context.positives for design in record.designs}
    assert [item.source.environment_id for item in shown["Spatial Reasoning"]] == ["c00000-e000"]
    assert [item.source.environment_id for item in shown["Logical Deduction"]] == ["c00000-e007"]
    prompts = [talk for _, talk, _ in machinery.engine.requests if "Design an environment." in talk]
    assert len(prompts) == 16
    assert not any("Good:" in prompt for prompt in prompts[:8])
    assert all("Good: OneEnv turns = 1 | win 0.2 regret 1.0" in prompt for prompt in prompts[8::2])
    assert all("Good: TwoEnv turns = 2 | win 0.7 regret -1.0" in prompt for prompt in prompts[9::2])


def test_a_memory_that_is_switched_off_is_not_shown(cycle):
    config = changed(CONFIG, memory={"enabled": False})
    *_, machinery = cycle(config=config, cycles=2)
    assert not any("Good:" in talk or "Bad:" in talk for _, talk, _ in machinery.engine.requests)


def test_an_environment_that_only_crashes_is_counted_and_earns_nothing(cycle):
    plays = [PLAYS[0], "cccc|cccc"]
    _, self_play, record, machinery = cycle(plays=plays)
    assert record.metrics["play/failed/environment_error"] == 8
    assert "c00000-e007" not in record.estimates
    assert "c00000-e007" not in record.rewards
    assert [item.source.environment_id for item in self_play.memory.records] == ["c00000-e000"]
    (batch,) = machinery.updater.batches
    assert len(unpacked(batch, "designer")) == 7
    assert len(unpacked(batch, "agent")) == 4


def test_a_host_fault_while_validating_masks_the_design(cycle, sandbox):
    _, self_play, record, machinery = cycle(plays=PLAYS[:1], pool=FaultySandbox(sandbox.pool, "Two"))
    assert record.designs[7].report.host_fault
    assert record.metrics["design/num_host_faults"] == 1
    assert record.metrics["design/num_valid"] == 1
    assert "c00000-e007" not in record.rewards
    (batch,) = machinery.updater.batches
    assert packed_as(batch, record.designs[7].stream) is None
    assert len(self_play.memory.records) == 1


def test_a_host_fault_in_play_masks_the_episodes(cycle, sandbox):
    # Two children for validation, then four plays without hint and one with it.
    plays = [PLAYS[0], "wllw|wwww"]
    _, _, record, machinery = cycle(plays=plays, pool=FaultySandbox(sandbox.pool, "Two", after=7))
    assert record.metrics["play/failed/host_fault"] == 3
    estimate = record.estimates["c00000-e007"]
    assert (estimate.num_pairs, estimate.win_rate, estimate.win_rate_with_hint) == (1, 0.5, 1.0)
    assert estimate.regret == 0.0
    assert len(unpacked(machinery.updater.batches[0], "agent")) == 8
    # The spread of a single pair is not known; that of One is.
    assert record.metrics["design/regret_standard_error"] == pytest.approx(math.sqrt(4 / 3) / 2)


@pytest.fixture(scope="module")
def real_update(tokenizer):
    """A model that could learn, its state and the parameters in it."""
    architecture = Architecture.from_config(CONFIG.model, tokenizer.vocab_size)
    mesh = make_mesh(MeshConfig())
    updater = Updater(architecture, CONFIG.update, mesh)
    state = create_state(architecture, updater.optimizer, mesh, seed=0)
    return updater, state, np.concatenate([np.ravel(leaf) for leaf in state.params.values()])


NOTHING_TO_LEARN = {
    "every design is rejected": (["no program here"] * 8, ()),
    "every play and design is alike": (
        [DESIGNS[0]] * 8,
        ["llll|llll"] * 8,
    ),
    "no episode survives": ([DESIGNS[7]] * 8, ["cccc|cccc"] * 8),
}


@pytest.mark.parametrize(("designs", "plays"), NOTHING_TO_LEARN.values(), ids=NOTHING_TO_LEARN)
def test_a_cycle_with_nothing_to_learn_is_survived(cycle, real_update, designs, plays):
    updater, state, params = real_update
    after, self_play, record, _ = cycle(designs=designs, plays=plays, updater=updater, state=state)
    assert record.metrics["update/skipped_empty"] == 1
    assert int(after.step) == 0
    assert np.array_equal(np.concatenate([np.ravel(leaf) for leaf in after.params.values()]), params)
    assert self_play.cycle == 1
    assert all(math.isfinite(value) for value in record.metrics.values())


def test_a_rejected_cycle_says_nothing_of_play(cycle):
    _, self_play, record, _ = cycle(designs=["no program here"] * 8, plays=())
    assert record.metrics["design/valid_rate"] == 0
    assert record.metrics["design/reward"] == -0.5
    assert record.metrics["play/num_episodes"] == 0
    unknown = {"design/regret", "design/distinct_rate", "play/win_rate", "play/num_turns"}
    assert not unknown & record.metrics.keys()
    assert self_play.memory.records == ()


def test_a_sandbox_that_is_gone_masks_the_whole_cycle(cycle, sandbox):
    _, _, record, machinery = cycle(
        designs=[DESIGNS[0]] * 8, plays=(), pool=FaultySandbox(sandbox.pool, "One")
    )
    assert record.metrics["design/num_host_faults"] == 8
    assert record.rewards == {}
    assert unpacked(machinery.updater.batches[0]) == []
    assert "design/reward" not in record.metrics


# Contexts.


def documents(num):
    return [Document(document_id=f"d{index}", text=f"drum{index} " * 9) for index in range(num)]


def test_each_design_has_a_document_of_its_own_and_the_state_says_where_to_go_on(cycle):
    corpus = Corpus(documents(20), seed=4)
    config = changed(CONFIG, corpus={"excerpt_words": 3})
    _, self_play, record, machinery = cycle(config=config, corpus=corpus)
    drawn = [design.context.document.document_id for design in record.designs]
    assert len(set(drawn)) == 8
    for design, (_, prompt, _) in zip(record.designs, machinery.engine.requests, strict=False):
        word = design.context.document.text.split()[0]
        assert prompt.count(word) == 3
        if design.source is not None:
            assert design.source.document_id == design.context.document.document_id
    following = [next(corpus) for _ in range(5)]
    resumed = Corpus(documents(20), seed=4)
    resumed.restore(self_play.corpus)
    assert [next(resumed) for _ in range(5)] == following
    assert not set(drawn) & {document.document_id for document in following}


def test_contexts_follow_from_seed_and_cycle_alone(cycle):
    _, self_play, _, machinery = cycle()
    assert draw_contexts(machinery, self_play, range(8)) == draw_contexts(machinery, self_play, range(8))
    ids = [context.environment_id for context in draw_contexts(machinery, self_play, range(8))]
    assert ids == [f"c00001-e{index:03d}" for index in range(8)]


def test_skills_go_round():
    skills = ["a", "b", "c", "d", "e"]
    assert active_skills(skills, 0, 7) == skills
    assert active_skills(skills, 9, 7) == skills
    windows = [active_skills(skills, 2, cycle) for cycle in range(5)]
    assert windows == [["a", "b"], ["c", "d"], ["e", "a"], ["b", "c"], ["d", "e"]]
