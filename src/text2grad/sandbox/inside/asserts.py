"""Asserts that say what was expected and what came.

Enters: the tests' source and the names that belong to the program. Leaves: code in which `assert f(2) == 4` raises
`Mismatch` with both sides. Where program and tests share a process (`guarded`), a comparison of plain data with an
object of the program's own making does not ask that object: it is a mismatch.

What is checked is counted as it runs: asserts, `pytest.raises`, unittest's methods, conditions under which a test
fails, and exceptions caught where the test would fail without them. A test that checked nothing is not passed.
"""

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import Any

from text2grad.sandbox.inside.watch import bound
from text2grad.sandbox.inside.wire import Unplain, decode, encode

LONGEST = 200
"""Characters of a value in a message."""
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
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}


_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Sub: operator.sub,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
"""By which tests compare numbers: `abs(f(2) - 4) < 1e-9`."""


class Mismatch(AssertionError):
    """A failed assert with both sides as text."""

    def __init__(self, message: str, expected: str | None, got: str | None) -> None:
        super().__init__(message or f"expected {expected}, got {got}")
        self.said, self.expected, self.got = message, expected, got


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
    `judges` (see `checks`) are constants of the code, so no name that could be bound anew leads to them."""
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
        counts = is_check(node) and _called(node) not in self.own
        return ast.copy_location(_call("checked", node), node) if counts else node

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
        sign = ast.Constant([*_ARITHMETIC].index(type(node.op)))
        return ast.copy_location(_call("arithmetic", sign, node.left, node.right), node)

    def _calls(self, node: ast.expr) -> bool:
        return any(isinstance(part, ast.Name) and part.id in self.names for part in ast.walk(node))


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Constant(_MARK + name), list(args), [])


def checks(
    guarded: bool, sound: Callable[[], bool] | None = None
) -> tuple[dict[str, Callable[..., Any]], Callable[[], int]]:
    """The functions that rewritten asserts call, and how many checks were made so far. `sound` is asked before each: no
    check holds while what it checks with is changed, even if it is put back later. `choose` tells whether the test
    shares its process by the program's choice; then the program's objects do not reckon with plain numbers either."""
    trusted = _trusted() if guarded else ()
    plain, problem = dict(_COMPARE), Mismatch
    made, chosen, reckon = 0, False, tuple(_ARITHMETIC.values())

    def choose(value: bool) -> None:
        nonlocal chosen
        chosen = value

    def arithmetic(sign: int, left: Any, right: Any) -> Any:
        if chosen and (type(left) in _NUMBERS or type(right) in _NUMBERS):
            left, right = _plain_sides(left, right, trusted)
        return reckon[sign](left, right)

    def checked(value: Any) -> Any:
        nonlocal made
        if sound is not None and not sound():
            raise problem("the program changed what judges it", None, None)
        made += 1
        return value

    def holds(sign: str, left: Any, right: Any) -> bool:
        """One comparison; guarded, the program's objects are not asked about plain data."""
        if not guarded or sign in ("is", "is not"):
            return bool(plain[sign](left, right))
        if sign in ("in", "not in"):
            return _contains(left, right, trusted, chosen) is (sign == "in")
        if sign in ("==", "!=") and (left is None or right is None):
            return (left is right) is (sign == "==")
        try:
            sides = _plain_sides(left, right, trusted, chosen)
        except problem:
            if sign == "!=":
                return True  # an object is unlike plain data
            raise
        return bool(plain[sign](*sides))

    def compare(sign: str, left: Any, right: Any, swapped: bool, said: Callable[[], Any] | None) -> None:
        checked(None)
        if not holds(sign, left, right):
            got, expected = (right, left) if swapped else (left, right)
            wanted = shown(expected) if sign == "==" else f"{sign} {shown(expected)}"
            raise Mismatch(_text(said), wanted, shown(got))

    def truth(value: Any, wanted: bool, said: Callable[[], Any] | None) -> None:
        checked(None)
        if bool(value) is not wanted:
            expected = "True" if wanted else "False"
            raise Mismatch(
                _text(said), expected if type(value) is bool else f"a {expected.lower()} value", shown(value)
            )

    def judge(signs: tuple[str, ...], values: tuple[Any, ...]) -> bool:
        """A comparison, or a chain of them."""
        if sound is not None and not sound():
            raise problem("the program changed what judges it", None, None)
        for sign, left, right in zip(signs, values, values[1:], strict=False):
            try:
                if not holds(sign, left, right):
                    return False
            except problem:
                if sign == "==":
                    return False
                raise
        return True

    judges: dict[str, Callable[..., Any]] = {"compare": compare, "truth": truth, "judge": judge, "checked": checked}
    return {**judges, "arithmetic": arithmetic, "choose": choose}, lambda: made


