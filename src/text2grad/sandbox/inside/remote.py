"""The tests' view of a program in another process: functions that send their arguments away.

Enters: names, arguments. Leaves: results rebuilt as exact built-in types, and the program's exceptions as built-in
ones. Trusts nothing that arrives. Whatever ends a call for good (time, death, a result that is not plain) is raised
as `Stop`, which `except Exception` in a test does not catch, and is remembered: no test passes after it.
"""

import time
import types
from collections import deque
from typing import Any

from text2grad.sandbox.inside.wire import Gone, Unplain, WireError, builtin_error, decode, encode, receive, send

DEEPEST = 50
"""Frames of a traceback that are kept."""


class Stop(BaseException):
    """This test cannot go on; `kind` and `message` are its result."""

    def __init__(self, kind: str, message: str, frames: list[list[Any]] | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.frames = kind, message, frames or []


class NeedsLive(BaseException):
    """The test hands the program something that is not plain data: a function, an object of its own."""


class Remote:
    """The wire to one candidate process."""

    def __init__(self, replies: int, requests: int, seconds: float, wall: float) -> None:
        self.replies, self.requests, self.seconds, self.wall = replies, requests, seconds, wall
        self.deadline = 0.0
        self.fault: Stop | None = None
        self.lost = False
        self.longest = 0

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
            said = "did not answer in time" if late else f"sent {problem}" if isinstance(problem, WireError) else ""
            raise self._stop("timeout" if late else "died", f"the program {said or 'ended its own process'}") from None
        if type(reply) is not dict:
            self.lost = True
            raise self._stop("died", "the program sent a message that is no reply")
        return reply

    def load(self, source: str) -> Stop | None:
        """Load the program; what went wrong, if something did."""
        self.deadline = time.monotonic() + self.wall
        self.longest = len(source)
        try:
            reply = self.ask(op="load", source=source, seconds=self.seconds)
            self._raise(reply)
        except Stop as stop:
            return stop
        except BaseException as problem:  # noqa: BLE001 - the program's own exception, rebuilt
            return Stop("load", _titled(problem), getattr(problem, "__frames__", []))
        return None

    def begin(self) -> None:
        self.fault = None
        self.deadline = time.monotonic() + self.wall
        self.ask(op="begin", seconds=self.seconds)

    def end(self) -> list[int]:
        """Lines that ran since `begin`."""
        try:
            ran = self.ask(op="end").get("ran")
        except Stop:
            return []
        if type(ran) is not list:
            return []
        return sorted({line for line in ran if type(line) is int and 0 < line <= self.longest})

    def find(self, name: str) -> Any:
        """A value of the program, or a function that stands for one of its functions."""
        reply = self.ask(op="kind", name=name)
        if reply.get("kind") == "value":
            try:
                return decode(reply.get("value"))
            except (WireError, RecursionError):
                pass
        return self._function(name)

    def module(self) -> types.ModuleType:
        """What `import solution` gives to the tests."""
        remote = self

        class Solution(types.ModuleType):
            def __getattr__(self, name: str) -> Any:
                if name.startswith("__"):
                    raise AttributeError(name)
                return remote.find(name)

        return Solution("solution")

    def _function(self, name: str) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, list(args), kwargs)

        function.__name__ = function.__qualname__ = name
        return function

    def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            sent = encode(args), encode(kwargs)
        except (Unplain, RecursionError) as problem:
            raise NeedsLive(str(problem)) from None
        reply = self.ask(op="call", name=name, args=sent[0], kwargs=sent[1])
        self._raise(reply)
        try:
            value = decode(reply.get("value"))
            after = decode(reply["after"]) if reply.get("after") is not None else None
        except (WireError, RecursionError) as problem:
            raise self._stop("not_plain", f"the program sent {problem}") from None
        if type(after) is list and len(after) == 2:
            _reflect([args, kwargs], after)
        return value

    def _raise(self, reply: dict[str, Any]) -> None:
        if "timeout" in reply:
            raise self._stop("timeout", "did not end in time", _frames(reply["timeout"]))
        if "unplain" in reply:
            raise self._stop("not_plain", f"returns an object of type {str(reply['unplain'])[:60]}, not plain data")
        if "syntax" in reply:
            name, message, line = (*reply["syntax"], None, None, None)[:3]
            raise self._stop("syntax", f"{name}: {message}"[:300], [[line, ""]] if type(line) is int else [])
        if "error" in reply:
            raise _rebuilt(reply["error"])

    def _stop(self, kind: str, message: str, frames: list[list[Any]] | None = None) -> Stop:
        self.fault = Stop(kind, message, frames)
        return self.fault


def _rebuilt(error: Any) -> BaseException:
    """The program's exception as the nearest built-in one."""
    error = error if type(error) is dict else {}
    names = [str(name) for name in error.get("names") or ()]
    message = str(error.get("message") or "")
    try:
        args = tuple(decode(error.get("args") or []))
    except (WireError, RecursionError, TypeError):
        args = ()
    known = next((name for name in names if type(builtin_error(name, args, message)).__name__ == name), "Exception")
    made: Any = builtin_error(known, args, message)
    if "SystemExit" in names or "KeyboardInterrupt" in names:
        made = SystemExit(*args) if "SystemExit" in names else KeyboardInterrupt(*args)
    made.__frames__ = _frames(error.get("frames"))
    made.__title__ = f"{names[0] if names else 'Exception'}: {message}"[:300]
    return made  # type: ignore[no-any-return]


def _titled(problem: BaseException) -> str:
    return str(getattr(problem, "__title__", f"{type(problem).__name__}: {problem}"))


def _frames(found: Any) -> list[list[Any]]:
    if type(found) is not list:
        return []
    pairs = [pair for pair in found[:DEEPEST] if type(pair) is list and len(pair) == 2]
    return [[line, str(name)[:100]] for line, name in pairs if type(line) is int and line > 0]


def _reflect(old: Any, new: Any) -> Any:
    """Make the old containers equal to the new ones in place, inner ones too; the value to hold instead of `old`."""
    kind = type(old)
    if kind is not type(new):
        return new
    if kind is list or kind is deque:
        merged = [_reflect(a, b) for a, b in zip(old, new, strict=False)] + list(new)[len(old) :]
        old.clear()
        old.extend(merged)
    elif kind is dict:
        merged_items = {key: _reflect(old[key], item) if key in old else item for key, item in new.items()}
        old.clear()
        old.update(merged_items)
    elif kind is set or kind is bytearray:
        old.clear()
        (old.update if kind is set else old.extend)(new)
    else:
        return old if kind is tuple and _reflect_tuple(old, new) else new
    return old


def _reflect_tuple(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    """Tuples stay themselves; what they hold may have changed inside."""
    if len(old) != len(new):
        return False
    for a, b in zip(old, new, strict=True):
        _reflect(a, b)
    return True
