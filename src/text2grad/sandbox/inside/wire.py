"""The only thing that crosses between a program and its tests: plain data, as JSON with tags.

Enters: Python values. Leaves: bytes, and on the other side new values of exactly the built-in types, whatever the
sender called them. Objects of any other type, instances of subclasses included, are refused, so nothing that arrives
can carry behaviour of its own (an `__eq__` that is always true). No pickle, no `eval`.

A container that stands in several places of a test's arguments is one container on the other side, too: both sides
number the containers that can change in the order of the text, and `{"again": n}` is the n-th of them.

A message is four bytes of length and UTF-8 JSON. `decode` trusts nothing: what it does not know is a `WireError`.
"""

import builtins
import importlib
import json
import os
import select
import struct
import sys
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from types import GeneratorType
from typing import Any
from weakref import WeakSet

MOST_ITEMS = 10_000
"""An iterator is sent as its items, up to this many: `next(primes())` works on an endless generator."""
LARGEST = 16 << 20
"""Bytes of one message."""
MOST_AGAIN = 4_000_000
"""Values that `again` may stand for in one message: sixty lists, each twice in the next, are no plain data."""
_SMALL = 1 << 53
_REPLAYED: WeakSet[Any] = WeakSet()
"""Iterators that crossed once; a test may hand them back, and they cross again."""


class WireError(Exception):
    """The other side sent what is not plain data, or too much of it."""


class Unplain(Exception):
    """A value that cannot cross."""

    def __init__(self, value: Any) -> None:
        super().__init__(str(type(value).__name__))
        self.value = value


class Gone(Exception):
    """The other side ended, or did not answer in time."""


def encode(
    value: Any, drain: bool = False, strip: bool = False, seen: dict[int, Any] | None = None, objects: bool = False
) -> Any:
    """JSON for a value of built-in types. `drain`: send the items of iterators. `strip`: send what an instance of a
    subclass of a built-in type holds, without what the subclass adds. `seen`: an empty dict, where what is the same
    container here should be the same one there. `objects`: send other objects as the name of their type."""
    return _Writer(drain, strip, seen, objects).write(value)


def contents(containers: list[Any]) -> list[Any]:
    """What numbered containers hold now, for `refill` on the side that they came from."""
    seen = {id(container): (number, container) for number, container in enumerate(containers)}
    writer = _Writer(False, False, seen, True)
    return [writer.held_by(container) for container in containers]


class _Writer:
    def __init__(self, drain: bool, strip: bool, seen: dict[int, Any] | None, objects: bool) -> None:
        self.drain, self.strip, self.seen, self.objects = drain, strip, seen, objects

    def write(self, value: Any) -> Any:
        kind: Any = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return value if -_SMALL < value < _SMALL else {"int": hex(value)}
        if self.seen is not None and kind in _CHANGING:
            if id(value) in self.seen:
                return {"again": self.seen[id(value)][0]}
            self.seen[id(value)] = len(self.seen), value
        if kind is list:
            return self.held_by(value)
        if kind in _SEQUENCES or kind is bytes or kind is bytearray:
            return {_SEQUENCES.get(kind) or kind.__name__: self.held_by(value)}
        if kind in _MAPPINGS:
            made = value.default_factory if kind is defaultdict else None
            tag = f"default {made.__name__}" if type(made) is type and made in _DEFAULTS else _MAPPINGS[kind]
            return {tag: self.held_by(value)}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind is range:
            return {"range": [self.write(part) for part in (value.start, value.stop, value.step)]}
        if kind is type and value in _TYPES.values():
            return {"type": str(value.__name__)}
        return self._other(value, kind)

    def held_by(self, container: Any) -> Any:
        """What stands below the tag."""
        if isinstance(container, bytes | bytearray):
            return container.hex()
        if isinstance(container, dict):
            return [[self.write(key), self.write(item)] for key, item in container.items()]
        return [self.write(item) for item in container]

    def _other(self, value: Any, kind: Any) -> Any:
        """Of the standard library, of a subclass, an iterator, or none of these."""
        name = kind.__name__
        if name in _LIBRARY and getattr(sys.modules.get(_LIBRARY[name][0]), name, None) is kind:
            return {name: [self.write(part) for part in _LIBRARY[name][1](value)]}
        if self.strip:
            for base, bare in _BARE.items():
                if issubclass(kind, base):
                    return self.write(bare(value))
        if (self.drain and isinstance(value, Iterator)) or (kind is GeneratorType and value in _REPLAYED):
            return {"iterator": self._drained(value)}
        if self.objects:
            return {"object": str(name)}
        raise Unplain(value)

    def _drained(self, source: Iterator[Any]) -> list[Any]:
        """[items, how it ended]: None, "more" where it was cut off, or an error's [name, message]."""
        items: list[Any] = []
        try:
            for item in source:
                if len(items) == MOST_ITEMS:
                    return [items, "more"]
                items.append(self.write(item))
        except Unplain:
            raise
        except Exception as problem:  # noqa: BLE001 - what the program raises is raised again where its items are read
            return [items, [type(problem).__name__, str(problem)]]
        return [items, None]


