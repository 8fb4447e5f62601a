"""Ours against transformers, on small random models of every family."""

import functools
import json
import math

import jax
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from spade_jax.errors import ConfigError
from spade_jax.model.families import architecture_from_hf
from spade_jax.model.transformer import (
    forward_with_cache,
    hidden_states,
    init_cache,
    init_params,
    unembed,
)
from spade_jax.model.weights_map import weights_map

LENGTH, PIECE = 40, 8
SHAPE = {
    "num_hidden_layers": 3,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 97,
    "max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "factor": 2.5}
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
CONFIGS = {
    "qwen3": {"model_type": "qwen3", "rope_theta": 5e4, "tie_word_embeddings": True},
    "qwen3-yarn-mha": {
        "model_type": "qwen3",
        "rope_theta": 300.0,
        "rope_scaling": YARN,
        "num_key_value_heads": 6,
        "vocab_size": 101,
    },
    "qwen3-moe": {"model_type": "qwen3_moe", "rope_theta": 2e3, **MOE},
    "qwen3-moe-unnormalized-window": {
        "model_type": "qwen3_moe",
        **MOE,
        "norm_topk_prob": False,
        "use_sliding_window": True,
        "sliding_window": 7,
        "tie_word_embeddings": True,
        "rope_scaling": {**YARN, "attention_factor": 0.7, "beta_fast": 4.0, "truncate": False},
    },
    "qwen2": {
        "model_type": "qwen2",
        "rope_theta": 700.0,
        "use_sliding_window": True,
        "sliding_window": 6,
        "max_window_layers": 1,
        "num_key_value_heads": 1,
    },
    "llama": {
        "model_type": "llama",
        "rope_theta": 5e3,
        "rope_scaling": LLAMA3,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "rope_scaling": LINEAR,
        "rope_theta": 3e3,
        "rope_local_base_freq": 50.0,
        "sliding_window": 5,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 20,
    },
    "gemma3-untied": {
        "model_type": "gemma3_text",
        "sliding_window": 9,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "tie_word_embeddings": False,
        "head_dim": 8,
    },
}

_hidden_states = jax.jit(hidden_states, static_argnums=1)
_forward_with_cache = jax.jit(forward_with_cache, static_argnums=1)
_unembed = jax.jit(unembed, static_argnums=1)


def _models(name, folder):
    """transformers' model with random weights of every kind, and our architecture and params of its files."""
    config = AutoConfig.for_model(**{**SHAPE, **CONFIGS[name]})
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # norms and biases, too, which start as ones and zeros
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.1))
    theirs.save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    architecture = architecture_from_hf(saved, param_dtype="float32", activation_dtype="float32")
    return theirs, architecture, _params(architecture, load_file(folder / "model.safetensors"))


def _params(architecture, tensors):
    shapes = jax.eval_shape(lambda: init_params(architecture, 0))
    params = jax.tree.map(lambda shape: np.full(shape.shape, np.nan, np.float32), shapes)
    for source in weights_map(architecture):
        tensor = tensors.pop(source.name)
        array = functools.reduce(lambda node, key: node[key], source.path, params)
        assert np.isnan(array[source.index]).all(), f"{source.name} fills what another one has"
        array[source.index] = (tensor.T if source.transpose else tensor).reshape(source.shape)
    assert not tensors, "the checkpoint has tensors that no parameter takes"
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)), "parameters were left empty"
    return params


@pytest.fixture(scope="module", params=CONFIGS)
def models(request, tmp_path_factory):
    return _models(request.param, tmp_path_factory.mktemp("checkpoint"))


def _tokens(architecture, shape, *, seed=0):
    return np.random.default_rng(seed).integers(0, architecture.vocab_size, shape).astype(np.int32)


def _their_logits(model, tokens, mask=None):
    """float32 [B, T, V] of int32 [B, T], with an attention mask of tokens that are not padding."""
    with torch.no_grad():
        mask = None if mask is None else torch.tensor(mask, dtype=torch.int64)
        positions = None if mask is None else (mask.cumsum(1) - 1).clamp(min=0)
        ids = torch.tensor(tokens, dtype=torch.int64)
        return model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits.numpy()


