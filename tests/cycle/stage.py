"""Whole cycles by a script.

What the designer, the agent, the hint writer and the judge say is written down; tokenizer, chat format,
sandbox, rewards, advantages and packing are real. So all that a cycle counts can be worked out on paper.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spade_jax.config import (
    Config,
    CorpusConfig,
    DesignerConfig,
    MeshConfig,
    ModelConfig,
    SamplingConfig,
    UpdateConfig,
    ValidationConfig,
)
from spade_jax.cycle import CycleRecord, Machinery, run_cycle
from spade_jax.memory.environment_memory import EnvironmentMemory
from spade_jax.rl.packing import ROLES, PackedBatch
from spade_jax.self_play import SelfPlayState
from spade_jax.text.chat import NativeChat
from spade_jax.training.mesh import make_mesh
from spade_jax.types import TokenStream
from tests.scripted import ScriptedEngine, game_source, right

# Nothing learns here: the model is as small as can be.
MODEL = ModelConfig(num_layers=1, width=8, num_heads=1, num_kv_heads=1, head_width=8, mlp_width=8)
# Three rungs that need no luck, one skill, one design; each test says what it is about.
CONFIG = Config(
    num_cycles=99,
    model=MODEL,
    corpus=CorpusConfig(path=""),
    sampling=SamplingConfig(max_context=4096),
    designer=DesignerConfig(environments=1, skills=("Logical Deduction",), max_tokens=2000),
    validation=ValidationConfig(rungs=("extract", "parse", "load")),
    update=UpdateConfig(row_length=4096, rows_per_microbatch=1),
)
DIAL = """class {name}Env(ToolUseBaseEnv):
    def reset(self, seed=None):
        self.turn_count = 0
        self._call_history = []
        self.code = random.Random(seed).randint(10, 99)
        dial = {{"type": "object", "properties": {{"dial": {{"type": "object"}}}}}}
        self._tools = {{"look": {{}}, "turn": {{"parameters": dial}}, "spoil": {{}}}}
        self._expected_answer = self.code
        return "{name}: what does the dial say?", {{}}

    def tool_look(self):
        return f"say {{self.code}}"

    def tool_turn(self, dial):
        return f"turned by {{dial['by']['steps']}}"

    def tool_spoil(self):
        self._expected_answer = "nothing"
        return "spoilt"

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if "<answer>" in action and not terminated:
            return observation, -1.0, True, False, info
        return observation, reward, terminated, truncated, info
