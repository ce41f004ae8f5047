"""Whether a test needs the program's objects in its own process, by the test's text alone.

Enters: a test's statements, the statements around it, the names that belong to the program. Leaves: yes or no. Where
this says no and the test hands over what is not plain data after all, the tester finds out.
"""

import ast
import builtins
import copy
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from text2grad.sandbox.inside.fakepytest import NAMES
from text2grad.sandbox.uses import SETUPS

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_PLAIN = {
    name
    for kind in (list, dict, set, tuple, str, bytes, int, float, complex, range, deque, Counter)
    for name in dir(kind)
}
_TYPES = {name for name, value in vars(builtins).items() if isinstance(value, type)}
_SHARED = {"open", "tempfile", "Path", "pathlib", "shutil", "os", "asyncio", "mock", "patch", "MagicMock", "Mock"}
_SHARED |= {"redirect_stdout", "threading", "weakref", "gc", "warnings", "logging", "builtins"}
_SHARED |= {"capsys", "caplog", "monkeypatch", "tmp_path"}
"""What a test uses to share files, streams, event loops or patches with the program: that takes one process."""
_WATCHES = {"redirect_stdout", "redirect_stderr", "warns", "deprecated_call", "catch_warnings"}
_WATCHES |= {"assertWarns", "assertWarnsRegex", "assertLogs", "assertNoLogs"}
"""What a test uses to see what the program says besides its results."""


def needs_objects(body: Sequence[ast.stmt], known: Iterable[str], around: Iterable[ast.stmt] = ()) -> bool:
    """Whether the test uses what it gets from the program as more than plain data: its attributes, its class, its
    identity, files or streams that both use. `around`: where its helpers, fixtures and set-up functions are defined;
    what those do, the test does."""
    around = list(around)
    modules = module_names([*around, *body])
    helpers = _helpers(body, around)
    shown = _Unqualified(modules)
    parts = [part for node in (*helpers, *body) for part in ast.walk(shown.visit(copy.deepcopy(node)))]
    made = {*known, *shown.found} - modules
    if _makes_objects(parts, made) or _keeps_objects(parts, made):
        return True
    made |= {node.name for node in helpers if isinstance(node, _FUNCTIONS) and _mentions(node, made)}
    for part in parts:
        if isinstance(part, ast.Assign) and _mentions(part.value, made):
            made.update(target.id for target in part.targets if isinstance(target, ast.Name))
    return any(
        (isinstance(part, ast.Name | ast.arg) and getattr(part, "id", getattr(part, "arg", "")) in _SHARED)
        or (isinstance(part, ast.Name) and part.id in _WATCHES)
        or (isinstance(part, ast.Attribute) and part.attr in ("stdout", "stdin", "environ", *_WATCHES))
        or (isinstance(part, ast.Compare) and _asks_identity(part))
        or (isinstance(part, ast.Attribute) and _reaches_into(part, made))
        or (isinstance(part, ast.Call) and (_asks_class(part) or _calls_a_result(part, made)))
        for part in parts
    )


def module_names(nodes: Iterable[ast.stmt]) -> set[str]:
    """What the program's module is called: `solution`, and `s` after `import solution as s`."""
    imports = [part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Import)]
    return {alias.asname or "solution" for part in imports for alias in part.names if alias.name == "solution"} | {
        "solution"
    }


class _Unqualified(ast.NodeTransformer):
    """`solution.LRU` as `LRU`; `found` are such names."""

    def __init__(self, modules: set[str]) -> None:
        self.modules, self.found = modules, set[str]()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            self.found.add(node.attr)
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        self.generic_visit(node)
        return node


def lacks(test: ast.stmt, around: Iterable[ast.stmt]) -> str | None:
    """What of pytest the test uses, itself or by its helpers, that the sandbox does not have."""
    for node in (test, *_helpers([test], around)):
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and getattr(part.value, "id", "") == "pytest" and part.attr not in NAMES:
                return f"uses pytest.{part.attr}, which the sandbox does not have"
    return None


