"""What is found by reading a program, line by line, and what is none of this rung's business."""

import ast

import pytest

from spade_jax.environments.validation.static import MAX_FINDINGS, find_faults
from tests.environments.validation.designs import BANK, SUMS


def faults(code: str) -> list[str]:
    return [f"{line}: {text}" for line, text in sorted(find_faults(ast.parse(code)))]


def playable(*lines: str) -> str:
    """A program with a class to play and these lines before it."""
    return "\n".join(
        [*lines, "class AEnv:", "    def reset(self, seed=None): ...", "    def step(self, action): ..."]
    )


@pytest.mark.parametrize(
    "code",
    [
        SUMS,
        BANK,
        playable("import math, json", "from collections import deque"),
        playable("import os", "x = os.path.join('a', 'b') + os.sep"),
        playable("from os import path"),
        playable("import sys", "print(sys.maxsize, file=sys.stderr)", "sys.setrecursionlimit(10**4)"),
        playable("class os: pass", "os.listdir = 1"),
        playable("import urllib.parse, time, io"),
        playable("def open(): ...", "open()"),
        playable("class Door:", "    def open(self): ...", "Door().open()", "re.compile('a')"),
        playable("class HelperEnv: pass"),
        "class BaseEnv:\n  def reset(self): ...\n  def step(self, a): ...\nclass AEnv(BaseEnv): pass",
        "class Base:\n  def reset(self): ...\n  step = reset\nclass AEnv(Base): pass",
        "import gymnasium\nclass AEnv(gymnasium.Env): pass",
        "class Shop(ToolUseBaseEnv): ...\nShopEnv = Shop",
        "class LoopEnv(LoopEnv):\n  def reset(self): ...\n  def step(self, a): ...",
    ],
)  # fmt: skip
def test_what_is_fine(code):
    assert faults(code) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = 1", ["1: no class whose name ends in Env, with reset(seed) and step(action)"]),
        ("class Env:\n  def reset(self): ...\n  def step(self, a): ...", ["1: no class whose name"]),
        ("\nclass Shop(ToolUseBaseEnv):\n  x = 1", ["2: class Shop: the name must end in Env"]),
        ("\nclass AEnv: ...", ["2: class AEnv has no reset and no step"]),
        ("class AEnv(object):\n  def reset(self): ...", ["1: class AEnv has no step"]),
        ("class AEnv(ToolUseBaseEnv): ...", ["1: class AEnv has no reset"]),
        ("class BEnv: ...\nclass AEnv:\n  def step(self, a): ...", ["2: class AEnv has no reset"]),
        ("class AEnv(AEnv): ...", ["1: class AEnv has no reset and no step"]),
        (playable("import math, subprocess"), ["1: import subprocess: "]),
        (playable("import ssl.x as s", "from signal import y"), ["1: import ssl.x: ", "2: import signal: "]),
        (playable("import os", "print(os.listdir('/'))"), ["2: os.listdir: there are no files"]),
        (playable("from os import environ"), ["1: os.environ: "]),
        (playable("import sys", "sys.exit()"), ["2: sys.exit: "]),
        (playable("f = open('x')"), ["1: open(): there are no files"]),
        (playable("", "x = eval('1')"), ["2: eval(): "]),
        (playable("exec('1')", "input()"), ["1: exec(): ", "2: input(): "]),
        (playable("import time", "time.sleep(1)"), ["2: sleep(): "]),
        (playable("from time import sleep", "sleep(1)"), ["2: sleep(): "]),
        (playable("__import__('os')"), ["1: __import__(): "]),
    ],
)  # fmt: skip
def test_what_is_found(code, found):
    lines = faults(code)
    assert len(lines) == len(found), lines
    for line, start in zip(lines, found, strict=True):
        assert line.startswith(start)


def test_findings_come_as_a_short_list_of_lines(climb):
    report = climb(playable(*["open('x')"] * 20), rungs=("static",))
    lines = report.verdicts[-1].detail.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        f"line {number}" for number in range(1, MAX_FINDINGS + 1)
    ]
