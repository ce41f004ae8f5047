"""Tests as data sets publish them → a `Plan`: set-up code, and one unit a test.

Enters: a list of asserts (MBPP), code with `check(candidate)` (HumanEval), pytest or unittest functions that import
from `solution` (KodCode), or plain code with asserts. Leaves: a `Plan`, or a reason why there is none. Reads the tests,
never the program: a test that says by its text that it needs live objects is never run in any other way.
"""

import ast
import builtins
import keyword
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from text2grad.sandbox.inside.asserts import is_check
from text2grad.sandbox.live import lacks, needs_objects
from text2grad.sandbox.uses import UNCHECKED, UNUSED, may_check, never_runs, reached, uses

_OWN = {"solution", "pytest"}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = _FUNCTIONS | ast.ClassDef


class UnusableTests(ValueError):
    """Why the tests cannot be run, whatever the program."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One test: code to run, or the name of a test function that the set-up defines."""

    name: str
    source: str
    function: str = ""
    live: bool = False
    """Whether it needs the program's objects in its own process."""


@dataclass(frozen=True, slots=True)
class Plan:
    setup: str
    """Runs before each test; does not call the program."""
    units: tuple[Unit, ...]
    names: tuple[str, ...]
    """What the tests take from the program without importing it."""
    imports: tuple[str, ...]
    """Modules that the tests import."""
    wanted: tuple[str, ...]
    """What the tests take from the program in either way."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(name, reason) of what looks like a test and is none."""


def plan(tests: str | Sequence[str], setup: str = "", entry_point: str | None = None) -> Plan:
    """Read tests of any of the formats.

    >>> plan(["assert add(2, 3) == 5", "assert add(0, 0) == 0"]).names
    ('add',)
    >>> [unit.name for unit in plan("def check(candidate):\\n    assert candidate(1) == 2", entry_point="f").units]
    ['assert candidate(1) == 2']
    >>> [unit.function for unit in plan("from solution import f\\ndef test_f():\\n    assert f(1) == 2").units]
    ['test_f']
    """
    before = _parsed(setup, "the set-up of the tests").body
    if isinstance(tests, str):
        body = _parsed(tests, "the tests").body
        check = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"), None)
        if check is not None and len(check.args.args) == 1:
            return _from_check([*before, *(node for node in body if node is not check)], check, entry_point)
        return _from_code([*before, *body], entry_point)
    bodies = [_parsed(item, f"test {index + 1}").body for index, item in enumerate(tests)]
    everything = [*before, *(node for body in bodies for node in body)]
    taken = _taken(everything, entry_point)
    pure, tainted = _split(before, taken)
    known = [*taken, *_imported(everything)]
    asserting = _asserting(everything)
    units, skipped = [], []
    lead: list[ast.stmt] = []
    for body in bodies:
        if not any(_checks(node, asserting) for node in body):
            lead += body  # what asserts nothing leads to what comes next, and cannot be passed
            continue
        unit = _unit([*tainted, *lead, *body], body, taken, before)
        if uses(body, [*tainted, *lead], reached([*before, *lead], known)):
            units.append(unit)
        else:
            skipped.append((unit.name, UNUSED))
    if not (units or skipped) and any(_test_functions(everything)):
        return _from_code(everything, entry_point)
    return _plan(pure, units, taken, everything, skipped)


