"""Fixtures and contexts that pytest brings along, for tests that share a process with the program.

Enters: what a test asks for by an argument's name (`capsys`, `caplog`, `monkeypatch`, `tmp_path`), or `pytest.warns`.
Leaves: the part of them that published tests use. None of them judges but `warns`.
"""

import os
import sys
import warnings
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from re import search as _search
from typing import Any

_MISSING = object()
_Printed = namedtuple("_Printed", "out err")


class Lacking(AssertionError):
    """A warning that was expected and did not come."""


class _Capture:
    def __init__(self) -> None:
        self.out, self.err = StringIO(), StringIO()

    def readouterr(self) -> _Printed:
        found = _Printed(self.out.getvalue(), self.err.getvalue())
        for stream in (self.out, self.err):
            stream.seek(0)
            stream.truncate()
        return found


def capsys() -> Iterator[_Capture]:
    kept, made = (sys.stdout, sys.stderr), _Capture()
    sys.stdout, sys.stderr = made.out, made.err
    yield made
    sys.stdout, sys.stderr = kept


class _Patches:
    """`monkeypatch`: what it sets, it puts back in the end."""

    def __init__(self) -> None:
        self._back: list[Any] = []

    def setattr(self, target: Any, name: Any, value: Any = _MISSING, raising: bool = True) -> None:
        if value is _MISSING:
            (target, name), value = _place(target), name
        old = getattr(target, name, _MISSING)
        if old is _MISSING and raising:
            raise AttributeError(f"{target!r} has no attribute {name!r}")
        own = vars(target).get(name, _MISSING) if isinstance(target, type) else old
        self._back.append(lambda: delattr(target, name) if own is _MISSING else setattr(target, name, own))
        setattr(target, name, value)

    def delattr(self, target: Any, name: Any = _MISSING, raising: bool = True) -> None:
        target, name = _place(target) if name is _MISSING else (target, name)
        if hasattr(target, name) or raising:
            old = getattr(target, name)
            delattr(target, name)
            self._back.append(lambda: setattr(target, name, old))

    def setitem(self, target: Any, key: Any, value: Any) -> None:
        old = target.get(key, _MISSING)
        self._back.append(lambda: target.pop(key, None) if old is _MISSING else target.__setitem__(key, old))
        target[key] = value

    def delitem(self, target: Any, key: Any, raising: bool = True) -> None:
        if key in target or raising:
            old = target.pop(key)
            self._back.append(lambda: target.__setitem__(key, old))

    def setenv(self, name: str, value: Any, prepend: str | None = None) -> None:
        before = f"{value}{prepend}{os.environ[name]}" if prepend and name in os.environ else str(value)
        self.setitem(os.environ, name, before)

    def delenv(self, name: str, raising: bool = True) -> None:
        self.delitem(os.environ, name, raising)

    def chdir(self, path: Any) -> None:
        old = os.getcwd()  # noqa: PTH109
        self._back.append(lambda: os.chdir(old))
        os.chdir(path)

    def syspath_prepend(self, path: Any) -> None:
        old = [*sys.path]
        self._back.append(lambda: sys.path.__setitem__(slice(None), old))
        sys.path.insert(0, str(path))

    def undo(self) -> None:
        while self._back:
            self._back.pop()()

    @contextmanager
    def context(self) -> Iterator["_Patches"]:
        inner = _Patches()
        try:
            yield inner
        finally:
            inner.undo()


def _place(path: str) -> tuple[Any, str]:
    """`os.path.exists` as (os.path, "exists")."""
    words = path.split(".")
    found: Any = __import__(words[0])
    for count, word in enumerate(words[1:-1], 2):
        if not hasattr(found, word):
            __import__(".".join(words[:count]))
        found = getattr(found, word)
    return found, words[-1]


def monkeypatch() -> Iterator[_Patches]:
    made = _Patches()
    yield made
    made.undo()


def tmp_path() -> Any:
    from pathlib import Path
    from tempfile import mkdtemp

    return Path(mkdtemp())


class _Log:
    def __init__(self, handler: Any, records: list[Any]) -> None:
        self.handler, self.records = handler, records
        self._levels: list[tuple[Any, int]] = []

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    @property
    def text(self) -> str:
        return "".join(f"{self.handler.format(record)}\n" for record in self.records)

    @property
    def record_tuples(self) -> list[tuple[str, int, str]]:
        return [(record.name, record.levelno, record.getMessage()) for record in self.records]

    def clear(self) -> None:
        self.records.clear()

    def set_level(self, level: Any, logger: str | None = None) -> None:
        import logging

        found = logging.getLogger(logger)
        self._levels.append((found, found.level))
        found.setLevel(level)

    @contextmanager
    def at_level(self, level: Any, logger: str | None = None) -> Iterator[None]:
        self.set_level(level, logger)
        try:
            yield
        finally:
            found, old = self._levels.pop()
            found.setLevel(old)

    def put_back(self) -> None:
        for found, old in reversed(self._levels):
            found.setLevel(old)


def caplog() -> Iterator[_Log]:
    import logging

    class Keep(logging.Handler):
        def emit(self, record: Any) -> None:
            made.records.append(record)

    handler = Keep()
    handler.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))
    made = _Log(handler, [])
    logging.getLogger().addHandler(handler)
    yield made
    logging.getLogger().removeHandler(handler)
    made.put_back()


class warns:  # noqa: N801 - pytest's name
    """`with warns(UserWarning, match="…") as caught:`."""

    def __init__(self, expected: Any = Warning, *, match: str | None = None) -> None:
        self.expected, self.match = expected, match
        self.list: list[Any] = []
        self._catch = warnings.catch_warnings(record=True)

    def __enter__(self) -> "warns":
        found = self._catch.__enter__()
        self.list = [] if found is None else found
        warnings.simplefilter("always")
        return self

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> None:
        self._catch.__exit__(kind, problem, trace)
        found = [warning for warning in self.list if issubclass(warning.category, self.expected)]
        if kind is None and not found:
            raise Lacking(f"expected a warning of {self.expected!r}, and none came")
        if kind is None and self.match and not any(_search(self.match, str(warning.message)) for warning in found):
            raise Lacking(f"expected a warning that matches {self.match!r}")

    def __len__(self) -> int:
        return len(self.list)

    def __getitem__(self, index: int) -> Any:
        return self.list[index]


def deprecated_call(**how: Any) -> warns:
    return warns((DeprecationWarning, PendingDeprecationWarning, FutureWarning), **how)


class Kind:
    """What annotations name: `pytest.CaptureFixture[str]`."""

    def __class_getitem__(cls, _: Any) -> Any:
        return cls


FIXTURES: dict[str, Any] = {}
for _made in (capsys, monkeypatch, tmp_path, caplog):
    setattr(_made, "__fixture__", (None, False, None))  # noqa: B010 - functions have no such attribute for mypy
    FIXTURES[_made.__name__] = _made
KINDS = ("CaptureFixture", "LogCaptureFixture", "MonkeyPatch", "FixtureRequest", "ExceptionInfo", "TempPathFactory")
