"""The part of pytest that published tests use, for a sandbox that has no pytest: approx, raises, marks, fixtures.

Enters: test modules that `import pytest`. Leaves: a module of that name. What it does not know raises `Unusable`, and
the test is not counted, rather than passed or failed.
"""

import itertools
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any


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
        if math.isnan(gap):
            return self.nan_ok and math.isnan(size) and math.isnan(abs(actual))
        if math.isinf(size) or math.isinf(gap):
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
        import re

        if self.match is not None and not re.search(self.match, str(problem)):
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


def _fixture(function: Any = None, **_: Any) -> Any:
    if function is None:
        return lambda inner: _set(inner, "__fixture__", True)
    return _set(function, "__fixture__", True)


def _fail(reason: str = "", **_: Any) -> None:
    raise Failed(reason)


def _skip(reason: str = "", **_: Any) -> None:
    raise Unusable(f"skips itself: {reason}")


def call(function: Callable[..., Any], names: Mapping[str, Any]) -> None:
    """Run one test function: all its parameter rows, its fixtures made anew for each."""
    import inspect  # costs more than most tests, and plain asserts do without it

    if reason := getattr(function, "__unusable__", None):
        raise Unusable(reason)
    if not all(getattr(function, "__rows__", [])):
        raise Unusable("has no parameter rows")
    for combination in itertools.product(*getattr(function, "__rows__", [])):
        given = {key: value for row in combination for key, value in row.items()}
        wanted = [name for name, p in inspect.signature(function).parameters.items() if p.default is p.empty]
        ending: list[Iterator[Any]] = []
        function(**{name: given[name] if name in given else _made(name, names, ending) for name in wanted})
        for fixture in ending:
            next(fixture, None)


def _made(name: str, names: Mapping[str, Any], ending: list[Iterator[Any]]) -> Any:
    import inspect

    source = names.get(name)
    if not getattr(source, "__fixture__", False) or source is None:
        raise Unusable(f"needs the fixture {name!r}, which the sandbox does not have")
    value = source(**{inner: _made(inner, names, ending) for inner in inspect.signature(source).parameters})
    if inspect.isgenerator(value):
        ending.append(value)
        return next(value)
    return value


def install() -> None:
    module: Any = types.ModuleType("pytest")
    module.approx, module.raises, module.mark, module.param = approx, raises, _Marks(), _Param
    module.fixture, module.fail, module.skip = _fixture, _fail, _skip
    sys.modules["pytest"] = module
