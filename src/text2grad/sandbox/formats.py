"""Tests as data sets publish them → a `Plan`: one unit per test.

Enters: a list of asserts (MBPP), code with `check(candidate)` (HumanEval), pytest or unittest functions that import
from `solution` (KodCode), or plain code with asserts. Leaves: a `Plan`, or a reason why there is none. Reads the tests,
never the program.
"""

import ast
import builtins
import keyword
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from text2grad.sandbox.inside.asserts import is_check, is_failure, mentions

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = _FUNCTIONS | ast.ClassDef
_UNCHECKED = "checks nothing: no assert, no expected exception"
_Step = tuple[list[ast.stmt], list[ast.stmt]]
"""(statements that lead to a test, the test)."""

_FOR_ALL = {"setup_module", "setUpModule", "setup_function"}
"""Functions that run before every test."""
_SHARED = {"open", "tempfile", "Path", "pathlib", "shutil", "os", "asyncio", "mock", "patch", "MagicMock", "Mock"}
_SHARED |= {"threading", "weakref", "gc", "warnings", "logging", "builtins", "stdout", "stderr", "stdin", "environ"}
_SHARED |= {"redirect_stdout", "redirect_stderr", "warns", "deprecated_call", "catch_warnings", "recwarn"}
_SHARED |= {"assertWarns", "assertWarnsRegex", "assertLogs", "assertNoLogs"}
_SHARED |= {"capsys", "capfd", "caplog", "monkeypatch", "tmp_path", "tmp_path_factory", "tmpdir", "tmpdir_factory"}
_SHARED |= {"StopIteration", "StopAsyncIteration"}
"""By these a test shares files, streams, warnings, event loops, patches or the ends of iterators with the program."""


class UnusableTests(ValueError):
    """Why the tests cannot be run, whatever the program."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One test: code to run, or a test function of the plan's module."""

    name: str
    source: str = ""
    function: str = ""
    objects: str = ""
    """Why it needs the program's objects in its own process; empty where plain data will do."""


@dataclass(frozen=True, slots=True)
class Plan:
    setup: str
    """Runs before each unit that is code."""
    module: str
    """The test file, which holds the units that are functions."""
    by_pytest: bool
    """Whether its functions need pytest; otherwise they are called."""
    units: tuple[Unit, ...]
    names: tuple[tuple[str, str], ...]
    """(name in the tests, name in the program) of what the tests use without importing it."""
    wanted: tuple[str, ...]
    """What the program should define."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(name, reason) of what looks like a test and is none."""


def plan(tests: str | Sequence[str], setup: str = "", entry_point: str | None = None) -> Plan:
    """Read tests of any of the formats.

    >>> plan(["assert add(2, 3) == 5", "assert add(0, 0) == 0"]).wanted
    ('add',)
    >>> [unit.name for unit in plan("def check(candidate):\\n    assert candidate(1) == 2", entry_point="f").units]
    ['assert candidate(1) == 2']
    >>> [unit.function for unit in plan("from solution import f\\ndef test_f():\\n    assert f(1) == 2").units]
    ['test_f']
    """
    return _read(tests if isinstance(tests, str) else tuple(tests), setup, entry_point)


@lru_cache(maxsize=1024)
def _read(tests: str | tuple[str, ...], setup: str, entry_point: str | None) -> Plan:
    """Kept, because the completions of a prompt share it."""
    before = _parsed(setup, "the set-up of the tests").body
    if isinstance(tests, str):
        body = _parsed(tests, "the tests").body
        check = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
        if check is not None and len(check.args.args) == 1:
            return _from_check([*before, *(node for node in body if node is not check)], check, entry_point)
        return _from_code([*before, *body], entry_point)
    bodies = [_parsed(item, f"test {index + 1}").body for index, item in enumerate(tests)]
    everything = [*before, *(node for body in bodies for node in body)]
    asserting = _asserting(everything)
    steps: list[_Step] = []
    lead: list[ast.stmt] = []
    for body in bodies:
        if any(_checks(node, asserting) for node in body):
            steps.append(([*lead], body))
        else:
            lead += body  # what asserts nothing leads to what comes next, and cannot be passed
    if not steps and any(_test_functions(everything)):
        return _from_code(everything, entry_point)
    return _plan(before, steps, everything, _taken(everything, entry_point))


