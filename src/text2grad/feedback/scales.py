"""What verdicts are worth, and the unit of rewards: learned from the scores that critiques come with.

Enters: of each completion, the sums of its verdicts and its score. Leaves: prices of verdicts (`RunningScale`), and the
standard deviation of the score (`RunningSpread`). Knows no critique and no text.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf
from statistics import median

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import RunError

PRIOR_SHARE, PRIOR_COUNT = 0.5, 16.0
"""Before scores say anything, verdicts of the usual size are worth half a standard deviation of the score; that counts
as much as 16 completions with scores far apart."""


def among_prompts(rows: Sequence[tuple[float, ...]], prompts: Sequence[Hashable]) -> list[tuple[float, ...]]:
    """Each row less the mean of its prompt's rows: what differs between prompts says nothing about a verdict. A prompt
    with a single row says nothing, and is left out.

    >>> among_prompts([(2.0, 1.0), (0.0, 0.0), (5.0, 5.0)], ["a", "a", "b"])
    [(1.4142135623730951, 0.7071067811865476), (-1.4142135623730951, -0.7071067811865476)]
    """
    by_prompt: dict[Hashable, list[tuple[float, ...]]] = {}
    for row, prompt in zip(rows, prompts, strict=True):
        by_prompt.setdefault(prompt, []).append(row)
    return [tuple(row) for some in by_prompt.values() if len(some) > 1 for row in _apart(np.array(some)).tolist()]


def _apart(some: NDArray[np.float64]) -> NDArray[np.float64]:
    apart: NDArray[np.float64] = some - some.mean(0)
    # Exactly 0 where it is rounding: equal rows say nothing.
    apart[np.abs(apart) <= 1e-12 * np.abs(some).max(0)] = 0.0
    # √(n / (n − 1)): the mean comes from the same rows, so they lie nearer to it than to the true one.
    apart *= (len(some) / (len(some) - 1)) ** 0.5
    return apart


@dataclass(slots=True)
class _Sums:
    """Sums of products of (1, sums of verdicts, score), and the lowest and the highest score."""

    table: NDArray[np.float64]
    low: float = 0.0
    high: float = 0.0

    def add(self, rows: Sequence[tuple[float, ...]]) -> None:
        if rows:
            wide = np.column_stack([np.ones(len(rows)), np.asarray(rows, dtype=float)])
            low, high = float(wide[:, -1].min()), float(wide[:, -1].max())
            self.low, self.high = (min(self.low, low), max(self.high, high)) if self.count else (low, high)
            self.table = self.table + wide.T @ wide

    @property
    def count(self) -> float:
        return float(self.table[0, 0])

    @property
    def mean(self) -> NDArray[np.float64]:
        return np.asarray(self.table[0, 1:] / self.count)

    @property
    def apart(self) -> NDArray[np.float64]:
        """Of each column: the sum of squared distances from its mean; exactly 0 where they are rounding."""
        each = zip(self.table[0, 1:], self.table.diagonal()[1:], strict=True)
        return np.array([_squares_apart(self.count, float(total), float(squares)) for total, squares in each])

    @property
    def covariance(self) -> NDArray[np.float64]:
        return np.asarray(self.table[1:, 1:] - self.count * np.outer(self.mean, self.mean))


@dataclass(slots=True)
class RunningScale:
    """What verdicts are worth: the least-squares slopes of score on sums of verdicts over everything seen so far,
    shrunk towards a prior, never negative. Where all scores are equal the prior stays: spans teach within a completion.

    They are fitted among the completions of a prompt: advantages compare no others, and an easy prompt has high scores
    whatever is said. Only while no prompt has had several completions, they are fitted over all.

    There is one slope for the sum of all verdicts, or one for good and one for poor ones: a critic may find five words
    poor for each good one, and its score may hardly fall for them. Slopes by length, of sums of verdicts times their
    shares of the text, may stand behind them. They are shrunk towards 0.

    >>> scale = RunningScale((1.0, -1.0))
    >>> scale.see([(1.0, 0.0, 3.0), (0.0, 1.0, -1.0), (1.0, 1.0, 2.0), (2.0, 1.0, 5.0)] * 500, range(2000))
    >>> [round(value, 1) for value in scale.value]
    [3.0, 1.0]
    """

    signs: tuple[float, ...] = (1.0,)
    """Of the sums of verdicts in a row: whether more of it should raise the score."""
    length_signs: tuple[float, ...] = ()
    """Of the sums by length, which stand behind them."""
    all: _Sums = field(init=False)
    """Of the rows as they came."""
    within: _Sums = field(init=False)
    """Of what is left of them among the completions of a prompt."""

    def __post_init__(self) -> None:
        size = len(self.signs) + len(self.length_signs) + 2
        self.all, self.within = _Sums(np.zeros((size, size))), _Sums(np.zeros((size, size)))

    def see(self, rows: Sequence[tuple[float, ...]], prompts: Sequence[Hashable]) -> None:
        """Add (the sums, score) of some completions, and which have the same prompt."""
        self.all.add(rows)
        self.within.add(among_prompts(rows, prompts))

    @property
    def count(self) -> float:
        return self.all.count

    def state(self) -> list[float]:
        parts = (self.all, self.within)
        return [number for sums in parts for number in (*sums.table.ravel().tolist(), sums.low, sums.high)]

    def restore(self, state: Sequence[float]) -> None:
        size = self.all.table.size
        if len(state) != 2 * (size + 2):
            raise RunError(
                "what verdicts are worth was learned by another version of text2grad, or with another scoring.slopes "
                "or scoring.by_length. Resume with that version and those settings, or start in another folder"
            )
        for sums, own in ((self.all, state[: size + 2]), (self.within, state[size + 2 :])):
            sums.table = np.array(own[:size], dtype=float).reshape(sums.table.shape)
            sums.low, sums.high = own[size:]

    @property
    def value(self) -> tuple[float, ...]:
        """The price of each sum: what one more of a good one earns, what one more of a poor one costs."""
        signs = np.array([*self.signs, *self.length_signs])
        if not self.count:
            return (0.0,) * len(signs)
        sums = self.within if self.within.count else self.all
        apart, mean = sums.apart, sums.mean[-1]
        prior = self._prior(sums)
        # How many completions the spread comes from: one success among a thousand failures is one, not a thousand.
        evidence = apart[-1] / max(sums.high - mean, mean - sums.low) ** 2 if apart[-1] else 0.0
        known = [k for k in range(len(signs)) if apart[k] and evidence]
        found = prior.copy()
        if known:
            shrink = apart[known] * PRIOR_COUNT / evidence
            covariance = sums.covariance
            normal = covariance[np.ix_(known, known)] * np.outer(signs[known], signs[known]) + np.diag(shrink)
            found[known] = _never_negative(normal, signs[known] * covariance[known, -1] + shrink * prior[known])
        return tuple(found.tolist())

    def _prior(self, sums: _Sums) -> NDArray[np.float64]:
        # Where the scores of each prompt are equal, those of different prompts still say what the unit is.
        spreads = [(each.apart[-1] / each.count) ** 0.5 for each in (sums, self.all)]
        spread = next(filter(None, spreads), 1.0)
        own = np.array(self.signs)
        squares = own @ self.all.table[1 : len(own) + 1, 1 : len(own) + 1] @ own / self.count
        prior = np.zeros(len(own) + len(self.length_signs))
        # Verdicts of a completion that mostly cancel, or are rare, still count as one.
        prior[: len(own)] = PRIOR_SHARE * spread / max(1.0, squares**0.5)
        return prior


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
