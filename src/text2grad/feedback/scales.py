"""What verdicts are worth, and the unit of rewards: learned from the scores that critiques come with.

Enters: of each completion, the sums of its verdicts and its score. Leaves: prices of verdicts (`RunningScale`,
`RunningScales`), and the standard deviation of the score (`RunningSpread`). Knows no critique and no text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from statistics import median

import numpy as np
from numpy.typing import NDArray

PRIOR_SHARE, PRIOR_COUNT = 0.5, 16.0
"""Before scores say anything, verdicts of the usual size are worth half a standard deviation of the score; that counts
as much as 16 completions with scores far apart."""


def among_prompts(rows: Sequence[tuple[float, ...]], prompts: Sequence[str]) -> list[tuple[float, ...]]:
    """Each row less the mean of its prompt's rows: what differs between prompts says nothing about a verdict. A prompt
    with a single row says nothing, and is left out. Where all prompts have a single one, rows stay as they are.

    >>> among_prompts([(2.0, 1.0), (0.0, 0.0), (5.0, 5.0)], ["a", "a", "b"])
    [(1.4142135623730951, 0.7071067811865476), (-1.4142135623730951, -0.7071067811865476)]
    """
    by_prompt: dict[str, list[tuple[float, ...]]] = {}
    for row, prompt in zip(rows, prompts, strict=True):
        by_prompt.setdefault(prompt, []).append(row)
    several = [np.array(some) for some in by_prompt.values() if len(some) > 1]
    return [tuple(row) for some in several for row in _apart(some).tolist()] if several else list(rows)


def _apart(some: NDArray[np.float64]) -> NDArray[np.float64]:
    apart: NDArray[np.float64] = some - some.mean(0)
    # Exactly 0 where it is rounding: equal rows say nothing.
    apart[np.abs(apart) <= 1e-12 * np.abs(some).max(0)] = 0.0
    # √(n / (n − 1)): the mean comes from the same rows, so they lie nearer to it than to the true one.
    apart *= (len(some) / (len(some) - 1)) ** 0.5
    return apart


@dataclass(slots=True)
class RunningScale:
    """What one verdict is worth: the least-squares slope of score on verdict sum over everything seen so far, shrunk
    towards a prior, never negative. Where all scores are equal the prior stays, so spans teach within a completion.

    It is fitted among the completions of a prompt, where it is told which are: advantages compare no others, and an
    easy prompt has high scores whatever is said. Kept as sums, so that it can be saved, and added up over processes.

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
    whole: float = 0.0
    """Σ of squared verdict sums as they came: `xx` is of what is left of them among the completions of a prompt."""
    low: float = 0.0
    high: float = 0.0

    def see(self, pairs: Sequence[tuple[float, ...]], prompts: Sequence[str] = ()) -> None:
        """Add (verdict sum, score) of some completions, and the prompt of each."""
        if pairs and (within := among_prompts(pairs, prompts) if prompts else pairs):
            x, y = np.asarray(within, dtype=float).reshape(-1, 2).T
            sums = [len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum(), (y * y).sum()]
            whole = len(x) * float(np.mean(np.square([pair[0] for pair in pairs])))
            self.add([*sums, whole, y.min(), y.max()])

    def add(self, sums: Sequence[float]) -> None:
        """Add the `sums` of other completions."""
        if not sums[0]:
            return
        low, high = (min(self.low, sums[-2]), max(self.high, sums[-1])) if self.count else sums[-2:]
        self.restore([*(np.array(self.sums[:-2]) + np.array(sums[:-2])).tolist(), float(low), float(high)])

    @property
    def sums(self) -> tuple[float, ...]:
        return self.count, self.x, self.y, self.xx, self.xy, self.yy, self.whole, self.low, self.high

    def state(self) -> list[float]:
        return list(self.sums)

    def restore(self, state: Sequence[float]) -> None:
        # Runs that began before version 0.2.0 kept eight numbers: their sums were fitted as they came.
        *sums, self.low, self.high = state
        self.count, self.x, self.y, self.xx, self.xy, self.yy, self.whole = (*sums, *sums[3:4])[:7]

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
        prior = PRIOR_SHARE * spread / max(1.0, (self.whole / self.count) ** 0.5)
        # How many completions the spread comes from: one success among a thousand failures is one, not a thousand.
        mean = self.y / self.count
        known = apart and _squares_apart(self.count, self.x, self.xx)
        evidence = apart / max(self.high - mean, mean - self.low) ** 2 if known else 0.0
        return float(max(0.0, (PRIOR_COUNT * prior + evidence * self.slope) / (PRIOR_COUNT + evidence)))


