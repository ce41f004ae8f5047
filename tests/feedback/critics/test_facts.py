"""Numbers and dates as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.critics.facts import Date, Number, facts_of


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
        ("£3m", 3_000_000, "pound"),
        ("$1.5bn", 1_500_000_000, "dollar"),
        ("40 per cent", 40, "%"),
        ("40%", 40, "%"),
        ("26 miles", 26, "mile"),
        ("5-kilometre run", 5, "km"),
        ("21st", 21, None),
        ("twenty-first", 21, None),
        ("1990s", 1990, None),
        ("٣٤", 34, None),
    ],
)
def test_numbers(text: str, value: float, measure: str | None) -> None:
    (fact,) = facts_of(f"some {text}")
    assert isinstance(fact, Number) and (fact.value, fact.measure) == (value, measure)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("31 August 2018", (2018, 8, 31)),
        ("31st of August, 2018", (2018, 8, 31)),
        ("August 31, 2018", (2018, 8, 31)),
        ("Aug. 31", (None, 8, 31)),
        ("August 2018", (2018, 8, None)),
        ("2018-08-31", (2018, 8, 31)),
    ],
)
def test_dates(text: str, date: tuple[int | None, int, int | None]) -> None:
    (fact,) = facts_of(f"on {text}")
    assert isinstance(fact, Date) and (fact.year, fact.month, fact.day) == date


@pytest.mark.parametrize("text", ["one of the first", "COVID19", "x_5", "it may be", "", "9" * 400])
def test_what_is_neither(text: str) -> None:
    assert facts_of(text) == []


def test_a_verb_is_no_month_and_a_range_is_two_numbers() -> None:
    assert [type(fact) for fact in facts_of("they march 5 miles; 2006-2010")] == [Number, Number, Number]


@given(st.text(alphabet=st.sampled_from("019,.-%£ mayMay twohundred٣²½Ⅷ\u00a0\n")) | st.text())
def test_places_are_in_order_and_inside(text: str) -> None:
    end = 0
    for fact in facts_of(text):
        assert end <= fact.start < fact.end <= len(text)
        end = fact.end
