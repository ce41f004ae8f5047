"""Located critiques → token rewards. Numbers over characters and tokens; no tensors, no loop over tokens.

Two rules (`Scoring.rule`):

paper               +1 on tokens in good spans, −1 in poor ones, 0 elsewhere. The sum grows with the length.
return_equivalent   rewards redistribute the score: whatever the spans, they sum to the same total. Three cases:
    quality     the critic grades prefixes (`Critique.quality`). The completion is cut at every span boundary and each
                segment earns Q(end) − Q(start). If the score differs from Q of the whole, the difference goes to the
                last token. The sum is score − Q(""). No word of the critique is used.
    score       a score and verdicts. Each span earns its verdict times a scale; the residual goes to the last token.
                The sum is the score. The scale is fixed, or follows the data: one (`RunningScale`), or one for good
                and one for poor spans (`RunningScales`).
    verdicts    verdicts alone. Each earns ±1 divided by their number, an omission −1 divided by it on the last token,
                so the sum lies in −1 … 1 at any length. An empty completion gets −1.

The last token is the decision to stop, or, where a completion was cut off, the last sampled token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import InvalidData
from text2grad.feedback.align.overlap import SIGN, project, standing
from text2grad.feedback.settings import Scoring
from text2grad.types import Alignment, Completion, Critique

Rewards = NDArray[np.float64]


PRIOR_SHARE, PRIOR_COUNT = 0.5, 16.0
"""Before scores say anything, verdicts of the usual size are worth half a standard deviation of the score; that counts
as much as 16 completions with scores far apart."""


@dataclass(slots=True)
class RunningScale:
    """What one verdict is worth: the least-squares slope of score on verdict sum over everything seen so far, shrunk
    towards a prior, never negative. Where all scores are equal the prior stays, so spans teach within a completion.

    Kept as sums, so that it can be saved, and added up over processes.

    >>> scale = RunningScale()
    >>> scale.see([(1.0, 0.5), (2.0, 1.0), (3.0, 1.5)])
    >>> scale.slope, round(scale.value, 3)
    (0.5, 0.14)
    """

    count: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def see(self, pairs: Sequence[tuple[float, float]]) -> None:
        """Add (verdict sum, score) of some completions."""
        if pairs:
            x, y = np.asarray(pairs, dtype=float).reshape(-1, 2).T
            self.add([len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum(), (y * y).sum(), y.min(), y.max()])

    def add(self, sums: Sequence[float]) -> None:
        """Add the `sums` of other completions."""
        if not sums[0]:
            return
        low, high = (min(self.low, sums[6]), max(self.high, sums[7])) if self.count else sums[6:]
        self.restore([*(np.array(self.sums[:6]) + np.array(sums[:6])).tolist(), float(low), float(high)])

    @property
    def sums(self) -> tuple[float, ...]:
        return self.count, self.x, self.y, self.xx, self.xy, self.yy, self.low, self.high

    def state(self) -> list[float]:
        return list(self.sums)

    def restore(self, state: Sequence[float]) -> None:
        self.count, self.x, self.y, self.xx, self.xy, self.yy, self.low, self.high = state

    @property
    def slope(self) -> float:
        """Least squares alone; 0 where verdict sums do not differ."""
        apart = _squares_apart(self.count, self.x, self.xx)
        return (self.xy - self.x * self.y / self.count) / apart if apart else 0.0

    @property
    def value(self) -> float:
        if not self.count:
            return 0.0
        apart = _squares_apart(self.count, self.y, self.yy)
        spread = (apart / self.count) ** 0.5 or 1.0
        # Verdicts of a completion that mostly cancel, or are rare, still count as one.
        prior = PRIOR_SHARE * spread / max(1.0, (self.xx / self.count) ** 0.5)
        # How many completions the spread comes from: one success among a thousand failures is one, not a thousand.
        mean = self.y / self.count
        known = apart and _squares_apart(self.count, self.x, self.xx)
        evidence = apart / max(self.high - mean, mean - self.low) ** 2 if known else 0.0
        return float(max(0.0, (PRIOR_COUNT * prior + evidence * self.slope) / (PRIOR_COUNT + evidence)))


@dataclass(slots=True)
class RunningScales:
    """The same with two slopes: what a good verdict is worth, and what a poor one costs. A critic may find five words
    poor for each good one, and its score may hardly fall for them; one slope would pay both alike.

    Each slope is shrunk towards the same prior, as much as the single one is.

    >>> scales = RunningScales()
    >>> scales.see([(1.0, 0.0, 3.0), (0.0, 1.0, -1.0), (1.0, 1.0, 2.0), (2.0, 1.0, 5.0)] * 500)
    >>> [round(value, 1) for value in scales.value]
    [3.0, 1.0]
    """

    moments: NDArray[np.float64] = field(default_factory=lambda: np.zeros((4, 4)))
    """Sums of products of (1, good, poor, score)."""
    low: float = 0.0
    high: float = 0.0

    @property
    def count(self) -> float:
        return float(self.moments[0, 0])

    def see(self, rows: Sequence[tuple[float, ...]]) -> None:
        """Add (sum of good, sum of poor, score) of some completions."""
        if rows:
            table = np.column_stack([np.ones(len(rows)), np.asarray(rows, dtype=float).reshape(-1, 3)])
            low, high = float(table[:, 3].min()), float(table[:, 3].max())
            self.low, self.high = (min(self.low, low), max(self.high, high)) if self.count else (low, high)
            self.moments = self.moments + table.T @ table

    def state(self) -> list[float]:
        return [*self.moments.ravel().tolist(), self.low, self.high]

    def restore(self, state: Sequence[float]) -> None:
        self.moments, (self.low, self.high) = np.array(state[:16], dtype=float).reshape(4, 4), state[16:]

    @property
    def value(self) -> tuple[float, float]:
        """(reward of a good verdict, cost of a poor one), neither negative."""
        count = self.count
        if not count:
            return 0.0, 0.0
        mean = self.moments[0, 1:] / count
        apart = [_squares_apart(count, self.moments[0, k], self.moments[k, k]) for k in (1, 2, 3)]
        covariance = self.moments[1:, 1:] - count * np.outer(mean, mean)
        spread = (apart[2] / count) ** 0.5 or 1.0
        squares = (self.moments[1, 1] - 2 * self.moments[1, 2] + self.moments[2, 2]) / count
        prior = PRIOR_SHARE * spread / max(1.0, squares**0.5)
        evidence = apart[2] / max(self.high - mean[2], mean[2] - self.low) ** 2 if apart[2] else 0.0
        known = [k for k in (0, 1) if apart[k] and evidence]
        found = np.full(2, prior)
        if known:
            signs, shrink = np.array([1.0, -1.0])[known], np.array(apart)[known] * PRIOR_COUNT / evidence
            normal = covariance[np.ix_(known, known)] * np.outer(signs, signs) + np.diag(shrink)
            found[known] = _never_negative(normal, signs * covariance[known, 2] + shrink * prior)
        return float(found[0]), float(found[1])


def _never_negative(normal: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares over numbers that are not below 0: the best of what is found with some of them at 0.

    >>> _never_negative(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([3.0, -1.0])).tolist()
    [1.5, 0.0]
    """
    best, least = np.zeros(len(wanted)), 0.0
    for free in product((False, True), repeat=len(wanted)):
        some = np.flatnonzero(free)
        tried = np.zeros(len(wanted))
        tried[some] = np.linalg.solve(normal[np.ix_(some, some)], wanted[some])
        cost = -float(wanted @ tried)
        if cost < least and (tried >= 0).all():
            best, least = tried, cost
    return best


