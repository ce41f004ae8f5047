"""Curves and calibration: numbers worked by hand, and the laws that hold for any scores."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies.reward_model.measures import by_content, by_cover, calibration_error, content_scores, curve, replies

from text2grad.errors import InvalidData
from text2grad.feedback.agreement import Agreement, Judged
from text2grad.types import Alignment, Missed, Span

TEXT = "Seven ships left the old quay at noon."
#       0     6     12   17  21  25   30 33   38


def poor(*places: tuple[int, int]) -> tuple[Span, ...]:
    return tuple(Span(start, end, "poor") for start, end in places)


def test_spans_count_by_the_share_that_the_other_side_covers() -> None:
    # People: "the old quay" (12) and "noon" (4). Critic: "old" and "quay at": 7 of the 12; all of "old", 4 of 7 right.
    item = Judged(TEXT, poor((17, 29), (33, 37)), poor((21, 24), (25, 32)))
    found = by_cover([item])["poor"]
    assert (found.called, found.marked) == (2, 2)
    assert found.right == pytest.approx(1 + 4 / 7) and found.found == pytest.approx(7 / 12)
    # What two spans both cover counts once; one cut in two covers what it did.
    twice = by_cover([Judged(TEXT, poor((0, 5)), poor((0, 4), (2, 5)))])["poor"]
    assert (twice.found, twice.right) == (1, 2)
    assert by_cover([Judged(TEXT, poor((0, 5)), None)])["poor"] == Agreement(marked=1)
    assert by_cover([Judged("Ships", poor((0, 9)), poor((0, 5)))])["poor"] == Agreement(1, 1, 1, 1)  # beyond the text


def test_replies_by_hand() -> None:
    spans = (Span(0, 3, "poor", provenance="exact"), Span(4, 5, "poor", provenance="paraphrase"))
    found = replies([None, Alignment(spans, (Missed("ten ships", "not in the completion"),)), Alignment(), None])
    assert (found.parse_rate, found.quote_found_rate) == (0.5, 0.5)
    assert (replies([]).parse_rate, replies([None]).quote_found_rate) == (0.0, 0.0)


def test_a_curve_by_hand() -> None:
    found = curve([0.2, 0.9, 0.5, 0.5], [False, True, True, False], [1, 2, 3, 4])
    assert found.thresholds.tolist() == [0.9, 0.5, 0.2]
    assert found.precision.tolist() == pytest.approx([1, 5 / 9, 1 / 2])
    assert found.recall.tolist() == pytest.approx([2 / 5, 1, 1])
    assert found.base == 0.5
    assert found.average_precision == pytest.approx(2 / 5 * 1 + 3 / 5 * 5 / 9)
    assert found.at_precision(0.55) == (1.0, 0.5)
    assert found.at_precision(0.6) == (2 / 5, 0.9)
    assert found.at_threshold(0.3) == (5 / 9, 1.0)
    assert found.at_threshold(0.95) == (0.0, 0.0)


def test_a_precision_that_is_never_reached_has_no_recall() -> None:
    assert curve([0.9, 0.1], [False, True]).at_precision(0.6) == (0.0, float("inf"))


def test_equal_scores_are_one_step() -> None:
    for order in ([True, False], [False, True]):
        assert curve([0.5, 0.5], order).precision.tolist() == [0.5]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([0.5], [False], None), "something poor"),
        (([0.5, 0.5], [True], None), "of one length"),
        (([float("nan")], [True], None), "NaN"),
    ],
)
def test_what_has_no_curve_is_refused(columns: tuple[list[float], list[bool], None], words: str) -> None:
    with pytest.raises(InvalidData, match=words):
        curve(*columns)


def test_scores_of_tokens_become_scores_of_words() -> None:
    # "Seven" is two tokens, "left" and what follows were cut off.
    offsets = [(0, 3), (3, 5), (5, 11), (11, 11)]
    scores, marks, size = content_scores(TEXT, offsets, [0.2, 0.4, 0.9, 1.0], poor((0, 5), (21, 24)))
    assert scores.tolist() == [pytest.approx(0.3), 0.9, -np.inf, -np.inf, -np.inf, -np.inf]
    assert marks.tolist() == [True, False, False, True, False, False]
    assert size.tolist() == [5, 5, 4, 3, 4, 4]
    with pytest.raises(InvalidData, match="one a token, got 1 for 4"):
        content_scores(TEXT, offsets, [0.2], ())


def test_the_curve_of_a_critics_own_calls_is_its_agreement() -> None:
    """What is compared with a curve is counted as the curve counts."""
    people, critic = poor((0, 5), (17, 29)), poor((0, 11), (25, 29))
    words = [(0, 5), (6, 11), (12, 16), (17, 20), (21, 24), (25, 29), (30, 32), (33, 37)]
    called = [any(start <= a < end for start, end in ((0, 11), (25, 29))) for a, _ in words]
    found = curve(*content_scores(TEXT, words, np.array(called, dtype=float), people))
    counted = by_content([Judged(TEXT, people, critic)])["poor"]
    assert (found.precision[0], found.recall[0]) == (counted.precision, counted.recall)


def test_calibration_by_hand() -> None:
    # Bins of a half: 0.2 and 0.4 (one happened), 0.6 and 1.0 (both did).
    values, happened = [0.2, 0.4, 0.6, 1.0], [False, True, True, True]
    assert calibration_error(values, happened, bins=2) == pytest.approx(0.5 * abs(0.3 - 0.5) + 0.5 * abs(0.8 - 1.0))
    assert calibration_error(values, happened, [1, 0, 0, 0], bins=2) == pytest.approx(0.2)
    for bad, words in (([1.5], "0 … 1"), ([], "something to look at")):
        with pytest.raises(InvalidData, match=words):
            calibration_error(bad, [True] * len(bad))


scored = st.lists(
    st.tuples(st.floats(0, 1, width=16), st.booleans(), st.integers(1, 9)), min_size=1, max_size=30
).filter(lambda rows: any(marked for _, marked, _ in rows))


@given(scored, st.randoms(use_true_random=False))
def test_laws_of_curves(rows: list[tuple[float, bool, int]], draw: random.Random) -> None:
    found = curve(*zip(*rows, strict=True))
    assert (np.diff(found.thresholds) < 0).all() and (np.diff(found.recall) >= 0).all()
    assert found.recall[-1] == pytest.approx(1) and found.precision[-1] == pytest.approx(found.base)
    assert 0 < found.average_precision <= 1 + 1e-12
    draw.shuffle(rows)
    again = curve(*zip(*rows, strict=True))
    assert again.precision.tolist() == pytest.approx(found.precision.tolist())
    recalls = [found.at_precision(wanted)[0] for wanted in (0.2, 0.5, 0.8, 1.0)]
    assert recalls == sorted(recalls, reverse=True)
    for wanted in (0.2, 0.5, 0.8):
        recall, threshold = found.at_precision(wanted)
        if recall:
            precision, same = found.at_threshold(threshold)
            assert precision >= wanted and same == recall


@given(scored)
def test_scores_that_know_the_truth_have_average_precision_one(rows: list[tuple[float, bool, int]]) -> None:
    _, marked, weight = zip(*rows, strict=True)
    assert curve(marked, marked, weight).average_precision == pytest.approx(1)


@given(scored)
def test_only_the_order_of_scores_matters(rows: list[tuple[float, bool, int]]) -> None:
    scores, marked, weight = zip(*rows, strict=True)
    stretched = curve([3 * score - 7 for score in scores], marked, weight)
    assert stretched.precision.tolist() == pytest.approx(curve(scores, marked, weight).precision.tolist())


@given(scored, st.integers(1, 20))
def test_laws_of_calibration(rows: list[tuple[float, bool, int]], bins: int) -> None:
    values, marked, weight = zip(*rows, strict=True)
    assert calibration_error([float(mark) for mark in marked], marked, weight, bins) == pytest.approx(0)
    overall = abs(np.average(values, weights=weight) - np.average(marked, weights=weight))
    assert overall - 1e-9 <= calibration_error(values, marked, weight, bins) <= 1
    assert calibration_error(values, marked, weight, 1) == pytest.approx(overall)