def _parsed(source: str, what: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise UnusableTests(f"{what}: should be Python, got {problem}") from None


def _from_check(around: list[ast.stmt], check: ast.FunctionDef, entry_point: str | None) -> Plan:
    """HumanEval: the asserts of `check`, with its argument bound to the entry point."""
    if not entry_point:
        raise UnusableTests(
            "tests of the form `check(candidate)` need `entry_point`, the name of the function to check"
        )
    if not entry_point.isidentifier() or keyword.iskeyword(entry_point):
        raise UnusableTests(f"entry_point: should be a name, got {entry_point!r}")
    around = [node for node in around if _called(node) != "check"]
    argument = check.args.args[0].arg
    taken = [*dict.fromkeys([entry_point, *_taken([*around, *check.body], entry_point, {argument})])]
    pure, tainted = _split(around, taken)
    bind = ast.parse(f"{argument} = {entry_point}").body
    known = [*taken, argument]
    if reason := never_runs(check):
        raise UnusableTests(f"check: {reason}")
    if any(isinstance(part, ast.Return) for node in check.body for part in ast.walk(node)):
        whole = [check, *ast.parse(f"check({entry_point})").body]
        return _plan(pure, [_unit([*tainted, *whole], [check], known, around)], taken, [*around, check])
    units, skipped = [], []
    for lead, node in _steps(check.body, _asserting(around)):
        unit = _unit([*tainted, *bind, *lead, node], [node], known, around)
        if uses([node], [*tainted, *lead], reached([*around, *lead], [*known, *_imported([*around, check])])):
            units.append(unit)
        else:
            skipped.append((unit.name, UNUSED))
    return _plan(pure, units, taken, [*around, check], skipped)


def _from_code(body: list[ast.stmt], entry_point: str | None) -> Plan:
    """pytest and unittest functions, each a test; and asserts at the top, each a test with what leads to it."""
    functions = list(_test_functions(body))
    called = {name for name, _, _ in functions}
    body = [node for node in body if not (_is_main(node) or _called(node) in called)]
    taken = _taken(body, entry_point)
    known = [*taken, *_imported(body)]
    steps = list(_steps([node for node in body if not isinstance(node, _DEFINITIONS)], _asserting(body) - called))
    stepped = {id(node) for _, node in steps}
    rest = [node for node in body if id(node) not in stepped]
    pure, tainted = _split(rest, known)
    lead_in = ast.unparse(ast.Module(tainted, []))
    found = reached(rest, known)
    units: list[Unit] = []
    skipped: list[tuple[str, str]] = []
    for name, holder, node in functions:
        reason = never_runs(node) or (None if uses([node], tainted, found) else UNUSED)
        reason = reason or lacks(node, body) or (None if may_check(node, body) else UNCHECKED)
        if reason is None:
            units.append(Unit(name, lead_in, name, needs_objects([*tainted, holder], known, body)))
        else:
            skipped.append((name, reason))
    for lead, node in steps:
        unit = _unit([*(step for step in lead if step in tainted), node], [node], known, body)
        if uses([node], lead, found):
            units.append(unit)
        else:
            skipped.append((unit.name, UNUSED))
    return _plan(pure, units, taken, body, skipped)


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


def _steps(body: Sequence[ast.stmt], asserting: Collection[str] = ()) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """(statements that lead to it, statement) of each statement that asserts something, itself or by a call."""
    asserting = {*asserting, *_asserting(body)}
    lead: list[ast.stmt] = []
    for node in body:
        if _checks(node, asserting):
            yield list(lead), node
        else:
            lead.append(node)


def _test_functions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt, ast.stmt]]:
    """(name, statement at the top, function)."""
    for node in body:
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            yield node.name, node, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, _FUNCTIONS) and inner.name.startswith("test"):
                    yield f"{node.name}.{inner.name}", node, inner


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, `unittest.main()`."""
    text = ast.unparse(node) if isinstance(node, ast.If | ast.Expr) else ""
    return text.startswith("if __name__") or text in ("unittest.main()", "pytest.main()")


def _taken(body: Sequence[ast.stmt], entry_point: str | None, bound: Iterable[str] = ()) -> list[str]:
    """Names that the tests use and nobody but the program can define. A program cannot take the place of `len`: a
    built-in's name counts only if it is the entry point, or if nothing else can be what is tested."""
    known = {*dir(builtins), *bound, *_borrowed(body)} - {entry_point or ""}
    taken = [name for name in _free(body) if name not in known]
    if not (taken or entry_point or _imported(body)):
        # A function named as a built-in one (`sum(10, 15) == 6`): the first that an assert calls.
        calls = [part for node in body if _asserts(node) for part in ast.walk(node) if isinstance(part, ast.Call)]
        taken = [part.func.id for part in calls if isinstance(part.func, ast.Name)][:1]
    return taken


def _free(body: Iterable[ast.stmt]) -> list[str]:
    """Names that are read and never bound, built-in ones included."""
    bound: set[str] = set()
    used: dict[str, None] = {}
    for node in body:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                if isinstance(part.ctx, ast.Load):
                    used[part.id] = None
                else:
                    bound.add(part.id)
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
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
    reached = {part.value.id for part in parts if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)}
    return [name for name in _free(body) if name in sys.stdlib_module_names and name in reached - called]


def _imported(body: Iterable[ast.stmt]) -> list[str]:
    """Names that come from the program by import."""
    found: list[str] = []
    for node in body:
        for part in ast.walk(node):
            if isinstance(part, ast.ImportFrom) and part.module == "solution":
                found += [alias.asname or alias.name for alias in part.names]
            elif isinstance(part, ast.Import):
                found += [alias.asname or "solution" for alias in part.names if alias.name == "solution"]
    return found


def _split(body: Iterable[ast.stmt], taken: Iterable[str]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Statements that do not touch the program, and those that do, or use what those made; imports from `solution`
    and definitions run nothing of it."""
    touched = set(taken)
    pure: list[ast.stmt] = []
    tainted: list[ast.stmt] = []
    for node in body:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            if isinstance(node, ast.ImportFrom) and node.module == "solution":
                continue
            pure.append(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom) or not names & touched:
            pure.append(node)
        else:
            tainted.append(node)
            touched |= {
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
    return pure, tainted


def _unit(body: list[ast.stmt], shown: list[ast.stmt], known: Iterable[str], around: Iterable[ast.stmt]) -> Unit:
    source = ast.unparse(ast.Module(body, []))
    return Unit(ast.unparse(ast.Module(shown, []))[:300], source, "", needs_objects(body, known, around))


def _plan(
    pure: list[ast.stmt],
    units: list[Unit],
    taken: list[str],
    everything: Sequence[ast.stmt],
    skipped: Sequence[tuple[str, str]] = (),
) -> Plan:
    if not units and skipped:
        raise UnusableTests("no test is left: " + "; ".join(f"{name[:60]}: {reason}" for name, reason in skipped[:5]))
    if not units:
        raise UnusableTests("the tests assert nothing: no assert and no test function was found")
    imports: dict[str, None] = {}
    for node in everything:
        for part in ast.walk(node):
            if isinstance(part, ast.Import):
                imports.update(dict.fromkeys(alias.name.partition(".")[0] for alias in part.names))
            elif isinstance(part, ast.ImportFrom) and part.module and not part.level:
                imports[part.module.partition(".")[0]] = None
    modules = tuple(name for name in imports if name not in _OWN)
    wanted = tuple(dict.fromkeys([*taken, *(name for name in _imported(everything) if name not in ("*", "solution"))]))
    borrowed = "\n".join(f"import {name}" for name in _borrowed(everything))
    setup = _futures_first([*ast.parse(borrowed).body, *pure])
    return Plan(ast.unparse(ast.Module(setup, [])), tuple(units), tuple(taken), modules, wanted, tuple(skipped))


def _futures_first(body: list[ast.stmt]) -> list[ast.stmt]:
    return sorted(body, key=lambda node: not (isinstance(node, ast.ImportFrom) and node.module == "__future__"))
