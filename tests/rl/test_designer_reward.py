"""Oracle vectors are values that the reference implementation produces."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.config import DesignerConfig
from spade_jax.rl.designer_reward import designer_advantages, designer_reward, plateau
from spade_jax.types import RegretEstimate


def estimate(win_rate, regret):
    return RegretEstimate(
        environment_id="c00000-e00",
        return_without_hint=win_rate,
        return_with_hint=win_rate + regret,
        win_rate=win_rate,
        win_rate_with_hint=win_rate,
        regret=regret,
        standard_error=0.0,
        num_pairs=4,
    )


# Four environments of one skill. Win rates are over four offsets of four plays. The blend matches the
# return with hint to the first offset, the plain regret to all of them.
WIN_RATES = [8 / 16, 1.0, 1 / 16, 3 / 16]
WITH_HINT = [0.5, 0.9, 0.25, 0.2]
FIRST_OFFSET = [0.25, 1.0, 0.0, 0.5]
BLEND = [
    estimate(w, hinted - first) for w, hinted, first in zip(WIN_RATES, WITH_HINT, FIRST_OFFSET, strict=True)
]
PLAIN = [estimate(w, hinted - w) for w, hinted in zip(WIN_RATES, WITH_HINT, strict=True)]
SCALE = 32


@pytest.mark.parametrize(
    ("band", "values"),
    [
        (
            (0.4, 0.6, 0.25),
            {0: 0, 0.15: 0, 0.2: 0.2, 0.3: 0.6, 0.4: 1, 0.6: 1, 0.7: 0.6, 0.8: 0.2, 0.85: 0, 1: 0},
        ),
        ((0.2, 0.4, 0.2), {0: 0, 0.1: 0.5, 0.2: 1, 0.4: 1, 0.5: 0.5, 0.6: 0}),
    ],
)
def test_plateau_oracle(band, values):
    low, high, ramp = band
    for win_rate, wanted in values.items():
        assert plateau(win_rate, low=low, high=high, ramp=ramp) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("reward", "estimates", "raw", "scale", "advantages"),
    [
        ("blend", BLEND, [1.0, 0.0, 0.4, 0.09], SCALE, [20.08, -11.92, 0.88, -9.04]),
        ("plateau", BLEND, [1.0, 0.0, 0.0, 0.15], SCALE, [22.8, -9.2, -9.2, -4.4]),
        ("regret", PLAIN, [0.0, 0.0, 0.1875, 0.0125], 1, [-0.05, -0.05, 0.1375, -0.0375]),
    ],
)
def test_reward_and_centring_oracle(reward, estimates, raw, scale, advantages):
    config = DesignerConfig(reward=reward)
    rewards = [designer_reward(each, config) for each in estimates]
    assert rewards == pytest.approx(raw, abs=1e-9)
    centred = designer_advantages(rewards, ["Optimization"] * 4)
    assert [scale * value for value in centred] == pytest.approx(advantages, abs=1e-9)


estimates = st.builds(estimate, st.floats(0, 1), st.floats(-2, 2))


@given(estimates)
def test_blend_stays_in_the_unit_interval_and_lies_between_its_parts(each):
    config = DesignerConfig()
    blend = designer_reward(each, config)
    band = designer_reward(each, dataclasses.replace(config, reward="plateau"))
    assert 0.6 * band - 1e-12 <= blend <= 0.6 * band + 0.4 + 1e-12


@given(estimates, st.floats(0, 2), st.sampled_from(["regret", "blend"]))
def test_more_regret_never_pays_less(each, more, reward):
    config = DesignerConfig(reward=reward)
    raised = dataclasses.replace(each, regret=each.regret + more)
    assert designer_reward(raised, config) >= designer_reward(each, config)


@given(st.floats(0, 1))
def test_plateau_treats_too_easy_and_too_hard_alike(win_rate):
    band = {"low": 0.4, "high": 0.6, "ramp": 0.25}
    assert plateau(win_rate, **band) == pytest.approx(plateau(1 - win_rate, **band), abs=1e-9)


@given(st.lists(st.tuples(st.floats(-1, 1), st.sampled_from("abc")), max_size=12), st.floats(-1, 1))
def test_a_constant_added_to_one_skill_changes_nothing(designs, constant):
    rewards, skills = [reward for reward, _ in designs], [skill for _, skill in designs]
    shifted = [reward + constant * (skill == "a") for reward, skill in designs]
    advantages = designer_advantages(rewards, skills)
    assert designer_advantages(shifted, skills) == pytest.approx(advantages, abs=1e-9)
    for skill in set(skills):
        of_skill = [value for value, its in zip(advantages, skills, strict=True) if its == skill]
        assert sum(of_skill) == pytest.approx(0, abs=1e-9)
