"""Spans in characters → verdicts of tokens."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.align.overlap import owners, precedence, project, standing
from text2grad.types import Span, Verdict

_VERDICTS: list[Verdict] = ["good", "poor", "neutral"]
_SPANS = st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from(_VERDICTS)).map(
    lambda drawn: Span(drawn[0], drawn[0] + drawn[1], drawn[2])
)


def test_a_token_belongs_to_a_span_if_they_share_a_character() -> None:
    offsets = [(0, 2), (2, 4), (4, 6), (6, 6)]
    assert project([Span(1, 3, "poor")], offsets).tolist() == [-1, -1, 0, 0]
    assert project([Span(2, 4, "good"), Span(4, 6, "neutral")], offsets).tolist() == [0, 1, 0, 0]


def test_ids_that_share_a_character_share_its_verdict() -> None:
    assert project([Span(3, 4, "good")], [(0, 3), (3, 4), (3, 4), (3, 4), (4, 9)]).tolist() == [0, 1, 1, 1, 0]


def test_the_shorter_span_wins_inside_the_longer() -> None:
    assert project([Span(0, 9, "good"), Span(3, 6, "poor")], [(0, 3), (3, 6), (6, 9)]).tolist() == [1, -1, 1]


def test_blame_stands_over_good_words_inside_it() -> None:
    poor, kent = Span(0, 17, "poor", provenance="exact"), Span(5, 9, "good", provenance="exact")
    offsets = [(0, 2), (2, 4), (4, 9), (9, 17)]  # "in a Kent village"
    for spans in ([poor, kent], [kent, poor], [poor, Span(5, 9, "neutral")], [poor, Span(0, 9, "good")]):
        assert project(spans, offsets).tolist() == [-1, -1, -1, -1]
    # Not over what reaches outside, not over the same words, and not where the blame's ends were inferred.
    assert project([poor, Span(10, 20, "good")], [(0, 10), (10, 17), (17, 20)]).tolist() == [-1, 1, 1]
    assert project([Span(5, 9, "poor", confidence=0.5), Span(5, 9, "good")], [(5, 9)]).tolist() == [1]
    assert project([Span(0, 17, "poor", provenance="paraphrase"), kent], offsets).tolist() == [-1, -1, 1, -1]
    inferred = Span(5, 9, "good", provenance="paraphrase")
    assert project([Span(0, 17, "poor", provenance="code"), inferred], offsets).tolist() == [-1, -1, -1, -1]


def test_severity_scales() -> None:
    assert project([Span(0, 1, "poor", severity=0.25)], [(0, 1)], severity=True).tolist() == [-0.25]


def test_nothing_in_nothing_out() -> None:
    assert project([], []).shape == (0,)
    assert project([], [(0, 1)]).tolist() == [0]


@given(st.lists(_SPANS, max_size=6), st.lists(st.integers(0, 5), max_size=20))
def test_agrees_with_reading_character_by_character(spans: list[Span], widths: list[int]) -> None:
    ends = np.cumsum(widths).tolist()
    offsets = list(zip([0, *ends[:-1]], ends, strict=True)) if widths else []
    for (start, end), owner in zip(offsets, owners(spans, offsets), strict=True):
        pieces = set()
        for place in range(start, end):
            covering = [index for index in standing(spans) if spans[index].start <= place < spans[index].end]
            if covering:
                pieces.add(min(covering, key=lambda index: precedence(spans[index])))
        if not pieces:
            assert owner == -1
        else:
            best = min(pieces, key=lambda index: precedence(spans[index]))
            assert precedence(spans[owner]) == precedence(spans[best])
