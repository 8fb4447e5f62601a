"""Every family of both settings makes programs that its best player wins and chance does not."""

import asyncio
import itertools
import random
from collections import Counter

import pytest

from spade_jax.grounding.builtin import NOUNS
from spade_jax.rollout.episode import take_action, turn_limit, use_tools
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.text.tool_calls import read_action
from spade_jax.types import GAME_SKILLS, TOOL_USE_SKILLS
from spade_jax.warm_start.families.base import MOVES
from spade_jax.warm_start.family import class_name
from spade_jax.warm_start.syllabus import GAMES, TOOL_USE
from spade_jax.warm_start.tool_families.base import KEYS, answer, call

LEVELS = (1, 2, 3)
EPISODES = 12


def families(*syllabuses):
    """Parametrises a test by the families of these syllabuses, each with its syllabus."""
    cases = [(syllabus, family) for syllabus in syllabuses for family in syllabus.families]
    return pytest.mark.parametrize(("syllabus", "family"), cases, ids=[family.name for _, family in cases])


every_family = families(GAMES, TOOL_USE)
every_game = families(GAMES)
every_tool_family = families(TOOL_USE)
every_level = pytest.mark.parametrize("level", LEVELS)


@pytest.fixture(scope="module")
def pool():
    # The programs are known to end; a busy machine must not make them look as if they hung.
    limits = SandboxLimits(load_timeout=60.0, step_timeout=60.0)
    pool = asyncio.run(SandboxPool.start(limits, num_zygotes=1, min_level="L2"))
    yield pool
    asyncio.run(pool.close())


def make(family, level, seed=0):
    """The parameters, the word and the text of one program."""
    rng = random.Random(f"{family.name}/{level}/{seed}")
    parameters = rng.choice(family.levels[level - 1])
    word = rng.choice(NOUNS)
    return parameters, word, family.source(parameters, word)


async def play(environment, seed, choose):
    """One episode of replies: (observations, whether it was won)."""
    observations = [(await environment.reset(seed)).observation]
    act = use_tools if environment.tools else take_action
    for turn in range(turn_limit(100, environment)):
        outcome = await act(environment, observations[-1], choose(observations))
        if outcome.terminated or outcome.truncated:
            return observations, outcome.terminated and outcome.turn.reward > 0
        assert outcome.turn.reward <= 0, f"a reward of {outcome.turn.reward} in turn {turn}, before the end"
        observations += [message.content for message in outcome.messages]
    # Calls take no turn of the environment's own: there the limit ends the episode.
    assert environment.tools, f"a game is not over after its turns: {observations}"
    return observations, False


@pytest.mark.parametrize(
    ("syllabus", "skills", "least"),
    [(GAMES, GAME_SKILLS, 3), (TOOL_USE, TOOL_USE_SKILLS, 2)],
    ids=["games", "tool_use"],
)
def test_each_skill_has_its_families_and_training_never_sees_two(syllabus, skills, least):
    per_skill = Counter(family.skill for family in syllabus.taught.values())
    assert set(per_skill) == set(skills)
    assert min(per_skill.values()) >= least
    assert len(syllabus.held_out) == 2
    assert {family.skill for family in syllabus.held_out.values()} <= set(skills)
    assert not syllabus.taught.keys() & syllabus.held_out.keys()
    for registry in (syllabus.taught, syllabus.held_out):
        assert all(name == family.name for name, family in registry.items())


@every_family
def test_no_two_levels_share_a_combination_of_numbers(syllabus, family):
    seen = [{tuple(parameters.items()) for parameters in level} for level in family.levels]
    assert not seen[0] & seen[1]
    assert not seen[2] & (seen[0] | seen[1])


@every_family
@every_level
def test_a_program_is_short_and_shows_its_numbers_as_single_digits(syllabus, family, level):
    parameters, word, code = make(family, level)
    assert all(0 <= value <= 9 for value in parameters.values())
    lines = code.splitlines()
    assert len(lines) <= (32 if syllabus is GAMES else 56)
    assert len(code) <= (1500 if syllabus is GAMES else 3000)
    statement = f"class {class_name(family.name)}{'' if syllabus is GAMES else '(ToolUseBaseEnv)'}:"
    assert f"def __init__(self, max_turns={parameters['max_turns']}):" in code
    constants = lines[lines.index(statement) + 1]
    numbers = {key: value for key, value in parameters.items() if key != "max_turns"}
    assert constants == f"    {', '.join(numbers)} = {', '.join(map(str, numbers.values()))}"
    assert word in code


