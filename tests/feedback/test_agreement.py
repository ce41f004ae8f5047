"""Agreement with people: numbers worked by hand, and the laws that hold for any spans."""

import random
from collections.abc import Callable
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.feedback.agreement import (
    VERDICTS,
    Agreement,
    Judged,
    by_content,
    by_cover,
    by_spans,
    by_tokens,
    calibration_error,
    content_scores,
    curve,
    replies,
)
from text2grad.types import Alignment, Missed, Span, Verdict

Measure = Callable[[list[Judged]], dict[Verdict, Agreement]]
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


def test_words_stand_for_tokens_where_there_are_none() -> None:
    # People: Seven, old, quay. Critic: Seven ships, quay. Eight words in all.
    item = Judged(TEXT, poor((0, 5), (21, 29)), (*poor((0, 11)), *poor((25, 29))))
    found = by_tokens([item])
    assert found["poor"] == Agreement(called=3, right=2, marked=3, found=2)
    assert found["neutral"] == Agreement(called=5, right=4, marked=5, found=4)
    assert found["good"] == Agreement()
    assert (found["poor"].precision, found["poor"].recall) == (2 / 3, 2 / 3)


def test_given_tokens_count_once_each_and_empty_ones_never() -> None:
    offsets = [(0, 3), (3, 5), (5, 11), (11, 38), (38, 38)]
    found = by_tokens([Judged(TEXT, poor((0, 5)), poor((4, 11)), offsets)])
    assert found["poor"] == Agreement(called=2, right=1, marked=2, found=1)
    assert sum(found[verdict].marked for verdict in found) == 4


def test_content_is_counted_in_characters_by_a_words_first() -> None:
    # Content words: Seven 5, ships 5, left 4, old 3, quay 4, noon 4. "the" and "at" are none.
    item = Judged(TEXT, poor((0, 5), (17, 24)), poor((0, 11), (23, 24), (26, 29)))
    assert by_content([item])["poor"] == Agreement(called=10, right=5, marked=8, found=5)


def test_spans_agree_from_half_on() -> None:
    # (0, 10) and (5, 15) share 5 of 15; (20, 30) and (20, 25) share 5 of 10, which is half.
    people, critic = poor((0, 10), (20, 30)), poor((5, 15), (20, 25), (33, 37))
    item = Judged(TEXT, people, critic)
    assert by_spans([item])["poor"] == Agreement(called=3, right=1, marked=2, found=1)
    assert by_spans([item], least=0.0)["poor"] == Agreement(called=3, right=2, marked=2, found=2)
    assert by_spans([item], least=0.51)["poor"].found == 0


def test_several_small_spans_in_a_large_one_find_it_once() -> None:
    item = Judged(TEXT, poor((0, 38)), poor((0, 5), (6, 11)))
    assert by_spans([item], least=0.0)["poor"] == Agreement(called=2, right=2, marked=1, found=1)


def test_another_verdict_is_no_agreement() -> None:
    item = Judged(TEXT, poor((0, 5)), (Span(0, 5, "good"),))
    for found in (by_spans([item]), by_tokens([item]), by_content([item])):
        assert found["poor"].recall == found["good"].precision == 0
        assert found["poor"].marked and found["good"].called


def test_what_cannot_be_read_is_wrong_everywhere() -> None:
    clean, wrong = Judged(TEXT, (), None), Judged(TEXT, poor((0, 5)), None)
    assert by_tokens([clean])["neutral"] == Agreement(marked=8)
    assert by_tokens([wrong])["poor"] == Agreement(marked=1)
    assert by_content([wrong])["poor"] == Agreement(marked=5)
    assert by_spans([wrong])["poor"] == Agreement(marked=1)
    read = Judged(TEXT, poor((0, 5)), poor((0, 5)))
    assert by_tokens([read, wrong])["poor"].recall == 0.5


def test_nothing_is_never_perfect() -> None:
    assert (Agreement().precision, Agreement().recall, Agreement().f1) == (0, 0, 0)


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


def test_replies_by_hand() -> None:
    spans = (Span(0, 3, "poor", provenance="exact"), Span(4, 5, "poor", provenance="paraphrase"))
    found = replies([None, Alignment(spans, (Missed("ten ships", "not in the completion"),)), Alignment(), None])
    assert (found.parse_rate, found.quote_found_rate) == (0.5, 0.5)
    assert (replies([]).parse_rate, replies([None]).quote_found_rate) == (0.0, 0.0)


spans = st.lists(st.tuples(st.integers(0, 36), st.integers(1, 12), st.sampled_from(VERDICTS)), max_size=6).map(
    lambda rows: tuple(Span(start, min(38, start + size), verdict) for start, size, verdict in rows)
)
items = st.builds(Judged, st.just(TEXT), spans, spans)
measures = st.sampled_from((by_tokens, by_content, by_spans, by_cover))


@given(st.lists(items, min_size=1, max_size=4), measures)
def test_a_critic_that_says_what_people_say_is_perfect(judged: list[Judged], measure: Measure) -> None:
    found = measure([Judged(item.text, item.people, item.people) for item in judged])
    for agreement in found.values():
        assert agreement.precision == agreement.recall == agreement.f1 == float(agreement.marked > 0)


@given(st.lists(items, max_size=4), measures)
def test_swapping_the_roles_swaps_precision_and_recall(judged: list[Judged], measure: Measure) -> None:
    swapped = measure([Judged(item.text, item.critic or (), item.people) for item in judged])
    for verdict, agreement in measure(judged).items():
        other = swapped[verdict]
        assert (agreement.precision, agreement.recall) == (other.recall, other.precision)


@given(st.lists(items, max_size=4), measures, st.randoms(use_true_random=False))
def test_the_order_of_completions_and_spans_does_not_matter(
    judged: list[Judged], measure: Measure, draw: random.Random
) -> None:
    mixed = [Judged(i.text, tuple(draw.sample(i.people, len(i.people))), i.critic) for i in judged]
    draw.shuffle(mixed)
    plain = measure(judged)
    for verdict, agreement in measure(mixed).items():
        # Shares are added up in another order.
        assert astuple(agreement) == pytest.approx(astuple(plain[verdict]))


@given(items, measures)
def test_not_being_readable_never_helps(item: Judged, measure: Measure) -> None:
    unread = measure([Judged(item.text, item.people, None)])
    for verdict, agreement in measure([item]).items():
        assert (unread[verdict].called, unread[verdict].recall, unread[verdict].precision) == (0, 0, 0)
        assert unread[verdict].marked == agreement.marked


@given(items)
def test_every_token_has_one_verdict(item: Judged) -> None:
    found = by_tokens([item]).values()
    assert sum(each.called for each in found) == sum(each.marked for each in found) == 8


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
