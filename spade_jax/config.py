"""The whole configuration of a run as frozen dataclasses.

A file in `configs/` builds one `Config` with `get_config()`; `--set=section.field=value` changes
single fields. Every field is checked for its type and range when a config is made, and an unknown
field is an error that lists the known ones.
"""

import dataclasses
import difflib
import json
import pathlib
import runpy
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field
from pydantic.dataclasses import dataclass

from spade_jax.errors import ConfigError
from spade_jax.types import DEFAULT_RUNGS, GAME_SKILLS, RUNGS, Setting

_STRICT = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Aggregation = Literal["sequence", "sample", "token", "constant"]
Rung = Annotated[str, Field(pattern=f"^({'|'.join(RUNGS)})$")]


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class RopeScaling:
    """How rotary frequencies are stretched to a longer context than they were trained for.

    Attributes:
      kind: `linear` divides all frequencies by the factor; `llama3` those of long wavelengths (Llama 3.1);
        `yarn` blends by rotations within the original context (Peng et al. 2023, section 3.2).
      factor: of the context's length.
      original_context: tokens of context before the stretch; of llama3 and yarn.
      low_frequency_factor, high_frequency_factor: of llama3; wavelengths above original_context divided by
        the first are stretched, those below original_context divided by the second are not.
      beta_fast, beta_slow: of yarn; rotations within original_context above which a frequency stays, and
        below which it is stretched.
      truncate: of yarn; whether the bounds that follow from the betas are rounded to whole dimensions.
      attention_factor: of yarn; multiplies queries and keys.
    """

    kind: Literal["linear", "llama3", "yarn"]
    factor: Positive
    original_context: Count = 8192
    low_frequency_factor: Positive = 1.0
    high_frequency_factor: Positive = 4.0
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    truncate: bool = True
    attention_factor: Positive = 1.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ModelConfig:
    """Shape and precision of the transformer.

    Attributes:
      num_layers: transformer blocks.
      width: D, the residual width.
      num_heads: N, query heads.
      num_kv_heads: K, key/value heads; divides num_heads.
      head_width: H, width of one head; even.
      mlp_width: F, inner width of the gated MLP, or of each expert where there are experts.
      activation: of the gated MLP; `gelu_tanh` is the tanh approximation of GELU (Gemma).
      num_experts: E, experts of each layer's MLP; 0 is one MLP for all tokens.
      experts_per_token: experts that a token is routed to.
      normalize_experts: whether the router's weights of a token's experts are made to sum to 1.
      rope_theta: base of the rotary position frequencies.
      rope_scaling: stretch of those frequencies, or none.
      sliding_windows: for each layer the tokens that a token sees, itself included; 0 is all. () is all in
        each layer.
      sliding_rope_theta: base of the frequencies of layers with a window, which are not stretched; 0 treats
        these layers as the others.
      query_scale: multiplies the product of query and key; 0 is 1 / sqrt(head_width).
      norm_epsilon: added to the mean square in RMSNorm.
      norm_offset: added to the scale of RMSNorm (Gemma: 1).
      post_norms: RMSNorm on what attention and MLP add to the residual, too (Gemma).
      qk_norm: RMSNorm on queries and keys of each head (Qwen3, Gemma).
      qkv_bias: a bias on queries, keys and values (Qwen2).
      scale_embeddings: multiply embeddings by sqrt(width) (Gemma).
      tie_embeddings: unembed with the embedding table.
      param_dtype: dtype of parameters.
      activation_dtype: dtype of activations; softmax, log-probs, norms and rotary tables stay float32.
      matmul_precision: `float32` multiplies float32 numbers as such on accelerators that would round them.
      attention: what computes attention over packed rows: `xla` everywhere, `splash` on TPU, `cudnn` on
        GPU; `auto` is the platform's own.
    """

    num_layers: Count
    width: Count
    num_heads: Count
    num_kv_heads: Count
    head_width: Count
    mlp_width: Count
    activation: Literal["silu", "gelu_tanh"] = "silu"
    num_experts: CountOrZero = 0
    experts_per_token: CountOrZero = 0
    normalize_experts: bool = True
    rope_theta: Positive = 10_000.0
    rope_scaling: RopeScaling | None = None
    sliding_windows: tuple[CountOrZero, ...] = ()
    sliding_rope_theta: NonNegative = 0.0
    query_scale: NonNegative = 0.0
    norm_epsilon: Positive = 1e-6
    norm_offset: NonNegative = 0.0
    post_norms: bool = False
    qk_norm: bool = True
    qkv_bias: bool = False
    scale_embeddings: bool = False
    tie_embeddings: bool = True
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    activation_dtype: Literal["float32", "bfloat16"] = "float32"
    matmul_precision: Literal["default", "float32"] = "default"
    attention: Literal["auto", "xla", "splash", "cudnn"] = "auto"


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class MeshConfig:
    """Sizes of the mesh axes; -1 once means "all devices that are left"."""

    data: int = -1
    fsdp: int = 1
    tensor: int = 1


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class TokenizerConfig:
    """A sentencepiece model trained on the warm-start text.

    Attributes:
      vocab_size: V, pieces including the control symbols.
    """

    vocab_size: Annotated[int, Field(ge=320)] = 1024


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CorpusConfig:
    """Grounding documents.

    Attributes:
      path: a JSONL file (`text` or `orig_doc` on each line), a text file, a folder of either, local or
        gs://, or "builtin" for the small generated corpus, or "" for no grounding.
      excerpt_words: words of a document that a designer prompt carries.
    """

    path: str = "builtin"
    excerpt_words: Count = 24


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class MemoryConfig:
    """The environment memory (algorithm.md section 8).

    Attributes:
      capacity: records kept, first in first out.
      positives: high-regret records of the same skill shown to the designer.
      min_win_rate, max_win_rate: band from which positives are drawn.
      too_hard, too_easy: win rates below and above which a record may serve as the failure shown.
      replay: share of a cycle's environments that are remembered ones, played again, instead of new ones.
      rank_temperature, staleness_weight: of the draw of those (Jiang et al. 2021, "Prioritized Level
        Replay"): P = (1 - weight) * rank(score)^(-1/temperature) + weight * staleness, each normalised.
      rescore: whether a replayed record takes its new win rate and regret.
      mutate: share of the designs that are asked for as a change of a high-score record.
      retire_below, retire_above: a replayed record whose win rate leaves this range is forgotten.
    """

    enabled: bool = True
    capacity: Count = 200
    positives: CountOrZero = 2
    min_win_rate: Fraction = 0.15
    max_win_rate: Fraction = 0.85
    too_hard: Fraction = 0.1
    too_easy: Fraction = 0.9
    replay: Fraction = 0.0
    rank_temperature: Positive = 0.3
    staleness_weight: Fraction = 0.3
    rescore: bool = True
    mutate: Fraction = 0.0
    retire_below: Fraction = 0.0
    retire_above: Fraction = 1.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SandboxConfig:
    """Isolation and limits of generated code.

    Attributes:
      min_level: weakest isolation that a run accepts.
      num_zygotes: fork servers.
      memory_mb: address space of one environment beyond its zygote's.
      load_timeout: seconds for running the source and the constructor.
      step_timeout: seconds for one reset or step.
    """

    min_level: Literal["L3", "L2", "L1"] = "L2"
    num_zygotes: Count = 2
    memory_mb: Count = 256
    load_timeout: Positive = 5.0
    step_timeout: Positive = 2.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class SamplingConfig:
    """The sampling engine.

    Attributes:
      num_slots: sequences decoded side by side.
      max_context: tokens that one slot of the cache holds.
      decode_steps: decode steps in one dispatch.
    """

    num_slots: Count = 128
    max_context: Count = 256
    decode_steps: Count = 4


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class LossConfig:
    """The policy-gradient loss of one role; formulas and papers in `spade_jax.rl.losses`.

    Attributes:
      kind: `clipped` surrogate (PPO, GRPO, DAPO), `gspo`, `cispo`, `reinforce` (with `agent.advantage=
        leave_one_out` RLOO), or the importance ratio as a weight: `truncated` or `masked`.
      clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high]; that of a token for
        `clipped` and `cispo`, that of a sequence for `gspo`, which wants about 3e-4 and 4e-4.
      min_ratio, max_ratio: `truncated` cuts the weight at max_ratio, as the reference implementation;
        `masked` leaves out tokens whose ratio is not between the two.
      aggregation: of tokens: the mean of each sequence (`sequence`, GRPO; `sample`, the reference
        implementation, counts masked ones too), of all tokens (`token`, DAPO), or the sum of each sequence
        over a constant (`constant`, Dr.GRPO); see `spade_jax.rl.packing`.
      weight: of the role in the loss, where `update.role_balance` is `per_role`.
      kl_coefficient: of the KL penalty towards the reference policy; there is no reference where it is
        0 for both roles.
      kl: the penalty as a loss with the value of `k1`, `k2` or `k3`, or as a `reward`.
      entropy_coefficient: of the bonus for the entropy of each token's distribution.
    """

    kind: Literal["clipped", "gspo", "cispo", "reinforce", "truncated", "masked"] = "clipped"
    clip_low: Positive = 0.2
    clip_high: Positive = 0.28
    min_ratio: NonNegative = 0.5
    max_ratio: Positive = 2.0
    aggregation: Aggregation = "sequence"
    weight: NonNegative = 1.0
    kl_coefficient: NonNegative = 0.0
    kl: Literal["k1", "k2", "k3", "reward"] = "k3"
    entropy_coefficient: NonNegative = 0.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class DesignerConfig:
    """The designer role.

    Attributes:
      train: whether designer samples enter the update.
      environments: designs asked for at a time.
      interval: cycles from one set of designs to the next; a set is played in each of them.
      delay: cycles from a design to its update, which rewards it for all plays in between; 0 is at once.
      skills: capability tags, in rotation order (`spade_jax.types.SKILLS`).
      skills_per_cycle: skills asked for at a time (0 = all).
      prompt: `compact` lines for small models that were warm-started on them, or the `full` text.
      difficulty: what the prompt asks for; `adaptive` follows the skill's win rate, "" says nothing.
      thinking: whether the chat template asks for thinking.
      max_tokens: longest reply.
      attempts: replies asked for, at most, until one is valid; each is a design of its own.
      repair_turns: replies in which a rejected design may be mended; only the first reply trains.
      rejected: whether a design that fails validation is trained on with `rejected_reward`, or dropped.
      loss: of the role's tokens.
    """

    train: bool = True
    environments: Count = 12
    interval: Count = 1
    delay: CountOrZero = 0
    skills: tuple[str, ...] = GAME_SKILLS
    skills_per_cycle: CountOrZero = 0
    prompt: Literal["compact", "full"] = "compact"
    difficulty: Literal["", "easy", "medium", "hard", "adaptive"] = ""
    thinking: bool = False
    temperature: Positive = 1.0
    top_p: Share = 1.0
    top_k: CountOrZero = 0
    max_tokens: Count = 96
    attempts: Count = 1
    repair_turns: CountOrZero = 0
    rejected: Literal["reward", "drop"] = "reward"
    rejected_reward: float = -0.5
    loss: LossConfig = LossConfig()


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class HintConfig:
    """Where hints come from.

    Attributes:
      source: `design` reads it from the designer's reply, `separate` asks the policy for it with the
        environment's source in the prompt, `endpoint` asks the configured endpoint the same.
      max_tokens, temperature: of a hint that is asked for.
    """

    source: Literal["design", "separate", "endpoint"] = "design"
    max_tokens: Count = 256
    temperature: Positive = 0.3


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class EndpointConfig:
    """An OpenAI-compatible chat endpoint, for hints and judgements that the policy does not make.

    Attributes:
      base_url: of the API, such as http://localhost:8000/v1.
      model: as the endpoint names it.
      api_key_variable: environment variable that holds the key.
      timeout: seconds for one answer.
      max_retries: further tries after a failed one.
    """

    base_url: str = ""
    model: str = ""
    api_key_variable: str = "OPENAI_API_KEY"
    timeout: Positive = 120.0
    max_retries: CountOrZero = 3


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class RewardConfig:
    """What an environment earns its designer (algorithm.md section 6, paper.md sections 1.4 and 2).

    Attributes:
      kind: the formula, see `spade_jax.rl.designer_reward`.
      plateau_low, plateau_high, plateau_ramp: win-rate band with reward 1 and its slopes.
      regret_scale, micro_lp_scale, frontier_scale: amount of each that counts as 1 in the blend.
      plateau_weight, regret_weight, micro_lp_weight, frontier_weight: of the blend.
      regret_floor: whether the blend clips the scaled regret to [0, 1].
      micro_lp: estimator of the learning progress within a window.
      confidence: standard errors taken off the regret for `regret_lower_bound`.
      target: success rate that `target_band` pays most for.
      target_width: its distance at which `target_band` pays nothing.
      fast_rate, slow_rate: weights of a new value in the trackers of the learning potential.
      regret_plays: whether the regret compares with the plays without hint of the first cycle alone, on
        whose instances the hint was tried too, or with all of the window's.
      mask_negative: whether a negative reward leaves the design out of the update.
      win_rate: the success fraction, or the mean outcome as in the reference implementation.
      password_guard: no regret for an environment that no episode without hint ever solves.
      timeout_penalty: added where an environment did not answer in time.
    """

    kind: Literal[
        "blend",
        "regret",
        "plateau",
        "micro_lp",
        "frontier",
        "learning_potential",
        "solver_variance",
        "learnability",
        "target_band",
        "regret_lower_bound",
    ] = "blend"
    plateau_low: Fraction = 0.4
    plateau_high: Fraction = 0.6
    plateau_ramp: Positive = 0.25
    regret_scale: Positive = 0.15
    micro_lp_scale: Positive = 0.1
    frontier_scale: Positive = 0.08
    plateau_weight: NonNegative = 0.6
    regret_weight: NonNegative = 0.4
    micro_lp_weight: NonNegative = 0.0
    frontier_weight: NonNegative = 0.0
    regret_floor: bool = True
    micro_lp: Literal["slope", "two_bucket"] = "slope"
    confidence: NonNegative = 1.0
    target: Fraction = 0.3
    target_width: Positive = 0.3
    fast_rate: Share = 0.98
    slow_rate: Share = 0.85
    regret_plays: Literal["first", "window"] = "first"
    mask_negative: bool = False
    win_rate: Literal["success", "mean"] = "success"
    password_guard: bool = True
    timeout_penalty: float = -0.5


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ValidationConfig:
    """The ladder that a design climbs before anyone plays it.

    Attributes:
      rungs: the checks in force (`spade_jax.environments.validation`); they run in the ladder's order.
      num_seeds: instances that the rungs look at.
      max_random_win_rate: above it a random policy, or a constant answer, wins too often.
      random_episodes: instances that the random policy, and each constant answer, plays.
      max_similarity: estimated Jaccard similarity to a remembered program from which on a design is no
        novelty.
      judge: who answers the rung `judge`.
      judge_failure: whether a judge that gives no verdict rejects (`closed`) or lets pass (`open`).
      judge_max_tokens, judge_temperature: of the policy's own judgement.
    """

    rungs: tuple[Rung, ...] = DEFAULT_RUNGS
    num_seeds: Count = 3
    max_random_win_rate: Fraction = 0.5
    random_episodes: Count = 8
    max_similarity: Fraction = 0.9
    judge: Literal["self", "endpoint"] = "self"
    judge_failure: Literal["closed", "open"] = "closed"
    judge_max_tokens: Count = 1024
    judge_temperature: Positive = 0.3


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class AgentConfig:
    """The agent role.

    Attributes:
      train: whether agent samples enter the update.
      episodes: G, plays of one environment in each condition.
      hint_episodes: plays with the hint where they should be another number than `episodes`; 0 is the
        same number. With another number, or unpaired, the two conditions' means are compared.
      paired: whether both conditions play the same instance seeds.
      prompt: the `compact` reminder of the warm start, or the `full` instruction.
      thinking: whether the chat template asks for thinking.
      max_turns: turns after which an episode is truncated.
      max_tokens: longest reply in one turn.
      advantage: how a return becomes an advantage, see `spade_jax.rl.advantage`.
      baseline_decay: of the `ema` baseline.
      drop_equal_groups: leave out groups whose returns are all the same.
      mask_truncated: truncated episodes count in their group and train nothing.
      mask_malformed: a reply whose tool call cannot be read trains nothing.
      loss: of the role's tokens.
    """

    train: bool = True
    episodes: Count = 8
    hint_episodes: CountOrZero = 0
    paired: bool = True
    prompt: Literal["compact", "full"] = "compact"
    thinking: bool = False
    temperature: Positive = 1.0
    top_p: Share = 1.0
    top_k: CountOrZero = 0
    max_turns: Count = 10
    max_tokens: Count = 8
    advantage: Literal["z_score", "mean", "leave_one_out", "ema"] = "z_score"
    baseline_decay: Fraction = 0.5
    drop_equal_groups: bool = True
    mask_truncated: bool = False
    mask_malformed: bool = True
    loss: LossConfig = LossConfig()


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class UpdateConfig:
    """Packing, the balance of the roles and the optimizer.

    Attributes:
      row_length: T, tokens in one packed row.
      rows_per_microbatch: rows in one gradient accumulation step; a multiple of the mesh's data axes.
      logprob_chunk: token positions whose logits exist at once.
      role_balance: `per_role` gives each role a mean of its own, weighted by its `loss.weight`;
        `pooled` takes one mean over all sequences and multiplies the designer's advantages by
        min(max_balance, agent sequences / designer sequences * designer.interval), as the reference.
      max_balance: cap of that factor.
      weight_decay: decoupled, on matrices only.
      warmup_steps: updates over which the learning rate rises linearly.
    """

    row_length: Count = 256
    rows_per_microbatch: Count = 16
    logprob_chunk: Count = 1024
    learning_rate: Positive = 3e-4
    warmup_steps: CountOrZero = 0
    beta1: Fraction = 0.9
    beta2: Fraction = 0.98
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0
    role_balance: Literal["per_role", "pooled"] = "per_role"
    max_balance: Positive = 50.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class WarmStartConfig:
    """Supervised training on generated programs and demonstrations before self-play.

    Attributes:
      seed: of the generated text, so that runs with other seeds can share one warm start or not.
      num_steps: supervised updates.
      rows_per_step: packed rows in one update.
      learning_rate: peak, with linear warm-up over a tenth of the steps and cosine decay.
      programs: designer examples.
      episodes: demonstrations of play.
      skill_without_hint, skill_with_hint: share of the scripted player's moves that are its best.
      cache_dir: where finished warm starts are kept by content hash ("" = user cache folder).
    """

    num_steps: Count = 400
    rows_per_step: Count = 16
    learning_rate: Positive = 3e-3
    programs: Count = 4000
    episodes: Count = 8000
    skill_without_hint: Fraction = 0.4
    skill_with_hint: Fraction = 0.85
    cache_dir: str = ""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class EvaluationConfig:
    """The fixed held-out set.

    Attributes:
      every: cycles between evaluations; the first comes before cycle 0, the last after the end.
      environments: held-out environments.
      episodes: instance seeds for each of them.
    """

    every: Count = 20
    environments: Count = 48
    episodes: Count = 8


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class CheckpointConfig:
    """When a run is saved, and what is kept.

    Attributes:
      every: cycles between checkpoints.
      keep: newest checkpoints that are kept.
      keep_every: checkpoints of cycles that are multiples of this stay for good; 0 keeps none of them.
      grace: seconds after SIGTERM for the cycle in progress to end. One that does not is given up, and the
        state before it is saved, for which the machine has to leave time too.
    """

    every: Count = 5
    keep: Annotated[int, Field(ge=2)] = 3
    keep_every: CountOrZero = 0
    grace: NonNegative = 10.0


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class ArchiveConfig:
    """Whether all episodes are kept with their tokens, in archive/ of the workdir."""

    enabled: bool = True


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class Config:
    """One run.

    Attributes:
      seed: from which every random choice derives.
      setting: what the designer writes: cognitive games or multi-turn tool use.
      num_cycles: self-play cycles.
    """

    seed: CountOrZero = 0
    setting: Setting = "games"
    num_cycles: Count
    model: ModelConfig
    mesh: MeshConfig = MeshConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    corpus: CorpusConfig = CorpusConfig()
    memory: MemoryConfig = MemoryConfig()
    sandbox: SandboxConfig = SandboxConfig()
    sampling: SamplingConfig = SamplingConfig()
    designer: DesignerConfig = DesignerConfig()
    hint: HintConfig = HintConfig()
    validation: ValidationConfig = ValidationConfig()
    reward: RewardConfig = RewardConfig()
    endpoint: EndpointConfig = EndpointConfig()
    agent: AgentConfig = AgentConfig()
    update: UpdateConfig = UpdateConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    archive: ArchiveConfig = ArchiveConfig()

    @pydantic.model_validator(mode="after")
    def _fits_together(self) -> Self:
        context, row = self.sampling.max_context, self.update.row_length
        rules = {
            f"update.row_length={row} must hold sampling.max_context={context} tokens": row >= context,
            f"designer.max_tokens={self.designer.max_tokens} must be less than sampling.max_context="
            f"{context}, which also holds the prompt": self.designer.max_tokens < context,
            f"agent.max_tokens={self.agent.max_tokens} must be less than sampling.max_context={context}, "
            "which also holds the observations": self.agent.max_tokens < context,
            f"reward.plateau_low={self.reward.plateau_low} must not be above reward.plateau_high="
            f"{self.reward.plateau_high}": self.reward.plateau_low <= self.reward.plateau_high,
            f"reward.fast_rate={self.reward.fast_rate} must be above reward.slow_rate="
            f"{self.reward.slow_rate}": self.reward.fast_rate > self.reward.slow_rate,
            f"checkpoint.keep_every={self.checkpoint.keep_every} has to be a multiple of checkpoint.every="
            f"{self.checkpoint.every}, or nothing is there to keep": self.checkpoint.keep_every
            % self.checkpoint.every
            == 0,
            "reward.kind=regret_lower_bound needs reward.regret_plays=first, to which the standard error "
            "belongs": self.reward.kind != "regret_lower_bound" or self.reward.regret_plays == "first",
        }
        for name, loss in (("designer", self.designer.loss), ("agent", self.agent.loss)):
            rules[
                f"{name}.loss.min_ratio={loss.min_ratio} must be below {name}.loss.max_ratio={loss.max_ratio}"
            ] = loss.min_ratio < loss.max_ratio
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise ValueError("; ".join(broken))
        return self


