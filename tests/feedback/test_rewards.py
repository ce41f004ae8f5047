"""Token rewards: laws for any spans and any tokens, and each case once by hand."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.feedback.align.overlap import SIGN
from text2grad.feedback.rewards import (
    Prices,
    earned_by_spans,
    kind_of,
    on_last_token,
    scale_rows,
    token_rewards,
    total_of,
    verdict_sum,
)
from text2grad.feedback.settings import Scoring
from text2grad.types import Alignment, Completion, Critique, Span, Verdict

VERDICTS: list[Verdict] = ["good", "poor", "neutral"]
PLACEMENTS: list[Literal["last", "even"]] = ["last", "even"]
NUMBERS = st.floats(-5, 5, allow_nan=False, width=32)


@st.composite
def completions(draw: st.DrawFn, *, empty: bool = True) -> Completion:
    """Words, characters split over several tokens, special tokens anywhere (also between the pieces of a character),
    and at least one token."""
    offsets: list[tuple[int, int]] = []
    place = 0
    for kind in draw(st.lists(st.sampled_from(["word", "split", "special", "overlap"]), min_size=1, max_size=12)):
        if kind == "word":
            width = draw(st.integers(1, 5))
            offsets.append((place, place + width))
            place += width
        elif kind == "split":
            pieces = [(place, place + 1)] * draw(st.integers(2, 4))
            if draw(st.booleans()):
                pieces.insert(1, (place, place))
            offsets += pieces
            place += 1
        elif kind == "overlap":
            # " 🙂" in two tokens: the first has the blank and the beginning of the character.
            offsets += [(place, place + 2), (place + 1, place + 2)]
            place += 2
        else:
            offsets.append((place, place))
    if not place and not empty:
        offsets.append((0, 3))
        place = 3
    return Completion("x" * place, tuple(range(len(offsets))), tuple(offsets))


@st.composite
def alignments(draw: st.DrawFn, text: str, *, omissions: bool = True) -> Alignment:
    spans = []
    for _ in range(draw(st.integers(0, 5)) if text else 0):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        severity = draw(st.none() | st.floats(0.125, 1.0))
        spans.append(Span(start, end, draw(st.sampled_from(VERDICTS)), severity=severity))
    return Alignment(tuple(spans), omissions=("the cause",) * (draw(st.integers(0, 3)) if omissions else 0))


@st.composite
def qualities(draw: st.DrawFn, text: str) -> tuple[tuple[int, float], ...]:
    ends = sorted(draw(st.sets(st.integers(0, len(text)), min_size=1, max_size=6)))
    return tuple((end, draw(NUMBERS)) for end in ends)


SCORINGS = st.builds(Scoring, placement=st.sampled_from(PLACEMENTS), scale=st.none() | st.floats(0, 3))


@given(st.data(), completions(), SCORINGS, st.none() | NUMBERS)
def test_by_quality_the_sum_is_that_of_the_whole_less_that_of_nothing(
    data: st.DataObject, completion: Completion, scoring: Scoring, score: float | None
) -> None:
    quality = data.draw(qualities(completion.text))
    critique = Critique("", quality=quality, score=score)
    alignment = data.draw(alignments(completion.text))
    rewards = token_rewards(critique, alignment, completion, scoring, scale=data.draw(st.floats(0, 3)))
    nothing = quality[0][1] if quality[0][0] == 0 else 0.0
    wanted = (quality[-1][1] if score is None else score) - nothing
    assert rewards.sum() == pytest.approx(wanted, abs=1e-9)
    assert total_of(critique, alignment, completion.text) == pytest.approx(wanted, abs=1e-9)
    assert len(rewards) == len(completion.token_ids)


@given(st.data(), completions(), SCORINGS, NUMBERS)
def test_by_score_the_sum_is_the_score_whatever_the_spans(
    data: st.DataObject, completion: Completion, scoring: Scoring, score: float
) -> None:
    alignment = data.draw(alignments(completion.text))
    scale = data.draw(st.floats(0, 3))
    rewards = token_rewards(Critique("", score=score), alignment, completion, scoring, scale=scale)
    assert rewards.sum() == pytest.approx(score, abs=1e-9)
    # What the spans do not explain is on the last token: another score moves nothing else.
    other = token_rewards(Critique("", score=score + 2.0), alignment, completion, scoring, scale=scale)
    assert (other - rewards).tolist() == pytest.approx([0.0] * (len(rewards) - 1) + [2.0], abs=1e-9)
    assert (other[:-1] == rewards[:-1]).all()


@given(st.data(), completions())
def test_by_verdicts_the_sum_is_bounded_and_nothing_is_below_saying_nothing(
    data: st.DataObject, completion: Completion
) -> None:
    alignment = data.draw(alignments(completion.text))
    critique = Critique("")
    rewards = token_rewards(critique, alignment, completion, data.draw(SCORINGS))
    total = total_of(critique, alignment, completion.text)
    assert rewards.sum() == pytest.approx(total, abs=1e-9)
    assert -1 - 1e-9 <= total <= 1 + 1e-9
    nothing = token_rewards(critique, Alignment(), Completion("", (0,), ((0, 0),)), Scoring())
    assert nothing.tolist() == [-1.0]
    assert nothing.sum() <= total + 1e-9


@given(st.data(), completions(empty=False), st.integers(1, 20))
def test_by_verdicts_length_and_repetition_earn_nothing(
    data: st.DataObject, completion: Completion, times: int
) -> None:
    alignment = data.draw(alignments(completion.text))
    total = total_of(Critique(""), alignment, completion.text)
    # More text without a verdict, and the same said over and over.
    assert total_of(Critique(""), alignment, completion.text * times) == total
    again = Alignment(alignment.spans * times, omissions=alignment.omissions * times)
    assert total_of(Critique(""), again, completion.text * times) == pytest.approx(total, abs=1e-9)


@given(st.data(), completions(empty=False))
def test_segments_tile_the_completion(data: st.DataObject, completion: Completion) -> None:
    """Q measured everywhere: up to each boundary of a span, the tokens have earned Q of the prefix that they cover."""
    text = completion.text
    values = [data.draw(NUMBERS) for _ in range(len(text) + 1)]
    alignment = data.draw(alignments(text))
    rewards = token_rewards(Critique("", quality=tuple(enumerate(values))), alignment, completion, Scoring())
    edges = sorted({0, len(text), *(edge for span in alignment.spans for edge in (span.start, span.end))})
    starts = np.array([start for start, end in completion.offsets])
    solid = np.array([end > start for start, end in completion.offsets])
    for before, edge in pairwise(edges):
        # Tokens with a character before the edge; they have earned everything up to the last edge that they reach.
        mine = solid & (starts < edge)
        last = int(np.flatnonzero(mine)[-1])
        reached = max(
            other for other in edges if other == edge or not (solid & (starts >= edge) & (starts < other)).any()
        )
        assert rewards[: last + 1].sum() == pytest.approx(values[reached] - values[0], abs=1e-6), (before, edge)


@given(st.data(), completions(), st.sampled_from(PLACEMENTS))
def test_the_paper_rule_is_one_minus_one_and_zero(
    data: st.DataObject, completion: Completion, placement: Literal["last", "even"]
) -> None:
    alignment = data.draw(alignments(completion.text))
    scoring = Scoring(rule="paper", placement=placement)
    rewards = token_rewards(Critique("", score=3.0), alignment, completion, scoring)
    for (start, end), reward in zip(completion.offsets, rewards, strict=True):
        touching = {SIGN[span.verdict] for span in alignment.spans if max(start, span.start) < min(end, span.end)}
        assert reward in (touching or {0.0})


@given(st.lists(NUMBERS, max_size=20))
def test_on_the_last_token_is_the_same_sum(numbers: list[float]) -> None:
    moved = on_last_token(np.array(numbers, dtype=float))
    assert moved.sum() == pytest.approx(sum(numbers), abs=1e-9)
    assert not moved[:-1].any()
    assert len(moved) == len(numbers)


# By hand. Five tokens: "Nine", " cars", " ", "🙂" in two pieces, and the end.
TEXT = "Nine cars 🙂"
TOKENS = Completion(TEXT, (1, 2, 3, 4, 5, 0), ((0, 4), (4, 9), (9, 10), (10, 11), (10, 11), (11, 11)))
SPANS = Alignment((Span(0, 4, "good"), Span(5, 9, "poor", severity=0.5), Span(10, 11, "poor")))


def test_by_quality_by_hand() -> None:
    # Q: 0.1 of nothing, 0.5 after "Nine", 0.25 after " cars", 0.25 after the blank, 0 at the end; the score is −0.5.
    # Cut at 4, 5, 9, 10 and 11. "Nine" earns 0.5 − 0.1 = 0.4; the blank before "cars" has no measure of its own: 0;
    # "cars" 0.25 − 0.5 = −0.25; " " 0; the emoji 0 − 0.25, on the piece that completes it; the end −0.5 − 0 = −0.5.
    quality = ((0, 0.1), (4, 0.5), (9, 0.25), (10, 0.25), (11, 0.0))
    critique = Critique("", quality=quality, score=-0.5)
    rewards = token_rewards(critique, SPANS, TOKENS, Scoring())
    assert rewards.tolist() == pytest.approx([0.4, -0.25, 0.0, 0.0, -0.25, -0.5])
    # Evenly: the emoji's −0.25 over its two pieces and the end, which belongs to the last segment.
    spread = token_rewards(critique, SPANS, TOKENS, Scoring(placement="even"))
    assert spread.tolist() == pytest.approx([0.4, -0.25, 0.0, -0.25 / 3, -0.25 / 3, -0.5 - 0.25 / 3])
    assert kind_of(critique) == "quality"


def test_by_score_by_hand() -> None:
    # c = 2: "Nine" 2; "cars" −½ · 2 = −1; the emoji −2. Together −1; the score is 3, so 4 remain for the end.
    critique = Critique("", score=3.0)
    assert token_rewards(critique, SPANS, TOKENS, Scoring(), scale=2.0).tolist() == [2.0, -1.0, 0.0, 0.0, -2.0, 4.0]
    assert token_rewards(critique, SPANS, TOKENS, Scoring(scale=0.0), scale=2.0).tolist() == [0.0] * 5 + [3.0]
    spread = token_rewards(critique, SPANS, TOKENS, Scoring(placement="even"), scale=2.0)
    assert spread.tolist() == [2.0, -1.0, 0.0, -1.0, -1.0, 4.0]
    assert kind_of(critique) == "score"


def test_by_verdicts_by_hand() -> None:
    # Three verdicts and one omission: each counts ¼. ¼, −⅛, −¼; the omission −¼ on the end.
    alignment = Alignment(SPANS.spans, omissions=("the cause",))
    rewards = token_rewards(Critique(""), alignment, TOKENS, Scoring())
    assert rewards.tolist() == pytest.approx([0.25, -0.125, 0.0, 0.0, -0.25, -0.25])
    assert kind_of(Critique("")) == "verdicts"


def test_rewards_follow_the_verdicts_where_spans_overlap() -> None:
    tokens = Completion("in a Kent village", (1, 2, 3, 4, 0), ((0, 2), (2, 4), (4, 9), (9, 17), (17, 17)))
    poor, kent = Span(0, 17, "poor"), Span(5, 9, "good")
    score = Critique("", score=0.0)
    # "Kent" is overruled: it earns nothing and is not counted.
    overruled = Alignment((poor, kent))
    assert token_rewards(score, overruled, tokens, Scoring(scale=1.0)).tolist() == [0.0, 0.0, 0.0, -1.0, 1.0]
    assert verdict_sum(overruled) == -1.0
    assert token_rewards(Critique(""), overruled, tokens, Scoring()).tolist() == [0.0, 0.0, 0.0, -1.0, 0.0]
    # Poor "village" inside good words: the good span earns on "Kent", the last token that is its own.
    inside = Alignment((Span(0, 17, "good"), Span(10, 17, "poor")))
    assert token_rewards(score, inside, tokens, Scoring(scale=1.0)).tolist() == [0.0, 0.0, 1.0, -1.0, 0.0]
    even = token_rewards(score, inside, tokens, Scoring(scale=3.0, placement="even"))
    assert even.tolist() == pytest.approx([1.0, 1.0, 1.0, -3.0, 0.0])
    # Two remarks of one verdict about the same words add up.
    twice = Alignment((poor, Span(10, 17, "poor")))
    assert token_rewards(score, twice, tokens, Scoring(scale=1.0)).tolist() == [0.0, 0.0, 0.0, -2.0, 2.0]


def test_the_paper_rule_by_hand() -> None:
    assert token_rewards(Critique(""), SPANS, TOKENS, Scoring(rule="paper")).tolist() == [1, -1, 0, -1, -1, 0]


def test_a_span_in_the_middle_of_a_token_goes_to_that_token() -> None:
    one = Completion("carpet", (7,), ((0, 6),))
    assert token_rewards(
        Critique("", score=0.0), Alignment((Span(0, 3, "good"),)), one, Scoring(scale=1.0)
    ).tolist() == [0]
    paper = token_rewards(Critique(""), Alignment((Span(0, 3, "good"),)), one, Scoring(rule="paper"))
    assert paper.tolist() == [1.0]


def test_a_special_token_in_the_middle_takes_no_reward() -> None:
    made = Completion("ab", (1, 9, 2), ((0, 1), (1, 1), (1, 2)))
    for placement in PLACEMENTS:
        rewards = token_rewards(
            Critique("", score=0.0), Alignment((Span(0, 1, "good"),)), made, Scoring(scale=1.0, placement=placement)
        )
        assert rewards.tolist() == [1.0, 0.0, -1.0]


def test_cut_off_inside_a_span_the_rest_does_not_undo_it() -> None:
    """No decision to stop: what the span earns stands before the rest of the sum, if it has a token there."""
    made, poor = Completion("ab", (1, 2), ((0, 1), (1, 2))), Alignment((Span(0, 2, "poor"),))
    assert token_rewards(Critique("", score=0.0), poor, made, Scoring(scale=1.0)).tolist() == [-1.0, 1.0]
    last = Alignment((Span(1, 2, "poor"),))
    assert token_rewards(Critique("", score=0.0), last, made, Scoring(scale=1.0)).tolist() == [0.0, 0.0]


def test_nothing_sampled_nothing_earned() -> None:
    assert token_rewards(Critique("", score=1.0), Alignment(), Completion("", (), ()), Scoring()).shape == (0,)
    assert on_last_token(np.zeros(0)).shape == (0,)


def test_the_sum_of_verdicts_counts_severity() -> None:
    assert verdict_sum(SPANS) == 1 - 0.5 - 1


def test_a_good_and_a_poor_span_earn_what_their_slopes_say() -> None:
    critique = Critique("", score=0.5)
    alignment = Alignment((Span(0, 3, "good"), Span(4, 7, "poor", severity=0.5)))
    completion = Completion("one two.", (1, 2, 3, 0), ((0, 3), (3, 7), (7, 8), (8, 8)))
    earned = token_rewards(critique, alignment, completion, Scoring(slopes="two"), (0.3, 0.2))
    assert earned.tolist() == pytest.approx([0.3, -0.1, 0.0, 0.3]) and earned.sum() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("placement", "wanted"),
    # 20 characters. The good span has 8 and earns 0.1 + 0.5 × 8/20 = 0.3, of which 0.2 for its length. The poor one has
    # 4 and half the severity: 0.5 × (0.2 + 1.0 × 4/20) = 0.2, of which 0.1 for its length. The rest of the score
    # goes to the last token.
    [("last", [0.1, 0.1 + 0.1, 0.0, -0.1 - 0.1, 0.0, 0.4]), ("even", [0.15, 0.15, 0.0, -0.2, 0.0, 0.4])],
)
def test_a_span_earns_by_its_share_of_the_text_spread_over_its_tokens(
    placement: Literal["last", "even"], wanted: list[float]
) -> None:
    alignment = Alignment((Span(0, 8, "good"), Span(12, 16, "poor", severity=0.5), Span(16, 20, "neutral")))
    offsets = ((0, 4), (4, 8), (8, 12), (12, 16), (16, 20), (20, 20))
    completion = Completion("x" * 20, tuple(range(6)), offsets)
    prices, scoring = Prices(0.1, 0.2, 0.5, 1.0), Scoring(slopes="two", by_length=True, placement=placement)
    earned = token_rewards(Critique("", score=0.5), alignment, completion, scoring, prices)
    assert earned.tolist() == pytest.approx(wanted) and earned.sum() == pytest.approx(0.5)
    assert earned_by_spans(alignment, prices, 20) == pytest.approx(0.1)
    # Twice the text around the same spans: their lengths count half.
    assert earned_by_spans(alignment, prices, 40) == pytest.approx(0.1 + 0.1 - 0.1 - 0.05)


def test_what_the_scales_see_by_hand() -> None:
    alignment = Alignment((Span(0, 8, "good"), Span(12, 16, "poor", severity=0.5), Span(16, 20, "neutral")))
    judged = [(Critique("", score=0.7), alignment, 20)]
    assert scale_rows(judged, Scoring()) == [(0.5, 0.7)]
    assert scale_rows(judged, Scoring(slopes="two")) == [(1.0, 0.5, 0.7)]
    (one,) = scale_rows(judged, Scoring(by_length=True))
    assert one == pytest.approx((0.5, 0.4 - 0.1, 0.7))
    (two,) = scale_rows(judged, Scoring(slopes="two", by_length=True))
    assert two == pytest.approx((1.0, 0.5, 0.4, 0.1, 0.7))


@pytest.mark.parametrize("other", [{"scale": 0.5}, {"rule": "paper"}])
def test_a_worth_by_length_beside_a_fixed_scale_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="by_length: what length is worth is learned only without"):
        Scoring(by_length=True, **other)


@pytest.mark.parametrize("other", [{"scale": 0.5}, {"rule": "paper"}])
def test_two_slopes_beside_a_fixed_scale_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="two slopes are learned only without"):
        Scoring(slopes="two", **other)