def _parsed(source: str, what: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise UnusableTests(f"{what}: should be Python, got {problem}") from None


def _from_check(around: list[ast.stmt], check: ast.FunctionDef, entry_point: str | None) -> Plan:
    """HumanEval: the asserts of `check`, whose argument stands for the entry point."""
    if not entry_point:
        raise UnusableTests(
            "tests of the form `check(candidate)` need `entry_point`, the name of the function to check"
        )
    if not entry_point.isidentifier() or keyword.iskeyword(entry_point):
        raise UnusableTests(f"entry_point: should be a name, got {entry_point!r}")
    around = [node for node in around if _called(node) != "check"]
    argument = check.args.args[0].arg
    taken = {entry_point: entry_point, **_taken([*around, *check.body], entry_point, {argument})}
    steps = list(_steps(check.body, _asserting(around)))
    if any(isinstance(part, ast.Return) for node in check.body for part in ast.walk(node)):
        steps = [([], [check, *ast.parse(f"check({entry_point})").body])]
    return _plan(around, steps, [*around, check], {**taken, argument: entry_point})


def _from_code(body: list[ast.stmt], entry_point: str | None) -> Plan:
    """pytest and unittest functions, each a test; and asserts at the top, each a test with what leads to it."""
    functions = dict(_test_functions(body))
    body = [node for node in body if not (_is_main(node) or _called(node) in functions)]
    steps = list(_steps(body, _asserting(body) - {*functions}))
    asserts = {id(node) for _, nodes in steps for node in nodes}
    module = [node for node in body if id(node) not in asserts]
    return _plan([], steps, body, _taken(body, entry_point), functions, module)


def _plan(
    setup: Sequence[ast.stmt],
    steps: Iterable[_Step],
    everything: Sequence[ast.stmt],
    names: dict[str, str],
    functions: dict[str, list[ast.stmt]] | None = None,
    module: Sequence[ast.stmt] = (),
) -> Plan:
    imported = _imported(everything)
    program = [*names, *imported]
    units: list[Unit] = []
    skipped: list[tuple[str, str]] = []
    around = _Around(everything)
    for name, nodes in (functions or {}).items():
        parts = around.reached(nodes)
        if any(is_check(part) or is_failure(part) for part in parts):
            units.append(Unit(name, "", name, _needs_objects(parts, program)))
        else:
            skipped.append((name, _UNCHECKED))
    for lead, shown in steps:
        source, name = _unparsed([*lead, *shown]), _unparsed(shown)[:300]
        units.append(Unit(name, source, "", _needs_objects(around.reached([*lead, *shown]), program)))
    if not units and skipped:
        raise UnusableTests("no test is left: " + "; ".join(f"{name[:60]}: {reason}" for name, reason in skipped[:5]))
    if not units:
        raise UnusableTests("the tests assert nothing: no assert and no test function was found")
    borrowed = ast.parse("\n".join(f"import {name}" for name in _borrowed(everything))).body
    taken = ast.parse(f"from solution import {', '.join(names)}" if names else "").body
    wanted = dict.fromkeys([*names.values(), *(name for name in imported if name not in ("*", "solution"))])
    return Plan(
        setup=_unparsed([*borrowed, *setup]),
        module=_unparsed([*borrowed, *taken, *module]) if functions else "",
        by_pytest=_needs_pytest(module),
        units=tuple(units),
        names=tuple(names.items()),
        wanted=tuple(wanted),
        skipped=tuple(skipped),
    )


def _unparsed(body: Iterable[ast.stmt]) -> str:
    """As text, imports from the future first."""
    ordered = sorted(body, key=lambda node: not (isinstance(node, ast.ImportFrom) and node.module == "__future__"))
    return ast.unparse(ast.Module(ordered, []))


def _asserting(body: Iterable[ast.stmt]) -> set[str]:
    """Functions that assert something when they are called."""
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and _asserts(node)}


