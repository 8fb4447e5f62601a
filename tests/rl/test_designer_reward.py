"""Oracle vectors are values that the reference implementation produces.

Tests named after a defect (`defect_18` is algorithm.md 15.B 18) fail where it comes back.
"""

import dataclasses
import math
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import RewardConfig
from spade_jax.rl.designer_reward import balance_factor, designer_advantages, designer_rewards
from spade_jax.rl.learning_trackers import LearningTrackers
from spade_jax.types import PlayHistory, RegretEstimate

KINDS = get_args(get_type_hints(RewardConfig)["kind"])
NEEDS_ESTIMATE = ("blend", "regret", "regret_lower_bound")
SKILL = "Optimization"


def estimate(regret, *, with_hint=0.0, standard_error=0.0):
    return RegretEstimate(
        environment_id="",
        return_without_hint=with_hint - regret,
        return_with_hint=with_hint,
        win_rate=0.0,
        win_rate_with_hint=0.0,
        regret=regret,
        standard_error=standard_error,
        num_pairs=4,
    )


def history(*returns, name="g", its_estimate=None, timed_out=False, skill=SKILL):
    return PlayHistory(
        environment_id=name,
        skill=skill,
        returns=tuple(map(tuple, returns)),
        estimate=its_estimate,
        timed_out=timed_out,
    )


def rewards_of(histories, trackers=None, **config):
    trackers = trackers if trackers is not None else LearningTrackers()
    return designer_rewards(histories, RewardConfig(**config), trackers)[0]


def reward_of(one, **config):
    """The reward of a single history, None where it is left out."""
    return rewards_of([one], **config).get(one.environment_id)


# Four environments of one skill, four cycles of four plays each, and their returns with the hint. The
# estimate compares with the first cycle.
PLAYED = {
    "g1": (((1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0)), 0.5),
    "g2": (((1, 1, 1, 1),) * 4, 0.9),
    "g3": (((0, 0, 0, 0), (0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0)), 0.25),
    "g4": (((1, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0)), 0.2),
}
ORACLE = [
    history(*returns, name=name, its_estimate=estimate(with_hint - sum(returns[0]) / 4, with_hint=with_hint))
    for name, (returns, with_hint) in PLAYED.items()
]
RECIPE = {"win_rate": "mean", "mask_negative": True}
DEFAULTS = {
    **RECIPE,
    "plateau_weight": 0.0,
    "regret_weight": 0.5,
    "micro_lp_weight": 0.5,
    "regret_floor": False,
}
SOLVE_RATE = {**RECIPE, "plateau_weight": 1.0, "regret_weight": 0.0}


@pytest.mark.parametrize(
    ("config", "scale", "raw", "advantages"),
    [
        (RECIPE, 32, [1.0, 0.0, 0.4, 0.09], [20.08, -11.92, 0.88, -9.04]),
        (DEFAULTS, 1, [3.083333, None, 1.208333, None], [0.9375, None, -0.9375, None]),
        (
            {**DEFAULTS, "micro_lp": "two_bucket"},
            1,
            [2.083333, None, 1.458333, None],
            [0.3125, None, -0.3125, None],
        ),
        ({**DEFAULTS, "frontier_weight": 1.0}, 1, [3.083333, None, None, None], [0.0, None, None, None]),
        (SOLVE_RATE, 32, [1.0, 0.0, 0.0, 0.15], [22.8, -9.2, -9.2, -4.4]),
        ({**RECIPE, "kind": "plateau"}, 32, [1.0, 0.0, 0.0, 0.15], [22.8, -9.2, -9.2, -4.4]),
        (
            {"kind": "micro_lp", "micro_lp": "two_bucket"},
            1,
            [0.25, 0.0, 0.125, 0.0],
            [0.15625, -0.09375, 0.03125, -0.09375],
        ),
        (
            {"kind": "regret", "regret_plays": "window"},
            1,
            [0.0, 0.0, 0.1875, 0.0125],
            [-0.05, -0.05, 0.1375, -0.0375],
        ),
        (
            {"kind": "learning_potential", "fast_rate": 0.98, "slow_rate": 0.85},
            1,
            [0.083125, 0.583125, 0.354375, 0.229375],
            [-0.229375, 0.270625, 0.041875, -0.083125],
        ),
    ],
)
def test_oracle_of_reward_mask_and_centring(config, scale, raw, advantages):
    primed = LearningTrackers(fast={SKILL: 0.3}, slow={SKILL: 0.3})
    rewards = rewards_of(ORACLE, primed, **config)
    wanted = {name: value for name, value in zip(PLAYED, raw, strict=True) if value is not None}
    assert rewards == pytest.approx(wanted, abs=1e-6)
    centred = designer_advantages(list(rewards.values()), [SKILL] * len(rewards))
    assert [scale * value for value in centred] == pytest.approx(
        [value for value in advantages if value is not None], abs=1e-6
    )


