"""Whether a test puts the program to the test at all.

Enters: a test's statements, all statements around it, the names that belong to the program. Leaves: yes, or why not. A
test that never uses the program (`assert True`), is never run (a generator, a coroutine) or has no rows would count as
passed by any program, an empty one included.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence

from text2grad.sandbox.inside.asserts import is_check, is_failure

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
UNUSED = "never uses the program"
UNCHECKED = "checks nothing: no assert, no expected exception"
SETUPS = {"setup_module", "setUpModule", "setup_function"}
"""Functions that run before every test of a module."""


def parts_of(node: ast.AST, inner: bool = True) -> Iterator[ast.AST]:
    """As `ast.walk`, without the messages of asserts, which a passing test never computes; `inner`: functions defined
    in there, too."""
    left = [node]
    while left:
        part = left.pop()
        yield part
        if isinstance(part, ast.Assert):
            left.append(part.test)
        elif inner or part is node or not isinstance(part, _FUNCTIONS | ast.Lambda):
            left += ast.iter_child_nodes(part)


def never_runs(node: ast.AST) -> str | None:
    """Why calling this test function runs nothing of it."""
    if isinstance(node, ast.AsyncFunctionDef):
        return "a coroutine, which needs a plug-in of pytest"
    if any(isinstance(part, ast.Yield | ast.YieldFrom) for part in parts_of(node, inner=False)):
        return "a generator, which pytest does not run"
    return None


def may_check(test: ast.AST, around: Iterable[ast.stmt]) -> bool:
    """Whether the test, or a function of the tests that it names, holds anything that can fail it on a result."""
    parts = [part for node in around for part in ast.walk(node)]
    defined = {part.name: part for part in parts if isinstance(part, _FUNCTIONS | ast.ClassDef)}
    left, seen = [test], set[str]()
    while left:
        for part in ast.walk(left.pop()):
            if is_check(part) or is_failure(part):
                return True
            name = getattr(part, "id", None) or getattr(part, "attr", None) or getattr(part, "arg", None)
            if name in defined and name not in seen:
                seen.add(name)
                left.append(defined[name])
    return False


def _names(node: ast.AST) -> set[str]:
    """Names in there: arguments too, which may be fixtures; attributes of `self`; modules named in a text."""
    found = set()
    for part in parts_of(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.arg):
            found.add(part.arg)
        elif isinstance(part, _FUNCTIONS | ast.ClassDef):
            found.add(part.name)
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in ("self", "cls"):
            found.add(f"self.{part.attr}")
        elif isinstance(part, ast.Constant) and str(part.value).partition(".")[0] == "solution":
            found.add("solution")  # `patch("solution.f")`, `import_module("solution")`
    return found


def reached(around: Iterable[ast.stmt], known: Iterable[str]) -> set[str]:
    """Names that have to do with the program: its own, and what stands in a statement with one of those. Generous: a
    list that a function of the program sorts in place is one of them."""
    nodes = list(around)
    common = {*dir(builtins), "self", "cls", *_modules(nodes)} - {*known}
    told = [(names - common, gives - common) for node in nodes for names, gives in _told(node)]
    found = {*known, "solution"}
    while True:
        more = set().union(*(gives for names, gives in told if names & found)) - found
        if not more:
            return found
        found |= more


def _told(node: ast.stmt) -> Iterator[tuple[set[str], set[str]]]:
    """(names that a statement uses, names that then have to do with them). A test says nothing about its neighbours;
    of a function only its name is seen outside, of a method what it gives to `self`."""
    if isinstance(node, _FUNCTIONS):
        if not node.name.startswith("test"):
            outer = {name for part in ast.walk(node) if isinstance(part, ast.Global) for name in part.names}
            yield _names(node), _names(node) if node.name in SETUPS else {node.name, *outer}
    elif isinstance(node, ast.ClassDef):
        yield _names(node), {node.name}
        for inner in node.body:
            names = _names(inner)
            if isinstance(inner, _FUNCTIONS):
                kept = {name for name in names if name.startswith("self.") and not name.startswith("self.assert")}
                if not inner.name.startswith("test"):
                    yield names, {*kept, f"self.{inner.name}"}
            else:
                yield names, {f"self.{name}" for name in names}
    else:
        names = _names(node)
        yield names, names


def _modules(nodes: Iterable[ast.stmt]) -> set[str]:
    imports = [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)]
    foreign = [part for part in imports if not (isinstance(part, ast.ImportFrom) and part.module == "solution")]
    return {(alias.asname or alias.name).partition(".")[0] for part in foreign for alias in part.names} - {"solution"}


def uses(test: Sequence[ast.AST], lead: Iterable[ast.stmt], found: set[str]) -> bool:
    """Whether the test asks about the program, or about the world (a file) after a call of the program led to it."""
    if any(_names(node) & found for node in test):
        return True
    calls = any(isinstance(part, ast.Call) for node in test for part in parts_of(node))
    return calls and any(_names(node) & found for node in lead if not isinstance(node, _FUNCTIONS | ast.ClassDef))
