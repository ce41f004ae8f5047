"""Agreement with people: numbers worked by hand, and the laws that hold for any spans."""

import random
from collections.abc import Callable
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies.reward_model.measures import by_content

from text2grad.feedback.agreement import (
    VERDICTS,
    Agreement,
    Judged,
    by_spans,
    by_tokens,
)
from text2grad.types import Span, Verdict

Measure = Callable[[list[Judged]], dict[Verdict, Agreement]]
TEXT = "Seven ships left the old quay at noon."
#       0     6     12   17  21  25   30 33   38


def poor(*places: tuple[int, int]) -> tuple[Span, ...]:
    return tuple(Span(start, end, "poor") for start, end in places)


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


spans = st.lists(st.tuples(st.integers(0, 36), st.integers(1, 12), st.sampled_from(VERDICTS)), max_size=6).map(
    lambda rows: tuple(Span(start, min(38, start + size), verdict) for start, size, verdict in rows)
)
items = st.builds(Judged, st.just(TEXT), spans, spans)
measures = st.sampled_from((by_tokens, by_content, by_spans))


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
