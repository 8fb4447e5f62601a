"""From replies to environments: tries, repairs, hints and judgements."""

import pytest

from spade_jax.config import EndpointConfig
from spade_jax.roles.designer import design_reply
from spade_jax.roles.endpoint import Endpoint
from tests.chat_server import Server, completion
from tests.cycle.stage import CONFIG, Lap, changed, packed_as, unpacked
from tests.scripted import game

GOOD, OTHER = design_reply(game("One"), "obey One"), design_reply(game("Two", turns=2), "obey Two")
# Won by one word in all of its instances.
PASSWORD = game("Pass").replace("move != self.answer", 'move != "sesame"')
# The plateau of a single point is as high as the win rate.
WIN_RATE = {"kind": "plateau", "plateau_low": 1.0, "plateau_high": 1.0, "plateau_ramp": 1.0}
TWO = {"agent": {"episodes": 2}, "reward": WIN_RATE}
REFUSED = (400, {"error": {"message": "no"}})


@pytest.fixture
def endpoint(monkeypatch):
    """An endpoint that gives one answer for ever."""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-the-tests")
    servers = []

    def start(answer):
        servers.append(Server([answer]))
        return Endpoint(EndpointConfig(base_url=servers[-1].url, model="tiny", timeout=60.0))

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("rejected", "rewards"),
    [("reward", [-0.5, 1.0, -0.5, 0.5]), ("drop", [None, 1.0, None, 0.5])],
)
def test_each_try_is_a_design_of_its_own(stage, rejected, rewards):
    config = changed(CONFIG, designer={"environments": 2, "attempts": 4, "rejected": rejected}, **TWO)
    show = stage([Lap(["nothing", GOOD, "nothing again", OTHER], ["ww|ww", "wl|wl"])], config=config)
    record, (batch,) = show.record, show.batches
    ids = ["c00000-e000", "c00000-e001", "c00000-e000-a1", "c00000-e000-a2"]
    assert [design.context.environment_id for design in record.designs] == ids
    assert len({params.seed for _, _, params in show.machinery.engine.requests[:4]}) == 4
    assert [source.environment_id for source in show.self_play.pool] == [ids[1], ids[3]]
    known = {name: reward for name, reward in zip(ids, rewards, strict=True) if reward is not None}
    assert record.rewards == known
    assert record.metrics["design/reward"] == pytest.approx(sum(known.values()) / len(known))
    assert (record.metrics["design/num_designs"], record.metrics["design/num_valid"]) == (4, 2)
    assert record.metrics["design/rejected/extract"] == 2
    mean = sum(known.values()) / len(known)
    assert len(unpacked(batch, "designer")) == len(known)
    for design, reward in zip(record.designs, rewards, strict=True):
        packed = packed_as(batch, design.stream)
        assert (None if packed is None else packed.advantage) == (
            None if reward is None else pytest.approx(reward - mean)
        )


def test_when_all_tries_fail_nothing_is_played(stage):
    config = changed(CONFIG, designer={"attempts": 2})
    show = stage([Lap(["nothing", "nothing again"])], config=config)
    assert show.self_play.pool == ()
    assert show.record.metrics["design/num_designs"] == 2
    assert show.record.metrics["play/num_episodes"] == 0


def test_a_mended_environment_is_played_and_only_the_first_reply_trains(stage, tokenizer):
    config = changed(CONFIG, designer={"environments": 3, "repair_turns": 2}, **TWO)
    replies = ["first of one", GOOD, "first of three"]
    repairs = ["second of one", "second of three", OTHER, "third of three"]
    show = stage([Lap(replies, ["wl|ww", "wl|ww"], repairs=repairs)], config=config)
    mended, good, lost = show.record.designs
    assert [design.reply for design in show.record.designs] == replies
    assert [design.report.rejected_by for design in show.record.designs] == ["extract", "", "extract"]
    assert "class TwoEnv" in mended.source.code
    assert (mended.source.environment_id, lost.source) == ("c00000-e000", None)
    assert {
        name: show.record.metrics[f"design/{name}"] for name in ("num_designs", "num_valid", "num_repaired")
    } == {"num_designs": 3, "num_valid": 1, "num_repaired": 1}

    assert show.record.rewards == {"c00000-e000": -0.5, "c00000-e001": 0.5, "c00000-e002": -0.5}
    assert set(show.record.estimates) == {"c00000-e000", "c00000-e001"}
    assert [item.source for item in show.self_play.memory.records] == [mended.source, good.source]
    (batch,) = show.batches
    trained = [tokenizer.decode(packed.tokens) for packed in unpacked(batch, "designer")]
    assert len(trained) == 3
    assert not any("second of" in text or "third of" in text or "rejected" in text for text in trained)
    assert packed_as(batch, mended.stream).advantage == pytest.approx(-0.5 - (0.5 - 0.5 - 0.5) / 3)

    asked = show.prompts("repairs")
    assert len(asked) == 4
    assert "<|assistant|>first of one<|end|>" in asked[0]
    assert "no_code" in asked[0]
    assert "<|assistant|>second of one<|end|>" in asked[2]
    assert "<|assistant|>second of three<|end|>" in asked[3]


