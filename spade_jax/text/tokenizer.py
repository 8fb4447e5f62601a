"""Text to token ids and back, without loss.

A sentencepiece unigram model trained on the project's own text. Its pieces may span words,
punctuation and lines, so that a small model writes a program in a few dozen tokens. Three things
never become part of a longer piece, because a policy must be able to vary them one by one: digits,
the control symbols of `spade_jax.text.chat`, and the `atoms` given at training time.

    text -> split at atoms -> escape white space -> sentencepiece -> ids

`decode(encode(text)) == text` for any text, through single bytes where no piece fits. The reverse
does not hold: many sequences of ids spell the same text, which is why sampled ids are kept as they
are and never made again from text.
"""

import hashlib
import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping

import sentencepiece

from spade_jax.errors import TokenizerError
from spade_jax.text.pieces import MAX_PIECE_CHARACTERS, candidate_pieces

PAD = "<|pad|>"
SYSTEM = "<|system|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
END = "<|end|>"
_UNKNOWN = "<|unknown|>"
_CONTROL = (PAD, _UNKNOWN, SYSTEM, USER, ASSISTANT, END)
_DIGITS = "0123456789"

# White space means something to sentencepiece, and so do U+2581 and U+2585. Visible stand-ins keep it
# out of its sight; where the text has one of these, it is escaped, so that the mapping is one to one.
_ESCAPES = {
    " ": "␠",
    "\n": "␤",
    "\t": "␉",
    **{char: f"␛{number}" for number, char in enumerate("␛␠␤␉\u2581\u2585")},
}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}
_ESCAPED = re.compile("␛[0-5]|[␠␤␉]")
# Marks the pieces that are atoms. No escaped text contains it, so that sentencepiece, which cuts its
# training text at control symbols, learns words that only contain an atom as it learns any other.
_ATOM = "␛:"
_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """Encodes and decodes with one trained model; immutable.

    Attributes:
      vocab_size: V; ids are 0 to V - 1.
      pad_id: fills rows up; stands nowhere in a conversation.
      system_id, user_id, assistant_id: headers that open a message.
      end_id: closes a message.
      atoms: strings that are always a token of their own.
    """

    def __init__(self, model: bytes):
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(model)
        pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
        self._model = model
        self._processor = processor
        self.vocab_size = len(pieces)
        self.pad_id = _CONTROL.index(PAD)
        self.system_id = _CONTROL.index(SYSTEM)
        self.user_id = _CONTROL.index(USER)
        self.assistant_id = _CONTROL.index(ASSISTANT)
        self.end_id = _CONTROL.index(END)
        self._names = {
            index: _unescape(piece.removeprefix(_ATOM))
            for index, piece in enumerate(pieces)
            if processor.is_control(index) or processor.is_unknown(index)
        }
        self._atom_ids = {
            self._names[index]: index for index, piece in enumerate(pieces) if piece.startswith(_ATOM)
        }
        self.atoms = tuple(self._atom_ids)
        self._atom_pattern = _atom_pattern(self.atoms)

    @classmethod
    def train(cls, texts: Iterable[str], *, vocab_size: int, atoms: Iterable[str] = ()) -> "Tokenizer":
        """A tokenizer whose pieces are the stretches that `texts` repeat.

        The same arguments give the same model, byte for byte; the order of the texts is no matter.

        Args:
          texts: what will be encoded, in the proportions in which it will be.
          vocab_size: largest V, of which 256 are bytes and 16 control symbols and digits; V is
            smaller where the text has less to offer.
          atoms: strings that are always a token of their own, never part of a longer piece. One that
            starts and ends with a letter is a word: "ring" is not found inside "string".

        Raises:
          TokenizerError: there is no text, or vocab_size has no room for its characters.
        """
        atoms = tuple(dict.fromkeys([*_DIGITS, *atoms]))
        pattern = _atom_pattern(atoms)
        segments = Counter(segment for text in texts for segment in pattern.split(_clean(text))[::2])
        del segments[""]
        if not segments:
            raise TokenizerError("there is no text to train a tokenizer on; pass at least one text")
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".tsv") as candidates:
            candidates.writelines(_tsv(candidate_pieces(segments)))
            candidates.flush()
            model = io.BytesIO()
            try:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter(_tsv(segments)),
                    input_format="tsv",
                    model_writer=model,
                    model_type="unigram",
                    seed_sentencepieces_file=candidates.name,
                    vocab_size=vocab_size,
                    hard_vocab_limit=False,
                    control_symbols=[*_CONTROL[2:], *(_ATOM + _escape(atom) for atom in atoms)],
                    pad_id=0,
                    pad_piece=PAD,
                    unk_id=1,
                    unk_piece=_UNKNOWN,
                    bos_id=-1,
                    eos_id=-1,
                    byte_fallback=True,
                    character_coverage=1.0,
                    required_chars="␠␤",
                    normalization_rule_name="identity",
                    add_dummy_prefix=False,
                    remove_extra_whitespaces=False,
                    split_by_whitespace=False,
                    split_by_unicode_script=False,
                    split_by_number=False,
                    max_sentencepiece_length=MAX_PIECE_CHARACTERS,
                    max_sentence_length=1 << 30,
                    num_threads=1,
                    minloglevel=2,
                )
            except RuntimeError as error:
                raise TokenizerError(
                    f"sentencepiece made no model of {vocab_size} pieces, {len(atoms)} of them atoms, from "
                    f"{len(segments)} distinct stretches of text; try a larger vocab_size: {error}"
                ) from error
        # The model records where its candidates were, which is no part of what was asked for.
        path = candidates.name.encode()
        return cls(_seal(model.getvalue().replace(path, b"-" * len(path))))

    @classmethod
    def from_bytes(cls, model: bytes) -> "Tokenizer":
        """The inverse of `to_bytes`.

        Raises:
          TokenizerError: these are not, bit for bit, the bytes of a model that `train` made.
        """
        if model != _seal(model[: -len(_seal(b""))]):
            raise TokenizerError(
                f"these {len(model)} bytes are not a tokenizer that was saved whole: the file is empty, cut "
                "off, damaged or of another program; restore it, or remove it and train again"
            )
        return cls(model)

    def to_bytes(self) -> bytes:
        """The model as a sentencepiece file with a digest of itself at the end."""
        return self._model

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, which never include a control symbol, whatever the text says.

        A lone surrogate is not a character; it is read as U+FFFD.
        """
        ids: list[int] = []
        # Every second part is an atom.
        for number, part in enumerate(self._atom_pattern.split(_clean(text))):
            if number % 2:
                ids.append(self._atom_ids[part])
            elif part:
                ids += self._processor.encode(_escape(part))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text that `ids` spell, for any ids below V.

        Nothing is left out: control symbols appear by name (`<|end|>`), since a reply that contains
        one must not read as if it did not. Bytes that are no UTF-8 appear as U+FFFD.
        """
        parts: list[str] = []
        run: list[int] = []
        for index in map(int, ids):
            if index in self._names:
                parts += [_unescape(self._processor.decode(run)), self._names[index]]
                run = []
            else:
                run.append(index)
        return "".join([*parts, _unescape(self._processor.decode(run))])


