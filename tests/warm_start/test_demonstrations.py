"""Demonstrations are conversations as play would make them, at the easy level, half of them hinted."""

import pytest

from spade_jax.text.chat import describe_tools
from spade_jax.text.extract import extract_boxed
from spade_jax.text.tool_calls import read_action
from spade_jax.warm_start.demonstrations import demonstrations
from spade_jax.warm_start.grounds import Grounds
from spade_jax.warm_start.syllabus import syllabus_of
from tests.scripted import running_sandbox

NUM = 160


@pytest.fixture(scope="module", params=["games", "tool_use"])
def setting(request):
    return request.param


@pytest.fixture(scope="module")
def play(setting):
    with running_sandbox() as sandbox:

        def play(num=NUM, **changed):
            parts = {
                "seed": 3,
                "grounds": Grounds.builtin(3, excerpt_words=10, syllabus=syllabus_of(setting)),
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


def said_to_the_agent(talk):
    """A conversation without the system message, which tells the tools."""
    return talk[1:] if talk[0].role == "system" else talk


def test_there_are_as_many_as_asked_for(play, talks):
    assert len(talks) == NUM
    assert play(13) == talks[:13]


def test_the_two_sides_take_turns_and_the_player_has_the_last_word(setting, talks):
    for talk in map(said_to_the_agent, talks):
        told = "user" if setting == "games" else "tool"
        roles = ["user", "assistant", *[told, "assistant"] * (len(talk) // 2 - 1)]
        assert [message.role for message in talk] == roles
        assert 2 <= len(talk) <= 2 * 5
    assert len({len(talk) for talk in talks}) > 1


def test_tools_are_told_in_a_system_message_and_a_game_has_none(setting, talks):
    told = [talk[0].content for talk in talks if talk[0].role == "system"]
    assert len(told) == (0 if setting == "games" else NUM)
    assert all(text.startswith(describe_tools([])) and "(" in text for text in told)


def test_every_reply_is_one_action(setting, talks):
    for talk in talks:
        for message in talk:
            if message.role == "assistant" and setting == "games":
                assert message.content == f"\\boxed{{{extract_boxed(message.content)}}}"
            elif message.role == "assistant":
                read = read_action(message.content, {})
                assert not read.malformed
                assert len(read.calls) == (read.answer is None)


def test_half_are_hinted_in_their_first_message_alone(talks):
    hinted = [talk for talk in talks if "HINT: " in said_to_the_agent(talk)[0].content]
    assert len(hinted) == NUM // 2
    assert not any("HINT" in message.content for talk in talks for message in said_to_the_agent(talk)[1:])


def test_skill_is_the_share_of_best_moves(setting, play):
    """Perfect play and random play are unlike, in length too."""

    def replies(talks, *, hinted):
        return [
            message.content
            for talk in map(said_to_the_agent, talks)
            if ("HINT: " in talk[0].content) == hinted
            for message in talk[1::2]
        ]

    perfect = play(skill_without_hint=1.0, skill_with_hint=1.0)
    random = play(skill_without_hint=0.0, skill_with_hint=0.0)
    assert replies(perfect, hinted=True) != replies(random, hinted=True)
    # Chance goes on in games that end when won; a wrong answer ends tasks that take several turns.
    more, fewer = (random, perfect) if setting == "games" else (perfect, random)
    assert len(replies(fewer, hinted=False)) < len(replies(more, hinted=False))


def test_max_turns_cuts_play_after_a_reply(play):
    talks = play(16, max_turns=1)
    assert [len(said_to_the_agent(talk)) for talk in talks] == [2] * 16


def test_another_seed_plays_other_games(play, talks):
    assert play(16, seed=4) != talks[:16]
