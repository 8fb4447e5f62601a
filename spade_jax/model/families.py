"""Model families as data: a Hugging Face config.json -> Architecture.

transformers' own config classes fill in what a config leaves out and bring old spellings to the
present one. Each field that a config does give is then used, or known to be irrelevant, or refused by
name: none is ignored silently.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from spade_jax.config import RopeScaling
from spade_jax.errors import ConfigError
from spade_jax.model.architecture import Architecture

FAMILIES = ("qwen3", "qwen3_moe", "qwen2", "llama", "gemma3_text")

# Fields that say nothing about what the decoder computes.
_IRRELEVANT = frozenset(
    {
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "cache_implementation",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "is_encoder_decoder",
        "is_llama_config",
        "label2id",
        "max_position_embeddings",  # but where rope scaling lacks its original context
        "model_type",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "router_aux_loss_coef",
        "torch_dtype",
        "transformers.js_config",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "use_cache",
    }
)

# Fields that the transformer below has no part for, and the values at which they ask for none.
_WITHOUT: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "attention_dropout": (0,),
    "attn_logit_softcapping": (None,),
    "decoder_sparse_step": (1,),
    "final_logit_softcapping": (None,),
    "mlp_bias": (False,),
    "mlp_only_layers": (None, []),
    "partial_rotary_factor": (None, 1),
    "quantization_config": (None,),
    "rope_interleaved": (None, False),
    "use_bidirectional_attention": (None, False),
    "use_mrope": (None, False),
}

_USED = frozenset(
    {
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "tie_word_embeddings",
        "vocab_size",
    }
)
_QWEN = frozenset({"hidden_act", "layer_types", "max_window_layers", "sliding_window", "use_sliding_window"})
_USED_BY: dict[str, frozenset[str]] = {
    "qwen2": _QWEN,
    "qwen3": _QWEN,
    "qwen3_moe": _QWEN
    | {"moe_intermediate_size", "norm_topk_prob", "num_experts", "num_experts_per_tok", "num_local_experts"},
    "llama": frozenset({"hidden_act"}),
    "gemma3_text": frozenset(
        {
            "_sliding_window_pattern",
            "hidden_activation",
            "layer_types",
            "query_pre_attn_scalar",
            "rope_local_base_freq",
            "sliding_window",
            "sliding_window_pattern",
        }
    ),
}

# Fields of a Gemma 3 with a vision tower around its text_config; pictures are not read.
_AROUND_TEXT = _IRRELEVANT | {
    "boi_token_index",
    "eoi_token_index",
    "image_token_index",
    "mm_tokens_per_image",
    "text_config",
    "vision_config",
}

_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}

_ROPE_FIELDS: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset(
        {"factor", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings"}
    ),
    "yarn": frozenset(
        {
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "factor",
            "original_max_position_embeddings",
            "truncate",
        }
    ),
}


def tensor_prefix(config: Mapping[str, Any]) -> str:
    """What the names of the decoder's tensors begin with in a checkpoint with this config."""
    return "language_model." if config.get("model_type") == "gemma3" else ""


def architecture_from_hf(
    config: Mapping[str, Any], *, param_dtype: str, activation_dtype: str
) -> Architecture:
    """The architecture of a checkpoint, from its config.json as a dict.

    Args:
      config: of a model type in `FAMILIES`, or of a Gemma 3 that has one as its text_config.
      param_dtype, activation_dtype: of the architecture; a config's own dtype is that of its tensors.

    Raises:
      ConfigError: naming the model type or the field that the transformer has no part for.
    """
    if config.get("model_type") == "gemma3":
        _refuse_unknown(config, "gemma3", _AROUND_TEXT | {"tie_word_embeddings"})
        text = {"model_type": "gemma3_text", **config["text_config"]}
        return architecture_from_hf(text, param_dtype=param_dtype, activation_dtype=activation_dtype)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ConfigError(
            f"model_type={family!r} is not supported; choose one of {', '.join(FAMILIES)}, gemma3"
        )
    _refuse_unknown(config, family, _IRRELEVANT | _USED | _USED_BY[family] | _WITHOUT.keys())
    try:
        full: Any = AutoConfig.for_model(**copy.deepcopy(dict(config)))
    except (StrictDataclassError, ValueError) as error:
        raise ConfigError(f"transformers rejects the config of this {family}: {error}") from error
    for field, values in _WITHOUT.items():
        value = getattr(full, field, values[0])
        if value not in values:
            raise ConfigError(
                f"{field}={value!r} of a {family} is not supported; the transformer computes "
                f"{field}={values[-1]!r}"
            )

    gemma, moe = family == "gemma3_text", family == "qwen3_moe"
    windows = _sliding_windows(full)
    rope = full.rope_parameters
    rope_theta, rope_scaling = _rope(rope["full_attention"] if gemma else rope, full)
    sliding_rope_theta, sliding_scaling = (
        _rope(rope["sliding_attention"], full) if gemma and windows else (0.0, None)
    )
    if sliding_scaling:
        raise ConfigError(
            f"rope_parameters.sliding_attention with rope_type={sliding_scaling.kind!r} is not supported; "
            "the frequencies of layers with a sliding window are not stretched"
        )
    return Architecture(
        vocab_size=full.vocab_size,
        num_layers=full.num_hidden_layers,
        width=full.hidden_size,
        num_heads=full.num_attention_heads,
        num_kv_heads=full.num_key_value_heads,
        head_width=_head_width(full),
        mlp_width=full.moe_intermediate_size if moe else full.intermediate_size,
        activation=_activation(full.hidden_activation if gemma else full.hidden_act),
        num_experts=full.num_experts if moe else 0,
        experts_per_token=full.num_experts_per_tok if moe else 0,
        normalize_experts=full.norm_topk_prob if moe else True,
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        sliding_windows=windows,
        sliding_rope_theta=sliding_rope_theta,
        query_scale=full.query_pre_attn_scalar**-0.5 if gemma else 0.0,
        norm_epsilon=full.rms_norm_eps,
        norm_offset=1.0 if gemma else 0.0,
        post_norms=gemma,
        qk_norm=family in ("qwen3", "qwen3_moe", "gemma3_text"),
        qkv_bias=family == "qwen2",
        scale_embeddings=gemma,
        tie_embeddings=full.tie_word_embeddings,
        param_dtype=param_dtype,
        activation_dtype=activation_dtype,
    )


