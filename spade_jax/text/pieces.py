"""Which stretches of text are worth a token of their own.

Sentencepiece proposes pieces from a suffix array, which passes over stretches that always stand in
the same surroundings: just those of which generated programs are full. Here every run of lines,
run of words and run of letters that comes back is proposed; sentencepiece estimates which of them
to keep.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

# The longest piece that sentencepiece allows.
MAX_PIECE_CHARACTERS = 512

# A piece has to cover this share of the text, or a model sees it too seldom to learn what it means
# and text that is only alike falls into letters. What is longer than _LONG counts as that long, or
# whole documents would become pieces by their length alone.
_MIN_SHARE = 2e-4
_LONG = 100
_MAX_WORDS = 12
_MAX_LETTERS = 6
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WORD = re.compile(r"[^\W\d_]+| +|.", re.DOTALL)


def candidate_pieces(segments: Mapping[str, int]) -> dict[str, int]:
    """The stretches that occur at least twice, with their number of occurrences.

    Args:
      segments: texts, cut at whatever no piece may span, with their number of occurrences.
    """
    candidates: Counter[str] = Counter()
    for segment, count in segments.items():
        for stretch in set(_stretches(segment)):
            candidates[stretch] += count
    enough = _MIN_SHARE * sum(len(segment) * count for segment, count in segments.items())
    return {
        piece: count
        for piece, count in candidates.items()
        if count > 1 and len(piece) > 1 and count * min(len(piece), _LONG) >= enough
    }


def _stretches(segment: str) -> Iterator[str]:
    lines = _LINE.findall(segment)
    yield from _runs(lines, len(lines))
    for line in set(lines):
        words = _WORD.findall(line)
        yield from _runs(words, _MAX_WORDS)
        for word in set(words):
            yield from _runs(word, _MAX_LETTERS)


def _runs(parts: list[str] | str, max_parts: int) -> Iterator[str]:
    """All runs of neighboring parts that are short enough, joined."""
    for start in range(len(parts)):
        run = ""
        for part in parts[start : start + max_parts]:
            run += part
            if len(run) > MAX_PIECE_CHARACTERS:
                break
            yield run
