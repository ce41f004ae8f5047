"""What a test needs, by its text alone: whether it can fail at all, and whether it needs the program's live objects.

Enters: a test's statements and those around it. Leaves: yes or no, or a reason. What the text does not show, the tester
finds out while the test runs (`inside/remote.py`).
"""

import ast
from collections.abc import Collection, Iterable, Sequence

from text2grad.sandbox.inside.asserts import is_check, is_failure

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_FOR_ALL = {"setup_module", "setUpModule", "setup_function"}
"""Functions that run before every test."""
_SHARED = {"open", "tempfile", "Path", "pathlib", "shutil", "os", "asyncio", "mock", "patch", "MagicMock", "Mock"}
_SHARED |= {"threading", "weakref", "gc", "warnings", "logging", "builtins", "stdout", "stderr", "stdin", "environ"}
_SHARED |= {"redirect_stdout", "redirect_stderr", "warns", "deprecated_call", "catch_warnings", "recwarn"}
_SHARED |= {"assertWarns", "assertWarnsRegex", "assertLogs", "assertNoLogs"}
_SHARED |= {"capsys", "capfd", "caplog", "monkeypatch", "tmp_path", "tmpdir", "tmp_path_factory"}
"""By these a test shares files, streams, warnings, event loops or patches with the program."""


def reached(test: Sequence[ast.stmt], around: Iterable[ast.stmt]) -> list[ast.AST]:
    """All nodes of a test and of what the tests define and the test names: helpers, classes, fixtures (an argument may
    name one), and functions that run before every test."""
    around = [*around]
    parts = [part for node in around for part in ast.walk(node)]
    defined = {part.name: part for part in parts if isinstance(part, FUNCTIONS | ast.ClassDef)}
    functions = [node for node in around if isinstance(node, FUNCTIONS)]
    left: list[ast.AST] = [*test, *(node for node in functions if node.name in _FOR_ALL or _autouse(node))]
    seen: dict[int, ast.AST] = {}
    while left:
        for part in ast.walk(left.pop()):
            if id(part) in seen:
                continue
            seen[id(part)] = part
            name = _name(part)
            if name in defined and not name.startswith("test"):
                left.append(defined[name])
    return list(seen.values())


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.arg) else ""


def _autouse(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = [part for mark in node.decorator_list for part in ast.walk(mark)]
    return any(isinstance(part, ast.keyword) and part.arg == "autouse" for part in marks)


def checks(nodes: Iterable[ast.AST]) -> bool:
    """Whether anything here can fail a test on a result."""
    return any(is_check(part) or is_failure(part) for part in nodes)


def needs_objects(nodes: Sequence[ast.AST], program: Collection[str]) -> str:
    """Why the test needs the program's objects in its own process; `program` are names that belong to the program."""
    for part in nodes:
        if (name := _name(part)) in _SHARED:
            return f"it shares `{name}` with the program"
        if isinstance(part, ast.Compare) and _asks_identity(part):
            return "it compares objects by identity"
    return f"it uses the class `{name}`" if (name := _used_class(nodes, program)) else ""


def mentions_program(nodes: Iterable[ast.AST], program: Collection[str]) -> bool:
    """By one of its names, or as a module in a text: `patch("solution.f")`."""
    return any(
        _name(part) in program or (isinstance(part, ast.Constant) and str(part.value).partition(".")[0] == "solution")
        for part in nodes
    )


def _asks_identity(node: ast.Compare) -> bool:
    pairs = zip(node.ops, node.comparators, strict=True)
    return any(isinstance(sign, ast.Is | ast.IsNot) and not isinstance(side, ast.Constant) for sign, side in pairs)


def _used_class(nodes: Sequence[ast.AST], program: Collection[str]) -> str:
    """A name that looks like a class (`Stack`, not `Find_Max`) and is used as one: its instances are kept, passed on or
    compared with each other. `Sum(60) == 10` is a function with an odd name."""
    classes = {name for name in program if name[:1].isupper() and "_" not in name and not name.isupper()}
    plain_calls = set()
    for part in nodes:
        if isinstance(part, ast.Compare):
            sides = [side for side in (part.left, *part.comparators) if _mentions(side, classes)]
            if len(sides) == 1 and isinstance(sides[0], ast.Call):
                plain_calls.add(id(sides[0].func))
    names = [part.id for part in nodes if isinstance(part, ast.Name) and id(part) not in plain_calls]
    return next((name for name in names if name in classes), "")


def _mentions(node: ast.AST, names: Collection[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
