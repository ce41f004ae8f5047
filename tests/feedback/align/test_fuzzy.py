"""Slips of the pen are forgiven up to a bound, invented quotes never."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from text2grad import align
from text2grad.feedback.align.locate import fuzzy
from text2grad.feedback.align.settings import QuoteSettings
from text2grad.feedback.text import Text, fold

STORY = (
    "The old lighthouse keeper, who had never learned to swim, counted twelve boats and three whales before breakfast."
)


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("lighthose keeper", "lighthouse keeper"),
        ("who had never learnt to swim", "who had never learned to swim"),
        ("counted twelve boats & three whales", "counted twelve boats and three whales"),
        ("befroe braekfast", "before breakfast"),
        ("breakfst", "breakfast"),
        ("swims", None),
        ("counted seven submarines", None),
        ("the young lion tamer", None),
        ("who had always wanted to sing", None),
    ],
)
def test_slips(quote: str, found: str | None) -> None:
    places, _ = fuzzy(Text(STORY), quote, QuoteSettings())
    assert [STORY[start:end] for start, end in places] == ([found] if found else [])


def test_numbers_must_be_the_same() -> None:
    assert align("It cost 1500 pounds in 2012.", 'The "cost 1600 pounds in 2012" is wrong.').spans == ()


def test_provenance_and_confidence_say_how_near() -> None:
    (span,) = align(STORY, 'The "lighthose keeper" is a lovely figure.').spans
    assert (span.provenance, span.verdict) == ("fuzzy", "good")
    assert 0.8 < span.confidence < 0.95


def test_zero_turns_it_off() -> None:
    assert fuzzy(Text(STORY), "lighthose keeper", QuoteSettings(fuzzy=0.0))[0] == []


@settings(deadline=None)
@given(st.text("abcde 12", min_size=1, max_size=60), st.text("abcde 12", min_size=6, max_size=20))
def test_what_lands_is_inside_the_bound(raw: str, quote: str) -> None:
    config = QuoteSettings()
    wanted = fold(quote)[0].strip(" .,;:!?\"'")
    for start, end in fuzzy(Text(raw), quote, config)[0]:
        assert OSA.distance(wanted, fold(raw[start:end])[0]) <= config.fuzzy * len(wanted)
