"""What there is to audit: a folder of programs, or a JSONL file with a program on each line.

Every program becomes an entry, also one that cannot be read: a set is not audited if a part of it was
passed over in silence.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from spade_jax.errors import AuditError
from spade_jax.types import EnvironmentSource

_TEXTS = ("environment_id", "skill", "hint", "document_id")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One program of a set.

    Attributes:
      file: its path within the folder, or `name.jsonl:line`; unique in the set.
      source: None where it cannot be read.
      problem: why it cannot, "" where it can.
    """

    file: str
    source: EnvironmentSource | None
    problem: str = ""


def read_entries(path: Path) -> list[Entry]:
    """All programs of a set, in the order of their paths or lines.

    A folder is searched for `*.py` at any depth. What goes with a program lies beside it: `NAME.json`, as
    a run's workdir has it, or a hint alone in `NAME_hint.txt`, as the reference implementation writes it.
    A line of a JSONL file is an object with `code` and, if there are any, `hint`, `environment_id` and
    `skill`; other fields are passed over, and so are blank lines.

    Raises:
      AuditError: there is no such set, or nothing in it.
    """
    try:
        if path.is_dir():
            entries = [_read_program(file, path) for file in sorted(path.rglob("*.py"))]
        elif path.suffix == ".jsonl":
            lines = path.read_bytes().splitlines()
            entries = [
                _read_line(line, f"{path.name}:{number}")
                for number, line in enumerate(lines, start=1)
                if line.strip()
            ]
        elif path.exists():
            raise AuditError(f"--environments={path}: got a file; want a folder of *.py, or a file *.jsonl")
        else:
            raise AuditError(f"--environments={path}: there is no such folder or file")
    except OSError as error:
        raise AuditError(f"cannot read --environments={path}: {error}") from error
    if not entries:
        what = "no *.py at any depth" if path.is_dir() else "no line"
        raise AuditError(f"no environments in --environments={path}: it has {what}")
    return entries


def _read_program(path: Path, folder: Path) -> Entry:
    file = path.relative_to(folder).as_posix()
    try:
        about = {"code": path.read_text(encoding="utf-8-sig"), **_read_companions(path)}
        return Entry(file=file, source=_to_source(about, file))
    except (OSError, ValueError, RecursionError) as error:
        return Entry(file=file, source=None, problem=str(error))


def _read_companions(path: Path) -> dict[str, Any]:
    """What lies beside a program about it; where nothing does, nothing is known."""
    about_path, hint_path = path.with_suffix(".json"), path.with_name(f"{path.stem}_hint.txt")
    about = json.loads(about_path.read_bytes()) if about_path.exists() else {}
    if not isinstance(about, dict):
        raise ValueError(f"{about_path.name} holds no object")
    if hint_path.exists():
        about["hint"] = hint_path.read_text(encoding="utf-8-sig").strip()
    return {name: about[name] for name in _TEXTS if name in about}


def _read_line(line: bytes, file: str) -> Entry:
    try:
        about = json.loads(line)
        if not isinstance(about, dict):
            raise ValueError("the line is no object")
        return Entry(file=file, source=_to_source(about, file))
    except (ValueError, RecursionError) as error:
        return Entry(file=file, source=None, problem=str(error))


def _to_source(about: dict[str, Any], file: str) -> EnvironmentSource:
    """The source in a dictionary; an absent text is "", and an absent id the file's name.

    Raises:
      ValueError: there is no code, or a field is no text.
    """
    if not isinstance(about.get("code"), str):
        raise ValueError("no code: want the program's text as the field `code`")
    texts = {name: about.get(name) or "" for name in _TEXTS}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise ValueError(f"{name} is of type {type(value).__name__}; want text")
    texts["environment_id"] = texts["environment_id"] or file
    return EnvironmentSource(code=about["code"], **texts)
