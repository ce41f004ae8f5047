"""The stand-in for pytest agrees with pytest."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.sandbox.inside import fakepytest

NUMBERS = st.floats() | st.integers(min_value=-(10**6), max_value=10**6)


@given(NUMBERS, NUMBERS, st.none() | st.floats(0, 1), st.none() | st.floats(0, 1), st.booleans())
def test_approx_agrees_on_numbers(a: Any, b: Any, rel: float | None, absolute: float | None, nan_ok: bool) -> None:
    for other in (b, a, a * (1 + 1e-7) if math.isfinite(a) else a):
        wanted = other == pytest.approx(a, rel=rel, abs=absolute, nan_ok=nan_ok)
        assert (other == fakepytest.approx(a, rel=rel, abs=absolute, nan_ok=nan_ok)) == wanted


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([0.1 + 0.2, 1], [0.3, 1]),
        ((0.1 + 0.2,), (0.3,)),
        ([1.0], [1.0, 2.0]),
        ({"a": 0.1 + 0.2}, {"a": 0.3}),
        ({"a": 1}, {"b": 1}),
        ("text", "text"),
        ("text", "other"),
        (None, None),
        (True, 1),
        (3, "3"),
        (1 + 1e-8j, 1),
    ],
)
def test_approx_agrees_on_the_rest(actual: Any, expected: Any) -> None:
    assert (actual == fakepytest.approx(expected)) == (actual == pytest.approx(expected))


def test_raises() -> None:
    with fakepytest.raises(ValueError, match="b.d") as caught:
        raise ValueError("bad")
    assert (caught.type, str(caught.value)) == (ValueError, "bad")
    fakepytest.raises(ZeroDivisionError, lambda x: 1 / x, 0)
    with pytest.raises(fakepytest.Failed, match="nothing was"), fakepytest.raises(ValueError):
        pass
    with pytest.raises(fakepytest.Failed, match="matches 'x'"), fakepytest.raises(ValueError, match="x"):
        raise ValueError("bad")
    with pytest.raises(KeyError), fakepytest.raises(ValueError):
        raise KeyError("other")
