import json

import pytest

from spade_jax.audit.entries import read_entries
from spade_jax.errors import AuditError
from spade_jax.types import EnvironmentSource


def test_a_folder_at_any_depth_with_what_lies_beside_the_programs(tmp_path):
    deep = tmp_path / "cycle_00000"
    deep.mkdir()
    (deep / "c00000-e000_optimization.py").write_text("a = 'Å'", encoding="utf-8")
    about = {"environment_id": "c00000-e000", "skill": "Optimization", "hint": "look", "reward": 0.5}
    (deep / "c00000-e000_optimization.json").write_text(json.dumps(about))
    (deep / "c00000-e001_optimization.json").write_text(json.dumps(about))  # a rejected design: no program
    (tmp_path / "with_mark.py").write_text("\ufeffb = 2\n", encoding="utf-8")
    (tmp_path / "with_mark_hint.txt").write_text("listen\n")
    (tmp_path / "notes.txt").write_text("nothing")
    entries = read_entries(tmp_path)
    assert [entry.problem for entry in entries] == ["", ""]
    assert [(entry.file, entry.source) for entry in entries] == [
        (
            "cycle_00000/c00000-e000_optimization.py",
            EnvironmentSource(
                environment_id="c00000-e000", skill="Optimization", code="a = 'Å'", hint="look"
            ),
        ),
        (
            "with_mark.py",
            EnvironmentSource(environment_id="with_mark.py", skill="", code="b = 2\n", hint="listen"),
        ),
    ]


def test_a_jsonl_file_keeps_its_line_numbers_and_passes_over_no_line_that_has_something(tmp_path):
    path = tmp_path / "set.jsonl"
    lines = [
        b'{"code": "a = 1", "hint": "look", "skill": "Optimization", "environment_id": "one", "score": 3}',
        b"",
        b'{"code": "b = 2", "hint": null}',
        b'{"code": "half',
        b'["code"]',
        b'{"hint": "look"}',
        b'{"code": "c", "hint": 7}',
        b'{"code": "\xff"}',
        b"[" * 100_000,
    ]
    path.write_bytes(b"\n".join(lines))
    entries = read_entries(path)
    assert [entry.file for entry in entries] == [f"set.jsonl:{number}" for number in (1, *range(3, 10))]
    assert [entry.source for entry in entries[:2]] == [
        EnvironmentSource(environment_id="one", skill="Optimization", code="a = 1", hint="look"),
        EnvironmentSource(environment_id="set.jsonl:3", skill="", code="b = 2", hint=""),
    ]
    assert [entry.source for entry in entries[2:]] == [None] * 6
    problems = [entry.problem for entry in entries[2:]]
    expected = [
        "Unterminated string",
        "no object",
        "no code",
        "hint is of type int",
        "decode byte",
        "recursion",
    ]
    for problem, part in zip(problems, expected, strict=True):
        assert part in problem


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("bytes.py", b"\xff\xfe", "decode byte"),
        ("spoilt.json", b'{"hint": ', "Expecting value"),
        ("listed.json", b"[]", "listed.json holds no object"),
    ],
)
def test_what_cannot_be_read_in_a_folder_is_an_entry_with_the_reason(tmp_path, name, content, part):
    (tmp_path / name).with_suffix(".py").write_text("a = 1")
    (tmp_path / name).write_bytes(content)
    (entry,) = read_entries(tmp_path)
    assert entry.source is None
    assert part in entry.problem


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "there is no such folder or file"),
        ("one.txt", "want a folder"),
        ("empty", r"no \*.py at any depth"),
        ("empty.jsonl", "it has no line"),
    ],
)
def test_what_is_no_set_is_an_error(tmp_path, name, message):
    (tmp_path / "one.txt").write_text("a")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(AuditError, match=message):
        read_entries(tmp_path / name)