_NUMBERS = {bool, int, float, complex}


def _trusted() -> tuple[type, ...]:
    """Classes whose idea of equality is not the program's; named before the program is there to pose as one."""
    from datetime import date, datetime, time, timedelta
    from decimal import Decimal
    from fractions import Fraction

    from text2grad.sandbox.inside.fakepytest import Approx

    return Approx, Decimal, Fraction, date, datetime, time, timedelta


def _plain_sides(left: Any, right: Any, trusted: tuple[type, ...], chosen: bool = False) -> tuple[Any, Any]:
    """Both sides, copied into exact built-in types where they are plain data; what is neither that nor a trusted class
    is not compared with what is, nor, in a test that is here by the program's choice, with an object of another class.
    The same holds for what lists, tuples and dicts hold."""
    (plain_left, new_left), (plain_right, new_right) = copied(left), copied(right)
    known_left, known_right = plain_left or type(left) in trusted, plain_right or type(right) in trusted
    if known_left != known_right:
        foreign, other = (right, left) if known_left else (left, right)
        raise Mismatch("", shown(other), f"an object of type {type(foreign).__name__}, which is not plain data")
    if known_left:
        return new_left, new_right
    if type(left) is type(right) and type(left) in (list, tuple, dict):
        _plain_pairs(left, right, trusted, chosen)
    elif chosen and type(left) is not type(right):
        raise Mismatch("", shown(right), f"an object of type {type(left).__name__}")
    return left, right


def _plain_pairs(left: Any, right: Any, trusted: tuple[type, ...], chosen: bool) -> None:
    if type(left) is dict:
        shared = [key for key in left if key in right]
        left, right = [left[key] for key in shared], [right[key] for key in shared]
    for one, other in zip(left, right, strict=False):
        _plain_sides(one, other, trusted, chosen)


def copied(side: Any) -> tuple[bool, Any]:
    """(whether it is plain data, a copy in exact built-in types or the value itself)."""
    try:
        return True, decode(encode(side, strip=True))
    except (Unplain, RecursionError):
        return False, side


def _contains(item: Any, holder: Any, trusted: tuple[type, ...], chosen: bool) -> bool:
    """`item in holder`: a holder that is, or is derived from, a built-in one is searched item by item; only a holder of
    the program's own kind is asked, as the test means to."""
    plain, held = copied(holder)
    if plain:
        known, value = copied(item)
        return (known or type(item) in trusted) and value in held
    for base in _HOLDERS:
        if isinstance(holder, base):
            return any(_equal(item, other, trusted, chosen) for other in base.__iter__(holder))
    return item in holder


_HOLDERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict)


def _equal(left: Any, right: Any, trusted: tuple[type, ...], chosen: bool) -> bool:
    try:
        one, other = _plain_sides(left, right, trusted, chosen)
    except Mismatch:
        return False
    return one is other or bool(one == other)


def _text(said: Callable[[], Any] | None) -> str:
    return "" if said is None else str(said())[:LONGEST]


def shown(value: Any) -> str:
    """`repr`, cut short."""
    try:
        text = repr(value)
    except Exception as problem:  # noqa: BLE001 - huge integers refuse, and so may objects of the program
        return f"a value of type {type(value).__name__} whose repr raises {type(problem).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
