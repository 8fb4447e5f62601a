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

import io
import re
from collections.abc import Iterable, Sequence

import sentencepiece

from spade_jax.errors import TokenizerError

PAD = "<|pad|>"
SYSTEM = "<|system|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
END = "<|end|>"
_UNKNOWN = "<|unknown|>"
_CONTROL = (PAD, _UNKNOWN, SYSTEM, USER, ASSISTANT, END)

# Sentencepiece restricts where white space may stand in a piece, drops some of it and keeps U+2581
# and U+2585 for itself. Visible stand-ins take white space out of its sight; where one of them
# occurs in the text it is escaped, so that the mapping stays one to one.
_ESCAPES = {"␛": "␛0", "␠": "␛1", "␤": "␛2", "\u2581": "␛3", "\u2585": "␛4", " ": "␠", "\n": "␤"}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}
_ESCAPED = re.compile("␛[0-4]|[␠␤]")
_SURROGATES = re.compile("[\ud800-\udfff]")

# Training reads one piece of text as one sentence; longer ones only cost time.
_MAX_PIECE_CHARACTERS = 128


class Tokenizer:
    """Encodes and decodes with one trained model; immutable.

    Attributes:
      vocab_size: V; ids are 0 to V - 1.
      pad_id: fills rows up; stands nowhere in a conversation.
      system_id, user_id, assistant_id: headers that open a message.
      end_id: closes a message.
      atoms: strings that are always a token of their own.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor):
        pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
        if tuple(pieces[: len(_CONTROL)]) != _CONTROL:
            raise TokenizerError(
                f"the sentencepiece model starts with the pieces {pieces[: len(_CONTROL)]}, expected "
                f"{list(_CONTROL)}; use a model that Tokenizer.train made"
            )
        self._processor = processor
        self.vocab_size = len(pieces)
        self.pad_id = _CONTROL.index(PAD)
        self.system_id = _CONTROL.index(SYSTEM)
        self.user_id = _CONTROL.index(USER)
        self.assistant_id = _CONTROL.index(ASSISTANT)
        self.end_id = _CONTROL.index(END)
        self._names = {
            index: _unescape(piece)
            for index, piece in enumerate(pieces)
            if processor.is_control(index) or processor.is_unknown(index)
        }
        self.atoms = tuple(name for name in self._names.values() if name not in _CONTROL)
        self._atom_ids = {name: index for index, name in self._names.items() if name in self.atoms}
        self._atom_pattern = _atom_pattern(self.atoms)

    @classmethod
    def train(cls, texts: Iterable[str], *, vocab_size: int, atoms: Sequence[str] = ()) -> "Tokenizer":
        """A tokenizer whose pieces are frequent stretches of `texts`.

        The same arguments give the same model, byte for byte.

        Args:
          texts: what will be encoded, in the proportions in which it will be.
          vocab_size: V, including 256 bytes, the control symbols and the atoms.
          atoms: strings that are always a token of their own wherever they occur, never part of a
            longer piece. One that starts or ends with a letter is meant as a word: "ring" is not
            looked for inside "string".

        Raises:
          TokenizerError: there is no text, or too little of it for `vocab_size` pieces.
        """
        pattern = _atom_pattern(atoms)
        segments = [_escape(segment) for text in texts for segment in pattern.split(text)[::2] if segment]
        if not segments:
            raise TokenizerError("there is no text to train a tokenizer on; pass at least one text")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(segments),
                model_writer=model,
                model_type="unigram",
                vocab_size=vocab_size,
                control_symbols=[*_CONTROL[2:], *map(_escape, dict.fromkeys(atoms))],
                pad_id=0,
                pad_piece=PAD,
                unk_id=1,
                unk_piece=_UNKNOWN,
                bos_id=-1,
                eos_id=-1,
                byte_fallback=True,
                character_coverage=1.0,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                split_by_whitespace=False,
                split_by_unicode_script=False,
                split_by_number=False,
                split_digits=True,
                required_chars="".join(_ESCAPES.values()),
                max_sentencepiece_length=_MAX_PIECE_CHARACTERS,
                max_sentence_length=1 << 30,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise TokenizerError(
                f"no tokenizer of {vocab_size} pieces ({len(atoms)} of them atoms, 256 bytes) can be "
                f"made of this text; change vocab_size or give more text: {error}"
            ) from error
        return cls.from_bytes(model.getvalue())

    @classmethod
    def from_bytes(cls, model: bytes) -> "Tokenizer":
        """The inverse of `to_bytes`.

        Raises:
          TokenizerError: these are not the bytes of a model that `train` made.
        """
        processor = sentencepiece.SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise TokenizerError(
                f"{len(model)} bytes do not hold a sentencepiece model; the file is missing, cut off or "
                "damaged: delete it, and it is trained again"
            ) from error
        return cls(processor)

    def to_bytes(self) -> bytes:
        """The model as a sentencepiece file, for `from_bytes` or any other reader of such files."""
        return self._processor.serialized_model_proto()

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, which never include a control symbol, whatever the text says.

        A lone surrogate is not a character; it is read as U+FFFD.
        """
        ids: list[int] = []
        for index, segment in enumerate(self._atom_pattern.split(_SURROGATES.sub("\ufffd", text))):
            if index % 2:
                ids.append(self._atom_ids[segment])
            elif segment:
                ids += self._processor.encode(_escape(segment))
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


def _escape(text: str) -> str:
    return text.translate(_ESCAPE_TABLE)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: _UNESCAPES[match[0]], text)


def _atom_pattern(atoms: Iterable[str]) -> re.Pattern[str]:
    """Finds the atoms, the longest first, as the pattern's only group."""

    def bounded(atom: str) -> str:
        before = "(?<![^\\W\\d_])" if atom[0].isalpha() else ""
        after = "(?![^\\W\\d_])" if atom[-1].isalpha() else ""
        return f"{before}{re.escape(atom)}{after}"

    longest_first = sorted(set(atoms), key=lambda atom: (-len(atom), atom))
    return re.compile(f"({'|'.join(map(bounded, longest_first)) or '(?!)'})")