Scale = float | tuple[float, float]
"""Reward of a verdict: one for both kinds, or (of a good one, cost of a poor one)."""

OUTLIER, ENOUGH, NEAREST = 20.0, 8, 0.9
"""A score more than 20 standard deviations from the mean of those before it, and beyond all of them, is an outlier,
once there are 8. The first update is judged by the nine tenths of its own scores that are nearest to their median."""


@dataclass(slots=True)
class RunningSpread:
    """Standard deviation of the score over everything seen so far; 1 while all scores are equal.

    An outlier counts in full in its own update, so that its reward is not huge, and from then on as the farthest score
    that is none. Where no score is an outlier, this is the plain standard deviation, to the last bit.

    >>> spread = RunningSpread()
    >>> _ = spread.see([0.1, 0.3])
    >>> round(spread.value, 3)
    0.1
    """

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    low: float = 0.0
    high: float = 0.0
    """Of the scores as they count later."""
    latest: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The sums with the latest update's scores in full."""

    def see(self, *parts: Sequence[float]) -> tuple[float, float]:
        """Add the scores of an update, one part per process. Returns the bounds beyond which a score is an outlier."""
        scores = [score for part in parts for score in part]
        low, high = self._bounds(scores)
        kept, latest = self._sums, self._sums
        for part in parts:
            kept = _added(kept, [min(max(score, low), high) for score in part])
            latest = _added(latest, part)
        if scores:
            least, most = max(min(scores), low), min(max(scores), high)
            self.low, self.high = (min(self.low, least), max(self.high, most)) if self.count else (least, most)
        self.count, self.total, self.squares = kept
        self.latest = latest
        return low, high

    def _bounds(self, scores: Sequence[float]) -> tuple[float, float]:
        if self.count >= ENOUGH:
            sums, low, high = self._sums, self.low, self.high
        elif len(scores) >= ENOUGH:
            middle = median(scores)
            nearest = sorted(scores, key=lambda score: abs(score - middle))[: int(NEAREST * len(scores))]
            sums, low, high = _added((0.0, 0.0, 0.0), nearest), min(nearest), max(nearest)
        else:
            return -inf, inf
        mean, reach = sums[1] / sums[0], OUTLIER * _deviation(sums)
        return min(low, mean - reach), max(high, mean + reach)

    @property
    def _sums(self) -> tuple[float, float, float]:
        return self.count, self.total, self.squares

    def state(self) -> list[float]:
        return [*self._sums, self.low, self.high, *self.latest]

    def restore(self, state: Sequence[float]) -> None:
        self.count, self.total, self.squares, self.low, self.high = state[:5]
        self.latest = state[5], state[6], state[7]

    @property
    def value(self) -> float:
        return _deviation(self.latest)


