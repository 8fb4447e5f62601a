import asyncio
import random
from collections import Counter

import pytest

from spade_jax.grounding.builtin import NOUNS
from spade_jax.sandbox.limits import SandboxLimits
from spade_jax.sandbox.pool import SandboxPool
from spade_jax.types import GAME_SKILLS
from spade_jax.warm_start.families import FAMILIES, HELD_OUT_FAMILIES
from spade_jax.warm_start.families.base import MOVES, class_name

EVERY_FAMILY = [*FAMILIES.values(), *HELD_OUT_FAMILIES.values()]
LEVELS = (1, 2, 3)
EPISODES = 12

every_family = pytest.mark.parametrize("family", EVERY_FAMILY, ids=lambda family: family.name)
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


async def play(environment, seed, choose, *, max_turns):
    """One episode: (observations, whether it was won); fails if it outlives `max_turns`."""
    observations = [(await environment.reset(seed)).observation]
    for turn in range(1, max_turns + 1):
        step = await environment.step(choose(observations))
        if step.terminated or step.truncated:
            return observations, step.terminated and step.reward > 0
        assert step.reward == 0, f"a reward of {step.reward} in turn {turn}, before the end"
        observations.append(step.observation)
    raise AssertionError(f"not over after {max_turns} turns: {observations}")


def boxed(move):
    return f"\\boxed{{{move}}}"


def test_there_are_three_families_for_each_skill_and_two_that_training_never_sees():
    per_skill = Counter(family.skill for family in FAMILIES.values())
    assert set(per_skill) == set(GAME_SKILLS)
    assert min(per_skill.values()) >= 3
    assert len(HELD_OUT_FAMILIES) == 2
    assert not FAMILIES.keys() & HELD_OUT_FAMILIES.keys()
    for registry in (FAMILIES, HELD_OUT_FAMILIES):
        assert all(name == family.name for name, family in registry.items())


@every_family
def test_no_two_levels_share_a_combination_of_numbers(family):
    seen = [{tuple(parameters.items()) for parameters in level} for level in family.levels]
    assert not seen[0] & seen[1]
    assert not seen[2] & (seen[0] | seen[1])


@every_family
@every_level
def test_a_program_is_short_and_shows_its_numbers_as_single_digits(family, level):
    parameters, word, code = make(family, level)
    assert all(0 <= value <= 9 for value in parameters.values())
    lines = code.splitlines()
    assert len(lines) <= 32
    assert len(code) <= 1500
    assert f"class {class_name(family.name)}:" in lines
    assert f"def __init__(self, max_turns={parameters['max_turns']}):" in code
    constants = lines[lines.index(f"class {class_name(family.name)}:") + 1]
    numbers = {key: value for key, value in parameters.items() if key != "max_turns"}
    assert constants == f"    {', '.join(numbers)} = {', '.join(map(str, numbers.values()))}"
    assert word in code


@every_family
@every_level
def test_the_best_player_wins_with_the_hint_where_the_random_one_loses(family, level, pool):
    best_rng, random_rng = random.Random(1), random.Random(2)
    parameters, _, code = make(family, level)
    hint = family.hint(parameters)

    def best(observations):
        move = family.best_action(observations, hint, best_rng)
        assert move in family.actions(observations)
        return boxed(move)

    def at_random(observations):
        return boxed(random_rng.choice(family.actions(observations)))

    async def win_rates():
        won = {best: [], at_random: []}
        async with await pool.open(code) as environment:
            assert environment.max_turns == parameters["max_turns"] <= 9
            for player, outcomes in won.items():
                for seed in range(2 * EPISODES):
                    _, success = await play(environment, seed, player, max_turns=environment.max_turns)
                    outcomes.append(success)
        return [sum(outcomes) / len(outcomes) for outcomes in won.values()]

    best_rate, random_rate = asyncio.run(win_rates())
    assert best_rate >= 0.75
    assert best_rate - random_rate >= 0.3


