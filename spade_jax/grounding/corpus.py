"""Grounding documents: read once, then drawn without end in an order that a checkpoint can resume.

    path -> documents (JSONL, text files, a folder of either, or the built-in scenes)
         -> grain: shuffle anew each epoch, repeat -> Document, Document, ...

All documents are held in memory. grain does the order and the position only: reading ahead in
threads would gain nothing on documents that lie in memory, and its iterators leak threads.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grain  # type: ignore[import-untyped]

from spade_jax.errors import CorpusError
from spade_jax.files import any_path, files_below
from spade_jax.grounding.builtin import builtin_documents
from spade_jax.types import Document

BUILTIN = "builtin"
_SECTION_WORDS = 100
_MAX_PARAGRAPH_WORDS = 400
_SUFFIXES = (".jsonl", ".md", ".txt")
_PROBLEMS_NAMED = 5

_log = logging.getLogger(__name__)


class Corpus(Iterator[Document]):
    """An endless, resumable stream of the documents; each epoch holds every one once.

    Of several processes each draws for all, and uses the draws that are its own: the position is then the
    same everywhere, and any number of processes can go on from it. Not safe to use from several threads.
    """

    def __init__(self, documents: Sequence[Document], *, seed: int):
        """Wraps documents that are in memory already; `open` reads them.

        Args:
          documents: at least one, in an order that is the same on every process.
          seed: of the shuffle, the same on every process.
        """
        self.documents = tuple(documents)
        self._identity = {
            "fingerprint": _fingerprint(documents),
            "num_documents": len(documents),
            "seed": seed,
        }
        order = grain.MapDataset.source(self.documents).seed(seed).shuffle().repeat()
        self._iterator = iter(order.to_iter_dataset(grain.ReadOptions(num_threads=0)))

    @classmethod
    def open(cls, path: str, *, seed: int) -> Self:
        """Reads the documents at `path` (see `read_documents`) and starts at the beginning.

        Raises:
          CorpusError: see `read_documents`.
        """
        documents = builtin_documents(seed) if path == BUILTIN else read_documents(path)
        return cls(documents, seed=seed)

    def __next__(self) -> Document:
        return next(self._iterator)

    def state(self) -> dict[str, Any]:
        """The position, JSON-ready, with what it is a position in."""
        return {"identity": self._identity, "iterator": self._iterator.get_state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken.

        Raises:
          CorpusError: if it was taken in other documents, or in another order of them.
        """
        changed = [
            f"{name} was {state['identity'].get(name)}, is {value}"
            for name, value in self._identity.items()
            if state["identity"].get(name) != value
        ]
        if changed:
            raise CorpusError(
                f"the checkpoint's position is in another corpus ({'; '.join(changed)}). Bring back the "
                f"documents and the seed of that run, or start a new --workdir"
            )
        self._iterator.set_state(state["iterator"])

    def close(self) -> None:
        """Ends the stream and frees what grain holds for it."""
        self._iterator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_documents(path: str) -> list[Document]:
    """The documents of a file, or of all files in a folder and below, in the order of their names.

    A `.jsonl` file has a JSON object with the text under `orig_doc` or else `text` on each line. Any
    other file (in a folder: `.txt` and `.md` ones) is plain text and is cut at blank lines into
    sections of a hundred words or more. Lines and files that cannot be read are skipped and reported
    once, with the file and the line numbers.

    Raises:
      CorpusError: if there is nothing at `path`, or nothing usable in it.
      StorageError: see `spade_jax.files.any_path`.
    """
    root = any_path(path)
    if not root.exists():
        raise CorpusError(
            f"no corpus at {path}. Give a .jsonl file, a text file or a folder of them in corpus.path, "
            f'"builtin" for the built-in corpus or "" for none'
        )
    files = [root]
    if root.is_dir():
        files = [file for file in files_below(root) if file.suffix in _SUFFIXES]
        if not files:
            raise CorpusError(f"the folder {path} holds no {', '.join(_SUFFIXES)} file")

    documents: list[Document] = []
    problems: list[str] = []
    for file in files:
        name = file.name if file == root else file.relative_to(root).as_posix()
        try:
            content = file.read_bytes()
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
            continue
        read = _read_json_lines if file.suffix == ".jsonl" else _read_text
        documents += read(name, content, problems)

    report = "; ".join(problems[:_PROBLEMS_NAMED])
    if len(problems) > _PROBLEMS_NAMED:
        report += f"; and {len(problems) - _PROBLEMS_NAMED} more"
    if not documents:
        raise CorpusError(
            f"not one usable document in {path} ({report or 'it is empty'}). Each line of a .jsonl file "
            f'has to be an object such as {{"text": "..."}}; text files have to hold words in UTF-8'
        )
    if problems:
        _log.warning("corpus %s: %d documents, skipped %d: %s", path, len(documents), len(problems), report)
    return documents


def _read_json_lines(name: str, content: bytes, problems: list[str]) -> list[Document]:
    documents = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError covers text that is not UTF-8
            problems.append(f"{name}:{number} is not JSON ({error})")
            continue
        text = _text_of(values)
        if text is None:
            problems.append(f"{name}:{number} has no text under `orig_doc` or `text`")
        else:
            documents.append(Document(document_id=f"{name}:{number}", text=text))
    return documents


def _text_of(values: Any) -> str | None:
    if isinstance(values, dict):
        for key in ("orig_doc", "text"):
            text = values.get(key)
            if isinstance(text, str) and text.strip():
                return text
    return None


def _read_text(name: str, content: bytes, problems: list[str]) -> list[Document]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(f"{name} is not UTF-8 text ({error})")
        return []
    return [
        Document(document_id=f"{name}#{number}", text=section)
        for number, section in enumerate(_sections(text), start=1)
    ]


def _sections(text: str) -> Iterator[str]:
    section: list[str] = []
    num_words = 0
    for paragraph in _paragraphs(text):
        section.append(paragraph)
        num_words += len(paragraph.split())
        if num_words >= _SECTION_WORDS:
            yield "\n\n".join(section)
            section, num_words = [], 0
    if section:
        yield "\n\n".join(section)


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            paragraph = "\n".join(lines)
            words = paragraph.split()
            if len(words) <= _MAX_PARAGRAPH_WORDS:
                yield paragraph
            else:  # one line a sentence without blank lines, or a book without line breaks
                for start in range(0, len(words), _MAX_PARAGRAPH_WORDS):
                    yield " ".join(words[start : start + _MAX_PARAGRAPH_WORDS])
            lines = []


def _fingerprint(documents: Sequence[Document]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(json.dumps([document.document_id, document.text]).encode())
    return digest.hexdigest()[:16]
