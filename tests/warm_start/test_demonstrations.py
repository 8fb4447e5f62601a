"""Demonstrations are conversations as play would make them, at the easy level, half of them hinted."""

import pytest

from spade_jax.text.extract import extract_boxed
from spade_jax.warm_start.demonstrations import demonstrations
from spade_jax.warm_start.families import FAMILIES
from spade_jax.warm_start.grounds import Grounds
from tests.scripted import running_sandbox

NUM = 8 * len(FAMILIES)


@pytest.fixture(scope="module")
def play():
    with running_sandbox() as sandbox:

        def play(num=NUM, **changed):
            parts = {
                "seed": 3,
                "grounds": Grounds.builtin(3, excerpt_words=10),
                "sandbox": sandbox.pool,
                "skill_without_hint": 0.4,
                "skill_with_hint": 0.85,
                "max_turns": 5,
            }
            return sandbox.run(demonstrations(num, **parts | changed))

        yield play
        assert sandbox.pool.num_live == 0


@pytest.fixture(scope="module")
def talks(play):
    return play()


def test_there_are_as_many_as_asked_for(play, talks):
    assert len(talks) == NUM
    assert play(13) == talks[:13]


def test_the_two_sides_take_turns_and_the_player_has_the_last_word(talks):
    for talk in talks:
        assert [message.role for message in talk] == ["user", "assistant"] * (len(talk) // 2)
        assert 2 <= len(talk) <= 2 * 5
    assert len({len(talk) for talk in talks}) > 1


def test_every_reply_is_one_boxed_action(talks):
    for talk in talks:
        for message in talk[1::2]:
            assert message.content == f"\\boxed{{{extract_boxed(message.content)}}}"


def test_half_are_hinted_in_their_first_message_alone(talks):
    hinted = [talk for talk in talks if "HINT: " in talk[0].content]
    assert len(hinted) == NUM // 2
    assert not any("HINT" in message.content for talk in talks for message in talk[1:])


def test_skill_is_the_share_of_best_moves(play):
    """Perfect play with the hint and random play without end in games of unlike moves."""

    def replies(talks, *, hinted):
        return [
            message.content
            for talk in talks
            if ("HINT: " in talk[0].content) == hinted
            for message in talk[1::2]
        ]

    perfect = play(skill_without_hint=1.0, skill_with_hint=1.0)
    random = play(skill_without_hint=0.0, skill_with_hint=0.0)
    assert replies(perfect, hinted=True) != replies(random, hinted=True)
    # A family's best player needs fewer moves than chance in the games that end when they are won.
    assert len(replies(perfect, hinted=False)) < len(replies(random, hinted=False))


def test_max_turns_cuts_play_after_a_reply(play):
    talks = play(16, max_turns=1)
    assert [len(talk) for talk in talks] == [2] * 16


def test_another_seed_plays_other_games(play, talks):
    assert play(16, seed=4) != talks[:16]
