import json
import logging
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spade_jax.errors import CorpusError
from spade_jax.grounding.corpus import Corpus, read_documents
from spade_jax.types import Document


def documents(num_documents):
    return [Document(document_id=f"d{i}", text=f"text {i}") for i in range(num_documents)]


def ids(corpus, num_documents):
    return [next(corpus).document_id for _ in range(num_documents)]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_an_epoch_holds_every_document_once_and_epochs_differ():
    with Corpus(documents(20), seed=1) as corpus:
        first, second = ids(corpus, 20), ids(corpus, 20)
    assert set(first) == set(second) == {f"d{i}" for i in range(20)}
    assert first != second


@pytest.mark.parametrize(("before", "after"), [(4, 2), (1, 3), (2, 1)])
def test_another_number_of_processes_goes_on_without_repeats(before, after):
    """Each draws what all draw, and uses its own; what they use is the stream of one process."""

    def used(corpora, num_draws):
        draws = [ids(corpus, num_draws) for corpus in corpora]
        return {i: draws[i % len(corpora)][i] for i in range(num_draws)}

    corpora = [Corpus(documents(11), seed=1) for _ in range(before)]
    first = used(corpora, 7)
    states = [corpus.state() for corpus in corpora]
    assert all(state == states[0] for state in states)

    resumed = [Corpus(documents(11), seed=1) for _ in range(after)]
    for corpus in resumed:
        corpus.restore(json.loads(json.dumps(states[0])))
    rest = used(resumed, 15)
    with Corpus(documents(11), seed=1) as corpus:
        assert [*first.values(), *rest.values()] == ids(corpus, 22)


# grain's shuffle walks a fixed domain, which takes 10 ms a draw from a handful of documents.
@settings(max_examples=25, deadline=None)
@given(st.integers(30, 60), st.integers(0, 130), st.integers(0, 3))
def test_restored_is_uninterrupted(num_documents, num_drawn, seed):
    with Corpus(documents(num_documents), seed=seed) as corpus:
        ids(corpus, num_drawn)
        state = json.loads(json.dumps(corpus.state()))
        rest = ids(corpus, 15)
    with Corpus(documents(num_documents), seed=seed) as resumed:
        resumed.restore(state)
        assert ids(resumed, 15) == rest


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"documents": documents(6)}, "num_documents was 5, is 6"),
        ({"seed": 2}, "seed was 1, is 2"),
        ({"documents": [*documents(4), Document(document_id="d4", text="other")]}, "fingerprint was"),
    ],
)
def test_a_position_in_another_corpus_is_refused(other, names):
    made_with = {"documents": documents(5), "seed": 1}
    with Corpus(**made_with) as corpus:
        state = corpus.state()
    with Corpus(**{**made_with, **other}) as corpus, pytest.raises(CorpusError, match=names):
        corpus.restore(state)


def test_drawing_starts_no_threads():
    before = set(threading.enumerate())
    with Corpus(documents(5), seed=0) as corpus:
        ids(corpus, 20)
        assert set(threading.enumerate()) == before


def test_builtin_corpus_by_name():
    with Corpus.open("builtin", seed=0) as corpus:
        assert len(set(ids(corpus, 400))) == 400


def test_json_lines_prefer_orig_doc(tmp_path):
    path = write_lines(
        tmp_path / "docs.jsonl",
        ['{"text": "b", "orig_doc": "a"}', "", '{"text": "naïve\\ntext"}', '{"orig_doc": "", "text": "c"}'],
    )
    read = read_documents(path)
    assert [document.text for document in read] == ["a", "naïve\ntext", "c"]
    assert [document.document_id for document in read] == ["docs.jsonl:1", "docs.jsonl:3", "docs.jsonl:4"]


def test_broken_lines_are_skipped_and_reported_once_with_their_numbers(tmp_path, caplog):
    path = tmp_path / "docs.jsonl"
    path.write_bytes(
        b'{"text": "good"}\n{"text": \n[1]\n{"text": 3}\n{"title": "x"}\n"\xff"\n{"text": "  "}\n'
        b'{"text": "end"}'
    )
    with caplog.at_level(logging.WARNING):
        read = read_documents(str(path))
    assert [document.text for document in read] == ["good", "end"]
    (entry,) = caplog.records
    message = entry.getMessage()
    assert "2 documents, skipped 6" in message
    for number in range(2, 7):
        assert f"docs.jsonl:{number} " in message
    assert "and 1 more" in message


def test_text_becomes_sections_with_every_word_kept_in_order(tmp_path):
    paragraphs = [" ".join(f"w{i}-{j}" for j in range(1 + 37 * i % 130)) for i in range(30)]
    paragraphs.insert(10, " ".join(f"long-{j}" for j in range(2500)))
    path = tmp_path / "book.txt"
    path.write_text("\n \n".join(paragraphs), encoding="utf-8")
    sections = [document.text for document in read_documents(str(path))]
    assert " ".join(sections).split() == " ".join(paragraphs).split()
    lengths = [len(section.split()) for section in sections]
    assert min(lengths[:-1]) >= 100
    assert max(lengths) < 500


def test_a_folder_is_read_in_the_order_of_names_and_what_is_not_text_is_left_out(tmp_path, caplog):
    (tmp_path / "deep").mkdir()
    write_lines(tmp_path / "deep" / "a.jsonl", ['{"text": "two"}'])
    (tmp_path / "b.txt").write_text("one")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    with caplog.at_level(logging.WARNING):
        read = read_documents(str(tmp_path))
    assert [document.document_id for document in read] == ["b.txt#1", "deep/a.jsonl:1"]
    assert "bad.txt is not UTF-8" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.jsonl", None, "no corpus at"),
        ("empty.jsonl", b"", "it is empty"),
        ("blank.txt", b" \n\n", "it is empty"),
        ("broken.jsonl", b"{\n[]\n", "broken.jsonl:1 is not JSON .*broken.jsonl:2 has no text"),
        ("binary.bin", b"\xff\x00", "binary.bin is not UTF-8"),
    ],
)
def test_a_corpus_without_a_document_is_an_error_that_says_what_to_do(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        Corpus.open(str(tmp_path / name), seed=0)


def test_a_folder_without_text_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"holds no \.jsonl"):
        read_documents(str(tmp_path))