@dataclass(slots=True)
class RunningScales:
    """The same with several slopes: what a good verdict is worth and what a poor one costs, or what verdicts are worth
    by the share of the text that they cover. A critic may find five words poor for each good one, and its score may
    hardly fall for them; one slope would pay both alike.

    Slopes of verdicts are shrunk towards the prior, as the single one is; those of shares of the text towards 0.

    >>> scales = RunningScales()
    >>> scales.see([(1.0, 0.0, 3.0), (0.0, 1.0, -1.0), (1.0, 1.0, 2.0), (2.0, 1.0, 5.0)] * 500)
    >>> [round(value, 1) for value in scales.value]
    [3.0, 1.0]
    """

    signs: tuple[float, ...] = (1.0, -1.0)
    """Of the sums of verdicts in a row: whether more of it should raise the score."""
    length_signs: tuple[float, ...] = ()
    """Of the sums by length, which stand behind them."""
    moments: NDArray[np.float64] = field(init=False)
    """Sums of products of (1, the sums, score)."""
    whole: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def __post_init__(self) -> None:
        size = len(self.signs) + len(self.length_signs) + 2
        self.moments = np.zeros((size, size))

    @property
    def count(self) -> float:
        return float(self.moments[0, 0])

    def see(self, rows: Sequence[tuple[float, ...]], prompts: Sequence[str] = ()) -> None:
        """Add (the sums, score) of some completions, and the prompt of each."""
        if rows and (within := among_prompts(rows, prompts) if prompts else rows):
            table = np.column_stack([np.ones(len(within)), np.asarray(within, dtype=float)])
            verdicts = np.asarray(rows, dtype=float)[:, : len(self.signs)] @ np.array(self.signs)
            self.whole += len(within) * float(np.mean(np.square(verdicts)))
            low, high = float(table[:, -1].min()), float(table[:, -1].max())
            self.low, self.high = (min(self.low, low), max(self.high, high)) if self.count else (low, high)
            self.moments = self.moments + table.T @ table

    def state(self) -> list[float]:
        return [*self.moments.ravel().tolist(), self.whole, self.low, self.high]

    def restore(self, state: Sequence[float]) -> None:
        self.moments = np.array(state[:-3], dtype=float).reshape(self.moments.shape)
        self.whole, self.low, self.high = state[-3:]

    @property
    def value(self) -> tuple[float, ...]:
        """The price of each sum: what one more of a good one earns, what one more of a poor one costs. None is
        negative."""
        count, signs = self.count, np.array([*self.signs, *self.length_signs])
        if not count:
            return (0.0,) * len(signs)
        mean = self.moments[0, 1:] / count
        apart = [_squares_apart(count, self.moments[0, k], self.moments[k, k]) for k in range(1, len(mean) + 1)]
        covariance = self.moments[1:, 1:] - count * np.outer(mean, mean)
        spread = (apart[-1] / count) ** 0.5 or 1.0
        prior = np.zeros(len(signs))
        prior[: len(self.signs)] = PRIOR_SHARE * spread / max(1.0, (self.whole / count) ** 0.5)
        evidence = apart[-1] / max(self.high - mean[-1], mean[-1] - self.low) ** 2 if apart[-1] else 0.0
        known = [k for k in range(len(signs)) if apart[k] and evidence]
        found = prior.copy()
        if known:
            shrink = np.array(apart)[known] * PRIOR_COUNT / evidence
            normal = covariance[np.ix_(known, known)] * np.outer(signs[known], signs[known]) + np.diag(shrink)
            found[known] = _never_negative(normal, signs[known] * covariance[known, -1] + shrink * prior[known])
        return tuple(found.tolist())


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