def decode(data: Any, objects: Callable[[str], Any] | None = None) -> Any:
    """New values of exactly the built-in types; `objects` makes what stands for an object, by the name of its type."""
    return Reader(objects).read(data)


def refill(containers: list[Any], data: Any, objects: Callable[[str], Any] | None = None) -> None:
    """Make numbered containers what `contents` says, in place."""
    reader = Reader(objects)
    reader.held = [(container, 1) for container in containers]
    if type(data) is not list or len(data) != len(containers):
        raise WireError("a message with other containers than were sent")
    try:
        filled = [
            reader.fill({} if isinstance(container, dict) else type(container)(), body)
            for container, body in zip(containers, data, strict=True)
        ]
    except (TypeError, ValueError):
        raise WireError("a message with broken containers") from None
    for container, new in zip(containers, filled, strict=True):
        container.clear()
        (container.update if isinstance(container, dict | set) else container.extend)(new)


class Reader:
    """One message. `held` are its containers that can change, by their number, and how many values each holds."""

    def __init__(self, objects: Callable[[str], Any] | None = None) -> None:
        self.objects = objects
        self.held: list[tuple[Any, int]] = []
        self.values = self.again = 0

    def read(self, data: Any) -> Any:
        self.values += 1
        kind = type(data)
        if data is None or kind is bool or kind is int or kind is float or kind is str:
            return data
        if kind is list:
            return self._filled([], data)
        if kind is not dict or len(data) != 1:
            raise WireError("a message that is not plain data")
        ((tag, body),) = data.items()
        try:
            if tag in _MADE:
                return self._filled(_MADE[tag](), body)
            if tag == "again":
                return self._same(body)
            if tag == "iterator":
                return _replayed(self._items(body[0]), body[1])
            if tag == "object" and self.objects is not None and type(body) is str:
                return self.objects(body[:60])
            if tag in _OF_ITEMS:
                return _OF_ITEMS[tag](self._items(body))
            return _OF_TEXT[tag](body)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError):
            raise WireError(f"a message with a broken {str(tag)[:40]!r}") from None

    def _items(self, body: Any) -> list[Any]:
        if type(body) is not list:
            raise ValueError
        return [self.read(item) for item in body]

    def _filled(self, made: Any, body: Any) -> Any:
        """The container is known before what it holds, which may be itself."""
        number, before = len(self.held), self.values
        self.held.append((made, 1))
        self.fill(made, body)
        self.held[number] = made, self.values - before
        return made

    def fill(self, made: Any, body: Any) -> Any:
        if isinstance(made, bytearray):
            made.extend(bytes.fromhex(body))
        elif isinstance(made, dict):
            # Not `update`, which counts in a Counter.
            for key, item in body:
                made[self.read(key)] = self.read(item)
        else:
            for item in self._items(body):
                (made.add if type(made) is set else made.append)(item)
        return made

    def _same(self, number: Any) -> Any:
        if type(number) is not int or number < 0:
            raise ValueError
        value, size = self.held[number]
        self.values += size
        self.again += size
        if self.again > MOST_AGAIN:
            raise WireError("a message that holds the same values too many times over")
        return value


def _replayed(items: list[Any], end: Any) -> Iterator[Any]:
    error: Exception | None = None
    if type(end) is list:
        error = builtin_error(str(end[0]), (), str(end[1]))
    elif end is not None:
        error = RuntimeError(f"the iterator has more than {MOST_ITEMS} items; no more were taken")

    def replay() -> Iterator[Any]:
        yield from items
        if error is not None:
            raise error

    made = replay()
    _REPLAYED.add(made)
    return made


def _number(body: Any) -> int:
    if type(body) is not str:
        raise ValueError
    return int(body, 16)


