"""The held-out set: fixed, hard, and apart from everything that is trained on."""

import ast
import asyncio
from collections import Counter

import pytest

from spade_jax.config import ValidationConfig
from spade_jax.environments.fingerprint import fingerprint
from spade_jax.environments.validation import validate
from spade_jax.evaluation.held_out import held_out_environments, held_out_plans
from spade_jax.roles.designer import design_reply, designer_messages
from spade_jax.seeding import derive_rng
from spade_jax.warm_start.designs import example_designs, make_source
from spade_jax.warm_start.family import class_name
from spade_jax.warm_start.grounds import Grounds
from spade_jax.warm_start.syllabus import syllabus_of
from tests.tiny import get_config

SETTINGS = ("games", "tool_use")
SETS = {
    setting: held_out_environments(8 * len(syllabus_of(setting).families), setting) for setting in SETTINGS
}
FINGERPRINTS = {
    setting: frozenset(fingerprint(source.code) for source in held_out) for setting, held_out in SETS.items()
}

both = pytest.mark.parametrize("setting", SETTINGS)


def defined_class(code: str) -> str:
    return next(node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ClassDef))


@both
def test_it_is_the_same_whenever_it_is_made(setting):
    held_out = SETS[setting]
    assert held_out_environments(len(held_out), setting) == held_out
    assert held_out_environments(10, setting) == held_out[:10]


@both
def test_every_family_has_its_share(setting):
    held_out = SETS[setting]
    classes = [defined_class(source.code) for source in held_out]
    families = syllabus_of(setting).families
    assert Counter(classes) == {class_name(family.name): 8 for family in families}
    assert len({source.environment_id for source in held_out}) == len(held_out)


def easy_programs(setting):
    """Programs of all families at the levels of the warm start, many of each."""
    grounds = Grounds.builtin(1, excerpt_words=24)
    for family in syllabus_of(setting).families:
        for level in (1, 2):
            for draw in range(20):
                rng = derive_rng(7, "easy", level, draw)
                parameters = rng.choice(family.levels[level - 1])
                yield make_source(family, parameters, grounds.word_for(grounds.documents[draw])).code


@both
def test_it_holds_the_hardest_level_alone(setting):
    assert not FINGERPRINTS[setting] & {fingerprint(code) for code in easy_programs(setting)}


@both
def test_no_program_of_the_warm_start_is_in_it(setting):
    syllabus = syllabus_of(setting)
    grounds = Grounds.builtin(3, excerpt_words=24, syllabus=syllabus)
    examples = example_designs(500, seed=3, grounds=grounds, num_positives=2)
    assert len(examples) == 500
    assert not FINGERPRINTS[setting] & {fingerprint(source.code) for _, source in examples}
    text = "\n".join(
        message.content + source.code
        for context, source in examples
        for message in designer_messages(context, config=get_config(), excerpt_words=24)
    )
    for name in syllabus.held_out:
        assert class_name(name) not in text


@both
def test_a_design_that_is_in_it_in_other_words_is_rejected(setting):
    source = SETS[setting][0]
    reworded = source.code.replace("self.rng = ", "self.rng =  ").replace('f"', 'f"now ')
    assert reworded != source.code
    reply = design_reply(f"# mine\n{reworded}", "a hint")
    # No sandbox: it is rejected before anything of it could run.
    report = asyncio.run(
        validate(
            "e",
            reply,
            sandbox=None,
            config=ValidationConfig(),
            held_out=FINGERPRINTS[setting],
            setting=setting,
            max_turns=10,
        )
    )
    assert report.rejected_by == "held_out"


def test_every_evaluation_plays_the_same_instances_without_hints():
    held_out = SETS["games"][:6]
    plans = held_out_plans(held_out, episodes=3)
    assert plans == held_out_plans(held_out, episodes=3)
    assert [plan.source for plan in plans] == [source for source in held_out for _ in range(3)]
    assert {plan.condition for plan in plans} == {"without_hint"}
    assert len({plan.instance_seed for plan in plans}) == len({plan.sampling_seed for plan in plans}) == 18


@pytest.mark.parametrize("num", [1, 5])
def test_a_smaller_set_has_as_many_as_asked_for(num):
    assert len(held_out_environments(num)) == num