@pytest.mark.parametrize(
    ("config", "raw"),
    [
        (DEFAULTS, [3.083333, -0.333333, 1.208333, -3.625]),
        ({**DEFAULTS, "micro_lp": "two_bucket"}, [2.083333, -0.333333, 1.458333, -2.875]),
        ({**DEFAULTS, "frontier_weight": 1.0}, [3.083333, -3.458333, -1.184245, -4.845703]),
    ],
)
def test_oracle_of_what_the_mask_hides(config, raw):
    rewards = rewards_of(ORACLE, **{**config, "mask_negative": False})
    assert list(rewards.values()) == pytest.approx(raw, abs=1e-6)


def test_oracle_of_the_trackers():
    trackers = LearningTrackers(fast={SKILL: 0.3}, slow={SKILL: 0.3})
    config = RewardConfig(kind="learning_potential")
    _, trackers = designer_rewards(ORACLE, config, trackers)
    assert trackers.fast[SKILL] == pytest.approx(0.434750)
    assert trackers.slow[SKILL] == pytest.approx(0.416875)
    assert trackers.potential(SKILL, config) == pytest.approx(0.068750)


def test_every_kind_by_hand():
    """Wins 1 of 4, then 2 of 4; return with hint 0.9 on the first four, with an error of 0.05."""
    one = history([1, 0, 0, 0], [1, 1, 0, 0], its_estimate=estimate(0.65, with_hint=0.9, standard_error=0.05))
    wanted = {
        # Win rate 3/8 is 0.025 below the band of ramp 0.25; the regret is clipped at 0.15.
        "blend": 0.6 * 0.9 + 0.4 * 1.0,
        "regret": 0.65,
        "plateau": 0.9,
        "micro_lp": 0.25,
        "frontier": 1 - 4 / 64,
        # The first batch of the skill is its slow mean.
        "learning_potential": 0.0,
        "solver_variance": math.exp(-((15 / 64 - 1 / 4) ** 2) / 0.02),
        "learnability": 4 * 8 / 7 * 15 / 64,
        "target_band": 1 - 0.075 / 0.3,
        "regret_lower_bound": 0.65 - 2 * 0.05,
    }
    assert wanted.keys() == set(KINDS)
    got = {kind: reward_of(one, kind=kind, confidence=2.0) for kind in KINDS}
    assert got == pytest.approx(wanted)


def test_regret_of_the_first_cycle_or_of_the_window():
    one = history([1, 0, 0, 0], [1, 1, 0, 0], its_estimate=estimate(0.65, with_hint=0.9))
    assert reward_of(one, kind="regret", regret_plays="first") == 0.65
    assert reward_of(one, kind="regret", regret_plays="window") == pytest.approx(0.9 - 3 / 8)


def test_the_lower_bound_of_a_single_pair_is_not_known():
    single = history([1], its_estimate=estimate(1.0, standard_error=math.nan))
    assert reward_of(single, kind="regret_lower_bound") is None
    assert reward_of(single, kind="regret") == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_good_play_nothing_is_known(kind):
    assert rewards_of([history(), history((), ())], kind=kind) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_estimate_the_kinds_that_need_none_still_pay(kind):
    reward = reward_of(history([1, 0], [1, 0]), kind=kind)
    assert (reward is None) == (kind in NEEDS_ESTIMATE)


def test_a_term_of_the_blend_without_weight_need_not_be_known():
    unhinted, brief = history([1, 0], [1, 0]), history([1, 0], its_estimate=estimate(0.3))
    assert reward_of(unhinted, regret_weight=0.0) == pytest.approx(0.6)
    assert reward_of(brief) == pytest.approx(1.0)
    assert reward_of(brief, micro_lp_weight=0.1) is None
    assert reward_of(brief, kind="micro_lp") is None


def test_too_few_plays_for_a_spread_give_no_reward():
    assert reward_of(history([1]), kind="learnability") is None
    assert reward_of(history([1]), kind="solver_variance") is None