HINTS = {
    "in the design": ("design", None, "obey One", ""),
    "in a reply of its own": ("separate", "<think>hm</think>Hint: count up", "count up", ""),
    "too long": ("separate", "up " * 250, "", "long_hint"),
    "without an end": ("separate", "up " * 2000, "", "no_answer"),
    "empty": ("separate", "<think>hm</think>", "", "no_hint"),
    "gives the answer away": ("separate", "sesame", "", "leak"),
    "by the endpoint": ("endpoint", completion("count up<|end|>"), "count up", ""),
    "by an endpoint that refuses": ("endpoint", REFUSED, "", "no_answer"),
}


@pytest.mark.parametrize(("source", "answer", "hint", "failure"), HINTS.values(), ids=HINTS)
def test_hints_from_each_source(stage, endpoint, source, answer, hint, failure):
    config = changed(
        CONFIG,
        hint={"source": source, "max_tokens": 1000},
        validation={"rungs": ("extract", "load", "hint")},
        agent={"episodes": 2},
    )
    code = PASSWORD if failure == "leak" else game("One")
    lap = Lap(
        [design_reply(code, "obey One") if source == "design" else f"```python\n{code}```\n"],
        ["sl" + "|ss" * bool(hint)],
        hints=[answer] if source == "separate" else [],
    )
    show = stage([lap], config=config, endpoint=endpoint(answer) if source == "endpoint" else None)
    (design,) = show.record.designs
    assert (design.source.hint, design.hint_failure) == (hint, failure)
    assert design.report.valid
    told = [talk for _, talk, _ in show.machinery.engine.requests if "HINT: " in talk]
    assert all(f"HINT: {hint}<|end|>" in talk for talk in told)
    assert len({talk for talk in told if talk.count("<|assistant|>") == 1}) == (2 if hint else 0)
    unhinted = {name: value for name, value in show.record.metrics.items() if "no_hint" in name}
    assert unhinted == ({f"design/no_hint/{failure}": 1} if failure else {})
    # Of an environment whose hint was not tried the regret is not known, nor a reward that is made of it.
    assert set(show.record.estimates) == set(show.record.rewards) == ({"c00000-e000"} if hint else set())
    assert len(show.self_play.memory.records) == bool(hint)
    assert len(unpacked(show.batches[0], "designer")) == bool(hint)
    assert len(unpacked(show.batches[0], "agent")) == 2


JUDGEMENTS = {
    "yes": ("self", "closed", "\\boxed{no}? No: \\boxed{yes}", True),
    "no": ("self", "open", "\\boxed{no}", False),
    "no verdict": ("self", "closed", "perhaps", False),
    "no verdict, left open": ("self", "open", "perhaps", True),
    "the endpoint's yes": ("endpoint", "closed", completion("\\boxed{yes}"), True),
    "the endpoint's no": ("endpoint", "open", completion("\\boxed{no}"), False),
    "an endpoint that refuses": ("endpoint", "closed", REFUSED, False),
    "an endpoint that refuses, left open": ("endpoint", "open", REFUSED, True),
}


@pytest.mark.parametrize(("judge", "failure", "answer", "valid"), JUDGEMENTS.values(), ids=JUDGEMENTS)
def test_the_judge_rejects_or_not(stage, endpoint, judge, failure, answer, valid):
    rungs = (*CONFIG.validation.rungs, "judge")
    config = changed(
        CONFIG,
        designer={"environments": 2},
        validation={"rungs": rungs, "judge": judge, "judge_failure": failure},
        **TWO,
    )
    lap = Lap(["nothing", GOOD], ["wl|ww"] if valid else [], verdicts=[answer] if judge == "self" else [])
    show = stage([lap], config=config, endpoint=endpoint(answer) if judge == "endpoint" else None)
    rejected, judged = show.record.designs
    assert rejected.report.rejected_by == "extract"
    assert judged.report.rejected_by == ("" if valid else "judge")
    assert [verdict.rung for verdict in judged.report.verdicts] == list(rungs)
    assert show.record.metrics.get("design/rejected/judge", 0) == (not valid)
    assert show.record.rewards == {"c00000-e000": -0.5, "c00000-e001": 0.5 if valid else -0.5}
    assert len(unpacked(show.batches[0], "designer")) == 2
