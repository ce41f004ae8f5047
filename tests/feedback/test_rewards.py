"""Token rewards: laws for any spans and any tokens, and each case once by hand."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from text2grad.feedback.align.overlap import SIGN
from text2grad.feedback.rewards import (
    RunningScale,
    RunningScales,
    RunningSpread,
    _never_negative,
    kind_of,
    on_last_token,
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


PAIRS = st.lists(st.tuples(st.integers(-8, 8), NUMBERS), min_size=2, max_size=40)


@given(PAIRS, st.integers(1, 5))
def test_the_slope_is_that_of_least_squares(pairs: list[tuple[int, float]], parts: int) -> None:
    verdicts, scores = [float(x) for x, _ in pairs], [y for _, y in pairs]
    scale = RunningScale()
    for part in range(parts):
        scale.see(list(zip(verdicts, scores, strict=True))[part::parts])
    if len(set(verdicts)) == 1:
        assert scale.slope == 0
    else:
        assert scale.slope == pytest.approx(float(np.polyfit(verdicts, scores, 1)[0]), abs=1e-7)


@given(PAIRS, st.integers(1, 5))
def test_the_scale_lies_between_the_prior_and_what_was_seen(pairs: list[tuple[int, float]], parts: int) -> None:
    scale = RunningScale()
    for part in range(parts):
        scale.see([(float(x), y) for x, y in pairs][part::parts])
    spread = float(np.std([y for _, y in pairs])) or 1.0
    assume(spread > 1e-4)  # what is less is rounding, and counts as equal
    prior = 0.5 * spread / max(1.0, float(np.mean([x * x for x, _ in pairs])) ** 0.5)
    assert scale.value >= 0
    if scale.slope >= 0:
        assert min(prior, scale.slope) - 1e-6 <= scale.value <= max(prior, scale.slope) + 1e-6


def test_the_scale_by_hand() -> None:
    # x = 0, 1, 2, 5; y = 1, 1, 2, 6. Means 2 and 2.5. Σ (x − 2)(y − 2.5) = 3 + 1.5 + 0 + 10.5 = 15; Σ (x − 2)² = 14.
    # Σ (y − 2.5)² = 17, so the scores spread by √(17/4); the farthest is 3.5 from the mean: evidence 17 / 12.25.
    # Verdict sums are of size √(30/4), so the prior is half of √(17/30).
    scale = RunningScale()
    scale.see([(0.0, 1.0), (1.0, 1.0)])
    other = RunningScale()
    other.see([(2.0, 2.0), (5.0, 6.0)])
    scale.add(other.sums)
    assert scale.slope == pytest.approx(15 / 14)
    evidence, prior = 17 / 12.25, 0.5 * (17 / 30) ** 0.5
    assert scale.value == pytest.approx((16 * prior + evidence * 15 / 14) / (16 + evidence))
    assert RunningScale(*scale.sums).value == scale.value
    assert RunningScale().value == 0


@pytest.mark.parametrize("verdicts", [(-1.0, -1.0), (0.0, -1.0), (0.0, 0.0)])
def test_equal_scores_leave_the_prior(verdicts: tuple[float, ...]) -> None:
    """All programs fail: the words still say where. A verdict is worth half of 1, the unit while nothing is known."""
    scale = RunningScale()
    scale.see([(x, 0.0) for x in verdicts] * 50)
    assert scale.value == 0.5


def test_one_success_among_many_failures_does_not_outweigh_the_prior() -> None:
    scale = RunningScale()
    scale.see([(-1.0, 0.0)] * 999 + [(0.0, 1.0)])
    prior = 0.5 * (0.001 * 0.999) ** 0.5
    assert scale.slope == pytest.approx(1.0)
    # The evidence of one success is that of about one completion, against 16: a seventeenth of the way.
    assert scale.value == pytest.approx(prior + (1 - prior) / 17, rel=0.01)


def test_the_scale_moves_from_the_prior_by_the_completions_that_differ() -> None:
    # 60 failures, all blamed once: nothing is known, so half of the unit 1. Blamed twice: half of that.
    scale = RunningScale()
    scale.see([(-1.0, 0.0)] * 60)
    assert scale.value == 0.5
    twice = RunningScale()
    twice.see([(-2.0, 0.0)] * 60)
    assert twice.value == 0.25
    # Then 20 successes without blame: mean 1/4, Σ (y − ¼)² = 60/16 + 20 · 9/16 = 15, spread √(15/80), slope 1. The
    # farthest is ¾ from the mean: evidence 15 · 16/9 = 80/3, against 16. Verdict sums are below 1, so they count as 1.
    scale.see([(0.0, 1.0)] * 20)
    prior = 0.5 * (15 / 80) ** 0.5
    assert scale.value == pytest.approx((16 * prior + 80 / 3) / (16 + 80 / 3))
    assert scale.value == pytest.approx(0.706, abs=5e-4)


def ordinary(seed: int, kind: str, size: float, batch: int) -> list[list[float]]:
    """Scores of 40 updates."""
    draw = random.Random(seed)
    kinds: dict[str, Callable[[], float]] = {
        "even": draw.random,
        "normal": lambda: draw.gauss(3, 1),
        "rare success": lambda: float(draw.random() < 0.002),
        "shares": lambda: draw.choice([0, 1 / 4, 1 / 2, 3 / 4, 1]),
        "equal": lambda: 0.25,
    }
    return [[size * kinds[kind]() for _ in range(batch)] for _ in range(40)]


KINDS = st.sampled_from(["even", "normal", "rare success", "shares", "equal"])
SIZES = st.sampled_from([0.003, 0.1, 1.0, 16.0])
BATCHES = st.sampled_from([1, 4, 8, 32, 48])


@given(st.integers(0, 10_000), KINDS, SIZES, BATCHES, st.integers(1, 3))
def test_the_spread_of_ordinary_scores_is_the_plain_one_to_the_last_bit(
    seed: int, kind: str, size: float, batch: int, processes: int
) -> None:
    spread, count, total, squares, seen = RunningSpread(), 0.0, 0.0, 0.0, []
    for scores in ordinary(seed, kind, size, batch):
        seen += scores
        parts = [scores[process::processes] for process in range(processes)]
        low, high = spread.see(*parts)
        for part in parts:
            count, total, squares = count + len(part), total + sum(part), squares + sum(y * y for y in part)
        assert all(low <= score <= high for score in scores)
        apart = squares - total * total / count
        assert spread.value == ((max(apart, 0.0) / count) ** 0.5 if apart > 1e-12 * max(squares, 1e-12) else 1.0)
    assert spread.value == pytest.approx(float(np.std(seen)) if len(set(seen)) > 1 else 1.0, rel=1e-6)


@given(
    st.integers(0, 10_000),
    st.sampled_from(["even", "normal", "shares"]),
    SIZES,
    st.sampled_from([8, 32, 48]),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from([-1e6, -1e4, 1e4, 1e6])), max_size=2),
)
def test_an_outlier_is_forgotten(
    seed: int, kind: str, size: float, batch: int, outliers: list[tuple[int, int, float]]
) -> None:
    """Up to two within 8 updates; in small batches one, since two of eight are more than the tenth that may be wild.
    Each counts as 20 spreads afterwards, so as 400 / n of the variance."""
    outliers = outliers[: 1 if batch == 8 else 2]
    spread, plain = RunningSpread(), RunningSpread()
    for update, scores in enumerate(ordinary(seed, kind, size, batch) * 3):
        plain.see(scores)
        spoilt = {place: score for when, place, score in outliers if when == update}
        spread.see([spoilt.get(place, score) for place, score in enumerate(scores)])
        if spoilt:  # in its own update it counts in full: no reward is beyond √n
            assert spread.value > 1e4 / (2 * spread.count) ** 0.5
    assert 0.5 < spread.value / plain.value < 2


def test_what_an_outlier_counts_by_hand() -> None:
    spread = RunningSpread()
    spread.see([0.0, 1.0] * 4)  # mean ½, spread ½: up to 10½ nothing is an outlier
    assert spread.see([1e6]) == (-9.5, 10.5)
    assert spread.value == pytest.approx(1e6 * 8**0.5 / 9, rel=1e-5)
    spread.see([])
    assert spread.value == pytest.approx(((4 + 10.5**2) / 9 - (14.5 / 9) ** 2) ** 0.5)
    again = RunningSpread()
    again.restore(spread.state())
    assert again == spread
    # In the first update: seven zeros are nearest to the median, and their unit is 1.
    first = RunningSpread()
    assert first.see([0.0] * 7 + [-1e6]) == (-20.0, 20.0)


def test_the_sum_of_verdicts_counts_severity() -> None:
    assert verdict_sum(SPANS) == 1 - 0.5 - 1


SUMS = st.floats(0, 4, allow_nan=False, width=16)


@given(st.lists(st.tuples(SUMS, NUMBERS), min_size=1, max_size=20))
def test_with_good_spans_alone_the_slope_is_that_of_one(rows: list[tuple[float, float]]) -> None:
    one, two = RunningScale(), RunningScales()
    one.see(rows)
    two.see([(good, 0.0, score) for good, score in rows])
    good, poor = two.value
    assert good == pytest.approx(one.value, rel=1e-6, abs=1e-9)
    assert poor >= 0, "nothing is known of poor ones, so they cost the prior"


@given(st.lists(st.tuples(SUMS, SUMS, NUMBERS), max_size=20), st.lists(st.tuples(SUMS, SUMS, NUMBERS), max_size=5))
def test_two_slopes_are_never_negative_and_survive_a_file(
    rows: list[tuple[float, float, float]], more: list[tuple[float, float, float]]
) -> None:
    scales, again = RunningScales(), RunningScales()
    scales.see(rows)
    assert all(0 <= value < np.inf for value in scales.value)
    again.restore(scales.state())
    for each in (scales, again):
        each.see(more)
    assert again.value == scales.value and again.count == len(rows) + len(more)


def test_two_slopes_say_what_each_kind_is_worth() -> None:
    """score = 2 × good − ½ × poor, with five poor for each good: one slope would make them alike. And where poor words
    raise the score, they cost nothing."""
    rows = [(good, poor, 2 * good - 0.5 * poor) for good in (0.0, 1.0, 2.0) for poor in (3.0, 5.0, 9.0)] * 200
    two, one, odd = RunningScales(), RunningScale(), RunningScales()
    two.see(rows)
    one.see([(good - poor, score) for good, poor, score in rows])
    assert two.value == pytest.approx((2.0, 0.5), rel=0.05)
    assert 0.5 < one.value < 1
    odd.see([(good, poor, good + poor) for good, poor, _ in rows])
    assert odd.value[1] == 0 and odd.value[0] == pytest.approx(1, rel=0.1)


def test_a_slope_that_explains_the_score_is_kept() -> None:
    """Good and poor words rise together, as with length. The two slopes of least squares are both negative; good words
    alone still explain the score: 0.63 each, as a dense search over both finds, too."""
    rows = [
        (4.0, 17.0, 2.5),
        (2.0, 12.0, 2.5),
        (0.0, 0.0, 0.0),
        (2.0, 9.0, 1.4),
        (1.0, 7.0, 1.6),
        (0.0, 0.0, 0.0),
    ] * 200
    scales, tens = RunningScales(), RunningScales()
    scales.see(rows)
    assert scales.value == pytest.approx((0.63, 0.0), abs=0.005)
    tens.see([(10 * good, poor, score) for good, poor, score in rows])
    assert tens.value == pytest.approx((0.063, 0.0), abs=0.002)


@given(
    st.lists(st.tuples(*[st.floats(-3, 3)] * 2), min_size=2, max_size=2),
    st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    st.tuples(st.floats(0, 5), st.floats(0, 5)),
)
def test_nothing_that_is_not_negative_fits_better(
    sides: list[tuple[float, float]], wanted: tuple[float, float], other: tuple[float, float]
) -> None:
    normal = np.array(sides) @ np.array(sides).T + np.eye(2)
    found = _never_negative(normal, np.array(wanted))

    def cost(point: np.ndarray) -> float:
        return float(point @ normal @ point / 2 - np.array(wanted) @ point)

    assert (found >= 0).all() and cost(found) <= cost(np.array(other)) + 1e-9


def test_a_good_and_a_poor_span_earn_what_their_slopes_say() -> None:
    critique = Critique("", score=0.5)
    alignment = Alignment((Span(0, 3, "good"), Span(4, 7, "poor", severity=0.5)))
    completion = Completion("one two.", (1, 2, 3, 0), ((0, 3), (3, 7), (7, 8), (8, 8)))
    earned = token_rewards(critique, alignment, completion, Scoring(slopes="two"), (0.3, 0.2))
    assert earned.tolist() == pytest.approx([0.3, -0.1, 0.0, 0.3]) and earned.sum() == pytest.approx(0.5)


@pytest.mark.parametrize("other", [{"scale": 0.5}, {"rule": "paper"}])
def test_two_slopes_beside_a_fixed_scale_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="two slopes are learned only without"):
        Scoring(slopes="two", **other)