_SEQUENCES: dict[Any, str] = {
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
    type({}.keys()): "keys",
    type({}.values()): "values",
    type({}.items()): "items",
}
_TYPES: dict[str, Any] = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
}
_DEFAULTS: tuple[Any, ...] = (bool, int, float, str, list, tuple, dict, set)
"""What a `defaultdict` that crosses may make; with another it is a dict."""
_LIBRARY: dict[str, tuple[str, Callable[[Any], list[Any]]]] = {
    # Values of the standard library that functions return: their module, and what they are made of.
    "Decimal": ("decimal", lambda value: [str(value)]),
    "Fraction": ("fractions", lambda value: [value.numerator, value.denominator]),
    "date": ("datetime", lambda value: [value.isoformat()]),
    "datetime": ("datetime", lambda value: [value.isoformat()]),
    "time": ("datetime", lambda value: [value.isoformat()]),
    "timedelta": ("datetime", lambda value: [value.days, value.seconds, value.microseconds]),
}


def plain_attributes() -> set[str]:
    """Attributes that plain data has."""
    library = [getattr(importlib.import_module(module), name) for name, (module, _) in _LIBRARY.items()]
    kinds: list[Any] = [*_TYPES.values(), *_CHANGING, *_SEQUENCES, *library, range, GeneratorType, type]
    return {name for kind in kinds for name in dir(kind)}


def _from_library(name: str) -> Callable[[list[Any]], Any]:
    def read(items: list[Any]) -> Any:
        kind: Any = getattr(importlib.import_module(_LIBRARY[name][0]), name)
        return (kind.fromisoformat if name in ("date", "datetime", "time") else kind)(*items)

    return read


_BARE: dict[type, Callable[[Any], Any]] = {
    # The built-in type's own methods, which a subclass cannot replace here.
    int: lambda value: int.__add__(value, 0),
    float: lambda value: float.__mul__(value, 1.0),
    str: lambda value: str.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
}
_MAPPINGS = {dict: "dict", Counter: "Counter", OrderedDict: "OrderedDict", defaultdict: "dict"}
_CHANGING = {list, set, deque, bytearray, *_MAPPINGS}
_MADE: dict[str, Callable[[], Any]] = {
    "set": set,
    "deque": deque,
    "bytearray": bytearray,
    "dict": dict,
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    **{f"default {kind.__name__}": partial(defaultdict, kind) for kind in _DEFAULTS},
}
"""What both sides number, besides lists."""
_OF_ITEMS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "frozenset": frozenset,
    "keys": lambda items: dict.fromkeys(items).keys(),
    "values": lambda items: dict(enumerate(items)).values(),
    "items": lambda items: dict(items).items(),
    "complex": lambda items: complex(float(items[0]), float(items[1])),
    "range": lambda items: range(*items),
    **{name: _from_library(name) for name in _LIBRARY},
}
_OF_TEXT: dict[str, Callable[[Any], Any]] = {"int": _number, "bytes": bytes.fromhex, "type": _TYPES.__getitem__}


def builtin_error(name: str, args: tuple[Any, ...], message: str) -> Exception:
    """The built-in exception of that name, made anew; any other name, and exits, become a plain `Exception`."""
    kind = getattr(builtins, name, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        kind = Exception
    try:
        return kind(*(args or (message,)))
    except Exception:  # noqa: BLE001 - UnicodeDecodeError and its kind insist on their own arguments
        return Exception(message)


def send(fd: int, message: Any) -> None:
    body = json.dumps(message).encode()
    view = memoryview(struct.pack(">I", len(body)) + body)
    while view:
        view = view[os.write(fd, view) :]


def receive(fd: int, deadline: float | None = None) -> Any:
    """The next message. Raises `Gone` at the end of the stream or at the deadline, `WireError` for what is no JSON."""
    (length,) = struct.unpack(">I", _exactly(fd, 4, deadline))
    if length > LARGEST:
        raise WireError(f"a message of {length:,} bytes, where {LARGEST:,} are allowed")
    try:
        return json.loads(_exactly(fd, length, deadline))
    except (ValueError, RecursionError):
        raise WireError("a message that is not JSON") from None


def _exactly(fd: int, size: int, deadline: float | None) -> bytes:
    parts = []
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise Gone("did not answer in time")
        part = os.read(fd, min(size, 1 << 16))
        if not part:
            raise Gone("ended before it answered")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