"""
LOOK = '<tool_call>{"name": "look"}</tool_call>'
TURN = '<tool_call>{"name": "turn", "arguments": {"dial": {"by": {"steps": 3}}}}</tool_call>'
MALFORMED = '<tool_call>{"name": "look"</tool_call>'
# What a designer's prompt asks for, the last words of a repair's, of a hint's and of a judgement's.
QUESTIONS = {
    "designs": "Design an environment.",
    "repairs": "write the whole reply again",
    "hints": "Write the hint.",
    "verdicts": "Is it to be kept?",
}


def dial(name: str) -> str:
    """The program of a tool-use environment that asks for what only a tool tells; a wrong answer loses."""
    return DIAL.format(name=name)


def changed(config: Config, **sections) -> Config:
    """The config with fields of its sections changed, or with another value of its own."""
    return dataclasses.replace(
        config,
        **{
            name: dataclasses.replace(getattr(config, name), **fields) if isinstance(fields, dict) else fields
            for name, fields in sections.items()
        },
    )


class Lap(NamedTuple):
    """What is said in one cycle, in the order in which it is asked for.

    Attributes:
      designs, repairs, hints, verdicts: whole replies.
      plays: of each environment in play, a letter of `game_move` or `tool_move` for each episode without
        hint, then `|` and one for each with it.
    """

    designs: Sequence[str] = ()
    plays: Sequence[str] = ()
    repairs: Sequence[str] = ()
    hints: Sequence[str] = ()
    verdicts: Sequence[str] = ()


def game_move(letter: str, talk: str) -> str:
    """w wins, l loses, s stays where it is, c crashes the environment in its second turn."""
    if letter == "c" and talk.count("<|assistant|>") == 2:
        return "\\boxed{crash}"
    return {"l": "\\boxed{0}", "s": "\\boxed{stay}"}.get(letter) or right(talk)


def tool_move(letter: str, talk: str) -> str:
    """w wins, l loses, x looks for ever.

    The others win after a detour: m after a malformed call, n after two calls in one turn, t after thinking
    of a call that would spoil it.
    """
    answer = f"<answer>{right(talk)[7:-1]}</answer>" if "say " in talk and letter != "x" else ""
    match letter:
        case "l":
            return "<answer>0</answer>"
        case "m" if talk.count("<|assistant|>") == 1:
            return MALFORMED
        case "n":
            return answer or TURN + LOOK
        case "t":
            return f'<think><tool_call>{{"name": "spoil"}}</tool_call></think>{answer or LOOK}'
    return answer or LOOK


class RecordingUpdater:
    """Keeps the batches; the state counts the updates."""

    def __init__(self):
        self.batches: list[PackedBatch] = []

    def update(self, state, batch, *, reference_params):
        self.batches.append(batch)
        return state + 1, {"loss": 0.125}


class Performance(NamedTuple):
    """What came of a script, cycle by cycle."""

    records: list[CycleRecord]
    self_plays: list[SelfPlayState]
    state: object
    machinery: Machinery

    @property
    def record(self) -> CycleRecord:
        return self.records[-1]

    @property
    def self_play(self) -> SelfPlayState:
        return self.self_plays[-1]

    @property
    def batches(self) -> list[PackedBatch]:
        return self.machinery.updater.batches

    def prompts(self, question: str) -> list[str]:
        """All prompts of one kind of question, as they were decoded."""
        return [
            talk
            for _, talk, _ in self.machinery.engine.requests
            if QUESTIONS[question] in talk.rpartition("<|user|>")[2]
        ]


async def perform(
    laps: Sequence[Lap],
    *,
    tokenizer,
    pool,
    config: Config = CONFIG,
    state=0,
    self_play: SelfPlayState | None = None,
    updater=None,
    corpus=None,
    endpoint=None,
) -> Performance:
    """Runs a cycle for each lap, and holds it to saying all that is in it and nothing else."""
    move = tool_move if config.setting == "tool_use" else game_move
    said: dict[str, Iterator[str]] = {}
    letters = ""

    def reply(key, talk):
        asked = talk.rpartition("<|user|>")[2]
        for name, question in QUESTIONS.items():
            if question in asked:
                return next(said[name])
        return move(letters[key[0]], talk)

    chat = NativeChat(tokenizer)
    engine = ScriptedEngine(chat, reply, num_slots=1000)  # so that a key is a plan's index
    machinery = Machinery(
        config=config,
        architecture=None,
        mesh=make_mesh(MeshConfig()),
        chat=chat,
        engine=engine,
        sandbox=pool,
        updater=updater or RecordingUpdater(),
        corpus=corpus,
        held_out=[game_source("Kept")],
        endpoint=endpoint,
    )
    self_play = self_play or SelfPlayState(
        cycle=0,
        memory=EnvironmentMemory(records=(), capacity=config.memory.capacity),
        corpus=corpus.state() if corpus is not None else None,
    )
    records, self_plays, phases = [], [], []
    async with endpoint or contextlib.nullcontext():
        for lap in laps:
            said = {name: iter(getattr(lap, name)) for name in QUESTIONS}
            letters = "".join(lap.plays).replace("|", "")
            state, self_play, record = await run_cycle(
                machinery, state, self_play, advance=lambda: phases.append(1)
            )
            assert not [left for replies in said.values() for left in replies], "not all was asked for"
            assert len(record.trajectories) == len(letters)
            records.append(record)
            self_plays.append(self_play)
    assert len(phases) == 3 * len(laps)
    assert not engine.open_keys
    return Performance(records, self_plays, state, machinery)


class Packed(NamedTuple):
    """A training sequence as it lies in a batch; each of its trained tokens has the weight."""

    role: str
    tokens: tuple[int, ...]
    mask: tuple[bool, ...]
    advantage: float
    weight: float


def unpacked(batch: PackedBatch, role: str | None = None) -> list[Packed]:
    """The sequences of a batch, those of one role if it is named."""
    found = []
    for row in range(batch.num_rows):
        for segment in range(1, batch.segment_ids[row].max() + 1):
            at = batch.segment_ids[row] == segment
            (role_id,) = set(batch.role_ids[row][at].tolist())
            mask = batch.loss_mask[row][at]
            assert not batch.weights[row][at][~mask].any()
            (advantage,) = set(batch.advantages[row][at][mask].tolist())
            (weight,) = set(batch.weights[row][at][mask].tolist())
            tokens = tuple(batch.tokens[row][at].tolist())
            found.append(Packed(ROLES[role_id], tokens, tuple(mask.tolist()), advantage, weight))
    return [packed for packed in found if role in (None, packed.role)]


def packed_as(batch: PackedBatch, stream: TokenStream) -> Packed | None:
    """Where a stream lies in a batch; None where it does not."""
    found = [packed for packed in unpacked(batch) if packed.tokens == tuple(stream.tokens.tolist())]
    assert len(found) < 2
    return found[0] if found else None
