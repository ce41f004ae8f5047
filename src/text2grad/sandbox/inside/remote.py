"""The tests' view of a program in another process: functions that send their arguments away.

Enters: names, arguments. Leaves: results rebuilt as exact built-in types, and the program's exceptions as built-in
ones. Trusts nothing that arrives. What ends a test for good is raised as `Stop` or `NeedsObjects`, which `except
Exception` in a test does not catch, and is remembered: no test passes after it.

An object that cannot cross arrives as a `StandIn`, and what the *test* does with it decides. A test that uses it as an
object (`.push(1)`, a call, `with`) needs live objects. A test that uses it as data (compares, indexes, measures) wanted
data, and the program failed it. So no program chooses by what it returns how it is judged.
"""

import sys
import time
import types
from typing import Any

from text2grad.sandbox.inside.program import Stop
from text2grad.sandbox.inside.wire import (
    Gone,
    Unplain,
    WireError,
    builtin_error,
    decode,
    encode,
    plain_attributes,
    receive,
    refill,
    send,
)

FILE = "tests.py"
"""What the tests' code is compiled as."""
DEEPEST = 50
"""Frames of a traceback that are kept."""


class NeedsObjects(BaseException):
    """Plain data will not do. `by_test`: the test's own doing; otherwise the program gave an object for data."""

    def __init__(self, message: str, by_test: bool) -> None:
        super().__init__(message)
        self.by_test = by_test


class StandIn:
    """Stands for an object of the program. `function`: the program's name for it, where it can be called there.
    `made`: a call of a capitalised name gave it (`LRU()`), so any attribute that the test asks for is an object's."""

    def __init__(self, remote: "Remote", kind: str, function: str = "", made: bool = False) -> None:
        self._remote, self._function, self._made = remote, function, made
        self._words = f"`{function}`" if function else f"an object of type {kind}, which is not plain data"
        self.__name__ = self.__qualname__ = function or kind

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or sys._getframe(1).f_code.co_filename != FILE:
            return _field(self, name)  # pytest looks at everything that a test file holds
        return _needs(self, f"asks for `.{name}` of", _field(self, "_made") or name not in plain_attributes())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = _field(self, "_function")
        return _field(self, "_remote").call(function, list(args), kwargs) if function else _needs(self, "calls", True)

    def __hash__(self) -> int:
        return id(self) if _field(self, "_function") else _needs(self, "uses as data", False)


_field = object.__getattribute__


def _needs(stand_in: StandIn, how: str, by_test: bool) -> Any:
    raise _field(stand_in, "_remote").needs(f"the test {how} {_field(stand_in, '_words')}", by_test)


def _using(how: str, by_test: bool) -> Any:
    return lambda self, *_: _needs(self, how, by_test)


_DATA = "eq ne lt le gt ge bool len iter next contains getitem setitem delitem str repr format int float index add radd"
_DATA += " sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg abs round and or xor reversed"
for _name in _DATA.split():
    setattr(StandIn, f"__{_name}__", _using("uses as data", False))
for _name in ("enter", "exit", "aenter", "aexit", "await", "aiter", "instancecheck", "mro_entries"):
    setattr(StandIn, f"__{_name}__", _using("uses as an object", True))