@every_family
def test_levels_get_harder(family, pool):
    """For a player with the hint that knows the best move only now and then; over several programs."""

    async def win_rate(level):
        rng = random.Random(3)

        won = []
        for program in range(4):
            parameters, _, code = make(family, level, program)
            hint = family.hint(parameters)

            def mediocre(observations, hint=hint):
                if rng.random() < 0.6:
                    return boxed(family.best_action(observations, hint, rng))
                return boxed(rng.choice(family.actions(observations)))

            async with await pool.open(code) as environment:
                for seed in range(25):
                    _, success = await play(environment, seed, mediocre, max_turns=environment.max_turns)
                    won.append(success)
        return sum(won) / len(won)

    easy, hard = asyncio.run(win_rate(1)), asyncio.run(win_rate(3))
    assert 0.01 <= hard < easy <= 0.9


@every_family
@every_level
def test_a_seed_fixes_the_episode_whatever_came_before_and_seeds_differ(family, level, pool):
    _, _, code = make(family, level)

    async def record(seeds):
        episodes = {}
        async with await pool.open(code) as environment:
            for seed in seeds:
                rng = random.Random(5)
                observations, _ = await play(
                    environment,
                    seed,
                    lambda observations, rng=rng: boxed(family.best_action(observations, "", rng)),
                    max_turns=environment.max_turns,
                )
                episodes[seed] = tuple(observations)
        return episodes

    async def record_twice():
        return await record(range(6)), await record(reversed(range(6)))

    forwards, backwards = asyncio.run(record_twice())
    assert forwards == backwards
    assert len(set(forwards.values())) > 1


@every_family
@every_level
def test_unreadable_moves_win_nothing_and_break_nothing(family, level, pool):
    parameters, _, code = make(family, level)
    junk = ["", "no box", boxed(""), boxed("²"), boxed("-1"), boxed("99"), boxed(boxed("1")), boxed("a\nb")]

    async def wins():
        won = []
        async with await pool.open(code) as environment:
            for first in range(len(junk)):
                moves = iter(junk[first:] + junk[:first] + junk)
                _, success = await play(
                    environment, first, lambda _, moves=moves: next(moves), max_turns=parameters["max_turns"]
                )
                won.append(success)
        return won

    assert not any(asyncio.run(wins()))


@every_family
@every_level
def test_observations_are_short_and_name_the_words_and_the_moves(family, level, pool):
    parameters, word, code = make(family, level)
    rng = random.Random(4)

    async def all_observations():
        async with await pool.open(code) as environment:
            episodes = [
                await play(
                    environment,
                    seed,
                    lambda observations: boxed(family.best_action(observations, "", rng)),
                    max_turns=parameters["max_turns"],
                )
                for seed in range(EPISODES)
            ]
        return [observation for observations, _ in episodes for observation in observations]

    observations = asyncio.run(all_observations())
    shown = {part.strip(":,") for observation in observations for part in observation.split()}
    assert word in shown
    for observation in observations:
        assert len(observation) <= 130
        assert "\n" not in observation
        moves = family.actions([observation])
        assert set(moves) <= set(MOVES)
        assert len(moves) == len(set(moves)) >= 2
        assert all(move in observation or move.isdigit() for move in moves)


@every_family
@every_level
def test_a_hint_helps_to_play_and_answers_nothing(family, level, pool):
    parameters, _, code = make(family, level)
    hint = family.hint(parameters)
    assert 5 <= len(hint.split()) <= 15
    assert "\n" not in hint

    async def win_rate(environment, move):
        episodes = [
            await play(environment, seed, lambda _: boxed(move), max_turns=environment.max_turns)
            for seed in range(EPISODES)
        ]
        return sum(success for _, success in episodes) / EPISODES

    async def all_win_rates():
        async with await pool.open(code) as environment:
            moves = family.actions([(await environment.reset(0)).observation])
            repeated = [hint, *(move for move in moves if move in hint.split())]
            return {move: await win_rate(environment, move) for move in repeated}

    win_rates = asyncio.run(all_win_rates())
    assert win_rates.pop(hint) == 0, "the hint is a winning move"
    # One of two levers is right in half of the instances, give or take the luck of twelve.
    assert max(win_rates.values(), default=0.0) <= 0.75, "one word of the hint, repeated, wins"