_SECTIONS: list[Any] = [
    Config,
    LossConfig,
    *(field.type for field in dataclasses.fields(Config) if dataclasses.is_dataclass(field.type)),
]
_ADAPTER = pydantic.TypeAdapter(Config)


def load(path: str) -> Config:
    """The config that `get_config()` of the Python file at `path` returns.

    Raises:
      ConfigError: no such file or function, or a field in it that is unknown or does not fit.
    """
    if not pathlib.Path(path).is_file():
        raise ConfigError(f"no config file {path}; give the path of one, such as configs/tiny_games.py")
    try:
        get_config = runpy.run_path(path).get("get_config")
        config = get_config() if get_config else None
    except pydantic.ValidationError as error:
        section = next((cls for cls in _SECTIONS if cls.__name__ == error.title), Config)
        known = {field.name: None for field in dataclasses.fields(section)}
        lines = [f"{path}: {error.title}: {_explain(known, item)}" for item in error.errors()]
        raise ConfigError("\n".join(lines)) from None
    if not isinstance(config, Config):
        raise ConfigError(f"{path} has no get_config() that returns a spade_jax.config.Config")
    return config


def to_dict(config: Config) -> dict[str, Any]:
    """The config as nested JSON-ready dictionaries."""
    return _ADAPTER.dump_python(config, mode="json")


