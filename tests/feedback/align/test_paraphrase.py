"""Words that are meant but not quoted; what is missing; praise and blame; abstention."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text2grad import Alignment, align
from text2grad.errors import InvalidData
from text2grad.feedback.align.evidence import COLUMNS, stems_of, tokens_of
from text2grad.feedback.align.paraphrase import Prose
from text2grad.feedback.align.scorer import word_scorer
from text2grad.feedback.text import sentences

SOURCE = (
    "The city council of Marlow approved a 12 million euro plan on Tuesday to restore the old tram line. Mayor "
    "Ines Duarte "
    "said work would begin in spring. Councillor Paul Reyes voted against it. Two stops, at the harbour and the "
    "museum, "
    "will be rebuilt first."
)
SUMMARY = (
    "Marlow's city council has approved a 20 million euro plan to restore the old tram line. Mayor Ines Duarte "
    "said work will "
    "begin in autumn. The line carried millions of passengers every year."
)


def found(critique: str, completion: str = SUMMARY, source: str | None = SOURCE) -> Alignment:
    return align(completion, critique, source=source)


def words(alignment: Alignment, verdict: str, completion: str = SUMMARY) -> str:
    return " | ".join(span.slice(completion) for span in alignment.spans if span.verdict == verdict)


def test_what_is_blamed_is_found_and_what_is_offered_is_not() -> None:
    alignment = found("The summary says that work will begin in autumn, but the source says spring.")
    assert "autumn" in words(alignment, "poor")
    assert "20" not in words(alignment, "poor")


def test_a_number_is_found_by_its_kind() -> None:
    assert "20" in words(found("The cost of the plan is wrong, it is 12 million euro."), "poor")


def test_the_source_tells_which_words_are_unsupported() -> None:
    assert "passengers" in words(found("The number of passengers is made up."), "poor")


def test_spans_carry_their_clause_and_their_confidence() -> None:
    alignment = found("Work begins in spring, not in autumn. The passenger numbers are made up.")
    by_word = {span.slice(SUMMARY): span for span in alignment.spans}
    (autumn,) = [span for text, span in by_word.items() if "autumn" in text]
    assert autumn.comment == "Work begins in spring, not in autumn."
    assert (autumn.provenance, 0 < autumn.confidence < 1) == ("paraphrase", True)


def test_praise_and_blame_by_clause() -> None:
    alignment = found("The mention of mayor Ines Duarte is good, but the part about passengers is made up.")
    assert "Duarte" in words(alignment, "good")
    assert "passengers" in words(alignment, "poor")
    assert "Duarte" not in words(alignment, "poor")


@pytest.mark.parametrize(
    "critique", ["Great job!", "I did not like it.", "The penguins danced with vigour.", "👍", "?!"]
)
def test_what_points_nowhere_lands_nowhere(critique: str) -> None:
    assert found(critique).spans == ()


@pytest.mark.parametrize(
    ("critique", "missing"),
    [
        ("The summary does not mention which stops are rebuilt first.", "which stops are rebuilt first"),
        ("It leaves out that Paul Reyes voted against it.", "Paul Reyes voted against it"),
        ("It should add the names of the rebuilt stops.", "the names of the rebuilt stops"),
        ("The summary fails to mention the vote of Paul Reyes.", "the vote of Paul Reyes"),
    ],
)
def test_omissions_are_returned_as_such(critique: str, missing: str) -> None:
    alignment = found(critique)
    assert alignment.omissions == (missing,)
    assert alignment.spans == ()


def test_what_the_source_does_not_mention_is_blamed_not_missing() -> None:
    alignment = found("The source does not mention millions of passengers.")
    assert alignment.omissions == ()
    assert "passengers" in words(alignment, "poor")


def test_a_quote_that_is_not_there_does_not_fall_through_to_paraphrase() -> None:
    alignment = found('The phrase "autumn passengers carried the mayor" is wrong.')
    assert alignment.spans == ()
    assert len(alignment.missed) == 1


def test_a_named_sentence_is_taken_whole() -> None:
    assert words(found("The last sentence is weak."), "poor") == "The line carried millions of passengers every year"


def test_an_embedder_finds_a_sentence_by_meaning() -> None:
    def embed(texts: object) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        # "Commuters" and "passengers" mean alike here; everything else is its own direction.
        rows = [[1.0, 0.0] if "ommuter" in t or "passengers" in t else [0.0, 1.0] for t in texts]  # type: ignore[attr-defined]
        return np.array(rows, dtype=np.float32)

    critique = "Those commuter tales seem fabricated entirely."
    assert align(SUMMARY, critique).spans == ()
    (span,) = align(SUMMARY, critique, embed=embed).spans
    assert span.slice(SUMMARY) == "The line carried millions of passengers every year"
    # Two sentences that are as near as each other are told apart by nothing.
    assert align(f"{SUMMARY} {SUMMARY}", critique, embed=embed).spans == ()


def test_a_clause_goes_to_the_sentence_that_has_its_rarer_words() -> None:
    text = "The dam broke at noon. The mayor spoke at noon. The dam is old."
    prose = Prose(text, sentences(text), None)
    held, total = prose.weights("The mayor did not speak of the dam.")
    # "Mayor" stands in one sentence of three, "dam" in two; "speak" does not stand there as such.
    assert held == pytest.approx({0: np.log(4 / 2), 1: np.log(4), 2: np.log(4 / 2)})
    assert total == pytest.approx(2 * np.log(4) + np.log(4 / 2))
    assert prose.weights("Nothing here.") == ({}, np.log(4))


FOUR = "One. Two.\n\nSix. Ten."


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("the second paragraph drags", ["Six. Ten."]),
        ("Paragraph 2 drags.", ["Six. Ten."]),
        ("the fifth sentence", []),
        ("Sentence 2 is odd.", ["Two"]),
        ("the 2nd sentence", ["Two"]),
        ("the last two sentences", ["Six", "Ten"]),
        ("the first three sentences", ["One", "Two", "Six"]),
        ("the first and last sentences", ["One", "Ten"]),
        ("sentences 1, 3 and 9", ["One", "Six"]),
        ("The ending drags.", ["Ten"]),
        ("I like the opening.", ["One"]),
        ("at the end of June", []),
        ("the opening ceremony", []),
    ],
)
def test_named_parts(clause: str, expected: list[str]) -> None:
    places = Prose(FOUR, sentences(FOUR), None).named(clause)
    assert [FOUR[start:end] for start, end in places] == expected


def test_what_the_source_says_is_about_nothing_by_itself() -> None:
    text = "The dam broke at noon on Friday. Ada Finch of Leeds spoke to 300 people. The company Brax paid $2m."
    source = "The dam burst at dawn on Friday in York. Ada Finch of Leeds spoke to 300 people. The firm Brax paid $2m."
    blamed = found("Noon is wrong. The source says the event took place at dawn.", text, source)
    assert ["noon" in span.slice(text) for span in blamed.spans] == [True]
    assert found("The source says the event took place at dawn.", text, source).spans == ()


def test_a_word_stands_in_a_text_in_any_form() -> None:
    stems = stems_of("Nine ships sailed.")
    assert [token.stands_in(stems) for token in tokens_of("nine ship sails seven")] == [True, True, True, False]


def test_the_shipped_weights_know_the_columns() -> None:
    assert len(word_scorer(COLUMNS)([np.zeros((3, len(COLUMNS)), dtype=np.float32)])[0]) == 3
    with pytest.raises(InvalidData, match="differs in meant"):
        word_scorer(COLUMNS[1:])


def test_sentences_are_scored_alike_alone_and_together() -> None:
    scorer = word_scorer(COLUMNS)
    draw = np.random.default_rng(0)
    rows = [draw.random((length, len(COLUMNS)), dtype=np.float32) for length in (3, 1, 0, 7)]
    for alone, chances in zip(rows, scorer(rows), strict=True):
        np.testing.assert_allclose(scorer([alone])[0], chances, rtol=1e-4, atol=1e-5)


_PIECES = [*"ab .,!?\n\"'“”«»`()[]{}=+-:;0123456789éß漢字🙂\u200f\u202e\u0000"]
_PIECES += [
    " the ",
    " not ",
    " wrong ",
    " good ",
    " says ",
    " source ",
    " line 2 ",
    " last sentence ",
    " but ",
    " omits ",
]
_PIECES += ["def f(n):\n    return n\n", " Nine ships ", " left the harbour. "]
_TEXTS = st.lists(st.sampled_from(_PIECES), max_size=60).map("".join)


@settings(deadline=None, max_examples=200)
@given(_TEXTS, _TEXTS, st.none() | _TEXTS, st.none() | _TEXTS)
def test_no_text_breaks_it_and_no_span_leaves_the_text(
    completion: str, critique: str, source: str | None, revision: str | None
) -> None:
    alignment = align(completion, critique, source=source, revision=revision)
    for span in alignment.spans:
        assert 0 <= span.start < span.end <= len(completion)


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=200), st.text(max_size=200))
def test_any_unicode(completion: str, critique: str) -> None:
    for span in align(completion, critique).spans:
        assert 0 <= span.start < span.end <= len(completion)