def _seal(model: bytes) -> bytes:
    """The model with its digest: a damaged one often still loads, and would quietly give other ids.

    The digest is field 200 of the file, 32 bytes, which readers of sentencepiece models skip.
    """
    return model + b"\xc2\x0c\x20" + hashlib.sha256(model).digest()


def _clean(text: str) -> str:
    return _SURROGATES.sub("\ufffd", text)


def _escape(text: str) -> str:
    return text.translate(_ESCAPE_TABLE)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: _UNESCAPES[match[0]], text)


def _tsv(counts: Mapping[str, int]) -> list[str]:
    """Lines `text, tab, count` in an order that does not depend on that of the texts."""
    return [f"{_escape(text)}\t{count}\n" for text, count in sorted(counts.items())]


def _atom_pattern(atoms: Iterable[str]) -> re.Pattern[str]:
    """Finds the atoms, the longest first, as the pattern's only group."""
    longest_first = sorted(atoms, key=len, reverse=True)
    words = [atom for atom in longest_first if atom[0].isalpha() and atom[-1].isalpha()]
    others = [atom for atom in longest_first if atom not in words]
    # One look at the surroundings for all words: a look for each is thirty times slower.
    any_word = rf"(?<![^\W\d_])(?:{'|'.join(map(re.escape, words))})(?![^\W\d_])"
    return re.compile(f"({'|'.join([*map(re.escape, others), *([any_word] if words else [])])})")