def _refuse_unknown(config: Mapping[str, Any], family: str, known: frozenset[str]) -> None:
    unknown = sorted(config.keys() - known)
    if unknown:
        given = ", ".join(f"{field}={config[field]!r}" for field in unknown)
        raise ConfigError(
            f"unknown fields in the config of this {family}: {given}; the model may compute something else "
            "than the transformer here. Take out fields that do not change it"
        )


def _sliding_windows(full: Any) -> tuple[int, ...]:
    """The window of each layer, 0 for none; () where no layer has one."""
    num_layers, window = full.num_hidden_layers, getattr(full, "sliding_window", None)
    kinds = getattr(full, "layer_types", ["sliding_attention"] * num_layers)
    strange = set(kinds) - {"sliding_attention", "full_attention"}
    if strange or len(kinds) != num_layers:
        raise ConfigError(
            f"layer_types={kinds!r} is not supported; name each of the {num_layers} layers "
            "sliding_attention or full_attention"
        )
    if window is None or "sliding_attention" not in kinds:
        return ()
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _head_width(full: Any) -> int:
    return getattr(full, "head_dim", None) or full.hidden_size // full.num_attention_heads


def _activation(name: str) -> str:
    if name not in _ACTIVATIONS:
        raise ConfigError(f"activation {name!r} is not supported; known ones: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _rope(parameters: Mapping[str, Any], full: Any) -> tuple[float, RopeScaling | None]:
    """Theta and scaling of one layer kind's rope_parameters."""
    kind = parameters["rope_type"]
    if kind not in _ROPE_FIELDS:
        raise ConfigError(f"rope_type={kind!r} is not supported; known ones: {', '.join(_ROPE_FIELDS)}")
    known = _ROPE_FIELDS[kind] | {"rope_theta", "rope_type", "type"}
    unknown = sorted(field for field in parameters.keys() - known if parameters[field] is not None)
    if unknown:
        raise ConfigError(
            f"rope_parameters with {', '.join(unknown)} are not supported for rope_type={kind!r}"
        )
    theta = float(parameters["rope_theta"])
    if kind == "default":
        return theta, None
    given = {field: value for field, value in parameters.items() if value is not None}
    if kind == "linear":
        return theta, RopeScaling(kind="linear", factor=float(given["factor"]))
    original_context = given.get("original_max_position_embeddings", full.max_position_embeddings)
    if kind == "llama3":
        return theta, RopeScaling(
            kind="llama3",
            factor=float(given["factor"]),
            original_context=original_context,
            low_frequency_factor=float(given["low_freq_factor"]),
            high_frequency_factor=float(given["high_freq_factor"]),
        )
    factor = float(given.get("factor", full.max_position_embeddings / original_context))
    return theta, RopeScaling(
        kind="yarn",
        factor=factor,
        original_context=original_context,
        beta_fast=float(given.get("beta_fast", 32)),
        beta_slow=float(given.get("beta_slow", 1)),
        truncate=given.get("truncate", True),
        # Peng et al. 2023, equation 22.
        attention_factor=float(given.get("attention_factor", 0.1 * math.log(max(factor, 1)) + 1)),
    )
