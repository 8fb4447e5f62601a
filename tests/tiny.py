"""A run small enough for tests, with a model that really designs and plays.

The warm start sees a few hundred programs and episodes of good play for 250 steps, some fifteen seconds
on two idle cores; sampled coldly, most of its designs are valid and some of its episodes are won.
"""

from spade_jax.config import (
    AgentConfig,
    CheckpointConfig,
    Config,
    CorpusConfig,
    DesignerConfig,
    EvaluationConfig,
    MemoryConfig,
    ModelConfig,
    SamplingConfig,
    SandboxConfig,
    TokenizerConfig,
    UpdateConfig,
    ValidationConfig,
    WarmStartConfig,
)


def get_config() -> Config:
    """Four cycles with an evaluation before every second and after the last; saved every second."""
    return Config(
        num_cycles=4,
        model=ModelConfig(num_layers=2, width=64, num_heads=2, num_kv_heads=1, head_width=32, mlp_width=128),
        tokenizer=TokenizerConfig(vocab_size=1024),
        corpus=CorpusConfig(excerpt_words=8),
        memory=MemoryConfig(positives=1),
        # Limits that a busy machine does not reach: a timeout would change the numbers of a run.
        sandbox=SandboxConfig(num_zygotes=1, load_timeout=60.0, step_timeout=60.0),
        sampling=SamplingConfig(num_slots=32, max_context=192, decode_steps=8),
        designer=DesignerConfig(environments=6, skills_per_cycle=2, temperature=0.5, max_tokens=64),
        validation=ValidationConfig(
            rungs=("extract", "parse", "held_out", "load", "play", "replay"), num_seeds=2
        ),
        agent=AgentConfig(episodes=4, max_turns=4, max_tokens=8),
        update=UpdateConfig(row_length=192, rows_per_microbatch=8, learning_rate=2e-4),
        warm_start=WarmStartConfig(
            num_steps=250,
            rows_per_step=8,
            learning_rate=1e-2,
            programs=300,
            episodes=400,
            skill_without_hint=0.9,
            skill_with_hint=0.95,
        ),
        evaluation=EvaluationConfig(every=2, environments=6, episodes=2),
        checkpoint=CheckpointConfig(every=2, keep=2),
    )
