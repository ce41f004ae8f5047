"""What decides whether an assert holds.

Enters: both sides of a comparison, or a value. Leaves: nothing, or a `Mismatch` with both sides. Where program and
tests share a process (`guarded`), a comparison of plain data with an object of the program's own making does not ask
that object: it is a mismatch.
"""

import operator
from collections.abc import Callable
from typing import Any

from text2grad.sandbox.inside.fakepytest import Approx, Failed
from text2grad.sandbox.inside.program import frames
from text2grad.sandbox.inside.stock import Lacking
from text2grad.sandbox.inside.wire import MOST_ITEMS, Unplain, decode, encode, settle

LONGEST = 200
"""Characters of a value in a message."""
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
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "-": operator.sub,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_NUMBERS = {bool, int, float, complex}
Known = Callable[[Any], bool]
"""Whether an object's idea of equality is not the program's."""


class Mismatch(AssertionError):
    """A failed assert with both sides as text."""

    def __init__(self, message: str, expected: str | None, got: str | None) -> None:
        super().__init__(message or f"expected {expected}, got {got}")
        self.said, self.expected, self.got = message, expected, got


class Within:
    """A context in a test. What a test found wrong is not for the program's `__exit__` to swallow."""

    __slots__ = ("_manager",)

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def __enter__(self) -> Any:
        return type(self._manager).__enter__(self._manager)

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> bool:
        failed = kind in (Mismatch, Failed, Lacking, AssertionError) and not frames(trace)
        return bool(type(self._manager).__exit__(self._manager, kind, problem, trace)) and not failed


def _rules(guarded: bool) -> tuple[Callable[[str, Any, Any], bool], dict[str, Callable[..., Any]]]:
    """(one comparison, what tests call besides). `choose` tells whether a test shares its process by the program's
    choice; then the program's objects do not reckon with plain numbers either."""
    plain, reckon, problem = dict(_COMPARE), dict(_ARITHMETIC), Mismatch
    trusted, kept, chosen = settle() if guarded else (), dict[int, Any](), False

    def known(value: Any) -> bool:
        return type(value) in trusted or kept.get(id(value)) is value is not None

    def keep(value: Any) -> Any:
        """An `approx` that a test made of plain data; one of the program's making is any other object."""
        if type(value) is Approx and (found := copied(value.expected))[0]:
            value.expected = found[1]
            kept[id(value)] = value
        return value

    def choose(value: bool) -> None:
        nonlocal chosen
        chosen = value

    def arithmetic(sign: str, left: Any, right: Any) -> Any:
        if chosen and (type(left) in _NUMBERS or type(right) in _NUMBERS):
            left, right = _plain_sides(left, right, known, chosen)
        return reckon[sign](left, right)

    def holds(sign: str, left: Any, right: Any) -> bool:
        """Guarded, the program's objects are not asked about plain data."""
        if not guarded or sign in ("is", "is not"):
            return bool(plain[sign](left, right))
        if sign in ("in", "not in"):
            return _contains(left, right, known, chosen) is (sign == "in")
        if sign in ("==", "!=") and (left is None or right is None):
            return (left is right) is (sign == "==")
        try:
            sides = _plain_sides(left, right, known, chosen)
        except problem:
            if sign == "!=":
                return True  # an object is unlike plain data
            raise
        return bool(plain[sign](*sides))

    return holds, {"keep": keep, "choose": choose, "arithmetic": arithmetic, "within": Within}


def checks(
    guarded: bool, sound: Callable[[], bool] | None = None
) -> tuple[dict[str, Callable[..., Any]], Callable[[], int]]:
    """The functions that rewritten asserts call, and how many checks were made so far. `sound` is asked before each: no
    check holds while what it checks with is changed, even if it is put back later."""
    made, problem = 0, Mismatch
    holds, others = _rules(guarded)

    def checked(value: Any) -> Any:
        nonlocal made
        if sound is not None and not sound():
            raise problem("the program changed what judges it", None, None)
        made += 1
        return value

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

    return {"compare": compare, "truth": truth, "judge": judge, "checked": checked, **others}, lambda: made


def _plain_sides(left: Any, right: Any, known: Known, chosen: bool) -> tuple[Any, Any]:
    """Both sides, copied into exact built-in types where they are plain data; what is neither that nor a trusted class
    is not compared with what is, nor, in a test that is here by the program's choice, with an object of another class.
    The same holds for what lists, tuples and dicts hold."""
    (plain_left, new_left), (plain_right, new_right) = copied(left), copied(right)
    known_left, known_right = plain_left or known(left), plain_right or known(right)
    if known_left != known_right:
        foreign, other = (right, left) if known_left else (left, right)
        raise Mismatch("", shown(other), f"an object of type {type(foreign).__name__}, which is not plain data")
    if known_left:
        return new_left, new_right
    if type(left) is type(right) and type(left) in (list, tuple, dict):
        _plain_pairs(left, right, known, chosen)
    elif chosen and type(left) is not type(right):
        raise Mismatch("", shown(right), f"an object of type {type(left).__name__}")
    return left, right


def _plain_pairs(left: Any, right: Any, known: Known, chosen: bool) -> None:
    if type(left) is dict:
        shared = [key for key in left if key in right]
        left, right = [left[key] for key in shared], [right[key] for key in shared]
    for one, other in zip(left, right, strict=False):
        _plain_sides(one, other, known, chosen)


def copied(side: Any) -> tuple[bool, Any]:
    """(whether it is plain data, a copy in exact built-in types or the value itself)."""
    try:
        return True, decode(encode(side, strip=True))
    except (Unplain, RecursionError):
        return False, side


def _contains(item: Any, holder: Any, known: Known, chosen: bool) -> bool:
    """`item in holder`: a holder that is, or is derived from, a built-in one is searched item by item; only a holder of
    the program's own kind is asked, as the test means to; not so where the program chose to give one."""
    plain, held = copied(holder)
    if plain:
        plain, value = copied(item)
        return (plain or known(item)) and value in held
    for base in _HOLDERS:
        if isinstance(holder, base):
            return any(_equal(item, other, known, chosen) for other in base.__iter__(holder))
    if chosen and copied(item)[0]:
        # Not told what is looked for. Where it has no items, it holds nothing.
        items = zip(range(MOST_ITEMS), holder, strict=False) if hasattr(type(holder), "__iter__") else ()
        return any(_equal(item, other, known, chosen) for _, other in items)
    return item in holder


_HOLDERS: tuple[Any, ...] = (list, tuple, set, frozenset, dict)


def _equal(left: Any, right: Any, known: Known, chosen: bool) -> bool:
    try:
        one, other = _plain_sides(left, right, known, chosen)
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