@every_family
@every_level
def test_the_best_player_wins_with_the_hint_where_the_random_one_loses(syllabus, family, level, pool):
    best_rng, random_rng = random.Random(1), random.Random(2)
    parameters, _, code = make(family, level)
    hint = family.hint(parameters)

    def best(observations):
        move = family.best_action(observations, hint, best_rng)
        assert move in family.actions(observations)
        return syllabus.reply(move)

    def at_random(observations):
        return syllabus.reply(random_rng.choice(family.actions(observations)))

    async def win_rates():
        won = {best: [], at_random: []}
        async with await pool.open(code) as environment:
            assert environment.max_turns == parameters["max_turns"] <= 9
            for player, outcomes in won.items():
                for seed in range(2 * EPISODES):
                    _, success = await play(environment, seed, player)
                    outcomes.append(success)
        return [sum(outcomes) / len(outcomes) for outcomes in won.values()]

    best_rate, random_rate = asyncio.run(win_rates())
    assert best_rate >= 0.75
    assert best_rate - random_rate >= 0.3


@every_family
def test_levels_get_harder(syllabus, family, pool):
    """For a player with the hint that knows the best move only now and then; over several programs."""

    async def win_rate(level):
        rng = random.Random(3)

        won = []
        for program in range(4):
            parameters, _, code = make(family, level, program)
            hint = family.hint(parameters)

            def mediocre(observations, hint=hint):
                if rng.random() < 0.6:
                    return syllabus.reply(family.best_action(observations, hint, rng))
                return syllabus.reply(rng.choice(family.actions(observations)))

            async with await pool.open(code) as environment:
                for seed in range(25):
                    _, success = await play(environment, seed, mediocre)
                    won.append(success)
        return sum(won) / len(won)

    easy, hard = asyncio.run(win_rate(1)), asyncio.run(win_rate(3))
    assert 0.01 <= hard < easy <= 0.9


@every_family
@every_level
def test_a_seed_fixes_the_episode_whatever_came_before_and_seeds_differ(syllabus, family, level, pool):
    _, _, code = make(family, level)

    async def record(seeds):
        episodes = {}
        async with await pool.open(code) as environment:
            for seed in seeds:
                rng = random.Random(5)
                observations, _ = await play(
                    environment,
                    seed,
                    lambda observations, rng=rng: syllabus.reply(family.best_action(observations, "", rng)),
                )
                episodes[seed] = tuple(observations)
        return episodes

    async def record_twice():
        return await record(range(6)), await record(reversed(range(6)))

    forwards, backwards = asyncio.run(record_twice())
    assert forwards == backwards
    assert len(set(forwards.values())) > 1


def boxed(move):
    return f"\\boxed{{{move}}}"


UNREADABLE = {
    "games": [
        "",
        "no box",
        boxed(""),
        boxed("²"),
        boxed("-1"),
        boxed("99"),
        boxed("a\nb"),
    ],
    "tool_use": [
        "",
        "no call",
        "<answer>7",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": "get"</tool_call>',
        call("sell", key="A"),
        *(call(name) for name in ("get", "add", "ship", "order")),
        *(call(name, key=["A"]) for name in ("get", "add", "ship")),
        *(call(name, key="Z") for name in ("get", "add", "ship")),
        call("order", count="all"),
        call("order", count=-1),
        answer("²"),
        answer(""),
    ],
}


@every_family
@every_level
def test_unreadable_replies_win_nothing_and_break_nothing(syllabus, family, level, pool):
    _, _, code = make(family, level)
    junk = UNREADABLE["games" if syllabus is GAMES else "tool_use"]

    async def wins():
        won = []
        async with await pool.open(code) as environment:
            for first in range(len(junk)):
                replies = itertools.cycle(junk[first:] + junk[:first])
                _, success = await play(environment, first, lambda _, replies=replies: next(replies))
                won.append(success)
        return won

    assert not any(asyncio.run(wins()))


def well_played(pool, syllabus, family, code):
    """The tools of a program and the observations of some episodes in it, played without a hint."""

    async def episodes():
        async with await pool.open(code) as environment:
            played = []
            for seed in range(EPISODES):
                rng = random.Random(4 + seed)
                observations, _ = await play(
                    environment,
                    seed,
                    lambda told, rng=rng: syllabus.reply(family.best_action(told, "", rng)),
                )
                played.append(observations)
            return environment.tools, played

    return asyncio.run(episodes())


