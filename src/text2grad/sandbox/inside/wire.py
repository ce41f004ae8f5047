"""The only thing that crosses between a program and its tests: plain data, as JSON with tags.

Enters: Python values. Leaves: bytes, and on the other side new values of exactly the built-in types, whatever the
sender called them. Objects of any other type, instances of subclasses included, are refused, so nothing that arrives
can carry behaviour of its own (an `__eq__` that is always true). No pickle, no `eval`.

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
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any
from weakref import WeakSet

MOST_ITEMS = 10_000
"""An iterator is sent as its items, up to this many: `next(primes())` works on an endless generator."""
LARGEST = 16 << 20
"""Bytes of one message."""
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


def _pairs(mapping: Any) -> list[Any]:
    return [list(pair) for pair in mapping.items()]


_KINDS: dict[Any, tuple[str, Callable[[Any], list[Any]], Callable[[list[Any]], Any]]] = {
    # type: (tag, what a value is made of, how it is made of that again)
    int: ("int", lambda value: [hex(value)], lambda parts: int(parts[0], 16)),
    complex: ("complex", lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    bytes: ("bytes", lambda value: [value.hex()], lambda parts: bytes.fromhex(*parts)),
    bytearray: ("bytearray", lambda value: [value.hex()], lambda parts: bytearray.fromhex(*parts)),
    range: ("range", lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    tuple: ("tuple", list, tuple),
    set: ("set", list, set),
    frozenset: ("frozenset", list, frozenset),
    deque: ("deque", list, deque),
    dict: ("dict", _pairs, dict),
    OrderedDict: ("OrderedDict", _pairs, OrderedDict),
    Counter: ("Counter", _pairs, lambda parts: Counter(dict(parts))),
    type({}.keys()): ("keys", list, lambda parts: dict.fromkeys(parts).keys()),
    type({}.values()): ("values", list, lambda parts: dict(enumerate(parts)).values()),
    type({}.items()): ("items", lambda value: [list(pair) for pair in value], lambda parts: dict(parts).items()),
}
_LIBRARY: dict[str, tuple[str, Callable[[Any], list[Any]]]] = {
    # Values of the standard library that functions return: their module, and what they are made of.
    "Decimal": ("decimal", lambda value: [str(value)]),
    "Fraction": ("fractions", lambda value: [value.numerator, value.denominator]),
    "date": ("datetime", lambda value: [value.isoformat()]),
    "datetime": ("datetime", lambda value: [value.isoformat()]),
    "time": ("datetime", lambda value: [value.isoformat()]),
    "timedelta": ("datetime", lambda value: [value.days, value.seconds, value.microseconds]),
}
_MADE = {tag: make for tag, _, make in _KINDS.values()}
_TYPES: dict[str, Any] = {
    kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
}
_BARE: dict[type, Callable[[Any], Any]] = {
    # The built-in type's own methods, which a subclass cannot replace here.
    int: lambda value: int.__add__(value, 0),
    float: lambda value: float.__mul__(value, 1.0),
    str: lambda value: str.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
}


def plain_attributes() -> set[str]:
    """Attributes that plain data has."""
    library = [getattr(importlib.import_module(module), name) for name, (module, _) in _LIBRARY.items()]
    kinds: list[Any] = [*_TYPES.values(), *_KINDS, *library, GeneratorType, type]
    return {name for kind in kinds for name in dir(kind)}


def encode(value: Any, lenient: bool = False) -> Any:
    """JSON for a value of built-in types; `Unplain` for any other. `lenient`, for what a program gives: iterators as
    their items, an instance of a subclass of a built-in type as what it holds without what the subclass adds, any other
    object as the name of its type."""
    kind: Any = type(value)
    if value is None or kind is bool or kind is float or kind is str or (kind is int and -_SMALL < value < _SMALL):
        return value
    if kind is list:
        return [encode(item, lenient) for item in value]
    if kind in _KINDS:
        tag, parts, _ = _KINDS[kind]
        return {tag: [encode(part, lenient) for part in parts(value)]}
    if kind is type and value in _TYPES.values():
        return {"type": str(value.__name__)}
    name = kind.__name__
    if name in _LIBRARY and getattr(sys.modules.get(_LIBRARY[name][0]), name, None) is kind:
        return {name: [encode(part) for part in _LIBRARY[name][1](value)]}
    for base, bare in _BARE.items() if lenient else ():
        if issubclass(kind, base):
            return encode(bare(value), lenient)
    if (lenient and isinstance(value, Iterator)) or (kind is GeneratorType and value in _REPLAYED):
        return {"iterator": _drained(value, lenient)}
    if lenient:
        return {"object": str(name)}
    raise Unplain(value)


def _drained(source: Iterator[Any], lenient: bool) -> list[Any]:
    """[items, how it ended]: None, "more" where it was cut off, or an error's [name, message]."""
    items: list[Any] = []
    try:
        for item in source:
            if len(items) == MOST_ITEMS:
                return [items, "more"]
            items.append(encode(item, lenient))
    except Unplain:
        raise
    except Exception as problem:  # noqa: BLE001 - what the program raises is raised again where its items are read
        return [items, [type(problem).__name__, str(problem)]]
    return [items, None]


def decode(data: Any, objects: Callable[[str], Any] | None = None) -> Any:
    """New values of exactly the built-in types; `objects` makes what stands for an object, by the name of its type."""
    kind = type(data)
    if data is None or kind is bool or kind is int or kind is float or kind is str:
        return data
    if kind is list:
        return [decode(item, objects) for item in data]
    if kind is not dict or len(data) != 1:
        raise WireError("a message that is not plain data")
    ((tag, body),) = data.items()
    try:
        if tag == "type":
            return _TYPES[body]
        if tag == "object" and objects is not None and type(body) is str:
            return objects(body[:60])
        if type(body) is not list:
            raise ValueError
        if tag == "iterator":
            return _replayed(decode(body[0], objects), body[1])
        parts = decode(body, objects)
        if tag not in _LIBRARY:
            return _MADE[tag](parts)
        made: Any = getattr(importlib.import_module(_LIBRARY[tag][0]), tag)
        return (made.fromisoformat if tag in ("date", "datetime", "time") else made)(*parts)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError):
        raise WireError(f"a message with a broken {str(tag)[:40]!r}") from None


def refill(given: Any, after: Any) -> None:
    """Make what a test handed over what the program made of it, in place. A container that it holds is a new one
    then; those in a tuple stay the same."""
    kind = type(given)
    if kind is not type(after) or (kind is tuple and len(given) != len(after)):
        raise WireError("a message with other arguments than were sent")
    if kind is tuple:
        for old, new in zip(given, after, strict=True):
            refill(old, new)
    elif kind in (list, deque, bytearray):
        given.clear()
        given.extend(after)
    elif kind in (set, dict, OrderedDict, Counter):
        given.clear()
        given.update(after)


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
