"""Labels of tokens: rewards that add up to the score, and the way back from predictions to a critique."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from text2grad.feedback.labels import (
    Calibration,
    confidence_of,
    critique_of,
    kind_for,
    label_tokens,
    verdicts_of,
)
from text2grad.feedback.rewards import slope_of
from text2grad.types import Alignment, Critique, Quote, Span

POOR, NEUTRAL, GOOD = range(3)


def pairs(*found: tuple[int, int]) -> NDArray[np.int64]:
    return np.array(found, dtype=np.int64).reshape(-1, 2)


NINE = pairs((0, 4), (4, 5), (5, 9))
"""`Nine`, ` `, `cars`."""


# ---------------------------------------------------------------------------------------------- labels by hand


def test_by_quality_a_span_earns_what_q_gains_over_it_and_the_rest_is_the_decision_to_stop() -> None:
    said = Critique("", quality=((0, 0.25), (4, 0.75), (9, 0.625)), score=0.5)
    labels = label_tokens(said, Alignment((Span(0, 4, "good"), Span(5, 9, "poor"))), NINE, "score", 0.0)
    assert labels.verdicts.tolist() == [GOOD, NEUTRAL, POOR, POOR]
    assert labels.rewards.tolist() == [0.5, 0, -0.125, -0.125]
    assert labels.start == 0.25


def test_by_score_a_span_earns_its_verdict_times_the_scale() -> None:
    where = Alignment((Span(0, 4, "good", severity=0.5), Span(5, 9, "poor")))
    labels = label_tokens(Critique("", score=0.75), where, NINE, "score", 0.25)
    assert (labels.verdicts.tolist(), labels.rewards.tolist()) == ([GOOD, 1, POOR, GOOD], [0.125, 0, -0.25, 0.875])
    assert labels.start == 0


def test_by_verdicts_the_size_is_the_severity_and_what_is_left_out_belongs_to_the_stop() -> None:
    where = Alignment((Span(0, 4, "good"), Span(5, 9, "poor", severity=0.5)), omissions=("the cause",))
    labels = label_tokens(Critique("", score=0.5), where, NINE, "verdicts", 3.0)
    assert (labels.verdicts.tolist(), labels.rewards.tolist()) == ([GOOD, 1, POOR, POOR], [1, 0, -0.5, -1])
    assert label_tokens(Critique("", omissions=("x",)), Alignment(), NINE, "verdicts", 0).verdicts[-1] == POOR
    assert label_tokens(Critique(""), Alignment(), NINE, "verdicts", 0).verdicts.tolist() == [NEUTRAL] * 4


def test_a_verdict_that_its_span_did_not_earn_is_kept_and_earns_nothing() -> None:
    """Said good, while Q fell there: the loss is the stop's."""
    said = Critique("", quality=((0, 0.0), (4, -0.5), (9, -0.5)))
    labels = label_tokens(said, Alignment((Span(0, 4, "good"),)), NINE, "score", 0.0)
    assert (labels.verdicts.tolist(), labels.rewards.tolist()) == ([GOOD, 1, 1, POOR], [0, 0, 0, -0.5])


def test_spans_side_by_side_keep_their_own_shares() -> None:
    said = Critique("", quality=((0, 0.0), (4, 1.0), (9, 1.5)))
    labels = label_tokens(said, Alignment((Span(0, 4, "good"), Span(4, 9, "good"))), NINE, "score", 0.0)
    assert (labels.verdicts.tolist(), labels.rewards.tolist()) == ([GOOD, GOOD, GOOD, NEUTRAL], [1, 0.25, 0.25, 0])


def test_a_span_that_no_token_touches_leaves_its_gain_to_the_stop() -> None:
    """As where a tokenizer drops characters."""
    said = Critique("", quality=((0, 0.0), (4, 0.5), (9, 0.75)))
    labels = label_tokens(said, Alignment((Span(5, 9, "good"),)), pairs((0, 4)), "score", 0.0)
    assert (labels.verdicts.tolist(), labels.rewards.tolist()) == ([NEUTRAL, GOOD], [0, 0.75])


def test_pieces_of_one_character_share_what_it_earns_and_an_empty_text_has_a_stop() -> None:
    said = Critique("", quality=((0, 0.0), (1, 0.75)), score=0.75)
    labels = label_tokens(said, Alignment((Span(0, 1, "good"),)), pairs((0, 1), (0, 1), (0, 1)), "score", 0.0)
    assert labels.rewards.tolist() == [0.25, 0.25, 0.25, 0]
    empty = label_tokens(Critique("", score=-1.0), Alignment(), pairs(), "score", 0.5)
    assert (empty.verdicts.tolist(), empty.rewards.tolist()) == ([POOR], [-1])


