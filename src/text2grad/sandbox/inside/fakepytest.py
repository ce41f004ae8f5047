"""The part of pytest that published tests use, for a sandbox that has no pytest: approx, raises, marks, fixtures.

Enters: test modules that `import pytest`. Leaves: a module of that name. What it does not know raises `Unusable`, and
the test is not counted, rather than passed or failed. What can be known of that is settled before the program is
loaded (`refusal`); nothing here looks a function up in a module that a program could patch.
"""

import sys
import types
from collections.abc import Callable, Mapping
from itertools import product as _product
from math import isinf as _isinf
from math import isnan as _isnan
from re import search as _search
from typing import Any

from text2grad.sandbox.inside import stock
from text2grad.sandbox.inside.program import inside

NAMES = {"approx", "deprecated_call", "fail", "fixture", "importorskip", "mark", "param", "raises", "skip", "warns"}
NAMES |= {"xfail", *stock.KINDS}
"""What there is of pytest."""

_GENERATOR, _METHOD, _FUNCTION, _frame = types.GeneratorType, types.MethodType, types.FunctionType, sys._getframe


class Unusable(BaseException):
    """This test cannot be run here."""


class Failed(AssertionError):
    """`pytest.fail`, or an exception that was expected and did not come."""


class Approx:
    """Equal within a tolerance: numbers, and sequences and mappings of them; anything else is compared as it is."""

    def __init__(self, expected: Any, rel: float | None, abs: float | None, nan_ok: bool) -> None:
        self.expected, self.rel, self.abs, self.nan_ok = expected, rel, abs, nan_ok

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, actual: object) -> bool:
        return self._near(self.expected, actual)

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def _near(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, bool) or isinstance(actual, bool):
            return bool(expected == actual)
        if isinstance(expected, int | float | complex) and isinstance(actual, int | float | complex):
            return self._near_numbers(expected, actual)
        if isinstance(expected, Mapping) and isinstance(actual, Mapping):
            return expected.keys() == actual.keys() and all(self._near(v, actual[k]) for k, v in expected.items())
        if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
            pairs = zip(expected, actual, strict=False)
            return len(expected) == len(actual) and all(self._near(e, a) for e, a in pairs)
        return bool(expected == actual)

    def _near_numbers(self, expected: Any, actual: Any) -> bool:
        if expected == actual:
            return True
        try:
            gap, size = abs(expected - actual), abs(expected)
        except OverflowError:
            return False
        if _isnan(gap):
            return self.nan_ok and _isnan(size) and _isnan(abs(actual))
        if _isinf(size) or _isinf(gap):
            return False
        absolute = 1e-12 if self.abs is None else self.abs
        relative = 1e-6 if self.rel is None and self.abs is None else self.rel or 0.0
        return bool(gap <= max(relative * size, absolute))


def approx(expected: Any, rel: float | None = None, abs: float | None = None, nan_ok: bool = False) -> Approx:
    return Approx(expected, rel, abs, nan_ok)


