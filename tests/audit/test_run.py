"""A whole audit without a policy: good environments, bad ones of each kind, and the reference's contracts."""

import csv
import json
import pathlib
import random
import subprocess
import sys

import pytest

from spade_jax.audit.entries import Entry
from spade_jax.audit.report import summary_lines
from spade_jax.audit.run import audit, examine
from spade_jax.config import ValidationConfig
from spade_jax.environments.validation.candidate import Surroundings
from spade_jax.errors import AuditError
from spade_jax.types import EnvironmentSource
from tests.environments.validation.designs import BANK, SUMS, SUMS_HINT, single, spoilt
from tests.scripted import FaultySandbox, running_sandbox

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE_CONTRACT = CHECKOUT / "tests" / "environments" / "reference_contract"
NUM_SEEDS = 8

# As many sums as its level, each with two digits.
GRADED = spoilt(
    spoilt(SUMS, "max_turns=4):", "max_turns=4, difficulty=2):\n        self.difficulty = difficulty"),
    "float(self.right == 2), self.right == 2,",
    "float(self.right == self.difficulty), self.right == self.difficulty,",
)
FILES = {
    "bank.py": BANK,
    "copy_of_sums.py": SUMS.replace("SumsEnv", "AdditionEnv").replace("Put it in a box.", "The sum?"),
    "fixed.py": single("self.text = 'Seventeen times three?'", "move == '51'"),
    "graded.py": GRADED,
    # Only one instance is broken, which no rung comes to play.
    "late.py": spoilt(
        SUMS, "        self.turn_count += 1\n", "        self.turn_count += 1 // (self.seed != 6)\n"
    ).replace("self.rng = random.Random(seed)", "self.seed, self.rng = seed, random.Random(seed)"),
    "network.py": f"import socket\n{SUMS}",
    "no_class.py": "answer = 42\n",
    "sums.py": SUMS,
    "sums_hint.txt": SUMS_HINT,
    "syntax_error.py": "class OneEnv(:\n",
    "wins.py": single("self.text = f'Room {rng.randint(1, 9)}.'", "True"),
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The rows of JSON by file, and of CSV, and the folder."""
    folder = tmp_path_factory.mktemp("set")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "bytes.py").write_bytes(b"\xff\xfe\x00")
    outputs = [tmp_path_factory.mktemp("out") / name for name in ("audit.json", "audit.csv")]
    rows = audit(folder, num_seeds=NUM_SEEDS, json_path=outputs[0], csv_path=outputs[1])
    read = json.loads(outputs[0].read_bytes())
    assert read == rows
    with outputs[1].open(newline="") as file:
        table = list(csv.DictReader(file))
    return {row["file"]: row for row in read}, table


def but_seconds(row):
    return {name: value for name, value in row.items() if not name.startswith("seconds_")}


def test_a_valid_game_has_all_its_figures(audited):
    rows, _ = audited
    assert but_seconds(rows["sums.py"]) == {
        "file": "sums.py",
        "environment_id": "sums.py",
        "skill": "",
        "setting": "games",
        "valid": True,
        "rejected_by": "",
        "detail": "",
        "has_hint": True,
        "near_duplicates": ["copy_of_sums.py", "network.py"],
        "failure": "",
        "num_seeds": NUM_SEEDS,
        "distinct_observations": NUM_SEEDS,
        "distinct_instances": NUM_SEEDS,
        "distinct_solutions": NUM_SEEDS,
        "level_parameter": "",
        "distinct_levels": None,
        "levels": [],
        "random_win_rate": 0.0,
        "random_win_rate_low": 0.0,
        # Wilson's for 0 of 8: z^2 / (8 + z^2).
        "random_win_rate_high": pytest.approx(1.959964**2 / (8 + 1.959964**2), rel=1e-6),
        "solution_win_rate": 1.0,
        "solution_turns": [2, 2],
        "max_turns": 4,
        "num_tools": 0,
    }


def test_tool_use_is_known_by_itself(audited):
    rows, _ = audited
    bank = rows["bank.py"]
    assert (bank["setting"], bank["valid"], bank["num_tools"]) == ("tool_use", True, 3)
    # The first message is always the same; what the tools say is not.
    assert (bank["distinct_observations"], bank["distinct_instances"]) == (1, NUM_SEEDS)
    assert (bank["solution_win_rate"], bank["solution_turns"]) == (1.0, [3, 3])


def test_each_bad_one_is_rejected_by_its_rung(audited):
    rows, _ = audited
    rejected = {name: row["rejected_by"] for name, row in rows.items() if not row["valid"]}
    assert rejected == {
        "bytes.py": "unreadable",
        "network.py": "static",
        "no_class.py": "static",
        "syntax_error.py": "parse",
        "wins.py": "constant",
    }
    assert "decode byte" in rows["bytes.py"]["detail"]
    assert "import socket: there is no network" in rows["network.py"]["detail"]
    assert rows["bytes.py"]["num_seeds"] is rows["no_class.py"]["num_seeds"] is None
    assert "no class whose name ends in Env" in rows["no_class.py"]["failure"]
    # What can be played is measured, although it was rejected.
    assert rows["wins.py"]["random_win_rate"] == 1.0
    rooms = {random.Random(seed).randint(1, 9) for seed in range(NUM_SEEDS)}
    assert rows["wins.py"]["distinct_instances"] == len(rooms) < NUM_SEEDS


def test_an_environment_that_is_always_the_same_shows(audited):
    row = audited[0]["fixed.py"]
    assert (row["valid"], row["distinct_observations"], row["distinct_instances"]) == (True, 1, 1)


def test_a_failure_after_the_ladder_leaves_what_it_spoils_unknown(audited):
    row = audited[0]["late.py"]
    assert row["valid"] is True
    assert "ZeroDivisionError" in row["failure"]
    assert row["random_win_rate"] is row["distinct_instances"] is row["solution_win_rate"] is None
    assert row["distinct_observations"] == NUM_SEEDS


def test_levels_are_tried(audited):
    row = audited[0]["graded.py"]
    assert (row["level_parameter"], row["distinct_levels"]) == ("__init__(difficulty)", 3)
    assert [(level["value"], level["solution_turns"], level["failure"]) for level in row["levels"]] == [
        (1, [1, 1], ""),
        (2, [2, 2], ""),
        (3, [3, 3], ""),
    ]


def test_near_duplicates_are_found_both_ways(audited):
    copies = {name: row["near_duplicates"] for name, row in audited[0].items() if row["near_duplicates"]}
    assert copies["copy_of_sums.py"] == ["network.py", "sums.py"]
    assert copies["network.py"] == ["copy_of_sums.py", "sums.py"]
    assert copies["sums.py"] == ["copy_of_sums.py", "network.py"]
    assert len(copies) == 3


def test_seconds_are_measured_where_there_is_something_to_measure(audited):
    measured = {"seconds_load": "num_seeds", "seconds_reset": "num_seeds", "seconds_step": "random_win_rate"}
    for name, row in audited[0].items():
        for cost, figure in measured.items():
            assert (row[cost] is None) == (row[figure] is None), name
            assert row[cost] is None or 0 < row[cost] < 60


def test_the_csv_says_the_same(audited):
    rows, table = audited
    for line in table:
        for name, value in rows[line["file"]].items():
            said = json.dumps(value) if isinstance(value, list) else "" if value is None else str(value)
            assert line[name] == said


def test_the_reference_contracts(tmp_path):
    rows = audit(REFERENCE_CONTRACT, num_seeds=4)
    assert [(row["file"], row["setting"], row["rejected_by"]) for row in rows] == [
        ("archive_search.py", "tool_use", ""),
        ("bank_transfer.py", "tool_use", ""),
        ("beacon_grid.py", "games", ""),
        ("cipher_wheel.py", "games", ""),
        ("cold_start.py", "games", "play"),
        ("courier_routes.py", "tool_use", ""),
        ("flight_desk.py", "tool_use", ""),
        ("market_days.py", "games", "random"),
        ("river_locks.py", "games", ""),
        ("smart_home.py", "tool_use", ""),
        ("ticket_desk.py", "tool_use", "criteria"),
        ("tide_table.py", "games", "play"),
        ("vault_digits.py", "games", ""),
    ]
    assert all(row["valid"] is (row["rejected_by"] == "") for row in rows)
    # It takes a difficulty and makes nothing of it.
    levels = {row["file"]: (row["level_parameter"], row["distinct_levels"]) for row in rows}
    assert levels.pop("cipher_wheel.py") == ("__init__(difficulty)", 1)
    assert set(levels.values()) == {("", None)}


def test_a_fault_of_the_sandbox_is_no_verdict():
    source = EnvironmentSource(environment_id="sums", skill="", code=SUMS, hint="")
    with running_sandbox() as sandbox:
        surroundings = Surroundings(
            sandbox=FaultySandbox(sandbox.pool, "Sums"),
            config=ValidationConfig(),
            held_out=frozenset(),
            setting="games",
            max_turns=4,
        )
        row = sandbox.run(examine(Entry(file="sums.py", source=source), surroundings, num_seeds=2))
    assert (row["valid"], row["rejected_by"], row["detail"]) == (None, "", "the sandbox failed")
    assert row["failure"] == "the sandbox failed: no more processes"
    assert summary_lines([row]) == ["0 of 1 valid", "  sums.py: not known: the sandbox failed"]


def command(*flags):
    return subprocess.run(
        [sys.executable, CHECKOUT / "launch" / "audit.py", *flags], capture_output=True, text=True
    )


def test_the_command_ends_well_whatever_it_found_and_shows_no_control_characters(tmp_path):
    hostile = single("self.text = 'x'", "1 / 0").replace(
        "import random",
        # Python warns of the escape, which is no news to who audits.
        "pattern = '\\d'\nraise ValueError('\\x1b[2J')",
    )
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps({"code": hostile}) + "\n" + json.dumps({"code": SUMS, "hint": SUMS_HINT}))
    found = command(f"--environments={path}", "--seeds=2", "--json", str(tmp_path / "out.json"))
    assert (found.returncode, found.stderr) == (0, "")
    assert "1 of 2 valid; rejected: 1 by load" in found.stdout
    assert "set.jsonl:1: load: environment_error: ValueError: �[2J" in found.stdout
    assert "\x1b" not in found.stdout
    rows = json.loads((tmp_path / "out.json").read_bytes())
    assert [(row["file"], row["valid"], row["has_hint"]) for row in rows] == [
        ("set.jsonl:1", False, False),
        ("set.jsonl:2", True, True),
    ]


def test_the_command_says_in_a_line_why_there_is_nothing_to_audit(tmp_path):
    failed = command(f"--environments={tmp_path}")
    assert failed.returncode == 1
    (line,) = failed.stderr.splitlines()
    assert line.startswith(f"error: no environments in --environments={tmp_path}")


def test_a_file_that_could_not_be_written_is_an_error_before_anything_is_played(tmp_path):
    (tmp_path / "sums.py").write_text(SUMS)
    with pytest.raises(AuditError, match="there is no folder"):
        audit(tmp_path, json_path=tmp_path / "nowhere" / "audit.json")