class Remote:
    """The program in a candidate process, at the other end of a wire. It is loaded when a test first needs it."""

    shares_process = False

    def __init__(self, source: str, replies: int, requests: int, seconds: float, wall: float) -> None:
        self.source, self.replies, self.requests, self.seconds, self.wall = source, replies, requests, seconds, wall
        self.deadline = 0.0
        self.loaded = self.lost = False
        self.broken: Stop | None = None
        """Why the program could not be loaded."""
        self.fault: Stop | None = None
        self.need: NeedsObjects | None = None
        self.asked = 0
        """How often this test called the program, or took one of its values."""

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer, until the deadline of the test."""
        try:
            if self.lost:
                raise Gone("ended before it answered")
            send(self.requests, request)
            reply = receive(self.replies, self.deadline)
        except (Gone, WireError, OSError) as problem:
            self.lost = True
            late = "in time" in str(problem)
            how = "did not answer in time" if late else f"sent {problem}" if isinstance(problem, WireError) else ""
            raise self._stop("timeout" if late else "died", f"the program {how or 'ended its own process'}") from None
        if type(reply) is not dict:
            self.lost = True
            raise self._stop("died", "the program sent a message that is no reply")
        return reply

    def load(self) -> None:
        if not self.loaded:
            self.loaded = True
            try:
                self._raise(self.ask(op="load", source=self.source, seconds=self.seconds))
            except Stop as stop:
                self.broken = stop
            except BaseException as problem:  # noqa: BLE001 - the program's own exception, rebuilt
                self.broken = Stop("load", str(getattr(problem, "__title__", "")), getattr(problem, "__frames__", []))
            else:
                self.ask(op="begin", seconds=self.seconds)
        if self.broken is not None:
            self.fault = self.broken
            raise self.broken

    def begin(self) -> None:
        """A test begins."""
        self.fault = self.need = None
        self.asked = 0
        self.deadline = time.monotonic() + self.wall
        if self.loaded and self.broken is None:
            self.ask(op="begin", seconds=self.seconds)

    def end(self) -> list[int]:
        """Lines that ran since `begin`."""
        if not self.loaded or self.broken is not None:
            return []
        try:
            ran = self.ask(op="end").get("ran")
        except Stop:
            return []
        if type(ran) is not list:
            return []
        return sorted({line for line in ran if type(line) is int and 0 < line <= len(self.source)})

    def find(self, name: str) -> Any:
        """A value of the program, or what stands for its function or object."""
        self.load()
        reply = self.ask(op="kind", name=name)
        self._raise(reply)
        if reply.get("kind") != "value":
            return StandIn(self, "function", name)
        self.asked += 1
        return self._received(name, reply.get("value"))

    def module(self) -> types.ModuleType:
        """What `import solution` gives to the tests."""
        remote = self

        class Solution(types.ModuleType):
            def __getattr__(self, name: str) -> Any:
                if name.startswith("__"):
                    raise AttributeError(name)
                return remote.find(name)

        return Solution("solution")

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.asked += 1
        values = (*args, *kwargs.values())
        try:
            given = encode(values)
        except Unplain as problem:
            if type(problem.value) is StandIn:
                _needs(problem.value, "hands the program", False)  # what the program gave is not the test's doing
            words = f"the test hands the program an object of type {problem}, which is not plain data"
            raise self.needs(words, True) from None
        except RecursionError:
            # A program may have made it, to get out of the test.
            raise self.needs("the test hands the program a value that is too deep for plain data", False) from None
        reply = self.ask(op="call", name=name, given=given, keywords=list(kwargs))
        self._raise(reply)
        value = self._received(name, reply.get("value"))
        if reply.get("after") is not None:
            after = self._received(name, reply["after"])
            try:
                refill(values, after)
            except WireError as problem:
                raise self._stop("not_plain", f"the program sent {problem}") from None
        return value

    def _received(self, name: str, data: Any) -> Any:
        """What came from `name` of the program."""
        try:
            return decode(data, lambda kind: StandIn(self, kind, made=name[:1].isupper()))
        except (WireError, RecursionError) as problem:
            raise self._stop("not_plain", f"the program sent {problem}") from None

    def _raise(self, reply: dict[str, Any]) -> None:
        if "timeout" in reply:
            raise self._stop("timeout", "did not end in time", _frames(reply["timeout"]))
        if "syntax" in reply:
            parts = reply["syntax"] if type(reply["syntax"]) is list else []
            name, message, line = (*parts, None, None, None)[:3]
            raise self._stop("syntax", f"{name}: {message}"[:300], [line] if type(line) is int else [])
        if "error" in reply:
            self.asked += 1
            problem = _rebuilt(reply["error"])
            if isinstance(problem, StopIteration | StopAsyncIteration):
                # `all(map(f, xs))` would take it for the end of `xs`. A test that expects it needs live objects.
                raise self._stop("error", problem.__title__, problem.__frames__)  # type: ignore[union-attr]
            raise problem

    def needs(self, message: str, by_test: bool) -> NeedsObjects:
        """The first need is remembered, should a test catch it."""
        self.need = self.need or NeedsObjects(message, by_test)
        return self.need

    def _stop(self, kind: str, message: str, frames: list[int] | None = None) -> Stop:
        """The first one counts: whatever is asked of a program that is gone, how it went stays the reason."""
        self.fault = self.fault or Stop(kind, message, frames)
        return self.fault


def _rebuilt(error: Any) -> BaseException:
    """The program's exception as the nearest built-in one."""
    error = error if type(error) is dict else {}
    names = [str(name) for name in error["names"]] if type(error.get("names")) is list else []
    message = str(error.get("message") or "")
    try:
        args = tuple(decode(error.get("args") or []))
    except (WireError, RecursionError, TypeError):
        args = ()
    known = next((name for name in names if type(builtin_error(name, args, message)).__name__ == name), "Exception")
    made: Any = SystemExit(*args) if "SystemExit" in names else builtin_error(known, args, message)
    made.__frames__ = _frames(error.get("frames"))
    made.__title__ = f"{names[0] if names else 'Exception'}: {message}"[:300]
    return made  # type: ignore[no-any-return]


def _frames(lines: Any) -> list[int]:
    given = lines[:DEEPEST] if type(lines) is list else []
    return [line for line in given if type(line) is int and line > 0]