def _added(sums: tuple[float, float, float], scores: Sequence[float]) -> tuple[float, float, float]:
    return sums[0] + len(scores), sums[1] + sum(scores), sums[2] + sum(score * score for score in scores)


def _deviation(sums: tuple[float, float, float]) -> float:
    """Standard deviation from count, sum and sum of squares; 1 where all are equal."""
    return float((_squares_apart(*sums) / max(sums[0], 1.0)) ** 0.5) or 1.0


def _squares_apart(count: float, total: float, squares: float) -> float:
    """Sum of squared distances from the mean; exactly 0 where they are rounding."""
    apart = squares - total * total / count if count else 0.0
    return apart if apart > 1e-12 * max(squares, 1e-12) else 0.0


def kind_of(critique: Critique) -> Literal["quality", "score", "verdicts"]:
    """Which of the three cases of `return_equivalent` a critique is."""
    return "quality" if critique.quality else "score" if critique.score is not None else "verdicts"


def scale_pairs(judged: Iterable[tuple[Critique, Alignment]]) -> list[tuple[float, float]]:
    """What `RunningScale.see` takes: (verdict sum, score) of the critiques that have a score and no prefix quality."""
    return [
        (verdict_sum(alignment), critique.score)
        for critique, alignment in judged
        if kind_of(critique) == "score" and critique.score is not None
    ]


def scale_rows(judged: Iterable[tuple[Critique, Alignment]]) -> list[tuple[float, float, float]]:
    """What `RunningScales.see` takes of the same critiques: (sum of good, sum of poor, score)."""
    rows = []
    for critique, alignment in judged:
        if kind_of(critique) == "score" and critique.score is not None:
            signed = _signed(alignment)
            rows.append((sum(max(s, 0.0) for s in signed), -sum(min(s, 0.0) for s in signed), critique.score))
    return rows


def verdict_sum(alignment: Alignment) -> float:
    """Σ ±severity over the spans that count (`align.overlap`)."""
    return float(sum(_signed(alignment)))


def earned_by_spans(alignment: Alignment, scale: Scale) -> float:
    """What the spans that count earn together."""
    good, poor = scale if isinstance(scale, tuple) else (scale, scale)
    return float(sum((good if signed > 0 else poor) * signed for signed in _signed(alignment)))


def _signed(alignment: Alignment) -> list[float]:
    spans = [alignment.spans[index] for index in standing(alignment.spans)]
    return [SIGN[span.verdict] * (span.severity or 1.0) for span in spans]


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
        earned = _by_verdict(alignment, offsets, scale, scoring.placement)
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


def _by_verdict(alignment: Alignment, offsets: NDArray[np.int64], scale: Scale, placement: str) -> Rewards:
    """Each span earns on those of its tokens that have its verdict (`align.overlap`). Where none has, what it earns
    goes to the last token, with the rest of the sum."""
    earned, signs = np.zeros(len(offsets)), project(alignment.spans, offsets)
    good, poor = scale if isinstance(scale, tuple) else (scale, scale)
    first, end = offsets.T
    for span in (alignment.spans[index] for index in standing(alignment.spans)):
        sign = SIGN[span.verdict]
        own = np.flatnonzero((first < end) & (first < span.end) & (end > span.start) & (signs == sign))
        # Cut off inside a span: on the last token of all it would meet the rest of the sum, which undoes it.
        before = own[own < len(offsets) - 1]
        tokens = own if placement == "even" else (before if len(before) else own)[-1:]
        if len(tokens):
            earned[tokens] += (good if sign > 0 else poor) * sign * (span.severity or 1.0) / len(tokens)
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
