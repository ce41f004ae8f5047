"""What crosses between program and tests: plain data comes back as it was, and nothing else comes back at all."""

import json
import math
import os
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.sandbox.inside.wire import (
    Gone,
    Unplain,
    WireError,
    builtin_error,
    decode,
    encode,
    receive,
    refill,
    send,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers().map(lambda number: number**9)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=4
)
PLAIN = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(deque)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4).map(OrderedDict)
    ),
    max_leaves=8,
)


def crossed(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))))


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value), sorted(map(str, (types_of(k) for k in value))), [types_of(v) for v in value.values()]
    if isinstance(value, list | tuple | deque):
        return type(value), [types_of(item) for item in value]
    return type(value)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    back = crossed(value)
    assert back == value
    assert types_of(back) == types_of(value)


@pytest.mark.parametrize(
    "value",
    [
        Decimal("1.50"),
        Fraction(1, 3),
        date(2026, 2, 28),
        datetime(2026, 2, 28, 1, 2, 3, 4, tzinfo=UTC),
        time(1, 2),
        timedelta(days=-1, seconds=2, microseconds=3),
    ],
)
def test_values_of_the_library_come_back(value: Any) -> None:
    assert (crossed(value), type(crossed(value)), repr(crossed(value))) == (value, type(value), repr(value))
    posing = type(type(value).__name__, (), {"__module__": type(value).__module__})()
    with pytest.raises(Unplain):
        encode(posing)


@pytest.mark.parametrize(
    "value", [range(2, 10**30, 3), Counter("abca"), bytearray(b"x"), {1: 2}.keys(), {1: 2}.items()]
)
def test_more_kinds_come_back(value: Any) -> None:
    assert (crossed(value), type(crossed(value))) == (value, type(value))


def test_arguments_become_what_the_other_side_made_of_them() -> None:
    data, inner = bytearray(b"x"), [0]
    held: tuple[Any, ...] = ([1], {"k": [1]}, {2}, deque([3]), data, Counter("aab"), OrderedDict(a=1), (inner, 5))
    after: Any = ([1, 2], {"new": [[]]}, {4}, deque(), bytearray(b"yz"), Counter("b"), OrderedDict(b=1), ([0, 1], 5))
    refill(held, crossed(after))
    assert held == after
    assert held[4] is data and held[7][0] is inner


@pytest.mark.parametrize("after", [None, [], ([],), ([], 1, 2), ([], "1"), ({}, 1)])
def test_other_arguments_are_refused(after: Any) -> None:
    held = ([1], 1)
    with pytest.raises(WireError):
        refill(held, after)


def test_numbers_that_are_no_numbers() -> None:
    nan, infinity, negative = crossed([math.nan, math.inf, -0.0])
    assert (math.isnan(nan), infinity, math.copysign(1, negative)) == (True, math.inf, -1.0)


def test_builtin_types_come_as_themselves() -> None:
    assert crossed([int, {"a": str}]) == [int, {"a": str}]
    with pytest.raises(WireError):
        decode({"type": "object"})


def test_a_default_dictionary_is_a_dict_of_the_program_and_an_object_of_the_test() -> None:
    assert type(decode(encode(defaultdict(list, {1: [2]}), lenient=True))) is dict
    with pytest.raises(Unplain):
        encode(defaultdict(list))


class Sly(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __add__(self, other: int) -> "Sly":
        return self

    __hash__ = int.__hash__


class SlyText(str):
    __slots__ = ()

    def __getitem__(self, key: object) -> "SlyText":
        return self


class SlyList(list[Any]):
    def __iter__(self) -> Any:
        return iter([1, 2, 3])


def test_a_subclass_is_refused_or_stripped_of_what_it_adds() -> None:
    pair = namedtuple("pair", "a b")
    size = IntEnum("size", {"big": 3})
    for value, bare in [(Sly(7), 7), (SlyText("a"), "a"), (SlyList([9]), [9]), (pair(1, 2), (1, 2)), (size(3), 3)]:
        with pytest.raises(Unplain):
            encode(value)
        back = decode(encode(value, lenient=True))
        assert type(back) is type(bare)
        assert back == bare


@pytest.mark.parametrize(
    "value", [object(), len, type, Sly, lambda: 1, [object()], {"a": {1: iter([])}}, memoryview(b"")]
)
def test_everything_else_is_refused(value: Any) -> None:
    with pytest.raises(Unplain):
        encode(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Decimal",
                    "Fraction",
                    "date",
                    "timedelta",
                    "int",
                    "set",
                    "dict",
                    "range",
                    "iterator",
                    "complex",
                    "bytes",
                    "Counter",
                    "items",
                    "x",
                ]
            ),
            inner,
            max_size=2,
        )
    ),
)


@given(JSON)
def test_whatever_arrives_is_plain_data_or_an_error(data: Any) -> None:
    try:
        value = decode(data)
    except WireError:
        return
    assert type(value).__module__ in ("builtins", "collections", "decimal", "fractions", "datetime")


def test_an_iterator_comes_as_its_items_and_its_error() -> None:
    def source() -> Any:
        yield 1
        raise KeyError("gone")

    back = decode(encode(source(), lenient=True))
    assert next(back) == 1
    with pytest.raises(KeyError, match="gone"):
        next(back)


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "Mine", "print", "__import__"])
def test_only_ordinary_builtin_exceptions_are_rebuilt(name: str) -> None:
    assert type(builtin_error(name, (), "said")) is Exception


def test_an_exception_with_arguments_of_its_own() -> None:
    assert str(builtin_error("UnicodeDecodeError", ("x",), "said")) == "said"


def test_messages_and_their_ends() -> None:
    out, into = os.pipe()
    try:
        send(into, {"a": [1]})
        assert receive(out) == {"a": [1]}
        os.write(into, b"\xff\xff\xff\xff")
        with pytest.raises(WireError, match="bytes"):
            receive(out)
        with pytest.raises(Gone, match="in time"):
            receive(out, deadline=0.0)
    finally:
        os.close(into)
    with pytest.raises(Gone, match="ended"):
        receive(out)
    os.close(out)
