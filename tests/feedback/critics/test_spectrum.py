"""Ochiai's measure by hand, and its laws."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.critics.spectrum import blamed, suspects

RUNS = st.lists(st.tuples(st.frozensets(st.integers(1, 6)), st.booleans()), max_size=6)


def test_by_hand() -> None:
    # Line 1 runs in all four tests, line 2 in both failing ones, line 3 in one failing and one passing one.
    runs = [({1, 2, 3}, False), ({1, 2}, False), ({1, 3}, True), ({1}, True)]
    assert [(s.line, s.suspicion, s.failing, s.passing) for s in suspects(runs)] == [
        (2, 1.0, 2, 0),
        (1, pytest.approx(2 / sqrt(2 * 4)), 2, 2),
        (3, pytest.approx(1 / sqrt(2 * 2)), 1, 1),
    ]
    assert [suspect.line for suspect in blamed(runs, most=3)] == [2]


def test_a_tie_is_blamed_only_if_it_is_small_and_something_else_ran() -> None:
    runs = [({1, 2, 3, 4}, False), ({1}, True)]
    assert [suspect.line for suspect in blamed(runs, most=3)] == [2, 3, 4]
    assert blamed(runs, most=2) == []
    assert blamed([({1, 2}, False)], most=3) == []
    assert [suspect.line for suspect in blamed([({7}, False), ({7}, True)], most=3)] == [7]


@given(RUNS)
def test_laws(runs: list[tuple[frozenset[int], bool]]) -> None:
    found = suspects(runs)
    failing = [lines for lines, passed in runs if not passed]
    assert {suspect.line for suspect in found} == {line for lines in failing for line in lines}
    for suspect in found:
        assert 0 < suspect.suspicion <= 1
        always = suspect.failing == len(failing) and suspect.passing == 0
        assert (suspect.suspicion == pytest.approx(1.0)) == always
    assert [s.suspicion for s in found] == sorted((s.suspicion for s in found), reverse=True)
    if not failing:
        assert blamed(runs, most=3) == []
