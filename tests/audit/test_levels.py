import pytest

from spade_jax.audit.levels import LevelParameter, at_level, find_level
from spade_jax.audit.syntax import parse
from tests.scripted import running_sandbox

PLAYED = """
class HelperEnv:
    def __init__(self, level=9):
        pass

class BaseEnv:
    {base}
    def step(self, action):
        return "", 0.0, True, False, {{}}

class QuizEnv(BaseEnv):
    {own}
    def reset(self{reset}):
        return f"{shown}", {{}}
"""


def program(*, base="", own="", reset=", seed=None", shown=""):
    return PLAYED.format(base=base, own=own, reset=reset, shown=shown)


@pytest.mark.parametrize(
    ("arguments", "name", "values"),
    [
        ("difficulty='medium'", "difficulty", ("easy", "medium", "hard")),
        ("max_turns=5, difficulty='expert'", "difficulty", ("expert", "easy", "medium", "hard")),
        ("level: int = 2", "level", (1, 2, 3)),
        ("level=7", "level", (7, 1, 2, 3)),
        ("*, difficulty_level=0.5", "difficulty_level", (0.0, 0.5, 1.0)),
        ("level: int | None = None", "level", (1, 2, 3)),
        ("level: Optional[float] = None", "level", (0.0, 0.5, 1.0)),
        ("level=None", "level", ("easy", "medium", "hard")),
    ],
)
def test_the_values_are_of_the_parameters_kind_and_hold_its_default(arguments, name, values):
    for method in ("own", "base"):
        code = program(**{method: f"def __init__(self, {arguments}): pass"})
        assert find_level(parse(code)) == LevelParameter("QuizEnv", "__init__", name, values)
    code = program(reset=f", seed=None, {arguments}")
    assert find_level(parse(code)) == LevelParameter("QuizEnv", "reset", name, values)


@pytest.mark.parametrize(
    "code",
    [
        program(),
        program(own="def __init__(self, level, /): pass"),
        program(own="def __init__(self, max_turns=5): pass", base="def __init__(self, level=1): pass"),
        program(own="def set_level(self, level=1): pass"),
        "def level(difficulty=1): pass",
        "class HalfEnv(:",
    ],
)
def test_programs_without_a_level(code):
    assert find_level(parse(code)) is None


def test_a_program_at_a_level_plays_as_the_one_that_it_was_made_of():
    async def first(pool, code):
        async with await pool.open(code) as environment:
            return (await environment.reset(0)).observation

    with running_sandbox() as sandbox:
        for code in (
            program(own="def __init__(self, level=1): self.level = level", shown="level {self.level}"),
            program(reset=", seed=None, level=1", shown="level {level}"),
        ):
            parameter = find_level(parse(code))
            for value in (1, 3):
                shown = sandbox.run(first(sandbox.pool, at_level(code, parameter, value)))
                assert shown == f"level {value}"
