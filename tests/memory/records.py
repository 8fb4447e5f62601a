"""Memory records for the tests of this folder."""

from hypothesis import strategies as st

from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.types import EnvironmentSource, MemoryRecord


def record(
    number, *, skill="Optimization", win_rate=0.5, regret=0.0, cycle=0, last_played=0, code=None
) -> MemoryRecord:
    code = f"class WalkEnv:\n    size = {number}\n" if code is None else code
    source = EnvironmentSource(environment_id=f"e{number}", skill=skill, code=code, hint="walk")
    return MemoryRecord(source=source, win_rate=win_rate, regret=regret, cycle=cycle, last_played=last_played)


records = st.builds(
    record,
    st.integers(0, 20),
    skill=st.sampled_from(["Optimization", "Logical Deduction"]),
    win_rate=st.floats(0, 1),
    regret=st.floats(-1, 1),
    cycle=st.integers(0, 9),
    last_played=st.integers(0, 9),
)
memories = st.builds(lambda items: EnvironmentMemory((), 40).insert(items), st.lists(records, max_size=30))