def _our_logits(architecture, params, tokens, positions, segment_ids):
    hidden = _hidden_states(params, architecture, tokens, positions, segment_ids)
    return np.asarray(_unembed(params, architecture, hidden))


def _assert_close(ours, theirs):
    assert np.abs(ours - theirs).max() <= 1e-4 * theirs.std()


@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_of_padded_rows_are_those_of_transformers(models, side):
    theirs, architecture, params = models
    lengths = np.array([LENGTH, 23, 9])
    columns = np.arange(LENGTH)
    start = (LENGTH - lengths if side == "left" else np.zeros_like(lengths))[:, None]
    real = (columns >= start) & (columns < start + lengths[:, None])
    tokens = _tokens(architecture, real.shape)
    positions = np.where(real, columns - start, 0).astype(np.int32)
    expected = _their_logits(theirs, tokens, real)
    found = _our_logits(architecture, params, tokens, positions, real.astype(np.int32))
    _assert_close(found[real], expected[real])


def test_packed_rows_give_the_logits_of_transformers(models):
    theirs, architecture, params = models
    sequences, expected = _sequences(theirs, architecture)
    tokens, positions, segment_ids = np.zeros((3, 3, LENGTH), np.int32)
    tokens[1] = np.concatenate(sequences)
    positions[1] = np.concatenate([np.arange(len(sequence)) for sequence in sequences])
    segment_ids[1] = np.repeat([1, 2, 3], [len(sequence) for sequence in sequences])
    _assert_close(
        _our_logits(architecture, params, tokens, positions, segment_ids)[1], np.concatenate(expected)
    )


def test_the_cache_gives_the_logits_of_transformers(models):
    """A piece of each sequence, then a token at a time; a sequence that has ended is padding."""
    theirs, architecture, params = models
    sequences, expected = _sequences(theirs, architecture)
    cache = init_cache(architecture, num_slots=3, max_context=LENGTH)
    found = [[] for _ in sequences]
    for start in (0, *range(PIECE, max(map(len, sequences)))):
        stop = start + (1 if start else PIECE)
        tokens = np.zeros((3, PIECE), np.int32)
        positions = np.full((3, PIECE), cache.max_context, np.int32)
        for row, sequence in enumerate(sequences):
            piece = sequence[start:stop]
            tokens[row, : len(piece)] = piece
            positions[row, : len(piece)] = np.arange(start, start + len(piece))
        hidden, cache = _forward_with_cache(
            params, architecture, tokens, positions, cache, slots=np.array([2, 0, 1])
        )
        logits = np.asarray(_unembed(params, architecture, hidden))
        for row, sequence in enumerate(sequences):
            found[row].append(logits[row, : len(sequence[start:stop])])
    for logits, wanted in zip(found, expected, strict=True):
        _assert_close(np.concatenate(logits), wanted)


def _sequences(theirs, architecture):
    """Three sequences that fill a row, and transformers' logits of each."""
    sequences = [_tokens(architecture, length, seed=length) for length in (19, 8, 13)]
    return sequences, [_their_logits(theirs, sequence[None])[0] for sequence in sequences]


BASE = {"model_type": "llama", **SHAPE}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type='mamba' is not supported; choose one of qwen3"),
        ({"num_experts": 4}, "unknown fields in the config of this llama: num_experts=4"),
        ({"attention_bias": True}, "attention_bias=True of a llama is not supported"),
        ({"attention_dropout": 0.1}, "attention_dropout=0.1"),
        ({"quantization_config": {"bits": 4}}, "quantization_config="),
        ({"hidden_act": "relu"}, "activation 'relu'"),
        ({"hidden_size": "wide"}, "transformers rejects the config of this llama.*hidden_size"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type='dynamic'"),
        ({"rope_scaling": {**YARN, "mscale": 0.7}}, "mscale are not supported for rope_type='yarn'"),
        ({"model_type": "qwen3_moe", **MOE, "mlp_only_layers": [0]}, r"mlp_only_layers=\[0\]"),
        ({"model_type": "qwen3_moe", **MOE, "decoder_sparse_step": 2}, "decoder_sparse_step=2"),
        ({"model_type": "gemma3_text", "final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0"),
        ({"model_type": "gemma3", "text_config": SHAPE, "audio_config": {}}, "this gemma3: audio_config"),
        (
            {"model_type": "qwen3", "layer_types": ["full_attention", "chunked_attention"] * 2},
            "layer_types=.*chunked_attention|transformers rejects.*layer_types",
        ),
    ],
)
def test_a_field_that_the_transformer_has_no_part_for_is_refused_by_name(change, message):
    config = change if change.get("model_type") == "gemma3" else {**BASE, **change}
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        architecture_from_hf(config, param_dtype="float32", activation_dtype="float32")


QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151_643,
    "eos_token_id": 151_645,
    "head_dim": 128,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 40_960,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1_000_000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151_936,
}
LLAMA = {
    "attention_bias": False,
    "hidden_act": "silu",
    "mlp_bias": False,
    "model_type": "llama",
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
PUBLISHED = {
    "Qwen3-4B": (
        4_022_468_096,
        {
            **QWEN3,
            "num_hidden_layers": 36,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "tie_word_embeddings": True,
        },
    ),
    "Qwen3-8B": (
        8_190_735_360,
        {**QWEN3, "num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12_288},
    ),
    "Qwen3-32B": (
        32_762_123_264,
        {
            **QWEN3,
            "num_hidden_layers": 64,
            "hidden_size": 5120,
            "intermediate_size": 25_600,
            "num_attention_heads": 64,
        },
    ),
    "Qwen3-30B-A3B": (
        30_532_122_624,
        {
            **QWEN3,
            "model_type": "qwen3_moe",
            "decoder_sparse_step": 1,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "max_window_layers": 48,
            "mlp_only_layers": [],
            "moe_intermediate_size": 768,
            "norm_topk_prob": True,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 48,
            "num_key_value_heads": 4,
            "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
        },
    ),
    "Qwen2.5-0.5B": (
        494_032_768,
        {
            "model_type": "qwen2",
            "hidden_act": "silu",
            "hidden_size": 896,
            "intermediate_size": 4864,
            "max_window_layers": 21,
            "num_attention_heads": 14,
            "num_hidden_layers": 24,
            "num_key_value_heads": 2,
            "rope_theta": 1_000_000.0,
            "sliding_window": 32_768,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "vocab_size": 151_936,
        },
    ),
    "Llama-3.2-1B": (
        1_235_814_400,
        {
            **LLAMA,
            "head_dim": 64,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "max_position_embeddings": 131_072,
            "num_attention_heads": 32,
            "num_hidden_layers": 16,
            "num_key_value_heads": 8,
            "rope_scaling": {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192},
            "rope_theta": 500_000.0,
            "vocab_size": 128_256,
        },
    ),
    "SmolLM2-135M": (
        134_515_008,
        {
            **LLAMA,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "is_llama_config": True,
            "num_attention_heads": 9,
            "num_hidden_layers": 30,
            "num_key_value_heads": 3,
            "rope_interleaved": False,
            "rope_theta": 100_000,
            "vocab_size": 49_152,
        },
    ),
    "gemma-3-1b": (
        999_885_952,
        {
            "model_type": "gemma3_text",
            "cache_implementation": "hybrid",
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 1152,
            "intermediate_size": 6912,
            "num_attention_heads": 4,
            "num_hidden_layers": 26,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 256,
            "rope_local_base_freq": 10_000,
            "rope_scaling": None,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
            "vocab_size": 262_144,
        },
    ),
}


@pytest.mark.parametrize(("published", "config"), PUBLISHED.values(), ids=PUBLISHED)
def test_parameter_counts_are_the_published_ones(published, config):
    architecture = architecture_from_hf(config, param_dtype="bfloat16", activation_dtype="bfloat16")
    shapes = jax.eval_shape(lambda: init_params(architecture, 0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == published
    assert architecture.num_parameters() == published
    assert sum(math.prod(source.shape) for source in weights_map(architecture)) == published
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert theirs.num_parameters() == published
