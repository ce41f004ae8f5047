"""Numbers as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.critics.facts import numbers_of


@pytest.mark.parametrize(
    ("text", "value", "measure"),
    [
        ("1,200", 1200, None),
        ("1\u202f200\u202f000", 1_200_000, None),
        ("1’000.5", 1000.5, None),
        ("12.", 12, None),
        ("two hundred and five", 205, None),
        ("twenty-five thousand", 25_000, None),
        ("one million", 1_000_000, None),
        ("twelve hundred", 1200, None),
        ("£3m", 3_000_000, "£"),
        ("$1.5bn", 1_500_000_000, "$"),
        ("40 per cent", 40, "%"),
        ("40%", 40, "%"),
        ("26 miles", 26, None),
        ("21st", 21, None),
        ("1990s", 1990, None),
        ("٣٤", 34, None),
    ],
)
def test_numbers(text: str, value: float, measure: str | None) -> None:
    (number,) = numbers_of(f"some {text}")
    assert (number.value, number.measure) == (value, measure)


@pytest.mark.parametrize("text", ["one of the first", "COVID19", "x_5", "it may be", "", "9" * 400])
def test_what_is_none(text: str) -> None:
    assert numbers_of(text) == []


def test_a_range_is_two_numbers_and_a_date_is_its_day_and_its_year() -> None:
    assert [number.value for number in numbers_of("2006-2010; 23rd of April 2016")] == [2006, 2010, 23, 2016]


@given(st.text(alphabet=st.sampled_from("019,.-%£ mayMay twohundred٣²½Ⅷ\u00a0\n")) | st.text())
def test_places_are_in_order_and_inside(text: str) -> None:
    end = 0
    for number in numbers_of(text):
        assert end <= number.start < number.end <= len(text)
        end = number.end