@pytest.mark.parametrize("kind", KINDS)
def test_defect_10_a_timeout_costs_in_every_kind(kind):
    """The reference's blend ignores timeouts."""
    one = history([1, 0], [1, 0], its_estimate=estimate(0.1))
    late = dataclasses.replace(one, timed_out=True)
    assert reward_of(late, kind=kind) == pytest.approx(reward_of(one, kind=kind) - 0.5)
    assert reward_of(late, kind=kind, timeout_penalty=0.0) == reward_of(one, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask_negative", [False, True])
def test_defect_10_no_timeout_escapes_by_being_unknown_or_negative(kind, mask_negative):
    silent = history((), (), timed_out=True)
    assert reward_of(silent, kind=kind, mask_negative=mask_negative) == -0.5
    worse = history([1, 1], [0, 0], its_estimate=estimate(-1.0), timed_out=True)
    assert reward_of(worse, kind=kind, mask_negative=mask_negative) is not None
    harmful = {"plateau_weight": 0.0, "regret_floor": False, "mask_negative": mask_negative}
    assert reward_of(worse, **harmful) == pytest.approx(0.4 * -1.0 / 0.15 - 0.5)
    assert (reward_of(dataclasses.replace(worse, timed_out=False), **harmful) is None) == mask_negative


def test_defect_10_a_rejected_design_stands_below_the_others():
    """The reference ignores rejection in the blend: centred with the rest it has to pay."""
    rewards = [*rewards_of(ORACLE).values(), -0.5]
    advantages = designer_advantages(rewards, [SKILL] * 5)
    # The mean of 1, 0, 0.4, 0.09 and -0.5 is 0.198.
    assert advantages[-1] == min(advantages) == pytest.approx(-0.698)


def test_defect_18_partial_and_negative_rewards_do_not_pass_for_a_win_rate_of_one_half():
    """The reference feeds the plateau with the mean outcome."""
    partial = history([0.5] * 8)
    bimodal = history([1, 1, 1, 1, 1, 1, -1, -1])
    for one, success, mean in ((partial, 1.0, 0.5), (bimodal, 0.75, 0.5)):
        paid = 1 - max(0.0, success - 0.6) / 0.25
        assert reward_of(one, kind="plateau") == pytest.approx(max(0.0, paid))
        assert reward_of(one, kind="plateau", win_rate="mean") == 1.0
        assert reward_of(one, kind="frontier") == pytest.approx(1 - 4 * (success - 0.5) ** 2)
        assert reward_of(one, kind="frontier", win_rate="mean") == pytest.approx(1 - 4 * (mean - 0.5) ** 2)


@pytest.mark.parametrize("regret_plays", ["first", "window"])
def test_defect_19_a_password_environment_earns_no_regret(regret_plays):
    """Never solved without the hint, always with it: the best of all under the plain regret."""
    password = history([0, 0, 0, 0], [-1, 0, 0, 0], its_estimate=estimate(1.0, with_hint=1.0))
    solved_once = history([0, 0, 0, 0], [1, 0, 0, 0], its_estimate=estimate(1.0, with_hint=1.0))
    for kind in ("blend", "regret"):
        config = {"kind": kind, "regret_plays": regret_plays}
        assert reward_of(password, **config) == 0
        assert reward_of(password, **config, password_guard=False) > 0.3
        assert reward_of(solved_once, **config) > 0.3
    assert reward_of(password, kind="regret_lower_bound") == 0
    assert reward_of(password, kind="regret_lower_bound", password_guard=False) == 1


floats = st.floats(-1, 1)
histories = st.builds(
    lambda returns, regret, error: history(
        *returns, its_estimate=estimate(regret, with_hint=regret, standard_error=error)
    ),
    st.lists(st.lists(floats, max_size=4), max_size=4),
    st.floats(-2, 2),
    st.floats(0, 1),
)
kinds = st.sampled_from(KINDS)


@given(st.lists(histories, max_size=5), kinds)
def test_rewards_stay_in_their_bounds(played, kind):
    played = [dataclasses.replace(one, environment_id=str(index)) for index, one in enumerate(played)]
    top = {"learning_potential": 2, "regret": 2, "regret_lower_bound": 2, "learnability": 2, "micro_lp": 9}
    for reward in rewards_of(played, kind=kind).values():
        assert 0 <= reward <= top.get(kind, 1) + 1e-9


@given(histories)
def test_blend_is_the_weighted_sum_of_its_parts(one):
    parts = {kind: reward_of(one, kind=kind, win_rate="mean") for kind in ("plateau", "regret", "frontier")}
    blend = reward_of(one, win_rate="mean")
    if blend is None:
        assert parts["plateau"] is None
        return
    assert blend == pytest.approx(0.6 * parts["plateau"] + 0.4 * min(1.0, parts["regret"] / 0.15))


@given(histories, st.floats(0, 2), st.sampled_from(NEEDS_ESTIMATE))
def test_more_regret_never_pays_less(one, more, kind):
    raised = dataclasses.replace(
        one, estimate=dataclasses.replace(one.estimate, regret=one.estimate.regret + more)
    )
    before, after = reward_of(one, kind=kind), reward_of(raised, kind=kind)
    assert before is None is after or after >= before


@given(histories, st.floats(0, 3))
def test_less_confidence_never_pays_less_and_none_is_the_regret(one, confidence):
    cautious = reward_of(one, kind="regret_lower_bound", confidence=confidence)
    plain = reward_of(one, kind="regret")
    assert cautious is None is plain or cautious <= plain
    assert reward_of(one, kind="regret_lower_bound", confidence=0.0) == plain


@given(st.lists(floats, min_size=1, max_size=4), st.lists(floats, min_size=1, max_size=4), st.floats(-1, 1))
def test_a_common_shift_of_all_returns_leaves_the_window_regret_alone(plain, hinted, shift):
    def regret(shift):
        with_hint = sum(hinted) / len(hinted) + shift
        one = history([value + shift for value in plain], its_estimate=estimate(0.0, with_hint=with_hint))
        return reward_of(one, kind="regret", regret_plays="window", password_guard=False)

    assert regret(shift) == pytest.approx(regret(0.0), abs=1e-9)


@given(histories, kinds, st.randoms())
def test_the_order_of_plays_within_a_cycle_does_not_matter(one, kind, random):
    shuffled = dataclasses.replace(
        one, returns=tuple(tuple(random.sample(cycle, len(cycle))) for cycle in one.returns)
    )
    assert reward_of(shuffled, kind=kind) == pytest.approx(reward_of(one, kind=kind), abs=1e-9)


@given(st.lists(histories, max_size=5), kinds, st.randoms())
def test_the_order_of_environments_does_not_matter(played, kind, random):
    played = [dataclasses.replace(one, environment_id=str(index)) for index, one in enumerate(played)]
    shuffled = random.sample(played, len(played))
    assert rewards_of(shuffled, kind=kind) == pytest.approx(rewards_of(played, kind=kind), abs=1e-9)


def test_learning_potential_reads_the_slow_mean_of_its_own_skill_after_the_update():
    before = LearningTrackers(fast={"a": 0.0}, slow={"a": 0.0})
    played = [history([1.0], name="x", skill="a"), history([0.5], name="y", skill="b")]
    config = RewardConfig(kind="learning_potential", fast_rate=0.9, slow_rate=0.25)
    rewards, after = designer_rewards(played, config, before)
    assert rewards == pytest.approx({"x": 0.75, "y": 0.0})
    assert after.slow == pytest.approx({"a": 0.25, "b": 0.5})


@given(st.lists(st.tuples(floats, st.sampled_from("abc")), max_size=12), floats)
def test_a_constant_added_to_one_skill_changes_nothing(designs, constant):
    rewards, skills = [reward for reward, _ in designs], [skill for _, skill in designs]
    shifted = [reward + constant * (skill == "a") for reward, skill in designs]
    advantages = designer_advantages(rewards, skills)
    assert designer_advantages(shifted, skills) == pytest.approx(advantages, abs=1e-9)
    for skill in set(skills):
        of_skill = [value for value, its in zip(advantages, skills, strict=True) if its == skill]
        assert sum(of_skill) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("num_designer", "num_agent", "interval", "factor"),
    [(24, 192, 4, 32.0), (24, 192, 8, 50.0), (16, 256, 32, 50.0), (0, 192, 4, 1.0), (24, 0, 4, 1.0)],
)
def test_balance_oracle(num_designer, num_agent, interval, factor):
    assert balance_factor(num_designer, num_agent, interval=interval, cap=50.0) == factor


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 32), st.floats(0.1, 100))
def test_balance_makes_the_roles_sequences_count_alike_up_to_the_cap(designer, agent, interval, cap):
    factor = balance_factor(designer, agent, interval=interval, cap=cap)
    assert factor <= cap
    if factor < cap:
        assert factor * designer == pytest.approx(agent * interval)