def _checks(node: ast.stmt, asserting: Collection[str]) -> bool:
    """Whether running the statement asserts something; to define a function that does is not to run it."""
    if isinstance(node, _DEFINITIONS):
        return False
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return _asserts(node) or any(isinstance(call, ast.Name) and call.id in asserting for call in calls)


def _asserts(node: ast.AST) -> bool:
    return any(is_check(part) for part in ast.walk(node))


def _called(node: ast.stmt) -> str | None:
    """The function's name, where the statement is a bare call."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        return node.value.func.id
    return None


def _steps(body: Sequence[ast.stmt], asserting: Collection[str] = ()) -> Iterator[_Step]:
    """Each statement that asserts something, itself or by a call, with what leads to it."""
    asserting = {*asserting, *_asserting(body)}
    lead: list[ast.stmt] = []
    for node in body:
        if _checks(node, asserting):
            yield [*lead], [node]
        else:
            lead.append(node)


def _test_functions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    """(name, [function, what else its class defines])."""
    for node in body:
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            yield node.name, [node]
        elif isinstance(node, ast.ClassDef):
            tests = [inner for inner in node.body if isinstance(inner, _FUNCTIONS) and inner.name.startswith("test")]
            rest = [inner for inner in node.body if inner not in tests]
            bases: list[ast.stmt] = [ast.Expr(base) for base in node.bases]
            yield from ((f"{node.name}.{test.name}", [test, *rest, *bases]) for test in tests)


def _needs_pytest(module: Sequence[ast.stmt]) -> bool:
    """Whether pytest does more with a test file than to call its functions: arguments, marks, generators, set-up,
    methods. Also where pytest is named, because its import takes long in an interpreter that has not done it."""
    for node in module:
        if isinstance(node, ast.ClassDef) and any(_test_functions([node])):
            return True
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            odd = isinstance(node, ast.AsyncFunctionDef) or node.decorator_list or ast.unparse(node.args)
            if odd or any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node)):
                return True
    return any(word in _unparsed(module).lower() for word in ("pytest", "__test__", "setup", "teardown"))


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, `unittest.main()`."""
    text = ast.unparse(node) if isinstance(node, ast.If | ast.Expr) else ""
    return text.startswith("if __name__") or text in ("unittest.main()", "pytest.main()")


def _taken(body: Sequence[ast.stmt], entry_point: str | None, bound: Iterable[str] = ()) -> dict[str, str]:
    """Names that the tests use and nobody but the program can define. A program cannot take the place of `len`: a
    built-in's name counts only if it is the entry point, or if nothing else can be what is tested."""
    known = {*dir(builtins), *bound, *_borrowed(body)} - {entry_point or ""}
    taken = [name for name in _free(body) if name not in known]
    if not (taken or entry_point or _imported(body)):
        # A function named as a built-in one (`sum(10, 15) == 6`): the first that an assert calls.
        calls = [part for node in body if _asserts(node) for part in ast.walk(node) if isinstance(part, ast.Call)]
        taken = [part.func.id for part in calls if isinstance(part.func, ast.Name)][:1]
    return {name: name for name in taken}


def _free(body: Iterable[ast.stmt]) -> list[str]:
    """Names that are read and never bound, built-in ones included."""
    bound: set[str] = set()
    used: dict[str, None] = {}
    for part in (part for node in body for part in ast.walk(node)):
        if isinstance(part, ast.Name):
            if isinstance(part.ctx, ast.Load):
                used[part.id] = None
            else:
                bound.add(part.id)
        elif isinstance(part, _DEFINITIONS):
            bound.add(part.name)
        elif isinstance(part, ast.arg):
            bound.add(part.arg)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in part.names)
        elif isinstance(part, ast.ExceptHandler) and part.name:
            bound.add(part.name)
    return [name for name in used if name not in bound]


