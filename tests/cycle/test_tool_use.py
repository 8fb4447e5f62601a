"""A cycle of tool use by a script: every count, reward, advantage, mask and line of it."""

import math
import re

import pytest

from spade_jax.metrics import MetricsWriter, read_rows
from spade_jax.reporting import cycle_line
from spade_jax.roles.designer import design_reply
from spade_jax.types import DEFAULT_RUNGS
from tests.cycle.stage import CONFIG, LOOK, MALFORMED, TURN, Lap, changed, dial, packed_as, unpacked
from tests.environments.validation.designs import BANK, SUMS, SUMS_HINT

TOOL_USE = changed(
    CONFIG,
    setting="tool_use",
    designer={"environments": 2, "skills": ("Data Retrieval",)},
    agent={"episodes": 6, "max_turns": 4, "max_tokens": 300, "mask_truncated": True},
)
LAP = Lap([design_reply(dial("Dial"), "look first"), "no program here"], ["wlmntx|wwwwwl"])


@pytest.fixture(scope="module")
def show(stage):
    """The cycle that most tests here look at."""
    return stage([LAP], config=TOOL_USE)


@pytest.fixture(scope="module")
def plain(show):
    return show.record.trajectories[:6]


def test_counts_and_means(show):
    streams = [design.stream for design in show.record.designs]
    streams += [stream for trajectory in show.record.trajectories for stream in trajectory.streams]
    assert counted(show) == pytest.approx(
        {
            "design/num_designs": 2,
            "design/num_valid": 1,
            "design/valid_rate": 0.5,
            "design/num_repaired": 0,
            "design/num_host_faults": 0,
            "design/rejected/extract": 1,
            "design/distinct_rate": 1,
            "design/diversity": 1,
            "design/reward": (0.84 - 0.5) / 2,
            "design/regret": 1 / 6,
            # Differences 0, 2, 0, 0, 0, -1 about 1/6.
            "design/regret_standard_error": math.sqrt((5 - 6 / 36) / 5 / 6),
            "design/learnable_rate": 1,
            "play/num_episodes": 12,
            "play/num_failed": 0,
            "play/win_rate": 4 / 6,
            "play/win_rate_with_hint": 5 / 6,
            "play/num_turns": (2 + 1 + 3 + 2 + 2 + 4 + 5 * 2 + 1) / 12,
            "play/truncated_rate": 1 / 12,
            "play/malformed_rate": 1 / 25,
            "update/loss": 0.125,
            "sandbox/level": int(show.machinery.sandbox.level[1:]),
            "memory/num_records": 1,
            "sample/num_tokens": sum(int(stream.loss_mask.sum()) for stream in streams),
            "sample/num_compilations": 0,
        }
    )


def test_rewards_and_advantages(show, plain):
    assert show.record.rewards == pytest.approx(
        {"c00000-e000": 0.6 * (1 - (4 / 6 - 0.6) / 0.25) + 0.4, "c00000-e001": -0.5}
    )
    (batch,) = show.batches
    for design, reward in zip(show.record.designs, (0.84, -0.5), strict=True):
        assert packed_as(batch, design.stream).advantage == pytest.approx(reward - 0.17)
    assert [item.episode_return for item in plain] == [1, -1, 1, 1, 1, 0]
    deviation = math.sqrt(7 / 12)  # of these about their mean, 1/2
    for trajectory, centred in zip(plain, (0.5, -1.5, 0.5, 0.5, 0.5, None), strict=True):
        packed = packed_as(batch, trajectory.streams[0])
        if centred is None:  # truncated: it counts in its group and trains nothing
            assert packed is None
            continue
        assert packed.advantage == pytest.approx(centred / deviation)
    assert len(unpacked(batch)) == 2 + 5


def replies(trajectory, thought=""):
    """What wins in the instance of a trajectory: a look at its dial and the answer."""
    number = re.findall(r"say (\d+)", trajectory.turns[-1].observation)[-1]
    return [thought + LOOK, f"{thought}<answer>{number}</answer>"]


