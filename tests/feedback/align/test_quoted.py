"""Quoted text: exact and normalised places, repeated phrases, boundaries, and quotes that nobody wrote."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from text2grad import Alignment, AlignSettings, Critique, Quote, align
from text2grad.config import build
from text2grad.feedback.align.locate import cuts_number, exact, normalised
from text2grad.feedback.align.overlap import precedence, segments, standing
from text2grad.feedback.text import Text, fold
from text2grad.types import Span, Verdict

SHIPS = "Nine ships left on Tuesday. They came back on Tuesday."


def only(completion: str, critique: str | Critique, **overrides: object) -> list[str]:
    found = align(
        completion,
        critique,
        settings=build(AlignSettings, {"paraphrase": {"use": False}, **overrides}, "test"),
    )
    return [span.slice(completion) for span in found.spans]


@pytest.mark.parametrize(
    ("text", "quote", "found"),
    [
        ("The Dam broke.", "the dam", ["The Dam"]),
        ("a—b", "a-b", ["a—b"]),
        ("he said “no”", 'he said "no"', ["he said “no”"]),
        ("two  \n words", "two words", ["two  \n words"]),
        ("café au lait", "cafe\u0301 au", ["café au"]),
        ("the oﬃce", "the office", ["the oﬃce"]),
        ("It broke at noon.", "broke at noon,", ["broke at noon"]),
        ("soft\u00adhyphen", "softhyphen", ["soft\u00adhyphen"]),
        ("The dam on the hill broke at noon.", "the dam … at noon", ["The dam on the hill broke at noon"]),
        ("The dam broke.", "the quay", []),
    ],
)
def test_normalised_places(text: str, quote: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in normalised(Text(text), quote)] == found


def test_a_quote_inside_words_counts_only_where_it_is_no_word() -> None:
    assert exact(Text("the theme: he"), "he") == [(11, 13)]
    assert exact(Text("the theme"), "he") == [(1, 3), (5, 7)]


@pytest.mark.parametrize(
    ("critique", "start", "occurrence"),
    [
        ('The second "on Tuesday" is wrong.', 43, "resolved"),
        ('The last "on Tuesday" is wrong.', 43, "resolved"),
        ('"on Tuesday" in the last sentence is wrong.', 43, "resolved"),
        ('They never came back "on Tuesday".', 43, "resolved"),
        ('The nine ships did not leave "on Tuesday".', 16, "resolved"),
        ('"on Tuesday" is wrong.', 16, "ambiguous"),
    ],
)
def test_repeated_phrases(critique: str, start: int, occurrence: str) -> None:
    (span,) = align(SHIPS, critique).spans
    assert (span.start, span.occurrence) == (start, occurrence)


def test_every_means_every() -> None:
    found = align(SHIPS, 'Every "on Tuesday" is wrong.')
    assert [(span.start, span.occurrence) for span in found.spans] == [(16, "resolved"), (43, "resolved")]


@pytest.mark.parametrize(("policy", "spans", "missed"), [("first", 1, 0), ("all", 2, 0), ("none", 0, 1)])
def test_the_policy_for_ambiguous_quotes(policy: str, spans: int, missed: int) -> None:
    settings = build(AlignSettings, {"quotes": {"ambiguous": policy}}, "test")
    found = align(SHIPS, '"on Tuesday" is wrong.', settings=settings)
    assert (len(found.spans), len(found.missed)) == (spans, missed)
    assert all(span.occurrence == "ambiguous" for span in found.spans)


def test_given_quotes_of_one_text_take_its_places_in_turn() -> None:
    quotes = (Quote("on Tuesday", "poor"), Quote("on Tuesday", "good"))
    found = align(SHIPS, Critique("twice", quotes))
    assert [(span.start, span.verdict, span.occurrence) for span in found.spans] == [
        (16, "poor", "resolved"),
        (43, "good", "resolved"),
    ]


def test_a_given_start_chooses_the_nearest_place() -> None:
    (span,) = align(SHIPS, Critique("x", (Quote("on Tuesday", "poor", start=40),))).spans
    assert (span.start, span.occurrence) == (43, "resolved")


def test_an_invented_quote_lands_nowhere_and_says_so() -> None:
    found = align("Nine ships left.", 'The phrase "a cloud of white gulls" is wrong.')
    assert found.spans == ()
    assert [(missed.quote, missed.reason) for missed in found.missed] == [
        ("a cloud of white gulls", "not in the completion")
    ]


def test_a_quote_of_the_source_is_missed_as_such() -> None:
    found = align(
        "Seven ships left.",
        'It leaves out "after the fog had lifted".',
        source="Nine left after the fog had lifted.",
    )
    assert [missed.reason for missed in found.missed] == ["quotes the source"]
    attributed = align("Seven ships left.", 'The source says "ships", nothing more.', source="Nine ships.")
    assert (attributed.spans, [missed.reason for missed in attributed.missed]) == ((), ["quotes the source"])


def test_what_is_offered_instead_is_not_what_is_meant() -> None:
    completion = "They met on Tuesday; on Monday they had slept."
    assert only(completion, 'The first day is wrong: "Tuesday" should be "Monday".') == ["Tuesday"]


def test_a_only_one_of_two_alternatives_that_stands_there_is_meant() -> None:
    assert only("They met on Monday.", 'Tuesday: "Sunday" instead of "Monday".') == ["Monday"]
    assert only("They met on Sunday.", 'Tuesday: "Sunday" instead of "Monday".') == ["Sunday"]


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=80), st.data())
def test_exact_quotes_are_always_found(completion: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(completion) - 1))
    end = data.draw(st.integers(start + 1, len(completion)))
    quote = completion[start:end]
    assume(quote.strip() and not cuts_number(completion, start, end))
    found = align(completion, Critique("x", (Quote(quote, "poor"),)))
    assert [span.slice(completion) for span in found.spans] == [quote]
    assert found.missed == ()


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=60),
    st.data(),
)
def test_exact_quotes_in_free_text_are_always_found(completion: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(completion) - 1))
    end = data.draw(st.integers(start + 1, len(completion)))
    quote = completion[start:end]
    assume(quote.strip(" \"'`") and quote.strip() and not set(quote) & set("“”„〝〞〟"))
    assume(not cuts_number(completion, start, end))
    found = align(
        completion,
        f"Here “{quote}” is wrong.",
        settings=build(AlignSettings, {"paraphrase": {"use": False}}, "test"),
    )
    assert [span.slice(completion) for span in found.spans] == [quote]


@given(st.text(max_size=80), st.lists(st.text(min_size=1, max_size=12).filter(str.strip), max_size=6))
def test_every_quote_ends_in_exactly_one_place(completion: str, texts: list[str]) -> None:
    found = align(completion, Critique("—", tuple(Quote(text, "poor", comment=str(i)) for i, text in enumerate(texts))))
    assert len(found.spans) + len(found.missed) == len(texts)
    assert all(0 <= span.start < span.end <= len(completion) for span in found.spans)
    assert Alignment.from_json(found.to_json()) == found


@given(st.text(max_size=60))
def test_folding_keeps_places(raw: str) -> None:
    folded, places = fold(raw)
    assert len(folded) == len(places)
    assert places == sorted(places)
    assert fold(folded)[0] == folded or not raw.isascii()


_VERDICTS: list[Verdict] = ["good", "poor", "neutral"]
_SPANS = st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from(_VERDICTS)).map(
    lambda drawn: Span(drawn[0], drawn[0] + drawn[1], drawn[2])
)


@given(st.lists(_SPANS, max_size=8))
def test_segments_give_every_covered_character_to_the_span_that_wins(spans: list[Span]) -> None:
    owners = {place: index for start, end, index in segments(spans) for place in range(start, end)}
    for place in range(45):
        covering = [index for index in standing(spans) if spans[index].start <= place < spans[index].end]
        best = min(covering, key=lambda index: precedence(spans[index]), default=None)
        assert (best is None) == (place not in owners)
        if best is not None:
            assert precedence(spans[owners[place]]) == precedence(spans[best])


_THERE = ["harbour", "ships", "storm", "seven", "quay", "lantern", "Monday", "fog", "mayor", "letter"]
_ELSEWHERE = ["violin", "giraffe", "pumpkin", "wizard", "trombone", "jigsaw"]
_WORDS = st.lists(st.sampled_from(_THERE), min_size=2, max_size=5)
_OTHER = st.lists(st.sampled_from(_ELSEWHERE), min_size=2, max_size=5)


@given(_WORDS, _OTHER)
def test_an_invented_quote_never_lands_and_its_words_are_not_searched_for(
    there: list[str], invented: list[str]
) -> None:
    completion = f"The {' '.join(there)} came. The mayor saw the ships."
    critique = f'The ships in "{" ".join([*invented, there[0]])}" are wrong.'
    found = align(completion, critique)
    assert found.spans == ()
    assert [missed.reason for missed in found.missed] == ["not in the completion"]


@given(_OTHER)
def test_a_quote_of_the_source_is_missed_as_one(words: list[str]) -> None:
    quote = " ".join(words)
    found = align("The ships left.", f'Not a word of "{quote}" here.', source=f"There was a {quote} too.")
    assert (found.spans, [missed.reason for missed in found.missed]) == ((), ["quotes the source"])


@pytest.mark.parametrize("marks", ["“”", "«»", "「」", '""', "``", "‘’", "„“"])
@given(st.data())
def test_exact_quotes_are_found_in_every_kind_of_marks(marks: str, data: st.DataObject) -> None:
    completion = "def f(x):\n    # 漢字 🙂 naïve\n    return x*2 + 1  # — done…\n\nשלום, the end."
    start = data.draw(st.integers(0, len(completion) - 2))
    end = data.draw(st.integers(start + 2, len(completion)))
    quote = completion[start:end].strip()
    assume(len(quote) > 1 and any(character.isalnum() for character in quote))
    found = align(completion, f"This: {marks[0]}{quote}{marks[1]} is wrong.")
    assert quote in [span.slice(completion) for span in found.spans if span.provenance == "exact"]


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("It costs 150 euros.", "50 euros"),
        ("It costs 1,150 euros.", "150 euros"),
        ("It took 3.5 days.", "3"),
        ("Founded in 2024.", "Founded in 20"),
    ],
)
def test_a_part_of_a_number_is_another_number(text: str, quote: str) -> None:
    found = align(text, f'"{quote}" is wrong.')
    assert not found.spans and [missed.quote for missed in found.missed] == [quote]
    # A critic that says where it stands means just that.
    start = text.index(quote)
    (span,) = align(text, Critique("", (Quote(quote, "poor", start=start),))).spans
    assert (span.start, span.slice(text)) == (start, quote)


def test_many_quotes_with_errors_are_not_looked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("text2grad.feedback.align.locate._WORK", 60)
    text = "The harbour master spoke at noon."
    said = ("harbor master", "mastr spoke", "spok at noon", "The harbour")
    found = align(text, Critique("", tuple(Quote(quote, "poor") for quote in said)))
    assert [span.slice(text) for span in found.spans] == ["The harbour", "harbour master", "master spoke"]
    assert [(missed.quote, missed.reason) for missed in found.missed] == [("spok at noon", "not in the completion")]