def from_dict(values: dict[str, Any]) -> Config:
    """The inverse of `to_dict`.

    Raises:
      ConfigError: naming each field that is unknown, of the wrong type or out of range.
    """
    try:
        return _ADAPTER.validate_json(json.dumps(values))
    except pydantic.ValidationError as error:
        raise ConfigError("\n".join(_explain(values, item) for item in error.errors())) from None


def with_overrides(config: Config, overrides: Sequence[str]) -> Config:
    """Applies `section.field=value` strings in order.

    Values are read as JSON where that works (`3`, `0.7`, `true`, `["a", "b"]`), else as text.

    Raises:
      ConfigError: for an override that is not of that form, or a field or value that does not fit.
    """
    values = to_dict(config)
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"--set={override} has no value; write --set=section.field=value")
        *sections, field = path.strip().split(".")
        target = values
        for depth, section in enumerate(sections):
            if section in target and not isinstance(target[section], dict):
                raise ConfigError(f"{section} is a field, not a section; --set={section}=value sets it")
            if section not in target:
                raise ConfigError(_unknown(".".join(sections[: depth + 1]), section, target))
            target = target[section]
        if isinstance(target.get(field), dict):
            known = ", ".join(target[field])
            raise ConfigError(f"{path} is a section; set one of its fields: {known}")
        target[field] = _parse(text)
    return from_dict(values)


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Lines `section.field: old -> new` for all fields in which two config dictionaries differ."""
    lines = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            lines += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {before!r} -> {after!r}")
    return lines


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _explain(values: dict[str, Any], item: Any) -> str:
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] == "unexpected_keyword_argument":
        section = values
        for part in item["loc"][:-1]:
            section = section[part]
        return _unknown(path, str(item["loc"][-1]), section)
    if item["type"] == "value_error":
        return f"the config's fields do not fit together: {item['ctx']['error']}"
    return f"config field {path}: {item['msg']}; got {item.get('input')!r}"


def _unknown(path: str, name: str, known: dict[str, Any]) -> str:
    fields = sorted(field for field in known if field != name)
    near = difflib.get_close_matches(name, fields, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown config field {path!r}.{hint} Known fields there: {', '.join(fields)}"
