"""The skills are those that configs name, and each can be asked for without a document."""

import pytest

from spade_jax.errors import ConfigError
from spade_jax.roles.prompts.parts import NUM_IDEAS
from spade_jax.roles.skills import SKILLS, skill_named
from spade_jax.types import GAME_SKILLS, TOOL_USE_SKILLS


def test_there_are_nine_game_skills_and_six_of_tool_use():
    names = {setting: {skill.name for skill in SKILLS if skill.setting == setting} for setting in SETTINGS}
    assert names["games"] == {
        *GAME_SKILLS, "Strategic Planning", "Memory Recall", "Language Understanding"
    }  # fmt: skip
    assert names["tool_use"] == set(TOOL_USE_SKILLS)
    assert len(SKILLS) == 15


SETTINGS = ("games", "tool_use")


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_a_skill_is_found_by_name_and_has_ideas_to_choose_from(skill):
    assert skill_named(skill.name) is skill
    assert skill.description.endswith(".")
    assert len(set(skill.ideas)) == len(skill.ideas) > NUM_IDEAS


def test_ideas_belong_to_one_skill_each():
    ideas = [idea for skill in SKILLS for idea in skill.ideas]
    assert len(set(ideas)) == len(ideas)


def test_an_unknown_skill_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"'Juggling'.*Optimization.*Tool Selection"):
        skill_named("Juggling")