def _helpers(body: Iterable[ast.stmt], around: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Functions and classes of the tests that the test reaches by name (an argument may be a fixture's), and those that
    run for every test."""
    defined = {node.name: node for node in around if isinstance(node, _FUNCTIONS | ast.ClassDef)}
    own = {id(node) for node in body}
    left = [*body, *(node for node in defined.values() if node.name in SETUPS or _for_all(node))]
    found: dict[int, ast.stmt] = {}
    while left:
        node = left.pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        names = {getattr(part, "id", None) or getattr(part, "arg", None) for part in ast.walk(node)}
        left += [defined[name] for name in names if name in defined and not name.startswith("test")]
    return [node for key, node in found.items() if key not in own]


def _for_all(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """A fixture with `autouse`."""
    return any(
        isinstance(part, ast.keyword) and part.arg == "autouse"
        for mark in node.decorator_list
        for part in ast.walk(mark)
    )


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _calls_a_result(node: ast.Call, made: set[str]) -> bool:
    """`adder(3)(4)`: the program's result is a function."""
    return isinstance(node.func, ast.Call) and _mentions(node.func.func, made)


def _makes_objects(parts: Sequence[ast.AST], known: set[str]) -> bool:
    """Whether a name that looks like a class (`Stack`, not `Find_Max`) is used as one: its instances are kept, passed
    on or compared with each other. `Sum(60) == 10` is a function with an odd name."""
    classes = {name for name in known if name[:1].isupper() and "_" not in name and not name.isupper()}
    plain_calls = set()
    for part in parts:
        if isinstance(part, ast.Compare):
            sides = [side for side in (part.left, *part.comparators) if _mentions(side, classes)]
            if len(sides) == 1 and isinstance(sides[0], ast.Call):
                plain_calls.add(id(sides[0].func))
    return any(isinstance(part, ast.Name) and part.id in classes and id(part) not in plain_calls for part in parts)


def _keeps_objects(parts: Sequence[ast.AST], known: set[str]) -> bool:
    """Whether what a call gives is kept and its methods are called, though its name does not look like a class: any of
    them for `LRU`; for `stack` one as a statement of its own and one in an assert, which plain data rarely sees."""
    direct = [part.func.value for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)]
    makers = {call.func.id for call in direct if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
    if any(name.isupper() for name in makers & known):
        return True
    kept = _given(parts, known)
    for part in parts:
        made = part.value if isinstance(part, ast.Assign) else None
        if isinstance(part, ast.Assign) and isinstance(made, ast.Call) and isinstance(made.func, ast.Name):
            name = kept.get(made.func.id, made.func.id)
            kept.update((ast.unparse(target), name) for target in part.targets if name in known)
    if not kept:
        return False
    called = {owner for part in parts if (owner := _owner(part)) in kept}
    if any(kept[owner].isupper() for owner in called):
        return True
    alone = {_owner(part.value) for part in parts if isinstance(part, ast.Expr)}
    asserts = [part for part in parts if isinstance(part, ast.Assert) or _is_unittest(part)]
    asserted = {_owner(inner) for part in asserts for inner in ast.walk(part)}
    return bool(called & alone & asserted)


def _given(parts: Iterable[ast.AST], known: set[str]) -> dict[str, str]:
    """Functions of the tests, helpers and fixtures, that give what a call of the program gives: {helper: callee}."""
    found: dict[str, str] = {}
    for part in parts:
        if isinstance(part, _FUNCTIONS) and not part.name.startswith("test"):
            inner = list(ast.walk(part))
            calls = [node.func.id for node in inner if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
            if any(isinstance(node, ast.Return | ast.Yield) and node.value is not None for node in inner):
                found.update((part.name, name) for name in calls if name in known)
    return found


def _owner(node: ast.AST) -> str:
    """`a.b` of `a.b.method()`, or nothing."""
    return ast.unparse(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def _is_unittest(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("assert")


def _asks_identity(node: ast.Compare) -> bool:
    return any(
        isinstance(sign, ast.Is | ast.IsNot) and not isinstance(side, ast.Constant)
        for sign, side in zip(node.ops, node.comparators, strict=True)
    )


def _reaches_into(node: ast.Attribute, made: set[str]) -> bool:
    """`f(x).name`, `f.calls`: an attribute that plain data does not have, of something the program made."""
    if node.attr in _PLAIN:
        return False
    root = node.value
    if isinstance(root, ast.Name):
        return root.id in made
    return isinstance(root, ast.Call) and _mentions(root.func, made)


def _asks_class(node: ast.Call) -> bool:
    """`isinstance(f(x), Iterator)`, `hasattr(f(x), "send")`: a question about more than built-in types."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("isinstance", "issubclass") and len(node.args) == 2:
        return not {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)} <= _TYPES
    return name in ("hasattr", "getattr", "setattr", "isgenerator", "isgeneratorfunction")