def _borrowed(body: Sequence[ast.stmt]) -> list[str]:
    """Modules of the standard library that the tests use without importing them, as the published solution did."""
    parts = [part for node in body for part in ast.walk(node)]
    called = {part.func.id for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    owners = {part.value.id for part in parts if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)}
    return [name for name in _free(body) if name in sys.stdlib_module_names and name in owners - called]


def _imported(body: Iterable[ast.stmt]) -> list[str]:
    """Names that come from the program by import."""
    names: list[str] = []
    for part in (part for node in body for part in ast.walk(node)):
        if isinstance(part, ast.ImportFrom) and part.module == "solution":
            names += [alias.asname or alias.name for alias in part.names]
        elif isinstance(part, ast.Import):
            names += [alias.asname or "solution" for alias in part.names if alias.name == "solution"]
    return names


# ------------------------------------------------------------------------- what a test needs, by its text alone
# What the text does not show, the tester finds out while the test runs (`inside/remote.py`).


class _Around:
    """What stands around a test."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        parts = [part for node in body for part in ast.walk(node)]
        self.defined = {part.name: part for part in parts if isinstance(part, _DEFINITIONS)}
        functions = [node for node in body if isinstance(node, _FUNCTIONS)]
        self.for_all = [node for node in functions if node.name in _FOR_ALL or _autouse(node)]

    def reached(self, test: Sequence[ast.stmt]) -> list[ast.AST]:
        """All nodes of a test and of what the tests define and the test names: helpers, classes, fixtures (an argument
        may name one), and functions that run before every test."""
        left: list[ast.AST] = [*test, *self.for_all]
        seen: dict[int, ast.AST] = {}
        while left:
            for part in ast.walk(left.pop()):
                if id(part) in seen:
                    continue
                seen[id(part)] = part
                name = _name(part)
                if name in self.defined and not name.startswith("test"):
                    left.append(self.defined[name])
        return list(seen.values())


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.arg if isinstance(node, ast.arg) else ""


def _autouse(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = [part for mark in node.decorator_list for part in ast.walk(mark)]
    return any(isinstance(part, ast.keyword) and part.arg == "autouse" for part in marks)


def _needs_objects(nodes: Sequence[ast.AST], program: Collection[str]) -> str:
    """Why the test needs the program's objects in its own process; `program` are names that belong to the program."""
    for part in nodes:
        if (name := _name(part)) in _SHARED:
            return f"it shares `{name}` with the program"
        for sign, side in zip(part.ops, part.comparators, strict=True) if isinstance(part, ast.Compare) else ():
            if isinstance(sign, ast.Is | ast.IsNot) and not isinstance(side, ast.Constant):
                return "it compares objects by identity"
    return f"it uses the class `{name}`" if (name := _used_class(nodes, program)) else ""


def _used_class(nodes: Sequence[ast.AST], program: Collection[str]) -> str:
    """A name that looks like a class (`Stack`, not `Find_Max`) and is used as one: its instances are kept, passed on or
    compared with each other. `Sum(60) == 10` is a function with an odd name."""
    classes = {name for name in program if name[:1].isupper() and "_" not in name and not name.isupper()}
    plain_calls = set()
    for part in nodes:
        if isinstance(part, ast.Compare):
            sides = [side for side in (part.left, *part.comparators) if mentions(side, classes)]
            if len(sides) == 1 and isinstance(sides[0], ast.Call):
                plain_calls.add(id(sides[0].func))
    names = [part.id for part in nodes if isinstance(part, ast.Name) and id(part) not in plain_calls]
    return next((name for name in names if name in classes), "")
