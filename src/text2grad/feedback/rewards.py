"""Located critiques → token rewards. Numbers over characters and tokens; no tensors, no loop over tokens.

Two rules (`Scoring.rule`):

paper               +1 on tokens in good spans, −1 in poor ones, 0 elsewhere. The sum grows with the length.
return_equivalent   rewards redistribute the score: whatever the spans, they sum to the same total. Three cases:
    quality     the critic grades prefixes (`Critique.quality`). The completion is cut at every span boundary and each
                segment earns Q(end) − Q(start). If the score differs from Q of the whole, the difference goes to the
                last token. The sum is score − Q(""). No word of the critique is used.
    score       a score and verdicts. Each span earns its verdict times a scale; the residual goes to the last token.
                The sum is the score. The scale is fixed, or learned from the scores (`scales.py`): one for all spans,
                or one for good and one for poor ones; and, if asked for, another for the share of the text in a span.
    verdicts    verdicts alone. Each earns ±1 divided by their number, an omission −1 divided by it on the last token,
                so the sum lies in −1 … 1 at any length. An empty completion gets −1.

The last token is the decision to stop, or, where a completion was cut off, the last sampled token.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import InvalidData
from text2grad.feedback.align.overlap import SIGN, project, standing
from text2grad.feedback.scales import RunningScale
from text2grad.feedback.settings import Scoring
from text2grad.types import Alignment, Completion, Critique, Span

Rewards = NDArray[np.float64]


class Prices(NamedTuple):
    """What verdicts are worth: that of a span is its price, and its price by length times its share of the text."""

    good: float
    poor: float
    good_length: float = 0.0
    poor_length: float = 0.0

    def of(self, span: Span, length: int) -> tuple[float, float]:
        """(what the span earns as such, what it earns for its length) in a text of so many characters."""
        signed = SIGN[span.verdict] * (span.severity or 1.0)
        plain, long = (self.good, self.good_length) if signed > 0 else (self.poor, self.poor_length)
        return signed * plain, signed * long * (span.end - span.start) / length


Scale = float | tuple[float, ...]
"""Reward of a verdict: one for both kinds, or (of a good one, cost of a poor one), or `Prices`."""


def prices_of(scale: Scale) -> Prices:
    """
    >>> prices_of(0.5), prices_of((2.0, 1.0))[:2]
    (Prices(good=0.5, poor=0.5, good_length=0.0, poor_length=0.0), (2.0, 1.0))
    """
    return Prices(*scale) if isinstance(scale, tuple) else Prices(scale, scale)


def kind_of(critique: Critique) -> Literal["quality", "score", "verdicts"]:
    """Which of the three cases of `return_equivalent` a critique is."""
    return "quality" if critique.quality else "score" if critique.score is not None else "verdicts"


def new_scale(scoring: Scoring) -> RunningScale:
    """What learns the worth of verdicts for this scoring. It sees rows of `scale_rows`."""
    signs = (1.0,) if scoring.slopes == "one" else (1.0, -1.0)
    return RunningScale(signs, signs if scoring.by_length else ())


def scale_rows(judged: Iterable[tuple[Critique, Alignment, int]], scoring: Scoring) -> list[tuple[float, ...]]:
    """Of (critique, alignment, characters of the completion), each with a score and no prefix quality: the sums of
    verdicts that this scoring has a price for, then the score."""
    rows: list[tuple[float, ...]] = []
    for critique, alignment, length in judged:
        assert critique.score is not None
        good, poor, good_length, poor_length = _sums(alignment, length)
        if scoring.slopes == "one":
            sums = [good - poor, good_length - poor_length]
        else:
            sums = [good, poor, good_length, poor_length]
        rows.append((*(sums if scoring.by_length else sums[: len(sums) // 2]), critique.score))
    return rows


def scale_of(running: RunningScale, scoring: Scoring) -> Scale:
    """What a running scale has learned, as `token_rewards` takes it."""
    values = running.value
    if scoring.slopes == "two":
        return Prices(*values)
    verdict, *length = values
    return Prices(verdict, verdict, *length, *length) if length else verdict


def slope_of(judged: Iterable[tuple[Critique, Alignment]]) -> float:
    """What one verdict is worth in given annotations: the least-squares slope of score on verdict sum over all that
    have a score and no prefix quality, never negative. Most prompts of such files have a single completion."""
    pairs = [(verdict_sum(alignment), said.score) for said, alignment in judged if kind_of(said) == "score"]
    x, y = np.array(pairs, dtype=float).reshape(-1, 2).T
    x = x - x.mean() if len(x) else x
    squares = float(x @ x)
    return max(0.0, float(x @ y) / squares) if squares > 1e-12 else 0.0


def verdict_sum(alignment: Alignment) -> float:
    """Σ ±severity over the spans that count (`align.overlap`)."""
    return earned_by_spans(alignment, 1.0, 1)


def earned_by_spans(alignment: Alignment, scale: Scale, length: int) -> float:
    """What the spans that count earn together, in a completion of so many characters."""
    prices = prices_of(scale)
    return float(sum(sum(prices.of(alignment.spans[index], length)) for index in standing(alignment.spans)))


def _sums(alignment: Alignment, length: int) -> tuple[float, float, float, float]:
    """Σ severity of good spans, of poor ones, and the same of severity times the share of so many characters."""
    sums = [0.0] * 4
    for index in standing(alignment.spans):
        span = alignment.spans[index]
        if sign := SIGN[span.verdict]:
            severity = span.severity or 1.0
            sums[sign < 0] += severity
            sums[2 + (sign < 0)] += severity * (span.end - span.start) / length
    return sums[0], sums[1], sums[2], sums[3]


def total_of(critique: Critique, alignment: Alignment, text: str) -> float:
    """What the return-equivalent rewards of a completion sum to; the score that is logged."""
    if critique.quality:
        last = critique.quality[-1][1]
        return (last if critique.score is None else critique.score) - empty_quality(critique)
    if critique.score is not None:
        return critique.score
    if not text.strip():
        return -1.0
    return (verdict_sum(alignment) - len(alignment.omissions)) / _remarks(alignment)


def token_rewards(
    critique: Critique,
    alignment: Alignment,
    completion: Completion,
    scoring: Scoring | None = None,
    scale: Scale = 0.0,
) -> Rewards:
    """One number per token. `scale` is the reward of a verdict where the scoring leaves it to the data.

    >>> from text2grad.types import Span
    >>> said = Critique("", quality=((0, 0.0), (4, 0.5), (9, 0.25)))
    >>> where = Alignment((Span(0, 4, "good"), Span(5, 9, "poor")))
    >>> token_rewards(said, where, Completion("Nine cars", (1, 2, 0), ((0, 4), (4, 9), (9, 9))), Scoring()).tolist()
    [0.5, -0.25, 0.0]
    """
    scoring = scoring or Scoring()
    _check_ends(critique, alignment, completion.text)
    if not completion.token_ids:
        return np.zeros(0)
    offsets = np.asarray(completion.offsets, dtype=np.int64).reshape(-1, 2)
    if scoring.rule == "paper":
        return project(alignment.spans, offsets)
    if critique.quality:
        inside = {edge for span in alignment.spans for edge in (span.start, span.end)} - {0, len(completion.text)}
        edges = np.array([*sorted(inside), len(completion.text)])
        gains = np.diff(quality_at(critique, edges), prepend=empty_quality(critique))
        earned = _placed(edges, gains, offsets, scoring.placement)
    else:
        if critique.score is None:
            scale = 1.0 / _remarks(alignment)
        elif scoring.scale is not None:
            scale = scoring.scale
        earned = _by_verdict(alignment, offsets, prices_of(scale), len(completion.text), scoring.placement)
    # What remains is the decision to stop. Summed in the order of the tokens, so that the sum comes out as promised.
    earned[-1] += total_of(critique, alignment, completion.text) - earned.sum()
    return earned


def _check_ends(critique: Critique, alignment: Alignment, text: str) -> None:
    """Refuse spans and prefixes that reach beyond the text: they are about another one."""
    for span in alignment.spans:
        span.slice(text)
    if critique.quality and critique.quality[-1][0] > len(text):
        raise InvalidData(
            f"critique.quality should end within the text of {len(text)} characters, got {critique.quality[-1][0]}"
        )


def on_last_token(rewards: Rewards) -> Rewards:
    """The scalar switch: the same sum, all of it on the last token.

    >>> on_last_token(np.array([0.5, -0.25, 0.0])).tolist()
    [0.0, 0.0, 0.25]
    """
    moved = np.zeros_like(rewards)
    if len(moved):
        moved[-1] = rewards.sum()
    return moved


def _remarks(alignment: Alignment) -> int:
    """How many things were called good, poor or missing; at least 1."""
    counted = [alignment.spans[index] for index in standing(alignment.spans)]
    return max(1, sum(span.verdict != "neutral" for span in counted) + len(alignment.omissions))


def empty_quality(critique: Critique) -> float:
    """Q(""): measured if the critic did, else 0."""
    assert critique.quality
    end, value = critique.quality[0]
    return value if end == 0 else 0.0


def quality_at(critique: Critique, edges: NDArray[np.int64]) -> Rewards:
    """Q of the prefixes that end at these characters: between two measured ends it is that of the earlier one."""
    assert critique.quality
    ends, values = (np.array(column) for column in zip(*critique.quality, strict=True))
    known = np.searchsorted(ends, edges, side="right") - 1
    return np.where(known >= 0, values[np.maximum(known, 0)], empty_quality(critique))


def _by_verdict(
    alignment: Alignment, offsets: NDArray[np.int64], prices: Prices, length: int, placement: str
) -> Rewards:
    """Each span earns on those of its tokens that have its verdict (`align.overlap`). Where none has, what it earns
    goes to the last token, with the rest of the sum. What it earns for its length is spread over them."""
    earned, signs = np.zeros(len(offsets)), project(alignment.spans, offsets)
    first, end = offsets.T
    for span in (alignment.spans[index] for index in standing(alignment.spans)):
        own = np.flatnonzero((first < end) & (first < span.end) & (end > span.start) & (signs == SIGN[span.verdict]))
        # Cut off inside a span: on the last token of all it would meet the rest of the sum, which undoes it.
        before = own[own < len(offsets) - 1]
        tokens = own if placement == "even" else (before if len(before) else own)[-1:]
        if len(tokens):
            plain, long = prices.of(span, length)
            earned[tokens] += plain / len(tokens)
            own = before if len(before) else own
            earned[own] += long / len(own)
    return earned


def _placed(edges: NDArray[np.int64], gains: Rewards, offsets: NDArray[np.int64], placement: str) -> Rewards:
    """Gains of the segments that end at `edges`, on the last token of each, or spread evenly over its tokens."""
    earned = np.zeros(len(offsets))
    last = _last_tokens(edges, offsets)
    # The last segment reaches to the end: special tokens there (the decision to stop) are part of it when it is spread.
    if placement == "even":
        last[-1] = len(offsets) - 1
        first = np.minimum(np.concatenate([[0], last[:-1] + 1]), last)
        for begin, end, gain in zip(first, last, gains, strict=True):
            earned[begin : end + 1] += gain / (end + 1 - begin)
    else:
        np.add.at(earned, last, gains)
    return earned


def _last_tokens(edges: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The token with the last character before each edge; of several that share it, the last: there it is complete."""
    # A special token stands where it stands and holds no character: it is never the last one of a segment.
    solid = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    if not len(solid):
        return np.zeros(len(edges), dtype=np.int64)
    found = np.searchsorted(offsets[solid, 0], edges, side="left") - 1
    return solid[np.maximum(found, 0)]