def test_masks_are_true_on_what_was_sampled_but_for_the_malformed_call(plain, tokenizer):
    wins, _, mends, calls_twice, thinks, _ = plain
    trained = [
        replies(wins),
        ["<answer>0</answer>"],
        replies(mends),
        [TURN + LOOK, replies(calls_twice)[1]],
        replies(thinks, '<think><tool_call>{"name": "spoil"}</tool_call></think>'),
        [LOOK] * 4,
    ]
    for trajectory, wanted in zip(plain, trained, strict=True):
        (stream,) = trajectory.streams
        assert tokenizer.decode(stream.tokens[stream.loss_mask]) == "".join(
            f"{reply}<|end|>" for reply in wanted
        )
        assert (stream.behavior_logprobs[~stream.loss_mask] == 0).all()
        assert (stream.behavior_logprobs[stream.loss_mask] < 0).all()
    assert [turn.malformed for turn in mends.turns] == [True, False, False]
    assert MALFORMED in tokenizer.decode(mends.streams[0].tokens)


def test_what_calls_say_comes_back_and_what_is_malformed_is_said(plain):
    wins, _, mends, calls_twice, thinks, looks = plain
    number = replies(calls_twice)[1][8:-9]
    assert [turn.observation for turn in calls_twice.turns] == [
        "Dial: what does the dial say?",
        f"turned by 3\nsay {number}",
    ]
    assert calls_twice.last_observation == "Your answer is right."
    assert "could not be read" in mends.turns[1].observation
    assert "spoilt" not in "".join(turn.observation for turn in thinks.turns)
    assert [turn.reward for turn in wins.turns] == [0, 1]
    assert (looks.terminated, looks.truncated, len(looks.turns)) == (False, True, 4)


def test_tools_and_hints_are_told(show, tokenizer):
    for trajectory in show.record.trajectories:
        talk = tokenizer.decode(trajectory.streams[0].tokens)
        assert talk.startswith("<|system|>Tools:\nlook()\nturn(dial?: object)\nspoil()<|end|>")
        assert talk.count("HINT: look first") == (trajectory.condition == "with_hint")
        assert "boxed" not in talk  # tools speak for themselves
    seeds = [trajectory.instance_seed for trajectory in show.record.trajectories]
    assert seeds[:6] == seeds[6:]


def test_what_is_not_to_be_masked_is_not(stage, show, tokenizer):
    config = changed(TOOL_USE, agent={"mask_truncated": False, "mask_malformed": False})
    unmasked = stage([LAP], config=config)
    assert {**counted(unmasked), "sample/num_tokens": 0} == {**counted(show), "sample/num_tokens": 0}
    assert len(unpacked(unmasked.batches[0], "agent")) == 6
    mends, looks = unmasked.record.trajectories[2], unmasked.record.trajectories[5]
    (stream,) = mends.streams
    assert tokenizer.decode(stream.tokens[stream.loss_mask]).startswith(f"{MALFORMED}<|end|>{LOOK}<|end|>")
    assert packed_as(unmasked.batches[0], looks.streams[0]).advantage == pytest.approx(
        -0.5 / math.sqrt(7 / 12)
    )


def test_the_log_line_and_the_row(show, tmp_path):
    line = cycle_line(7, show.record.metrics)
    assert line.startswith(
        "cycle    7 | valid 1/2 | win 0.67, with hint 0.83 | regret +0.17 | designer +0.17 | held-out - | "
    )
    with MetricsWriter(tmp_path / "metrics.jsonl", tmp_path / "board", from_cycle=0) as writer:
        writer.write(7, show.record.metrics)
    assert read_rows(tmp_path / "metrics.jsonl") == [{"cycle": 7, **show.record.metrics}]


@pytest.mark.parametrize(
    ("setting", "code", "hint", "plays"),
    [("games", SUMS, SUMS_HINT, "l|l"), ("tool_use", BANK, "Ask for the balance.", "x|x")],
)
def test_a_good_design_climbs_the_whole_ladder(stage, setting, code, hint, plays):
    config = changed(
        CONFIG,
        setting=setting,
        designer={"max_tokens": 3500},
        validation={"rungs": DEFAULT_RUNGS},
        agent={"episodes": 1, "max_tokens": 100},
    )
    show = stage([Lap([design_reply(code, hint)], [plays])], config=config)
    (design,) = show.record.designs
    assert [verdict.rung for verdict in design.report.verdicts] == list(DEFAULT_RUNGS)
    assert design.report.valid
    assert show.record.metrics["design/valid_rate"] == 1
    assert (show.record.metrics["play/num_episodes"], show.record.metrics["play/truncated_rate"]) == (2, 1)


def counted(show):
    return {name: value for name, value in show.record.metrics.items() if "second" not in name}