class raises:  # noqa: N801 - pytest's name
    """`with raises(ValueError, match="…") as caught:`, or `raises(ValueError, function, …)`."""

    value: BaseException
    type: type[BaseException]

    def __new__(cls, expected: Any, function: Any = None, *args: Any, match: str | None = None, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        made.expected, made.match = expected, match
        if function is None:
            return made
        with made:
            function(*args, **kwargs)
        return made

    expected: Any
    match: str | None

    def __enter__(self) -> "raises":
        return self

    def __exit__(self, kind: Any, problem: Any, _: Any) -> bool:
        if kind is None:
            raise Failed(f"expected {_names(self.expected)} to be raised, and nothing was")
        if not issubclass(kind, self.expected):
            return False
        if self.match is not None and not _search(self.match, str(problem)):
            raise Failed(f"expected a message that matches {self.match!r}, got {str(problem)!r}")
        self.value, self.type = problem, kind
        return True


def _names(expected: Any) -> str:
    kinds = expected if isinstance(expected, tuple) else (expected,)
    return " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)


class _Marks:
    """`pytest.mark.parametrize` counts; skips make the test unusable; other marks change nothing."""

    def __getattr__(self, name: str) -> Any:
        if name == "parametrize":
            return _parametrize
        if name == "usefixtures":
            return lambda *used: lambda function: _set(function, "__used__", used)
        if name in ("skip", "skipif", "xfail"):
            return _unusable(f"marked {name}")
        return lambda *args, **_: args[0] if len(args) == 1 and callable(args[0]) else lambda function: function


def _unusable(reason: str) -> Any:
    """A mark with or without arguments."""

    def mark(*args: Any, **_: Any) -> Any:
        if len(args) == 1 and callable(args[0]):
            return _set(args[0], "__unusable__", reason)
        return lambda function: _set(function, "__unusable__", reason)

    return mark


def _set(function: Any, name: str, value: Any) -> Any:
    setattr(function, name, value)
    return function


def _parametrize(names: Any, values: Any, **_: Any) -> Callable[[Any], Any]:
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [value.values if isinstance(value, _Param) else value for value in values]
    rows = [dict(zip(keys, row if len(keys) > 1 or isinstance(row, _Row) else (row,), strict=True)) for row in rows]
    return lambda function: _set(function, "__rows__", [*getattr(function, "__rows__", []), rows])


class _Row(tuple[Any, ...]):
    __slots__ = ()


class _Param:
    def __init__(self, *values: Any, **_: Any) -> None:
        self.values = _Row(values)


def _fixture(
    function: Any = None, *, params: Any = None, autouse: bool = False, name: str | None = None, **_: Any
) -> Any:
    def mark(inner: Any) -> Any:
        return _set(inner, "__fixture__", (name, autouse, None if params is None else [*params]))

    return mark if function is None else mark(function)


def _fail(reason: str = "", **_: Any) -> None:
    raise Failed(reason)


skips: list[Unusable] = []
"""Those that a test asked for; the tester takes no other for one, so a program cannot raise its way out of a test."""


def _skip(reason: str = "", **_: Any) -> None:
    if inside(_frame(1)):
        raise Failed("the program skips its own test")
    raise skipped(f"skips itself: {reason}")


def _importorskip(name: str, *_: Any, reason: str = "", **__: Any) -> Any:
    try:
        __import__(name)
    except ImportError:
        _skip(reason or f"no module {name!r}")
    return sys.modules[name]


def skipped(reason: str) -> Unusable:
    """To be raised where a test turns out to be none while it runs."""
    skips.append(Unusable(reason))
    return skips[-1]


class _Request:
    """The fixture `request`, as far as it holds a parameter and takes finalizers."""

    def __init__(self, param: Any, finalizers: list[Any]) -> None:
        self.param, self.addfinalizer = param, finalizers.append


Fixtures = Mapping[str, Any]
"""Functions that make what a test's arguments stand for, by the arguments' names."""


def fixtures(names: Mapping[str, Any], holder: Any) -> dict[str, Any]:
    """Those of the tests' module and, before them, of the test class or its instance."""
    known = dict(names)
    known.update({name: getattr(holder, name, None) for name in dir(holder) if name[:2] != "__"} if holder else {})
    found = dict(stock.FIXTURES)
    for name, function in known.items():
        marked = getattr(function, "__fixture__", None)
        if type(marked) is tuple:
            plain = isinstance(holder, type) and names.get(name) is not function and isinstance(function, _FUNCTION)
            found[marked[0] or name] = _METHOD(function, holder) if plain else function
    return found


def refusal(function: Any, known: Fixtures) -> str | None:
    """Why a test function cannot be run here, whatever the program."""
    if reason := getattr(function, "__unusable__", None):
        return str(reason)
    rows = getattr(function, "__rows__", [])
    if not all(rows) or any(known[name].__fixture__[2] == [] for name in _needed(function, known) if name in known):
        return "has no parameter rows"
    given = {key for row in rows for key in row[0]}
    return _lacks([name for name in arguments(function) if name not in given], known, ())


def _lacks(wanted: list[str], known: Fixtures, above: tuple[str, ...]) -> str | None:
    for name in wanted:
        if name == "request" and above:
            continue
        source = known.get(name)
        if source is None or name in above:
            return f"needs the fixture {name!r}, which the sandbox does not have"
        if reason := _lacks(arguments(source), known, (*above, name)):
            return reason
    return None


def arguments(function: Any) -> list[str]:
    """Names of the arguments without a default, as `inspect.signature` tells them."""
    bound = isinstance(function, _METHOD)
    function = function.__func__ if bound else function
    default, mocks = getattr(sys.modules.get("unittest.mock"), "DEFAULT", None), 0
    while hasattr(function, "__wrapped__"):
        patches = getattr(function, "patchings", ())
        if type(patches) is list:  # `@patch` hands over what it puts in, before everything else
            mocks += sum(not patch.attribute_name and patch.new is default for patch in patches)
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    plain = code.co_varnames[: code.co_argcount]
    plain = plain[bound + mocks : len(plain) - len(function.__defaults__ or ())]
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return [*plain, *(name for name in named if name not in (function.__kwdefaults__ or {}))]


def _needed(function: Any, known: Fixtures) -> list[str]:
    """Names of the fixtures that a test takes part in, those of its fixtures included."""
    found = [name for name, source in known.items() if source.__fixture__[1]]
    found += [*getattr(function, "__used__", ()), *arguments(function)]
    for name in found:
        if name in known:
            found += [inner for inner in arguments(known[name]) if inner not in found]
    return list(dict.fromkeys(found))


def call(function: Any, known: Fixtures, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Run one test function, which nothing refuses: all its parameter rows, its fixtures made anew for each."""
    rows = [[*row] for row in getattr(function, "__rows__", [])]
    given = {key for row in rows for key in row[0]}
    needed = [name for name in _needed(function, known) if name not in given]
    varied = [name for name in needed if name in known and known[name].__fixture__[2] is not None]
    for combination in _product(*rows, *([{name: value} for value in known[name].__fixture__[2]] for name in varied)):
        values = {key: value for row in combination[: len(rows)] for key, value in row.items()}
        params = {key: value for row in combination[len(rows) :] for key, value in row.items()}
        _once(function, known, values, params, needed, before, after)


def _once(
    function: Any,
    known: Fixtures,
    values: dict[str, Any],
    params: dict[str, Any],
    needed: list[str],
    before: Callable[[], None],
    after: Callable[[], None],
) -> None:
    ending: list[Callable[[], Any]] = []

    def made(name: str) -> Any:
        if name not in values:
            source, request = known[name], _Request(params.get(name), ending)
            value = source(**{n: request if n == "request" else made(n) for n in arguments(source)})
            if isinstance(value, _GENERATOR):
                values[name] = next(value)
                ending.append(lambda: next(value, None))
            else:
                values[name] = value
        return values[name]

    try:
        for name in needed:
            if name in known:
                made(name)
        before()
        function(**{name: made(name) for name in arguments(function)})
    except BaseException:
        for end in (after, *reversed(ending)):
            try:
                end()
            except BaseException:  # noqa: BLE001 - says less than what ended the test
                continue
        raise
    for end in (after, *reversed(ending)):
        end()


def install() -> None:
    module: Any = types.ModuleType("pytest")
    module.approx, module.raises, module.mark, module.param = approx, raises, _Marks(), _Param
    module.fixture, module.fail, module.skip, module.xfail = _fixture, _fail, _skip, _skip
    module.importorskip, module.warns, module.deprecated_call = _importorskip, stock.warns, stock.deprecated_call
    module.__dict__.update(dict.fromkeys(stock.KINDS, stock.Kind))
    sys.modules["pytest"] = module
