"""The dataclasses that cross folders: one type for each arrow of the flow.

    Document, MemoryRecord -> DesignContext -> Design -> ValidationReport -> Trajectory
        -> RegretEstimate -> TrainingSequence -> (spade_jax.rl.packing) PackedBatch

Everything here is frozen host data: numpy and builtins only, never jax.
"""

import dataclasses
from typing import Literal

import numpy as np

Role = Literal["designer", "agent"]
Condition = Literal["without_hint", "with_hint"]
Setting = Literal["games", "tool_use"]

GAME_SKILLS = (
    "Mathematical Reasoning",
    "Logical Deduction",
    "Spatial Reasoning",
    "Pattern Recognition",
    "Optimization",
    "Causal Inference",
)
TOOL_USE_SKILLS = (
    "API Orchestration",
    "Data Retrieval",
    "State Modification",
    "Error Recovery",
    "Tool Selection",
    "Multi-Step Workflows",
)

# The rungs of the validation ladder, lowest first.
RUNGS = (
    "extract",
    "parse",
    "static",
    "held_out",
    "novelty",
    "load",
    "play",
    "replay",
    "ends",
    "criteria",
    "solution",
    "constant",
    "random",
    "answer_hidden",
    "hint",
    "judge",
)
DEFAULT_RUNGS = tuple(rung for rung in RUNGS if rung != "judge")

FAILURE_KINDS = (
    "environment_error",
    "invalid_output",
    "timeout",
    "died",
    "protocol_violation",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """One grounding document."""

    document_id: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentSource:
    """Python text that defines one environment, exactly as the designer wrote it.

    Attributes:
      environment_id: unique within a run, e.g. `c00012-e03`.
      skill: the skill that the designer was asked for.
      code: the Python text inside the reply's code fence.
      hint: the privileged text that came with it.
      document_id: the grounding document, or "" without grounding.
    """

    environment_id: str
    skill: str
    code: str
    hint: str
    document_id: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryRecord:
    """One past environment: what it was and how the agent fared in it.

    Attributes:
      win_rate: fraction of episodes without hint with a positive return, in [0, 1].
      regret: raw mean return with hint minus without, in [-2, 2].
      cycle: the cycle in which it was designed.
      last_played: the cycle in which it was played last, from which its staleness counts.
    """

    source: EnvironmentSource
    win_rate: float
    regret: float
    cycle: int
    last_played: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignContext:
    """All that one designer prompt is made of.

    Attributes:
      difficulty: asked for; "" says nothing.
      parent: the record that the design should be a change of, None for a new one.
      change: which change of the parent.
      seed: of what the prompt itself draws (ideas, domains, variants of a task).
    """

    environment_id: str
    skill: str
    document: Document | None
    positives: tuple[MemoryRecord, ...] = ()
    negative: MemoryRecord | None = None
    difficulty: Literal["", "easy", "medium", "hard"] = ""
    parent: MemoryRecord | None = None
    change: Literal["", "harder", "easier", "different"] = ""
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenStream:
    """A sequence of token ids as the sampler saw and made it; never decoded and re-encoded.

    Attributes:
      tokens: int32 [T]; prompt, sampled and observation tokens in order.
      loss_mask: bool [T]; True exactly where the policy sampled the token.
      behavior_logprobs: float32 [T]; of the policy that sampled, at the sampling temperature and among all
        tokens whatever top-k and top-p were; 0 where loss_mask is False.
      temperature: the sampling temperature of the masked tokens.
      weights_version: of the weights that sampled the masked tokens, the newest where there are several;
        -1 where none did.
    """

    tokens: np.ndarray
    loss_mask: np.ndarray
    behavior_logprobs: np.ndarray
    temperature: float
    weights_version: int = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one rung of the validation ladder found."""

    rung: str
    passed: bool
    detail: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """The verdicts of a design in order; the ladder stops at the first that fails.

    Attributes:
      host_fault: the sandbox itself failed, so nothing is known about the design.
    """

    environment_id: str
    verdicts: tuple[Verdict, ...]
    host_fault: bool = False

    @property
    def valid(self) -> bool:
        return not self.host_fault and all(verdict.passed for verdict in self.verdicts)

    @property
    def rejected_by(self) -> str:
        """The name of the rung that rejected the design, "" if none did."""
        return next((verdict.rung for verdict in self.verdicts if not verdict.passed), "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """One designer reply, what was found in it and whether it holds.

    Attributes:
      reply, stream, report: of the first reply, which alone is trained on.
      source: the environment in it, or the one that a repair turn made of it; None without a valid one.
      hint_failure: why an environment whose hint is asked for apart has none, "" if it has one.
    """

    context: DesignContext
    reply: str
    stream: TokenStream
    source: EnvironmentSource | None
    report: ValidationReport
    hint_failure: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One observation and the agent's reply to it, as text, for people to read.

    Attributes:
      malformed: the reply held a tool call that could not be read.
    """

    observation: str
    reply: str
    reward: float
    malformed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One episode.

    Attributes:
      turns: the answered ones.
      last_observation: what the environment said at the end.
      streams: what the agent read and sampled: one stream, unless the chat template rewrites what came
        before (thinking that it strips); then one for each stretch that only grew.
      episode_return: the last reward clipped to [-1, 1] if terminated, else 0.
      failure: "" or the kind of failure that ended the episode (FAILURE_KINDS or "host_fault");
        a failed trajectory is counted and kept out of means and losses.
    """

    environment_id: str
    condition: Condition
    instance_seed: int
    turns: tuple[Turn, ...]
    last_observation: str
    streams: tuple[TokenStream, ...]
    episode_return: float
    terminated: bool
    truncated: bool
    failure: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegretEstimate:
    """Returns of one environment in both conditions, over the same instance seeds unless unpaired.

    Attributes:
      win_rate: fraction of the episodes without hint with a positive return.
      regret: mean return with hint minus mean return without, not floored.
      standard_error: of `regret`, from the differences paired by instance seed, or from both conditions'
        variances where unpaired; NaN where there are too few.
      num_pairs: instance seeds with at least one good episode in both conditions; 0 where unpaired.
    """

    environment_id: str
    return_without_hint: float
    return_with_hint: float
    win_rate: float
    win_rate_with_hint: float
    regret: float
    standard_error: float
    num_pairs: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayHistory:
    """All that the plays of one environment said, from its first cycle on.

    Attributes:
      returns: good returns without hint, cycle by cycle; a cycle may have none.
      estimate: of its first cycle, in which both conditions are played; None where nothing came of it.
      timed_out: whether it ever gave no answer in time.
    """

    environment_id: str
    skill: str
    returns: tuple[tuple[float, ...], ...]
    estimate: RegretEstimate | None
    timed_out: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSequence:
    """A token stream with the advantage that all of its masked tokens share.

    Attributes:
      weight: of the sequence in a mean over sequences: 1, or its share of an episode in several; with 0 it
        is left out.
    """

    role: Role
    stream: TokenStream
    advantage: float
    weight: float = 1.0