def test_the_kind_is_what_all_critiques_can_give_and_the_scale_a_slope() -> None:
    scored, measured, plain = Critique("", score=0.5), Critique("", quality=((0, 0.0),)), Critique("fine")
    assert [kind_for(said) for said in ([scored, measured], [scored, plain], [])] == ["score", "verdicts", "verdicts"]
    two, one = Alignment((Span(0, 1, "good"), Span(1, 2, "good"))), Alignment((Span(0, 1, "good"),))
    judged = [(Critique("", score=0.5), two), (Critique("", score=0.25), one), (measured, two), (plain, one)]
    assert slope_of([]) == 0 and slope_of(judged[:1]) == 0
    assert slope_of(judged) == 0.25
    assert slope_of([(Critique("", score=1.0), one), *judged[:1]]) == 0, "words that contradict the score are ignored"


# ---------------------------------------------------------------------------------------------- laws


@st.composite
def judged(draw: st.DrawFn) -> tuple[str, NDArray[np.int64], Critique, Alignment]:
    """A text in tokens, some of which share a character, with spans and a critique that has a score, a Q or both."""
    widths = draw(st.lists(st.integers(0, 3), min_size=0, max_size=8))
    offsets, at = [], 0
    for width in widths:
        # Width 0: another piece of the last character.
        offsets.append((at, at + width) if width else (max(at - 1, 0), at))
        at += width
    text = "abcdefghij klmnopqrstuvwxyz"[:at]
    places = st.integers(0, max(at, 1))
    edges = draw(st.lists(st.tuples(places, places), max_size=4)) if at else []
    verdicts: st.SearchStrategy[Any] = st.sampled_from(["good", "poor", "neutral"])
    severities = st.sampled_from([None, 0.25, 1.0])
    spans = [Span(a, b, draw(verdicts), draw(severities)) for a, b in edges if a < b <= at]
    number = st.floats(-4, 4, allow_nan=False, width=16)
    score = draw(number | st.none())
    quality = None
    if score is None or draw(st.booleans()):
        ends = draw(st.lists(st.integers(0, max(at, 1)), min_size=1, max_size=5, unique=True))
        quality = tuple((end, draw(number)) for end in sorted(ends))
    return text, pairs(*offsets), Critique("", score=score, quality=quality), Alignment(tuple(spans))


@given(judged(), st.floats(0, 2, width=16))
def test_rewards_and_q_of_nothing_add_up_to_the_score(
    made: tuple[str, NDArray[np.int64], Critique, Alignment], scale: float
) -> None:
    _, offsets, critique, where = made
    labels = label_tokens(critique, where, offsets, "score", scale)
    score = critique.score
    if score is None:
        assert critique.quality
        score = critique.quality[-1][1]
    assert labels.rewards.sum() + labels.start == pytest.approx(score, abs=1e-5)
    assert len(labels.rewards) == len(offsets) + 1 and (labels.rewards * (labels.verdicts - 1) >= 0).all()


@given(judged(), st.floats(0, 2, width=16))
def test_a_head_that_predicts_the_labels_gives_back_the_score(
    made: tuple[str, NDArray[np.int64], Critique, Alignment], scale: float
) -> None:
    text, offsets, critique, where = made
    labels = label_tokens(critique, where, offsets, "score", scale)
    probs, sizes = np.eye(3)[labels.verdicts], np.stack([np.abs(labels.rewards)] * 2, 1)
    said = critique_of(text, offsets, probs, sizes, Calibration(kind="score", start=labels.start))
    earned = labels.rewards.sum()
    assert said.score == pytest.approx((earned if text else min(earned, 0.0)) + labels.start, abs=1e-9)
    assert said.quality is not None and said.quality[0] == (0, labels.start)
    for quote in said.quotes:
        assert quote.start is not None and text[quote.start :].startswith(quote.text)


@given(st.lists(st.sampled_from(["poor", "neutral", "good"]), min_size=1, max_size=9))
def test_a_head_that_predicts_the_labels_gives_back_the_spans(verdicts: list[str]) -> None:
    """Tokens of five characters, the first a space; neighbours of one verdict are one span."""
    text = "".join(f" wo{place:02d}" for place in range(len(verdicts)))
    offsets = pairs(*((5 * place, 5 * place + 5) for place in range(len(verdicts))))
    spans, at = [], 0
    while at < len(verdicts):
        end = at
        while end < len(verdicts) and verdicts[end] == verdicts[at]:
            end += 1
        if verdicts[at] != "neutral":
            spans.append(Span(5 * at + 1, 5 * end, verdicts[at], severity=0.5))  # type: ignore[arg-type]
        at = end
    labels = label_tokens(Critique(""), Alignment(tuple(spans)), offsets, "verdicts", 0.0)
    said = critique_of(
        text, offsets, np.eye(3)[labels.verdicts], np.stack([np.abs(labels.rewards)] * 2, 1), Calibration()
    )
    found = [(quote.start, quote.text, quote.verdict, quote.severity) for quote in said.quotes]
    assert found == [(span.start, span.slice(text), span.verdict, 0.5) for span in spans]
    assert said.score is None and said.quality is None and said.quotes_only


