"""The shape of a transformer as one hashable value.

An `Architecture` is a static argument of every jitted function of the model: two equal ones share
their compilations. It holds no arrays and makes none.
"""

import dataclasses

from spade_jax.config import ModelConfig
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
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-6
    qk_norm: bool = True
    tie_embeddings: bool = True
    param_dtype: str = "float32"
    activation_dtype: str = "float32"

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

    @classmethod
    def from_config(cls, model: ModelConfig, vocab_size: int) -> "Architecture":
        """The architecture of a config's model with a tokenizer's vocabulary."""
        return cls(vocab_size=vocab_size, **dataclasses.asdict(model))

    def num_parameters(self) -> int:
        """Parameters in all, each tied one counted once."""
        queries = self.width * self.num_heads * self.head_width
        keys = self.width * self.num_kv_heads * self.head_width
        norms = 2 * self.width + (2 * self.head_width if self.qk_norm else 0)
        block = 2 * queries + 2 * keys + 3 * self.width * self.mlp_width + norms
        tables = 1 if self.tie_embeddings else 2
        return self.num_layers * block + tables * self.vocab_size * self.width + self.width
