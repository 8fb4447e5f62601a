"""A tiny model learns to design and to do tool-use tasks on a CPU.

Purpose: the whole self-play loop with tools at small size; nothing in the loop knows that it is small.
Command: python launch/train.py --config=configs/tiny_tool_use.py --workdir=runs/tiny_tool_use
Hardware: 2 CPU cores, under 4 GiB.
Expect: a quarter of an hour.
"""

from spade_jax.config import (
    AgentConfig,
    Config,
    DesignerConfig,
    EvaluationConfig,
    LossConfig,
    MemoryConfig,
    ModelConfig,
    RewardConfig,
    SamplingConfig,
    TokenizerConfig,
    UpdateConfig,
    ValidationConfig,
    WarmStartConfig,
)
from spade_jax.types import TOOL_USE_SKILLS


def get_config() -> Config:
    """`tiny_games.py` with the skills, and the strengths of learning, of the other setting."""
    return Config(
        setting="tool_use",
        num_cycles=160,
        model=ModelConfig(num_layers=3, width=128, num_heads=2, num_kv_heads=2, head_width=64, mlp_width=640),
        tokenizer=TokenizerConfig(vocab_size=1280),
        memory=MemoryConfig(capacity=100),
        sampling=SamplingConfig(num_slots=192, max_context=256, decode_steps=2),
        designer=DesignerConfig(
            environments=12,
            skills=TOOL_USE_SKILLS,
            skills_per_cycle=3,
            temperature=0.85,
            max_tokens=64,
            loss=LossConfig(weight=6.0, kl_coefficient=0.1),
        ),
        # Tasks of a few choices are often done by chance, which the other rungs forbid.
        validation=ValidationConfig(
            rungs=("extract", "parse", "held_out", "load", "play", "replay"), num_seeds=2
        ),
        # With eight plays of a hard task none may be won, and it is no password.
        reward=RewardConfig(password_guard=False),
        agent=AgentConfig(episodes=8, max_turns=9, max_tokens=4),
        update=UpdateConfig(
            row_length=256, rows_per_microbatch=8, logprob_chunk=256, learning_rate=3e-4, warmup_steps=10
        ),
        warm_start=WarmStartConfig(
            num_steps=900,
            rows_per_step=8,
            learning_rate=1.5e-3,
            programs=1500,
            episodes=12000,
            skill_without_hint=0.5,
            skill_with_hint=0.8,
        ),
        evaluation=EvaluationConfig(every=20, environments=68, episodes=12),
    )
