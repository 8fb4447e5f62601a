"""The rung that reads the syntax tree: faults that are cheaper to name than to run into.

It looks for one class to play, and for what the sandbox cannot give or an environment has no business
with. The list is short on purpose: it becomes the designer's feedback, and what the list misses, loading
and playing find. It is no barrier; that is the sandbox.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spade_jax.environments.validation.candidate import Candidate, Rejection

MAX_FINDINGS = 10

_BASE = "ToolUseBaseEnv"
_MODULES = {
    **dict.fromkeys(("shutil", "tempfile", "glob", "fileinput"), "there are no files"),
    **dict.fromkeys(("socket", "select", "ssl", "http", "ftplib", "requests"), "there is no network"),
    **dict.fromkeys(
        ("subprocess", "multiprocessing", "threading", "concurrent", "asyncio", "signal"),
        "there is one process with one thread",
    ),
    **dict.fromkeys(("ctypes", "importlib"), "the interpreter is not an environment's to change"),
}
# Of these two modules only what is harmless: paths as text, constants, recursion, streams to print to.
_HARMLESS = {
    "os": {"path", "sep", "linesep"},
    "sys": {"maxsize", "float_info", "stdout", "stderr", "setrecursionlimit", "getsizeof", "version_info"},
}
_HARMFUL = {
    "os": "there are no files, no other processes and no environment variables",
    "sys": "the interpreter is not an environment's to change; terminated or truncated ends an episode",
}
_FUNCTIONS = {
    "open": "there are no files",
    "input": "nobody types; actions come through step",
    "breakpoint": "nobody debugs",
    "eval": "evaluated text can change the environment that judges it; parse what is said",
    "exec": "executed text can change the environment that judges it; parse what is said",
    "__import__": "write an import statement",
    "sleep": "nothing happens meanwhile; the clock is a made-up one",
}


class Finding(NamedTuple):
    """One fault and where it is."""

    line: int
    text: str


async def static(candidate: Candidate) -> None:
    """The program's tree has no fault that is known without running it."""
    findings = sorted(set(find_faults(candidate.tree)))
    if findings:
        raise Rejection("\n".join(f"line {line}: {text}" for line, text in findings[:MAX_FINDINGS]))


def find_faults(tree: ast.Module) -> list[Finding]:
    """All faults of a program, in no order."""
    return [*_class_faults(tree), *_import_faults(tree), *_use_faults(tree), *_call_faults(tree)]


def _class_faults(tree: ast.Module) -> Iterator[Finding]:
    """A class whose name ends in Env must have reset and step; one such is enough, as helpers may end so."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    playable = {name: node for name, node in classes.items() if _may_be_played(name)}
    if not playable and not _binds_env(tree):
        tools = [node for node in classes.values() if _BASE in _base_names(node)]
        if tools:
            yield Finding(tools[0].lineno, f"class {tools[0].name}: the name must end in Env")
        else:
            yield Finding(1, "no class whose name ends in Env, with reset(seed) and step(action)")
    lacking = {name: _missing(node, classes) for name, node in playable.items()}
    if playable and all(lacking.values()):
        last = list(playable)[-1]
        yield Finding(playable[last].lineno, f"class {last} has no {' and no '.join(lacking[last])}")


def played_class(tree: ast.Module) -> ast.ClassDef | None:
    """The class that the sandbox will play: the last one of the module's that can be.

    None where there is none, or where it is bound in another way than by a class statement.
    """
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    playable = [
        node for name, node in classes.items() if _may_be_played(name) and not _missing(node, classes)
    ]
    return playable[-1] if playable else None


def _may_be_played(name: str) -> bool:
    return name.endswith("Env") and name not in ("Env", _BASE)


def _missing(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> list[str]:
    """Which of reset and step a class neither has nor, as far as can be seen, inherits."""
    found: set[str] = set()
    for current in lineage(node, classes):
        for statement in current.body:
            if isinstance(statement, ast.FunctionDef):
                found.add(statement.name)
            elif isinstance(statement, ast.Assign):
                found.update(target.id for target in statement.targets if isinstance(target, ast.Name))
        for base in _base_names(current):
            if base in classes:
                continue
            if base == _BASE:
                found.add("step")
            elif base not in ("object", "ABC"):
                found.update(("reset", "step"))  # a class from elsewhere, which loading will look at
    return [name for name in ("reset", "step") if name not in found]


def lineage(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """A class and those of its bases that the program defines, each once and before its own bases."""
    seen: set[str] = set()
    pending = [node]
    while pending:
        current = pending.pop(0)
        if current.name not in seen:
            seen.add(current.name)
            yield current
            pending += [classes[base] for base in _base_names(current) if base in classes]


def _base_names(node: ast.ClassDef) -> list[str]:
    return [
        base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
        for base in node.bases
    ]


def _binds_env(tree: ast.Module) -> bool:
    """Whether a name that ends in Env is assigned; what it is, loading will see."""
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.endswith("Env")
        for node in ast.walk(tree)
    )


def _import_faults(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            reason = _MODULES.get(name.partition(".")[0])
            if reason:
                yield Finding(node.lineno, f"import {name}: {reason}")


def _use_faults(tree: ast.Module) -> Iterator[Finding]:
    """What a program uses of os and sys beyond the harmless."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.asname is None
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            uses = [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            uses = [(node.value.id, node.attr)] if node.value.id in imported else []
        else:
            continue
        for module, name in uses:
            if module in _HARMLESS and name not in _HARMLESS[module]:
                yield Finding(node.lineno, f"{module}.{name}: {_HARMFUL[module]}")


def _call_faults(tree: ast.Module) -> Iterator[Finding]:
    """Calls of functions that do nothing good here, unless the program has its own of that name."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id not in own:
            name = function.id
        elif isinstance(function, ast.Attribute) and ast.unparse(function) == "time.sleep":
            name = "sleep"
        else:
            continue
        if name in _FUNCTIONS:
            yield Finding(node.lineno, f"{name}(): {_FUNCTIONS[name]}")
