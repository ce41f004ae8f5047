"""The tests' view of a program in another process: functions that send their arguments away.

Enters: names, arguments. Leaves: results rebuilt as exact built-in types, and the program's exceptions as built-in
ones. Trusts nothing that arrives. Whatever ends a call for good (time, death, a result that is not plain) is raised
as `Stop`, which `except Exception` in a test does not catch, and is remembered: no test passes after it.
"""

import time
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
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
    """The test hands the program something that is not plain data, a function or an object of its own; or the program
    gave it such a thing, and `unplain` says which."""

    def __init__(self, message: str, unplain: str = "") -> None:
        super().__init__(message)
        self.unplain = unplain


_USES = "getattribute call eq ne lt le gt ge bool len iter next contains getitem setitem enter exit hash str repr int"
_USES += " float index add radd sub rsub mul rmul truediv rtruediv mod rmod neg abs or and format"


def stand_in(need: Callable[[], BaseException]) -> Any:
    """Stands for an object of the program; whatever a test does with it raises what is needed."""

    def use(*args: Any, **_: Any) -> Any:
        if args[1:] == ("__fixture__",):
            raise AttributeError  # whether it is a fixture is our own question
        raise need()

    return type("StandIn", (), {f"__{name}__": use for name in _USES.split()})()


class Remote:
    """The wire to one candidate process."""

    def __init__(self, replies: int, requests: int, seconds: float, wall: float) -> None:
        self.replies, self.requests, self.seconds, self.wall = replies, requests, seconds, wall
        self.deadline = 0.0
        self.fault: Stop | None = None
        self.need: NeedsLive | None = None
        self.lost = False
        self.asked = 0
        """How often a test called the program, or took one of its values."""
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
        self.fault = self.need = None
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
            self.asked += 1
            try:
                return decode(reply.get("value"))
            except (WireError, RecursionError):
                pass
        if "unplain" in reply:
            return stand_in(lambda: self._live("holds an object that is not plain data"))
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
            given = encode([args, kwargs], seen={})
        except Unplain as problem:
            raise self._live(str(problem), chosen=False) from None
        except RecursionError:
            # Too deep a value: a program may have made it, to be judged elsewhere.
            raise self._live("gives a value that is too deep for plain data") from None
        self.asked += 1
        reply = self.ask(op="call", name=name, given=given)
        self._raise(reply)
        try:
            value = decode(reply.get("value"))
            after = decode(reply["after"]) if reply.get("after") is not None else None
        except (WireError, RecursionError) as problem:
            raise self._stop("not_plain", f"the program sent {problem}") from None
        if type(after) is list and len(after) == 2:
            _Reflection().onto([args, kwargs], after)
        return value

    def _raise(self, reply: dict[str, Any]) -> None:
        if "timeout" in reply:
            raise self._stop("timeout", "did not end in time", _frames(reply["timeout"]))
        if "unplain" in reply:
            raise self._live(f"returns an object of type {str(reply['unplain'])[:60]}, not plain data")
        if "syntax" in reply:
            name, message, line = (*reply["syntax"], None, None, None)[:3]
            raise self._stop("syntax", f"{name}: {message}"[:300], [[line, ""]] if type(line) is int else [])
        if "error" in reply:
            raise _rebuilt(reply["error"])

    def _live(self, message: str, chosen: bool = True) -> NeedsLive:
        """Remembered, should a test catch it. `chosen`: by what the program gave."""
        self.need = self.need or NeedsLive(message, message if chosen else "")
        return self.need

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


_MAPPINGS = {dict, Counter, OrderedDict, defaultdict}
_CONTAINERS = {list, deque, tuple, set, bytearray, *_MAPPINGS}


class _Reflection:
    """Makes the old containers what the call left them, in place. First old and new ones are paired by where they
    stand, each at most once; so what a call made the same is the same, and what it took apart is apart."""

    def __init__(self) -> None:
        self.old: dict[int, Any] = {}
        self.taken: set[int] = set()
        self.filled: set[int] = set()

    def onto(self, old: Any, new: Any) -> Any:
        """The value to hold where `old` was."""
        self._pair(old, new)
        return self._settled(new)

    def _pair(self, old: Any, new: Any) -> None:
        kind = type(new)
        alike = kind is type(old) or (kind is dict and type(old) is defaultdict)
        if kind not in _CONTAINERS or not alike or id(new) in self.old or id(old) in self.taken:
            return
        self.old[id(new)] = old
        self.taken.add(id(old))
        if kind in _MAPPINGS:
            for key in [key for key in new if key in old]:
                self._pair(old[key], new[key])
        elif kind in (list, deque, tuple):
            for before, after in zip(old, new, strict=False):
                self._pair(before, after)

    def _settled(self, new: Any) -> Any:
        kind = type(new)
        if kind not in _CONTAINERS:
            return new
        target = self.old.get(id(new), new)
        if kind is tuple:
            items = tuple([self._settled(item) for item in new])
            return target if len(items) == len(target) and all(map(_unchanged, target, items)) else items
        if id(new) in self.filled:
            return target
        self.filled.add(id(new))
        if kind in _MAPPINGS:
            pairs = [(self._settled(key), self._settled(item)) for key, item in new.items()]
            target.clear()
            for key, item in pairs:
                target[key] = item
        elif kind is list or kind is deque:
            held = [self._settled(item) for item in new]
            target.clear()
            target.extend(held)
        elif target is not new:
            target.clear()
            (target.update if kind is set else target.extend)(new)
        return target


def _unchanged(old: Any, new: Any) -> bool:
    return old is new or (type(old) is type(new) and type(old) not in _CONTAINERS and old == new)
