"""The shape of a transformer as one hashable value.

An `Architecture` is a static argument of every jitted function of the model: two equal ones share
their compilations. It holds no arrays and makes none.
"""

import dataclasses

from spade_jax.config import ModelConfig, RopeScaling
from spade_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """`spade_jax.config.ModelConfig`, which describes the fields, and the vocabulary.

    Attributes:
      vocab_size: V, rows of the embedding table.

    Raises:
      ConfigError: where the numbers do not fit together.
    """

    vocab_size: int
    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    mlp_width: int
    activation: str = "silu"
    num_experts: int = 0
    experts_per_token: int = 0
    normalize_experts: bool = True
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    sliding_windows: tuple[int, ...] = ()
    sliding_rope_theta: float = 0.0
    query_scale: float = 0.0
    norm_epsilon: float = 1e-6
    norm_offset: float = 0.0
    post_norms: bool = False
    qk_norm: bool = True
    qkv_bias: bool = False
    scale_embeddings: bool = False
    tie_embeddings: bool = True
    param_dtype: str = "float32"
    activation_dtype: str = "float32"
    matmul_precision: str = "default"
    attention: str = "auto"

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"model.num_kv_heads={self.num_kv_heads} does not divide "
                f"model.num_heads={self.num_heads}; each key/value head serves equally many query heads"
            )
        if self.head_width % 2:
            raise ConfigError(
                f"model.head_width={self.head_width} is odd; rotary positions turn pairs of numbers, "
                "so make it even"
            )
        if self.vocab_size < 1:
            raise ConfigError(f"vocab_size={self.vocab_size}; a model needs at least one token")
        if self.sliding_windows and len(self.sliding_windows) != self.num_layers:
            raise ConfigError(
                f"model.sliding_windows names {len(self.sliding_windows)} layers and "
                f"model.num_layers={self.num_layers}; give each layer its window, or leave it empty"
            )
        if not min(self.num_experts, 1) <= self.experts_per_token <= self.num_experts:
            raise ConfigError(
                f"model.experts_per_token={self.experts_per_token} with model.num_experts="
                f"{self.num_experts}; a token needs at least one of the experts, and at most all"
            )

    @classmethod
    def from_config(cls, model: ModelConfig, vocab_size: int) -> "Architecture":
        """The architecture of a config's model with a tokenizer's vocabulary."""
        values = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
        return cls(vocab_size=vocab_size, **values)

    @property
    def attention_scale(self) -> float:
        """What the products of queries and keys are multiplied by."""
        return self.query_scale or self.head_width**-0.5

    @property
    def windows(self) -> tuple[int, ...]:
        """The different sliding windows of the layers; 0 is none."""
        return tuple(sorted(set(self.sliding_windows))) or (0,)

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """Of each layer the index of its window in `windows`."""
        return tuple(map(self.windows.index, self.sliding_windows)) or (0,) * self.num_layers

    def num_parameters(self) -> int:
        """Parameters in all, each tied one counted once."""
        queries = self.width * self.num_heads * self.head_width
        keys = self.width * self.num_kv_heads * self.head_width
        biases = (self.num_heads + 2 * self.num_kv_heads) * self.head_width if self.qkv_bias else 0
        norms = (4 if self.post_norms else 2) * self.width + (2 * self.head_width if self.qk_norm else 0)
        mlp = 3 * self.width * self.mlp_width
        if self.num_experts:
            mlp = self.num_experts * (mlp + self.width)
        block = 2 * queries + 2 * keys + biases + mlp + norms
        tables = 1 if self.tie_embeddings else 2
        return self.num_layers * block + tables * self.vocab_size * self.width + self.width
