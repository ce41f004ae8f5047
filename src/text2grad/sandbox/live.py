"""Whether a test needs the program's objects in its own process, by the test's text alone.

Enters: a test's statements, the names that belong to the program. Leaves: yes or no. Where this says no and the test
hands over what is not plain data after all, the tester finds out.
"""

import ast
import builtins
from collections import Counter, deque
from collections.abc import Iterable, Sequence

_PLAIN = {
    name
    for kind in (list, dict, set, tuple, str, bytes, int, float, complex, range, deque, Counter)
    for name in dir(kind)
}
_TYPES = {name for name, value in vars(builtins).items() if isinstance(value, type)}
_SHARED = {"open", "tempfile", "Path", "pathlib", "shutil", "os", "asyncio", "mock", "patch", "MagicMock", "Mock"}
_SHARED |= {"redirect_stdout", "threading", "weakref", "gc"}
"""What a test uses to share files, streams, event loops or patches with the program: that takes one process."""


def needs_objects(body: Sequence[ast.stmt], known: Iterable[str]) -> bool:
    """Whether the test uses what it gets from the program as more than plain data: its attributes, its class, its
    identity, files or streams that both use."""
    parts = [part for node in body for part in ast.walk(node)]
    made = set(known)
    if _makes_objects(parts, made) or _keeps_objects(parts, made):
        return True
    for part in parts:
        if isinstance(part, ast.Assign) and _mentions(part.value, made):
            made.update(target.id for target in part.targets if isinstance(target, ast.Name))
    return any(
        (isinstance(part, ast.Name) and part.id in _SHARED)
        or (isinstance(part, ast.Attribute) and part.attr in ("stdout", "stdin", "environ", "redirect_stdout"))
        or (isinstance(part, ast.Compare) and _asks_identity(part))
        or (isinstance(part, ast.Attribute) and _reaches_into(part, made))
        or (isinstance(part, ast.Call) and (_asks_class(part) or _calls_a_result(part, made)))
        for part in parts
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
    kept: dict[str, str] = {}
    for part in parts:
        made = part.value if isinstance(part, ast.Assign) else None
        if isinstance(part, ast.Assign) and isinstance(made, ast.Call) and isinstance(made.func, ast.Name):
            name = made.func.id
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
        return root.id in made and root.id != "solution"
    return isinstance(root, ast.Call) and _mentions(root.func, made)


def _asks_class(node: ast.Call) -> bool:
    """`isinstance(f(x), Iterator)`, `hasattr(f(x), "send")`: a question about more than built-in types."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("isinstance", "issubclass") and len(node.args) == 2:
        return not {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)} <= _TYPES
    return name in ("hasattr", "getattr", "setattr", "isgenerator", "isgeneratorfunction")
