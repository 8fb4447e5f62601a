import random
import re

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from spade_jax.errors import TokenizerError
from spade_jax.text.tokenizer import ASSISTANT, END, PAD, SYSTEM, USER, Tokenizer

# What the tokenizer, sentencepiece or a chat template treats in a special way, next to plain text.
PECULIAR = [
    *(PAD, SYSTEM, USER, ASSISTANT, END, "<|unknown|>", "<0x41>", "<unk>", "<s>"),
    *("␛", "␠", "␤", "␉", "␛0", "\u2581", "\u2585", "\ufffd", "\ue000", "\U0010ffff"),
    *("\n", "\r\n", "\t", "\0", "  ", " ", "\u3000", "\x85", "\u2028", "0", "12", "４"),
    *("fig", " fig", "figs", "string", "\\boxed{", "}", "\\", "turn_count", "```python\n"),
]
TEXTS = st.lists(st.sampled_from(PECULIAR) | st.text(max_size=8), max_size=12).map("".join)


def control_ids(tokenizer: Tokenizer) -> set[int]:
    headers = (tokenizer.system_id, tokenizer.user_id, tokenizer.assistant_id)
    return {tokenizer.pad_id, tokenizer.end_id, *headers}


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([index]) for index in tokenizer.encode(text)]


@given(text=TEXTS)
def test_decode_is_the_inverse_of_encode(tokenizer: Tokenizer, text: str):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=TEXTS)
def test_no_text_makes_a_control_symbol(tokenizer: Tokenizer, text: str):
    assert control_ids(tokenizer).isdisjoint(tokenizer.encode(text))


def test_a_lone_surrogate_is_read_as_the_replacement_character(tokenizer: Tokenizer):
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


@given(data=st.data())
def test_any_ids_decode_to_text_that_can_be_stored(tokenizer: Tokenizer, data: st.DataObject):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
    tokenizer.decode(ids).encode()


def test_control_symbols_are_seen_in_decoded_text(tokenizer: Tokenizer):
    ids = [*tokenizer.encode("up"), tokenizer.user_id, *tokenizer.encode("down"), tokenizer.end_id]
    assert tokenizer.decode(ids) == "up<|user|>down<|end|>"


def test_no_piece_holds_a_digit_or_an_atom_besides_itself(tokenizer: Tokenizer):
    names = [tokenizer.decode([index]) for index in range(tokenizer.vocab_size)]
    for name in names:
        if name not in tokenizer.atoms:
            words = re.findall(r"[^\W\d_]+", name)
            assert not set(words) & set(tokenizer.atoms), name
            assert "\\boxed{" not in name
            assert not re.search("[0-9]", name), name
    assert {*"0123456789", "fig", "\\boxed{"} <= set(names)


def test_numbers_and_nouns_are_tokens_of_their_own_in_a_program(tokenizer: Tokenizer, texts: list[str]):
    line = '    size = 4\n    name = "kite"\n'
    assert [piece for piece in pieces(tokenizer, line) if piece in ("4", "kite")] == ["4", "kite"]
    assert pieces(tokenizer, "\\boxed{fig}") == ["\\boxed{", "fig", "}"]
    assert pieces(tokenizer, "207") == ["2", "0", "7"]


def test_a_word_is_not_found_inside_another(tokenizer: Tokenizer):
    assert "ring" not in pieces(tokenizer, "string ringing")
    assert "ring" in pieces(tokenizer, "the_ring, 3ring4")
    assert " had been near the " in pieces(tokenizer, "The bee had been near the fig.")


def test_a_program_takes_few_tokens_and_pieces_span_lines(tokenizer: Tokenizer, texts: list[str]):
    found = pieces(tokenizer, texts[0])
    assert len(texts[0]) > 200
    assert len(found) <= 12
    assert any(piece.count("\n") > 2 for piece in found)


def test_the_same_texts_in_any_order_give_the_same_bytes(tokenizer: Tokenizer, texts: list[str]):
    shuffled = random.Random(1).sample(texts, len(texts))
    again = Tokenizer.train(iter(shuffled), vocab_size=512, atoms=tokenizer.atoms)
    assert again.to_bytes() == tokenizer.to_bytes()


def test_a_saved_tokenizer_is_the_same(tokenizer: Tokenizer, texts: list[str]):
    loaded = Tokenizer.from_bytes(tokenizer.to_bytes())
    assert loaded.to_bytes() == tokenizer.to_bytes()
    assert loaded.atoms == tokenizer.atoms
    for text in [*texts[::50], "".join(PECULIAR)]:
        assert loaded.encode(text) == tokenizer.encode(text)


def test_the_saved_file_is_a_sentencepiece_model(tokenizer: Tokenizer):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())
    assert processor.get_piece_size() == tokenizer.vocab_size


def test_damaged_bytes_are_refused(tokenizer: Tokenizer):
    model = tokenizer.to_bytes()
    rng = random.Random(0)
    damaged = [b"", b"x", model[:-1], model[:100], model[1:], model + b"\0", model[:-35]]
    for position in rng.sample(range(len(model)), 200):
        damaged.append(model[:position] + bytes([model[position] ^ 1]) + model[position + 1 :])
    for other in damaged:
        with pytest.raises(TokenizerError, match="train again"):
            Tokenizer.from_bytes(other)


def test_little_text_gives_a_small_vocabulary():
    tokenizer = Tokenizer.train(["up", "down"], vocab_size=4096)
    assert tokenizer.vocab_size < 320
    assert tokenizer.decode(tokenizer.encode("down, fig 3 ␛")) == "down, fig 3 ␛"


def test_no_text_and_no_room_are_errors(texts: list[str]):
    with pytest.raises(TokenizerError, match="at least one text"):
        Tokenizer.train(["", "12"], vocab_size=512)
    with pytest.raises(TokenizerError, match="larger vocab_size"):
        Tokenizer.train(texts, vocab_size=280)


def test_an_atom_may_also_be_part_of_common_words():
    texts = ["a string ringing in the ring, strings and rings", "offspring, springs, a wiring; ring"] * 50
    tokenizer = Tokenizer.train(texts, vocab_size=400, atoms=["ring"])
    assert pieces(tokenizer, "ring") == ["ring"]
    assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]