# ---------------------------------------------------------------------------------------------- what it says


def test_thresholds_decide_and_the_further_beyond_wins() -> None:
    probs = np.array([[0.3, 0.4, 0.3], [0.2, 0.5, 0.3], [0.1, 0.4, 0.5], [0.1, 0.9, 0.0]])
    assert verdicts_of(probs, Calibration(poor=0.25, good=0.4)).tolist() == [POOR, NEUTRAL, GOOD, NEUTRAL]
    assert verdicts_of(probs, Calibration(poor=0.2, good=0.2)).tolist() == [POOR, GOOD, GOOD, NEUTRAL]
    assert verdicts_of(probs, Calibration(poor=1.0, good=1.0)).tolist() == [NEUTRAL] * 4


def test_confidence_is_the_mean_of_the_likeliest_class() -> None:
    assert confidence_of(np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])) == 0.75


def test_the_words_list_what_was_found_and_white_space_is_nobodys() -> None:
    probs = np.array([[0, 0, 1.0], [0, 1, 0], [0.75, 0.25, 0], [1, 0, 0]])
    said = critique_of("Nine cars", NINE, probs, np.full((4, 2), 0.5), Calibration())
    assert said.quotes == (
        Quote("Nine", "good", 0.5, "“Nine” is good (100% sure).", 0),
        Quote("cars", "poor", 0.5, "“cars” is poor (75% sure).", 5),
    )
    assert said.omissions == ("something that should be there",)
    assert said.feedback == "“Nine” is good. “cars” is poor. Something is left out."
    plain = critique_of(" \n", pairs((0, 1), (1, 2)), np.eye(3)[[GOOD, GOOD, NEUTRAL]], np.ones((3, 2)), Calibration())
    assert (plain.quotes, plain.feedback) == ((), "Nothing stands out.")


def test_q_rises_where_tokens_end_and_pieces_of_a_character_end_with_it() -> None:
    probs = np.eye(3)[[GOOD, GOOD, GOOD, POOR]]
    offsets = pairs((0, 1), (1, 2), (1, 2))
    said = critique_of("a🙂", offsets, probs, np.full((4, 2), 0.25), Calibration(kind="score", start=1.0))
    assert said.quality == ((0, 1.0), (1, 1.25), (2, 1.75)) and said.score == 1.5
    code = critique_of(
        "a;\n\nb", pairs((0, 1), (1, 4), (4, 5)), probs, np.full((4, 2), 0.25), Calibration(kind="score")
    )
    assert code.quality == ((0, 0.0), (1, 0.25), (2, 0.5), (5, 0.75)), (
        "a quote that ends with “;” has what “;⏎⏎” earned"
    )
    empty = critique_of("", pairs(), probs[3:], np.ones((1, 2)), Calibration(kind="score"))
    assert (empty.quality, empty.score, empty.quotes) == (((0, 0.0),), -1.0, ())


@pytest.mark.parametrize("text", ["", " \n"])
def test_saying_nothing_earns_nothing_and_may_cost(text: str) -> None:
    offsets = pairs(*((place, place + 1) for place in range(len(text))))
    read, size = Calibration(kind="score", start=-0.5), len(text) + 1
    good, poor = (
        critique_of(text, offsets, np.eye(3)[[kind] * size], np.ones((size, 2)), read) for kind in (GOOD, POOR)
    )
    assert (good.score, poor.score) == (-0.5, -0.5 - size)


def test_the_severity_of_a_quote_is_that_of_its_own_verdict() -> None:
    probs = np.eye(3)[[GOOD, NEUTRAL, POOR, NEUTRAL]]
    sizes = np.array([(0.25, 0.75)] * 4)
    said = critique_of("Nine cars", NINE, probs, sizes, Calibration())
    assert [(quote.verdict, quote.severity) for quote in said.quotes] == [("good", 0.75), ("poor", 0.25)]


def test_what_is_called_is_whole_words_and_what_joins_them_where_there_are_only_verdicts() -> None:
    """“Monte” is two tokens of 0.25 and 0.75; “of” is between two poor words."""
    text, offsets = "Monte of Paschi.", pairs((0, 3), (3, 5), (5, 8), (8, 15), (15, 16))
    poor = np.array([0.25, 0.75, 0.0, 0.5, 0.25, 0.0])
    probs = np.stack([poor, 1 - poor, np.zeros(6)], 1)
    said = critique_of(text, offsets, probs, np.full((6, 2), 0.5), Calibration(poor=0.5))
    assert [(quote.text, quote.start, quote.severity) for quote in said.quotes] == [("Monte of Paschi", 0, 0.5)]
    scored = critique_of(text, offsets, probs, np.full((6, 2), 0.5), Calibration(kind="score", poor=0.5))
    assert [(quote.text, quote.start) for quote in scored.quotes] == [("Monte", 0), ("Paschi", 9)]
    assert scored.score == pytest.approx(-0.5 * poor.sum())
