"""Tokenizers with chat templates, each in the manner of a known model's and with one of its habits."""

import json
from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from spade_jax.text.template_chat import TemplateChat

# Lists tools in the system message, merges consecutive tool results into one user message.
CHATML = """\
{%- if tools %}{{ '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}
{%- for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}
{{- 'Answer with <tool_call></tool_call>.<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
{%- elif message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

# As above; drops thoughts before the last user message.
THINKS = CHATML.replace(
    "{%- for message in messages %}\n{%- set content = message.content %}\n",
    """\
{%- set last = namespace(query=-1) %}
{%- for message in messages %}
{%- if message.role == 'user' %}{% set last.query = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == 'assistant' and '</think>' in content %}
{%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}
{%- if thought and loop.index0 > last.query %}
{%- set content = '<think>\n' + thought + '\n</think>\n\n' + content %}
{%- endif %}
{%- endif %}
""",
)

# As above; asks for no thought by an empty one in the header, which no past message keeps.
QWEN3 = f"""{THINKS}
{{%- if add_generation_prompt and not enable_thinking %}}
{{{{- '<think>\\n\\n</think>\\n\\n' }}}}
{{%- endif %}}"""

# As above; opens every thought in the header.
THINKER = f"{THINKS}{{% if add_generation_prompt %}}{{{{ '<think>\\n' }}}}{{% endif %}}"

# Begins with a token of its own, trims what is said, and shows results of tools as JSON.
LLAMA3 = """\
{{- bos_token }}
{%- for message in messages %}
{%- set role = 'ipython' if message.role == 'tool' else message.role %}
{{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
{%- if tools and loop.first %}
{%- for tool in tools %}{{ 'Tool: ' + tool | tojson + '\n\n' }}{% endfor %}
{%- endif %}
{{- (message.content | tojson if message.role == 'tool' else message.content | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

# Has no system messages and no tools, insists on turns, has another name for the assistant.
GEMMA = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role != ['user', 'assistant'][loop.index0 % 2] %}
{{- raise_exception('user and assistant take turns') }}
{%- endif %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' }}
{{- message.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

# As above; has no header for the assistant, whose message ends with the end of the sequence.
MISTRAL = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role != ['user', 'assistant'][loop.index0 % 2] %}
{{- raise_exception('user and assistant take turns') }}
{%- endif %}
{%- if message.role == 'user' %}{{ '[INST] ' + message.content + ' [/INST]' }}
{%- else %}{{ ' ' + message.content + eos_token }}
{%- endif %}
{%- endfor %}"""

TEXT = ["the fig is near a kite. user assistant system tool model red blue\n\nwhere? there 12 "] * 3


def byte_level(normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    """In the manner of Qwen and Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    split = pre_tokenizers.Split(words, "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer


def with_spaces(prepend_scheme: str) -> Tokenizer:
    """In the manner of Gemma and Mistral: a space is a letter, unknown ones are spelled in bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=340, special_tokens=special, show_progress=False)
    )
    # The trainer counts its special tokens as added ones; here they are pieces like others.
    return Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "added_tokens": []}))


def pretrained(
    backend: Tokenizer, template: str | None, *, special: Sequence[str] = (), added=(), **named: str
) -> PreTrainedTokenizerFast:
    """A tokenizer as it is loaded, which puts `bos_token` before all that it encodes unless told not to."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, extra_special_tokens=list(special), chat_template=template, **named
    )
    tokenizer.add_tokens(list(added))
    if bos := named.get("bos_token"):
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.bos_token_id)]
        )
    return tokenizer


IM = ("<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
HEADERS = ("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>")
QWEN = {"special": IM, "added": TAGS, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}

TOKENIZERS = {
    "chatml": pretrained(byte_level(), CHATML, special=IM, eos_token="<|endoftext|>"),
    "qwen3": pretrained(byte_level(normalizers.NFC()), QWEN3, **QWEN),
    "thinker": pretrained(byte_level(), THINKER, **QWEN),
    "llama3": pretrained(
        byte_level(), LLAMA3, special=HEADERS, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"
    ),
    "gemma": pretrained(
        with_spaces("never"),
        GEMMA,
        special=("<start_of_turn>", "<end_of_turn>"),
        added=("\n", "\n\n"),
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
    ),
    "mistral": pretrained(
        with_spaces("first"), MISTRAL, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ),
}
CHATS = {name: TemplateChat(tokenizer) for name, tokenizer in TOKENIZERS.items()}
TURN_ENDS = {
    "chatml": "<|im_end|>",
    "qwen3": "<|im_end|>",
    "thinker": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "gemma": "<end_of_turn>",
    "mistral": "</s>",
}
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "move",
            "description": "Moves it",
            "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": []},
        },
    },
)
