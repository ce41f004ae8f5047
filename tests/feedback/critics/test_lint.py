"""What is known without running: syntax errors and undefined names, and nothing that only looks like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.critics.lint import syntax_error, undefined_names, unfinished


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


WHOLE = [
    'def f(x, y=3):\n    """Say."""\n    if x == y and not x:\n        return [a for a in (x, {1: \'b\'}) if a]\n',
    "class A:\n    def g(self):\n        try:\n            import os\n        except OSError as e:\n            pass\n",
    "from os import path\nwhile True:\n    x = 0x1F if path else lambda z: z ** 2 != -1.5e3\n    x += 1\n",
    "with open('a') as f, open(\"b\") as g:\n    print(f'{f}', *g, sep='')\n@d\ndef h(): yield\n",
]


@pytest.mark.parametrize("source", WHOLE)
def test_a_program_that_is_cut_off_anywhere_only_lacks_its_end(source: str) -> None:
    assert syntax_error(source) is None
    cuts = [source[:end] for end in range(len(source))]
    broken = [cut for cut in cuts if syntax_error(cut) is not None]
    assert len(broken) > len(source) / 3
    assert [cut for cut in broken if not unfinished(cut)] == []


@pytest.mark.parametrize(
    "source",
    ["x = 1)", "def f():\nreturn 1\n", "x = = 1", "a b c\n", "x =\n", "f(\n\ndef g():\n    pass\n", "\0", "x = 1\n  y"],
)
def test_a_mistake_is_no_missing_end(source: str) -> None:
    assert syntax_error(source) is not None
    assert not unfinished(source)
