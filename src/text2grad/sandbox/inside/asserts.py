"""Asserts that say what was expected and what came.

Enters: the tests' source and the names that belong to the program. Leaves: code in which `assert f(2) == 4` raises
`Mismatch` with both sides, by the functions of `judge`. Where program and tests share a process (`guarded`),
comparisons outside asserts, arithmetic, `approx` and contexts are looked after, too.

What is checked is counted as it runs: asserts, `pytest.raises`, unittest's methods, conditions under which a test
fails, and exceptions caught where the test would fail without them. A test that checked nothing is not passed.
"""

import ast
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import Any

from text2grad.sandbox.inside.watch import bound

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Sub: "-", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
"""By which tests compare numbers: `abs(f(2) - 4) < 1e-9`."""
_SWALLOW = {"raises", "assertRaises", "assertRaisesRegex", "suppress"}
"""Contexts that a test uses to expect an exception, a failed assert among them."""


def rewrite(
    source: str,
    names: Collection[str],
    file: str,
    judges: dict[str, Callable[..., Any]],
    guarded: bool = False,
    own: Collection[str] = (),
) -> Any:
    """Compiled test code. `names` tell which side of a comparison comes from the program; `guarded`: comparisons
    outside asserts are looked after too; `own`: functions of the tests, which check what their asserts check.
    `judges` (see `judge.checks`) are constants of the code, so no name that could be bound anew leads to them."""
    tree = _Rewrite(names, guarded, own).visit(ast.parse(source, file))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a text is not callable: it will not be one
        code = compile(ast.fix_missing_locations(tree), file, "exec")
    return bound(code, {_MARK + name: judge for name, judge in judges.items()})


_MARK = "\0judge "


def is_check(node: ast.AST) -> bool:
    """`assert`, `pytest.raises(…)`, `self.assertEqual(…)`, `mock.assert_called_once()`."""
    name = _called(node)
    return isinstance(node, ast.Assert) or name in ("raises", "warns", "deprecated_call") or name.startswith("assert")


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
    def __init__(self, names: Collection[str], guarded: bool, own: Collection[str]) -> None:
        self.names, self.guarded, self.own = names, guarded, own
        self.fails = False

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._scope(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._scope(node)

    def _scope(self, node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        outer, self.fails = self.fails, _fails_in(node.body)
        self.generic_visit(node)
        self.fails = outer
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if is_check(node) and _called(node) not in self.own:
            return ast.copy_location(_call("checked", node), node)
        if self.guarded and _called(node) == "approx":
            return ast.copy_location(_call("keep", node), node)
        return node

    def visit_With(self, node: ast.With) -> ast.stmt:
        """No context of the program's swallows a failed check."""
        others = [item for item in node.items if _called(item.context_expr) not in _SWALLOW] if self.guarded else []
        self.generic_visit(node)
        for item in others:
            item.context_expr = ast.copy_location(_call("within", item.context_expr), item.context_expr)
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
            seen = ast.copy_location(ast.Expr(_call("checked", ast.Constant(None))), handler)
            handler.body = [seen, *handler.body]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            test.left, test.comparators = self.visit(test.left), [self.visit(test.comparators[0])]
        else:
            self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        said: ast.expr = ast.Constant(None) if node.msg is None else ast.Lambda(nothing, node.msg)
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = test.left, test.comparators[0]
            swapped = self._calls(right) and not self._calls(left)
            sign = ast.Constant(_OPERATORS[type(test.ops[0])])
            call = _call("compare", sign, left, right, ast.Constant(swapped), said)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            call = _call("truth", test.operand, ast.Constant(False), said)
        else:
            call = _call("truth", test, ast.Constant(True), said)
        return ast.copy_location(ast.Expr(call), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        signs = [_OPERATORS[type(sign)] for sign in node.ops]
        if not self.guarded or {"is", "is not"} & {*signs}:
            return node
        values = ast.Tuple([node.left, *node.comparators], ast.Load())
        words = ast.Tuple([ast.Constant(sign) for sign in signs], ast.Load())
        return ast.copy_location(_call("judge", words, values), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not self.guarded or type(node.op) not in _ARITHMETIC:
            return node
        sign = ast.Constant(_ARITHMETIC[type(node.op)])
        return ast.copy_location(_call("arithmetic", sign, node.left, node.right), node)

    def _calls(self, node: ast.expr) -> bool:
        return any(isinstance(part, ast.Name) and part.id in self.names for part in ast.walk(node))


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Constant(_MARK + name), list(args), [])
