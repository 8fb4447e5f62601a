"""The held-out set: fixed, hard, and apart from everything that is trained on."""

import ast
import asyncio

import pytest

from spade_jax.config import ValidationConfig
from spade_jax.environments.fingerprint import fingerprint
from spade_jax.environments.validation import validate
from spade_jax.evaluation.held_out import held_out_environments, held_out_plans
from spade_jax.roles.designer import design_reply, designer_messages
from spade_jax.seeding import derive_rng
from spade_jax.warm_start.designs import example_designs, make_source
from spade_jax.warm_start.families import FAMILIES, HELD_OUT_FAMILIES
from spade_jax.warm_start.families.base import class_name
from spade_jax.warm_start.grounds import Grounds
from tests.tiny import get_config

EVERY_FAMILY = {**FAMILIES, **HELD_OUT_FAMILIES}
HELD_OUT = held_out_environments(len(EVERY_FAMILY) * 8)
FINGERPRINTS = {fingerprint(source.code) for source in HELD_OUT}


def defined_class(code: str) -> str:
    return next(node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ClassDef))


def test_it_is_the_same_whenever_it_is_made():
    assert held_out_environments(len(HELD_OUT)) == HELD_OUT
    assert held_out_environments(10) == HELD_OUT[:10]


def test_every_family_has_its_share():
    classes = [defined_class(source.code) for source in HELD_OUT]
    assert {name: classes.count(name) for name in classes} == {class_name(name): 8 for name in EVERY_FAMILY}
    assert len({source.environment_id for source in HELD_OUT}) == len(HELD_OUT)


def test_two_families_are_in_no_training_text():
    assert len(HELD_OUT_FAMILIES) == 2
    assert not HELD_OUT_FAMILIES.keys() & FAMILIES.keys()


def easy_programs():
    """Programs of all families at the levels of the warm start, many of each."""
    grounds = Grounds.builtin(1, excerpt_words=24)
    for family in EVERY_FAMILY.values():
        for level in (1, 2):
            for draw in range(20):
                rng = derive_rng(7, "easy", level, draw)
                parameters = rng.choice(family.levels[level - 1])
                yield make_source(family, parameters, grounds.word_for(grounds.documents[draw])).code


def test_it_holds_the_hardest_level_alone():
    assert not FINGERPRINTS & {fingerprint(code) for code in easy_programs()}


def test_no_program_of_the_warm_start_is_in_it():
    examples = example_designs(500, seed=3, grounds=Grounds.builtin(3, excerpt_words=24), num_positives=2)
    assert len(examples) == 500
    assert not FINGERPRINTS & {fingerprint(source.code) for _, source in examples}
    text = "\n".join(
        message.content + source.code
        for context, source in examples
        for message in designer_messages(context, config=get_config(), excerpt_words=24)
    )
    for name in HELD_OUT_FAMILIES:
        assert class_name(name) not in text


def test_a_design_that_is_in_it_in_other_words_is_rejected():
    source = HELD_OUT[0]
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
            held_out=frozenset(FINGERPRINTS),
            setting="games",
            max_turns=10,
        )
    )
    assert report.rejected_by == "held_out"


def test_every_evaluation_plays_the_same_instances_without_hints():
    plans = held_out_plans(HELD_OUT[:6], episodes=3)
    assert plans == held_out_plans(HELD_OUT[:6], episodes=3)
    assert [plan.source for plan in plans] == [source for source in HELD_OUT[:6] for _ in range(3)]
    assert {plan.condition for plan in plans} == {"without_hint"}
    assert len({plan.instance_seed for plan in plans}) == len({plan.sampling_seed for plan in plans}) == 18


@pytest.mark.parametrize("num", [1, 5])
def test_a_smaller_set_has_as_many_as_asked_for(num):
    assert len(held_out_environments(num)) == num