@every_family
@every_level
def test_observations_are_short_and_name_the_word(syllabus, family, level, pool):
    _, word, code = make(family, level)
    for observations in well_played(pool, syllabus, family, code)[1]:
        assert word in {part.strip(":,") for part in observations[0].split()}
        for observation in observations:
            assert len(observation) <= 130
            assert "\n" not in observation


@every_family
@every_level
def test_legal_actions_are_choices_of_the_syllabus(syllabus, family, level, pool):
    """Each can be made by one token, and before the end there is more than one to choose from."""
    _, _, code = make(family, level)
    for observations in well_played(pool, syllabus, family, code)[1]:
        for number in range(len(observations)):
            actions = family.actions(observations[: number + 1])
            assert len(actions) == len(set(actions))
            assert {syllabus.reply(action) for action in actions} <= set(syllabus.choices)
        assert len(actions) >= 2


@every_game
@every_level
def test_an_observation_of_a_game_names_the_moves(syllabus, family, level, pool):
    _, _, code = make(family, level)
    for observation in itertools.chain(*well_played(pool, syllabus, family, code)[1]):
        moves = family.actions([observation])
        assert len(moves) >= 2
        assert set(moves) <= set(MOVES)
        assert all(move in observation or move.isdigit() for move in moves)


@every_tool_family
@every_level
def test_legal_calls_are_of_offered_tools_with_the_arguments_that_they_ask_for(syllabus, family, level, pool):
    _, _, code = make(family, level)

    tools, played = well_played(pool, syllabus, family, code)
    replies = {
        reply
        for observations in played
        for number in range(len(observations))
        for reply in family.actions(observations[: number + 1])
    }
    schemas = {tool.name: tool.parameters for tool in tools}
    names = set()
    for reply in replies:
        read = read_action(reply, schemas)
        assert (read.answer is None) == (len(read.calls) == 1)
        for made in read.calls:
            names.add(made.name)
            properties = schemas[made.name]["properties"]
            assert made.arguments.keys() == properties.keys() == set(schemas[made.name]["required"])
            for name, value in made.arguments.items():
                assert type(value) is {"string": str, "integer": int}[properties[name]["type"]]
    assert names == schemas.keys(), "a tool is never called"


@every_tool_family
@every_level
def test_a_tool_family_takes_several_turns(syllabus, family, level, pool):
    """What is asked cannot be done in one turn, and the criteria of instructions see that it is done."""
    _, _, code = make(family, level)
    rng = random.Random(6)

    async def answered_at_once(environment, seed):
        await environment.reset(seed)
        criteria = await environment.check_criteria()
        assert not any(criteria[:1]), criteria
        answers = [answer(text) for text in (*range(10), *KEYS, "done")]
        wins = [await play(environment, seed, lambda _, reply=reply: reply) for reply in answers]
        return sum(success for _, success in wins)

    async def played():
        async with await pool.open(code) as environment:
            at_once = [await answered_at_once(environment, seed) for seed in range(4)]
            await play(environment, 0, lambda told: family.best_action(told, "", rng))
            return at_once, await environment.check_criteria()

    at_once, criteria = asyncio.run(played())
    # A question has one answer, which may be guessed; instructions cannot be done by saying so.
    assert at_once == [0 if criteria else 1] * 4
    assert all(holds is True for holds in criteria)


@every_family
@every_level
def test_a_hint_helps_to_play_and_answers_nothing(syllabus, family, level, pool):
    parameters, _, code = make(family, level)
    hint = family.hint(parameters)
    assert 5 <= len(hint.split()) <= 16
    assert "\n" not in hint

    async def win_rate(environment, reply):
        episodes = [await play(environment, seed, lambda _: reply) for seed in range(EPISODES)]
        return sum(success for _, success in episodes) / EPISODES

    async def all_win_rates():
        async with await pool.open(code) as environment:
            if syllabus is GAMES:
                moves = family.actions([(await environment.reset(0)).observation])
                repeated = [hint, *(move for move in moves if move in hint.split())]
            else:
                repeated = [hint, *map(answer, [hint, *hint.replace(",", "").split()])]
            return {text: await win_rate(environment, syllabus.reply(text)) for text in repeated}

    win_rates = asyncio.run(all_win_rates())
    assert win_rates.pop(hint) == 0, "the hint is a winning move"
    # One of two levers is right in half of the instances, give or take the luck of twelve.
    assert max(win_rates.values(), default=0.0) <= 0.75, "one word of the hint, repeated, wins"
