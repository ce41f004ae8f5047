"""Phrases of a critique and the spans they are about: linked where the critique says so, and nowhere else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.align import align
from text2grad.feedback.critics.reference import ReferenceCritic
from text2grad.report.phrases import phrases
from text2grad.tasks.bulletin_critic import BulletinCritic
from text2grad.types import Alignment, Missed, Span


def links(critique: str, completion: str, alignment: Alignment) -> list[tuple[int, str, str, tuple[int, ...]]]:
    """(where, words, kind, indices) of each phrase."""
    found = phrases(critique, completion, alignment)
    return [(one.start, critique[one.start : one.end], one.kind, one.indices) for one in found]


def spans(completion: str, *said: tuple[str, Any, str]) -> tuple[Span, ...]:
    """Spans of these words in their order, each behind the one before."""
    made, position = [], 0
    for words, verdict, comment in said:
        start = completion.index(words, position)
        made.append(Span(start, position := start + len(words), verdict, comment=comment))
    return tuple(made)


def test_quotes_that_one_sentence_judges_together_are_linked_one_by_one() -> None:
    completion, critique = "A fire in Norwick on Monday.", "“fire”, “Norwick” and “Monday” are right."
    found = spans(completion, *((words, "good", f"“{words}” is right.") for words in ("fire", "Norwick", "Monday")))
    assert links(critique, completion, Alignment(found)) == [
        (1, "fire", "span", (0,)),
        (9, "Norwick", "span", (1,)),
        (23, "Monday", "span", (2,)),
    ]


def test_a_quote_in_a_good_and_in_a_poor_span_goes_to_the_sentence_with_its_verdict() -> None:
    completion = "On Monday a fire on Monday."
    critique = "“Monday” is said again. “Monday” and “fire” are right."
    found = spans(
        completion,
        ("Monday", "good", "“Monday” is right."),
        ("fire", "good", "“fire” is right."),
        ("Monday", "poor", "“Monday” is said again."),
    )
    assert links(critique, completion, Alignment(found)) == [
        (1, "Monday", "span", (2,)),
        (25, "Monday", "span", (0,)),
        (38, "fire", "span", (1,)),
    ]


@pytest.mark.parametrize(
    "critique",
    [
        "“fire” and “Monday” are not right.",
        "“fire” and “Monday” are wrong.",
        "It contradicts “fire”: the report says so.",
        "The fire is right.",
        "“A fire” is right.",
        "“fires” are right.",
    ],
)
def test_a_sentence_that_says_something_else_is_no_evidence(critique: str) -> None:
    completion = "A fire."
    assert links(critique, completion, Alignment(spans(completion, ("fire", "good", "“fire” is right.")))) == []


def test_the_same_words_twice_are_taken_in_order_and_shared_where_they_are_said_once() -> None:
    completion = "in in in"
    twice = spans(completion, ("in", "poor", "“in” does not fit."), ("in", "poor", "“in” does not fit."))
    assert links("“in” does not fit. “in” does not fit.", completion, Alignment(twice[::-1])) == [
        (1, "in", "span", (1,)),
        (20, "in", "span", (0,)),
    ]
    assert links("So “in” does not fit.", completion, Alignment(twice)) == [(4, "in", "span", (0, 1))]
    repeated = spans(completion, *[("in", "poor", "“in” repeats it.")] * 3)
    assert [one[2:] for one in links("“in” and “in” repeat it.", completion, Alignment(repeated))] == [
        ("span", (0, 1)),
        ("span", (2,)),
    ]


def test_a_quote_is_not_found_inside_another_one() -> None:
    completion = "The fire station and the fire."
    found = spans(
        completion, ("fire station", "good", "“fire station” is right."), ("fire", "good", "“fire” is right.")
    )
    assert [one[:2] for one in links("“fire station” and “fire” are right.", completion, Alignment(found))] == [
        (1, "fire station"),
        (20, "fire"),
    ]
    (first,) = links("A was a clause.", "a b", Alignment(spans("a b", ("a", "poor", "was a clause"))))
    assert first[:2] == (6, "a")


def test_missed_quotes_stay_missed() -> None:
    completion = "Nine ships."
    critique = "“ten ships” and “Nine” are right, and “ten” and “nine” are not there."
    found = Alignment(spans(completion, ("Nine", "poor", "“nine” are not there")), (Missed("ten", "not there"),))
    assert links(critique, completion, found) == [
        (39, "ten", "missed", (0,)),
        (49, "nine", "span", (0,)),
    ]
    same = Alignment(
        spans(completion, ("Nine", "poor", "“Nine” is wrong")), (Missed("Nine", "offered instead, not quoted"),)
    )
    assert links("“Nine” is wrong: “Nine” it is.", completion, same) == [
        (1, "Nine", "span", (0,)),
        (18, "Nine", "missed", (0,)),
    ]


def test_without_a_comment_words_are_linked_if_they_are_quoted_as_often_as_marked() -> None:
    completion = "a b a"
    found = spans(completion, ("a", "poor", ""), ("b", "poor", ""), ("a", "poor", ""))
    assert links("See 'b'; then 'a' and 'a'.", completion, Alignment(found)) == [
        (5, "b", "span", (1,)),
        (15, "a", "span", (0,)),
        (23, "a", "span", (2,)),
    ]
    assert links("'a' is good.", completion, Alignment(found)) == []
    mixed = spans("A b a", ("A", "poor", ""), ("a", "poor", ""))
    assert [one[2:] for one in links("'a', then 'A'.", "A b a", Alignment(mixed))] == [("span", (0,)), ("span", (1,))]


def test_order_does_not_tell_praise_from_blame() -> None:
    completion, critique = "A fire, a fire.", "In the second sentence “fire” is wrong, in the first “fire” is right."
    for comment in ("", critique):
        found = spans(completion, ("fire", "good", comment), ("fire", "poor", comment))
        assert links(critique, completion, Alignment(found)) == []
    told = spans(completion, ("fire", "good", "in the first “fire” is right"), ("fire", "poor", ""))
    assert links(critique, completion, Alignment(told)) == [(54, "fire", "span", (0,))]
    both = spans(completion, ("A", "good", "Good start, bad end"), ("fire", "poor", "Good start, bad end"))
    assert [one[2:] for one in links("Good start, bad end.", completion, Alignment(both))] == [("span", (0, 1))]


@pytest.mark.parametrize(
    ("critique", "comment", "linked"),
    [
        ("It reads badly. “Norwick” is bad.", "bad", [(29, "bad")]),
        ("It is bad, bad.", "bad", []),
        ("“fire” is right, but the place is wrong.", "but the place is wrong", [(17, "but the place is wrong")]),
        ("It is in norwick, which is wrong.", "in norwick, which is wrong", [(9, "norwick")]),
    ],
)
def test_a_comment_without_a_quote_is_whole_words_as_often_as_there_are_spans(
    critique: str, comment: str, linked: list[tuple[int, str]]
) -> None:
    completion = "A fire in Norwick."
    found = links(critique, completion, Alignment(spans(completion, ("Norwick", "good", comment))))
    assert [one[:2] for one in found] == linked


def test_of_a_comment_with_two_quotes_the_first_of_the_words_is_linked() -> None:
    completion = "5 people, then 7 people."
    found = Alignment(spans(completion, ("5 people", "poor", "“5 people” contradicts “7 people”: wrong.")))
    assert links("“9” and “5 people” contradict “7 people”: wrong.", completion, found) == [
        (9, "5 people", "span", (0,))
    ]
    twice = spans("on, on", *[("on", "poor", "“on” contradicts “on”.")] * 2)
    assert links("“on” contradicts “on”.", "on, on", Alignment(twice)) == [(1, "on", "span", (0, 1))]


def test_capitals_and_noughts_between_quotes_are_no_error() -> None:
    found = Alignment(spans("a b", ("a", "good", "“a” is right.")))
    assert links("“a” AND “b” are right.", "a b", found) == [(1, "a", "span", (0,))]
    assert links("\x00 is right. “a” \x00 are right.", "a b", found) == [(13, "a", "span", (0,))]


def test_quotes_that_were_cut_to_the_same_words_are_taken_in_order() -> None:
    cut, completion = "x" * 60, f"{'x' * 60}1 and {'x' * 60}2"
    comment = f"“{cut}…” is wrong."
    found = Alignment((Span(66, 127, "poor", comment=comment), Span(0, 61, "poor", comment=comment)))
    assert [one[::3] for one in links(f"{comment} {comment}", completion, found)] == [(1, (1,)), (75, (0,))]


@pytest.mark.parametrize(
    ("critique", "quote", "place"),
    [
        ("закон плох, он лжёт", "он", 12),
        ("यह किताब, कि", "कि", 10),
        ("火灾は北京で", "北京", 3),
        ("the ships, the ship", "ship", 15),
    ],
)
def test_words_are_no_part_of_longer_words_in_any_script_with_spaces(critique: str, quote: str, place: int) -> None:
    found = links(critique, "x", Alignment((), (Missed(quote, "found nowhere"),)))
    assert found == [(place, quote, "missed", (0,))]


def test_a_quote_that_was_cut_short_is_linked() -> None:
    completion = "x" * 80
    found = spans(completion, (completion, "poor", "“xxxxx…” does not fit."))
    assert links("“xxxxx…” does not fit.", completion, Alignment(found)) == [(1, "xxxxx…", "span", (0,))]


def test_every_span_of_the_program_critics_that_is_spoken_of_is_linked() -> None:
    said = "A fire in Norwick on Friday damaged 9 houses and a fire hurt 3 people."
    facts = {"what": ["fire"], "where": ["Norwick"], "day": ["Monday"], "damage": ["7 houses"]}
    (bulletin,) = BulletinCritic()([""], [said], facts=[facts])
    (reference,) = ReferenceCritic()(
        [""], [said], reference=["A fire in Norwick, on Friday, hurt people and damaged it."]
    )
    for critique in (bulletin, reference):
        assert critique is not None
        alignment = align(said, critique)
        found = phrases(critique.feedback, said, alignment)
        linked = {index: one for one in found if one.kind == "span" for index in one.indices}
        assert len(alignment.spans) >= 3 and set(linked) == set(range(len(alignment.spans)))
        for index, one in linked.items():
            assert critique.feedback[one.start : one.end] == alignment.spans[index].slice(said)


@given(st.text("ab “”'\".…", max_size=40), st.text("ab “”'…", min_size=2, max_size=12), st.data())
def test_phrases_lie_in_the_critique_in_order_and_apart(critique: str, completion: str, data: st.DataObject) -> None:
    comments = st.one_of(st.just(""), st.just(critique), st.text("ab “”.", max_size=8))
    cut = data.draw(st.integers(1, len(completion) - 1))
    made = [
        Span(0, cut, "good", comment=data.draw(comments)),
        Span(cut, len(completion), "poor", comment=data.draw(comments)),
    ]
    missed = (Missed(completion[:cut], "x"),) if completion[:cut].strip() else ()
    found = phrases(critique, completion, Alignment(tuple(made), missed))
    edges = [edge for one in found for edge in (one.start, one.end)]
    assert edges == sorted(edges) and all(one.start < one.end <= len(critique) for one in found)
