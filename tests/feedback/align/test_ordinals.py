"""Parts that critics pick by number and by order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad import align
from text2grad.feedback.align.ordinals import picks


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lines 3, 4 and 10", [2, 3, 9]),
        ("lines 3 to 5, line 8", [2, 3, 4, 7]),
        ("line 3-5 and line 7", [2, 3, 4, 6]),
        ("on line 3, 4 spaces", [2]),
        ("line nineteen", [18]),
        ("line no. 2", [1]),
        ("the last three lines", [17, 18, 19]),
        ("the second, third and last lines", [1, 2, 19]),
        ("the 12th line", [11]),
        ("the penultimate line", [18]),
        ("line 21", []),
        ("line 0", []),
        ("line 99999999999999999999", []),
        ("the first storm", []),
    ],
)
def test_picks(words: str, expected: list[int]) -> None:
    assert [place for pick in picks(words, "line") for place in pick.of(20)] == expected


@pytest.mark.parametrize(("ordinal", "start"), [("first", 2), ("2nd", 12), ("last", 12), ("fifth", None)])
def test_an_ordinal_chooses_among_the_places_of_a_quote(ordinal: str, start: int | None) -> None:
    found = align("a cat and a cat", f'The {ordinal} "cat" is wrong.')
    assert [span.start for span in found.spans] == ([] if start is None else [start])
    assert len(found.missed) == (start is None)


@given(
    st.lists(st.sampled_from(["line", "lines", "last", "two", "3", ", ", "and", "-", "9th", "L", "few", "0"])),
    st.integers(0, 9),
)
def test_only_what_is_there_is_picked(words: list[str], count: int) -> None:
    for pick in picks(" ".join(words), "line"):
        assert all(0 <= place < count for place in pick.of(count))
