"""From plays to the numbers of the loss: balance of the roles, guards, penalties, baselines."""

import pytest

from spade_jax.config import LossConfig
from spade_jax.errors import EnvironmentFailure, HostFault
from spade_jax.roles.designer import design_reply
from tests.cycle.stage import CONFIG, Lap, changed, packed_as, unpacked
from tests.scripted import FaultySandbox, game

ONE = design_reply(game("One"), "obey One")
TWO = design_reply(game("Two", turns=2), "obey Two")
# The plateau of a single point is as high as the win rate.
WIN_RATE = {"kind": "plateau", "plateau_low": 1.0, "plateau_high": 1.0, "plateau_ramp": 1.0}


@pytest.mark.parametrize(
    ("update", "factor"),
    [
        ({"role_balance": "per_role"}, 1.0),
        ({"role_balance": "pooled"}, 8 / 2 * 3),
        ({"role_balance": "pooled", "max_balance": 5.0}, 5.0),
    ],
)
def test_roles_are_balanced_by_their_means_or_by_a_factor(stage, update, factor):
    config = changed(
        CONFIG,
        designer={"environments": 2, "interval": 3, "loss": LossConfig(weight=2.0)},
        agent={"episodes": 4, "loss": LossConfig(weight=0.5)},
        reward=WIN_RATE,
        update=update,
    )
    show = stage([Lap([ONE, TWO], ["wwwl|wwww", "wlll|wwww"])], config=config)
    (batch,) = show.batches
    for design, advantage in zip(show.record.designs, (0.25, -0.25), strict=True):
        assert packed_as(batch, design.stream).advantage == pytest.approx(factor * advantage)
    assert len(unpacked(batch, "agent")) == 8
    weights = {"designer": 2.0 / 2, "agent": 0.5 / 8}  # of one sequence
    if update["role_balance"] == "pooled":
        weights = {"designer": 1 / 10, "agent": 1 / 10}
    for packed in unpacked(batch):
        assert packed.weight * sum(packed.mask) == pytest.approx(weights[packed.role])
    # Each win is 1 or -1 about a mean of 0.5 or -0.5, with a deviation of sqrt(3) / 2.
    wanted = sorted([*[0.5] * 3, -1.5, 1.5, *[-0.5] * 3])
    assert sorted(packed.advantage for packed in unpacked(batch, "agent")) == pytest.approx(
        [2 * value / 3**0.5 for value in wanted]
    )


@pytest.mark.parametrize(
    ("kind", "guard", "plays", "reward"),
    [
        ("regret", True, "llll|wwww", 0.0),
        ("regret", False, "llll|wwww", 2.0),
        ("regret", True, "wlll|wwww", 1.5),
        ("blend", True, "llll|wwww", 0.0),
        ("blend", False, "llll|wwww", 0.4),
        ("regret_lower_bound", True, "llll|wwww", 0.0),
        ("regret_lower_bound", False, "llll|wwww", 2.0),
    ],
)
def test_what_only_the_hint_opens_earns_nothing(stage, kind, guard, plays, reward):
    config = changed(CONFIG, agent={"episodes": 4}, reward={"kind": kind, "password_guard": guard})
    show = stage([Lap([ONE], [plays])], config=config)
    assert show.record.rewards == {"c00000-e000": pytest.approx(reward)}
    # The guard is on the reward; what is measured stays as it is.
    assert show.record.metrics["design/regret"] == plays.count("l") * 2 / 4


@pytest.mark.parametrize(
    ("played", "num_failed", "reward"),
    [
        (4, 0, 0.5),
        (3, 1, 0.5 - 0.25),  # late in the last episode, which has the hint
        (1, 3, 1.0 - 0.25),
        (0, 4, -0.25),
    ],
)
@pytest.mark.parametrize("error", [EnvironmentFailure("timeout"), HostFault("no more processes")])
def test_an_environment_that_gives_no_answer_in_time_costs_and_a_fault_of_the_host_does_not(
    stage, sandbox, error, played, num_failed, reward
):
    """The episodes after so many get no answer: one child is for validation, then each has its own."""
    config = changed(CONFIG, agent={"episodes": 2}, reward={**WIN_RATE, "timeout_penalty": -0.25})
    pool = FaultySandbox(sandbox.pool, "One", after=1 + played, error=error)
    show = stage([Lap([ONE], ["wl|wl"])], config=config, pool=pool)
    timed_out = isinstance(error, EnvironmentFailure)
    if not timed_out:
        reward = reward + 0.25 if num_failed else reward
    assert show.record.rewards == ({"c00000-e000": reward} if timed_out or played else {})
    assert show.record.metrics["play/num_failed"] == num_failed
    kind = "timeout" if timed_out else "host_fault"
    assert show.record.metrics.get(f"play/failed/{kind}", 0) == num_failed
    assert len(unpacked(show.batches[0], "designer")) == len(show.record.rewards)
    # A single good episode has nothing to be compared with.
    assert len(unpacked(show.batches[0], "agent")) == (2 if played >= 2 else 0)


def test_the_baseline_follows_an_environment_while_it_is_played(stage):
    config = changed(
        CONFIG,
        designer={"interval": 3},
        agent={"episodes": 2, "advantage": "ema", "baseline_decay": 0.5, "drop_equal_groups": True},
    )
    laps = [Lap([ONE], ["ww|ww"]), Lap(plays=["wl"]), Lap(plays=["ll"]), Lap([ONE], ["wl|ww"])]
    show = stage(laps, config=config)
    # Baselines before each cycle are 0, 0.5, 0.25, and 0 for a new environment.
    wanted = [[1.0, 1.0], [-1.5, 0.5], [-1.25, -1.25], [-1.0, 1.0]]
    for batch, advantages in zip(show.batches, wanted, strict=True):
        assert sorted(packed.advantage for packed in unpacked(batch, "agent")) == advantages
    after = [("c00000-e000", 0.5), ("c00000-e000", 0.25), ("c00000-e000", -0.375), ("c00003-e000", 0.0)]
    assert [state.baselines for state in show.self_plays] == [dict([item]) for item in after]
