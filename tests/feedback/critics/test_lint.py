"""What is known without running: syntax errors and undefined names, and nothing that only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.critics.lint import syntax_error, undefined_names


@pytest.mark.parametrize(
    ("source", "line"), [("x = (", 1), ("def f():\nreturn 1", 2), ("a\n\tb", 2), ("x = '", 1), ("\0", None)]
)
def test_syntax_errors_have_their_line(source: str, line: int | None) -> None:
    fault = syntax_error(source)
    assert fault is not None
    assert fault.line == line


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f():\n    return g()", ["g"]),
        ("def f():\n    return g()\ndef g(): return 1", []),
        ("import math\nx = math.pi + maths.pi", ["maths"]),
        ("from math import *\nx = pi", []),
        ("print([y for y in range(3)], y)", ["y"]),
        ("try:\n    a\nexcept NameError:\n    a = 1", []),
        ("b + b", ["b"]),
        ("x = (", []),
    ],
)
def test_undefined_names(source: str, names: list[str]) -> None:
    assert [fault.words for fault in undefined_names(source)] == names


@given(st.text(alphabet="abx =+()[]:\n\t'\"#\\.,lambdefif", max_size=60))
def test_no_text_breaks_it(source: str) -> None:
    if syntax_error(source) is not None:
        assert undefined_names(source) == []
    for fault in undefined_names(source):
        assert fault.line is not None
        assert fault.words in source
