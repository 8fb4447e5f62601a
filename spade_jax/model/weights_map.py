"""Where each parameter lies in a Hugging Face checkpoint.

The names follow from the architecture alone: all families call the same thing by the same name, but
for the norms of Gemma, which has twice as many.
"""

import dataclasses

from spade_jax.model.architecture import Architecture


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorSource:
    """One tensor of a checkpoint and the parameter that it fills, or a part of one.

    `params[path][index] == (tensor.T if transpose else tensor).reshape(shape)`, where `tensor` is the
    checkpoint's tensor of that name; back, `tensor` is that array as a matrix, transposed where it was.

    Attributes:
      path: keys into the nested dict of parameters.
      index: into the stacked axes of the parameter: (), (layer,) or (layer, expert).
      name: of the tensor.
      transpose: whether the tensor's two axes are swapped.
      shape: of the parameter behind the index.
    """

    path: tuple[str, ...]
    index: tuple[int, ...]
    name: str
    transpose: bool
    shape: tuple[int, ...]


def weights_map(architecture: Architecture, *, prefix: str = "") -> list[TensorSource]:
    """Sources that cover each element of the parameters exactly once, in the order of the layers.

    Args:
      prefix: of all names, see `spade_jax.model.families.tensor_prefix`.
    """
    width, vocab_size = architecture.width, architecture.vocab_size
    table = (vocab_size, width)
    sources = [_plain(("embedder", "table"), (), "model.embed_tokens.weight", table)]
    for layer in range(architecture.num_layers):
        sources += _block(architecture, layer)
    sources.append(_plain(("final_norm", "scale"), (), "model.norm.weight", (width,)))
    if not architecture.tie_embeddings:
        sources.append(_plain(("embedder", "output"), (), "lm_head.weight", table))
    return [dataclasses.replace(source, name=prefix + source.name) for source in sources]


def _block(architecture: Architecture, layer: int) -> list[TensorSource]:
    width, head_width = architecture.width, architecture.head_width
    queries = (architecture.num_heads, head_width)
    keys = (architecture.num_kv_heads, head_width)
    prefix = f"model.layers.{layer}"

    def plain(path: tuple[str, ...], name: str, *shape: int) -> TensorSource:
        return _plain(("blocks", *path), (layer,), f"{prefix}.{name}", shape)

    def kernel(path: tuple[str, ...], name: str, *shape: int) -> TensorSource:
        return _kernel(("blocks", *path), (layer,), f"{prefix}.{name}.weight", shape)

    def norm(path: str, name: str, size: int = width) -> TensorSource:
        return plain((path, "scale"), f"{name}.weight", size)

    sources = [
        norm("attention_norm", "input_layernorm"),
        kernel(("query",), "self_attn.q_proj", width, *queries),
        kernel(("key",), "self_attn.k_proj", width, *keys),
        kernel(("value",), "self_attn.v_proj", width, *keys),
        kernel(("output",), "self_attn.o_proj", *queries, width),
    ]
    if architecture.qkv_bias:
        sources += [
            plain(("query_bias",), "self_attn.q_proj.bias", *queries),
            plain(("key_bias",), "self_attn.k_proj.bias", *keys),
            plain(("value_bias",), "self_attn.v_proj.bias", *keys),
        ]
    if architecture.qk_norm:
        sources += [
            norm("query_norm", "self_attn.q_norm", head_width),
            norm("key_norm", "self_attn.k_norm", head_width),
        ]
    if architecture.post_norms:
        sources += [
            norm("post_attention_norm", "post_attention_layernorm"),
            norm("mlp_norm", "pre_feedforward_layernorm"),
            norm("post_mlp_norm", "post_feedforward_layernorm"),
        ]
    else:
        sources.append(norm("mlp_norm", "post_attention_layernorm"))
    mlp_width = architecture.mlp_width
    shapes = {"gate": (width, mlp_width), "up": (width, mlp_width), "down": (mlp_width, width)}
    if not architecture.num_experts:
        return sources + [kernel((part,), f"mlp.{part}_proj", *shape) for part, shape in shapes.items()]
    sources.append(kernel(("experts", "router"), "mlp.gate", width, architecture.num_experts))
    for expert in range(architecture.num_experts):
        name = f"{prefix}.mlp.experts.{expert}"
        sources += [
            _kernel(("blocks", "experts", part), (layer, expert), f"{name}.{part}_proj.weight", shape)
            for part, shape in shapes.items()
        ]
    return sources


def _plain(path: tuple[str, ...], index: tuple[int, ...], name: str, shape: tuple[int, ...]) -> TensorSource:
    return TensorSource(path=path, index=index, name=name, transpose=False, shape=shape)


def _kernel(path: tuple[str, ...], index: tuple[int, ...], name: str, shape: tuple[int, ...]) -> TensorSource:
    return TensorSource(path=path, index=index, name=name, transpose=True, shape=shape)
