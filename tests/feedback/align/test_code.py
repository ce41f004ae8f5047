"""Critiques of code: line numbers, identifiers, statements, tracebacks."""

import pytest

from text2grad import align
from text2grad.feedback.align.code import code_lines

TOTAL = """def total(n):
    answer = 0
    for i in range(1, n):
        answer += i
    return answer
"""
TWO = """def load(path):
    with open(path) as handle:
        return handle.read()

def mean(rows):
    total = 0
    for row in rows:
        total += row
    return total / len(rows)
"""


def lines(completion: str, critique: str, verdict: str = "poor") -> list[str]:
    return [span.slice(completion) for span in align(completion, critique).spans if span.verdict == verdict]


@pytest.mark.parametrize(
    ("critique", "expected"),
    [
        ("Line 3 stops one too early.", "for i in range(1, n):"),
        ("The third line is wrong.", "for i in range(1, n):"),
        ("The last line is wrong.", "return answer"),
        ("The range is off by one, so the loop is wrong.", "for i in range(1, n):"),
        ("The return statement is wrong.", "return answer"),
    ],
)
def test_a_line_is_found(critique: str, expected: str) -> None:
    assert expected in lines(TOTAL, critique)


def test_line_numbers_name_nothing_else() -> None:
    assert lines(TOTAL, "Lines 2-3 are wrong.") == ["answer = 0", "for i in range(1, n):"]
    assert lines(TOTAL, "Line 40 is wrong.") == []


@pytest.mark.parametrize(
    ("critique", "expected"),
    [
        ("Lines 2, 3 and 9 are wrong.", [2, 3, 9]),
        ("Lines 2 and 9 are wrong.", [2, 9]),
        ("L9 is wrong.", [9]),
        ("L6-L8 are wrong.", [6, 7, 8]),
        ("stats.py:9 is wrong.", [9]),
        ("line nine is wrong", [9]),
        ("The last two lines are wrong.", [8, 9]),
        ("The 2nd line is wrong.", [2]),
        ("On line 3, two things are wrong.", [3]),
    ],
)
def test_lines_by_number(critique: str, expected: list[int]) -> None:
    assert lines(TWO, critique) == [TWO.splitlines()[number - 1].strip() for number in expected]


@pytest.mark.parametrize(
    "critique", ["I don't understand this.", "Missing type hints.", "No docstrings.", "This is wrong.", "Terrible!"]
)
def test_blame_that_touches_no_line_lands_on_none(critique: str) -> None:
    assert lines(TWO, critique) == []


def test_provenance_is_code() -> None:
    (span,) = align(TOTAL, "Line 3 is wrong.").spans
    assert (span.provenance, span.comment) == ("code", "Line 3 is wrong.")


def test_a_traceback_points_where_it_broke() -> None:
    critique = (
        "Traceback (most recent call last):\n"
        '  File "main.py", line 3, in <module>\n'
        "    mean([])\n"
        '  File "stats.py", line 99, in mean\n'
        "    return total / len(rows)\n"
        "ZeroDivisionError: division by zero"
    )
    found = align(TWO, critique)
    assert [span.slice(TWO) for span in found.spans] == ["return total / len(rows)"]
    assert found.missed == ()


def test_a_frame_without_its_line_goes_by_number() -> None:
    assert lines(TWO, 'It broke: File "stats.py", line 9, in mean') == ["return total / len(rows)"]


def test_a_clause_that_names_a_function_stays_inside_it() -> None:
    found = lines(TWO, "The return statement of mean divides by zero, which is wrong.")
    assert "return total / len(rows)" in found
    assert "return handle.read()" not in found


def test_prose_is_no_code() -> None:
    assert code_lines("The harbour was closed.\nNobody was hurt.\nIt opened again at noon.") is None
    assert code_lines(TOTAL) is not None
    assert code_lines("const f = (x) => {\n  return x + 1;\n}") is not None


def test_docstrings_are_not_code() -> None:
    kept = code_lines('def f():\n    """Say\n    hello."""\n    return 1\n')
    assert [line.number for line in kept or ()] == [1, 4]


def test_fenced_code_is_code_and_the_rest_is_prose() -> None:
    completion = f"Here is the function.\n\n```python\n{TOTAL}```\n\nIt runs in constant memory."
    found = align(completion, "The loop over range stops too early, which is a bug.")
    assert "for i in range(1, n):" in [span.slice(completion) for span in found.spans]
    assert all(span.provenance == "code" for span in found.spans if "range" in span.slice(completion))


@pytest.mark.parametrize(
    ("critique", "line"),
    [
        ("It subtracts where it should not.", "total = total - n"),
        ("It takes the smallest.", "low = min(low, n)"),
        ("The multiplication is wrong.", "scaled = n * 3"),
    ],
)
def test_an_operation_is_found_by_its_name(critique: str, line: str) -> None:
    program = "def f(n, low):\n    total = 9\n    total = total - n\n    low = min(low, n)\n    scaled = n * 3\n"
    assert [span.slice(program) for span in align(program, critique).spans] == [line]
