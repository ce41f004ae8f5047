"""Asserts that say what was expected and what came, and that are counted.

Enters: the tests' source and the names that belong to the program. Leaves: code in which `assert f(2) == 4` calls
`Checks.compare`, which raises `Mismatch` with both sides.

What is checked is counted as it runs: asserts, `pytest.raises`, unittest's methods, conditions under which a test
fails, and exceptions caught where the test would fail without them. A test that checked nothing is not passed.
"""

import ast
import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

LONGEST = 200
"""Characters of a value in a message."""
CHECKS = "__checks__"
"""The name of a `Checks` among the names of the tests."""
_SIGNS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda left, right: left in right),
    ast.NotIn: ("not in", lambda left, right: left not in right),
}
_COMPARE = dict(_SIGNS.values())


class Mismatch(AssertionError):
    """A failed assert with both sides as text."""

    def __init__(self, message: str, expected: str, got: str) -> None:
        super().__init__(message or f"expected {expected}, got {got}")
        self.message, self.expected, self.got = message, expected, got


class Checks:
    """What rewritten tests call. `count` is how many checks were made so far."""

    def __init__(self) -> None:
        self.count = 0

    def checked(self, value: Any) -> Any:
        self.count += 1
        return value

    def compare(self, sign: str, left: Any, right: Any, swapped: bool, message: Callable[[], Any] | None) -> None:
        self.count += 1
        if not _COMPARE[sign](left, right):
            got, expected = (right, left) if swapped else (left, right)
            wanted = shown(expected) if sign == "==" else f"{sign} {shown(expected)}"
            raise Mismatch(_text(message), wanted, shown(got))

    def truth(self, value: Any, wanted: bool, message: Callable[[], Any] | None) -> None:
        self.count += 1
        if bool(value) is not wanted:
            expected = str(wanted) if type(value) is bool else f"a {str(wanted).lower()} value"
            raise Mismatch(_text(message), expected, shown(value))


def _text(message: Callable[[], Any] | None) -> str:
    return "" if message is None else str(message())[:LONGEST]


def shown(value: Any) -> str:
    """`repr`, cut short."""
    try:
        text = repr(value)
    except Exception as problem:  # noqa: BLE001 - huge integers refuse, and so may objects of the program
        return f"a value of type {type(value).__name__} whose repr raises {type(problem).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def rewrite(source: str, names: Collection[str], own: Collection[str], file: str) -> Any:
    """Compiled test code. `names` tell which side of a comparison comes from the program; `own` are functions of the
    tests, which check what their asserts check."""
    tree = _Rewrite(names, own).visit(ast.parse(source, file))
    return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)


def is_check(node: ast.AST) -> bool:
    """`assert`, `pytest.raises(…)`, `self.assertEqual(…)`, `mock.assert_called_once()`."""
    name = _called(node)
    return isinstance(node, ast.Assert) or name in ("raises", "warns", "deprecated_call") or name.startswith("assert")


def mentions(node: ast.AST, names: Collection[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def is_failure(node: ast.AST) -> bool:
    """What makes a test fail once it is reached: `raise`, `pytest.fail()`, `assert False`."""
    never = isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value
    return never or isinstance(node, ast.Raise) or _called(node) == "fail"


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _fails_in(body: Iterable[ast.stmt]) -> bool:
    return any(is_failure(part) for node in body for part in ast.walk(node))


class _Rewrite(ast.NodeTransformer):
    def __init__(self, names: Collection[str], own: Collection[str]) -> None:
        self.names, self.own = names, own
        self.fails = False

    def _scope(self, node: Any) -> Any:
        outer, self.fails = self.fails, _fails_in(node.body)
        self.generic_visit(node)
        self.fails = outer
        return node

    visit_Module = visit_FunctionDef = visit_AsyncFunctionDef = _scope

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if is_check(node) and _called(node) not in self.own:
            return ast.copy_location(_call("checked", node), node)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        counts = _fails_in([*node.body, *node.orelse])
        self.generic_visit(node)
        if counts:
            node.test = ast.copy_location(_call("checked", node.test), node.test)
        return node

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        """An exception that keeps the function from a failure it would come to otherwise was expected."""
        self.generic_visit(node)
        for handler in node.handlers if self.fails else ():
            expected = ast.copy_location(ast.Expr(_call("checked", ast.Constant(None))), handler)
            handler.body = [expected, *handler.body]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        message: ast.expr = ast.Constant(None) if node.msg is None else ast.Lambda(nothing, node.msg)
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = test.left, test.comparators[0]
            swapped = mentions(right, self.names) and not mentions(left, self.names)
            sign = ast.Constant(_SIGNS[type(test.ops[0])][0])
            call = _call("compare", sign, left, right, ast.Constant(swapped), message)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            call = _call("truth", test.operand, ast.Constant(False), message)
        else:
            call = _call("truth", test, ast.Constant(True), message)
        return ast.copy_location(ast.Expr(call), node)


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(CHECKS, ast.Load()), name, ast.Load()), list(args), [])
