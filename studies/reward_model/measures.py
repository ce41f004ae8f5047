"""What the studies measure beside `text2grad.feedback.agreement`: content words; spans by the share of them that the
other side covers; curves, average precision and calibration of scores; what became of written critiques.

Enters: spans, or one score per token or word. Leaves: numbers. Equal scores are one step of a curve.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from text2grad.errors import InvalidData
from text2grad.feedback.agreement import Agreement, Judged, Numbers, Offsets, WeightedPlaces, places_of, summed
from text2grad.feedback.align import SIGN, project
from text2grad.feedback.critics.words import words_of
from text2grad.feedback.text import Text
from text2grad.types import Alignment, Span, Verdict

QUOTED = ("exact", "normalised", "fuzzy")
"""Provenance of spans that a quote was found at."""


def by_content(items: Iterable[Judged]) -> dict[Verdict, Agreement]:
    """In characters of content words; a word has the verdict of its first character.

    >>> item = Judged("Seven of them left.", (Span(0, 5, "poor"),), (Span(0, 18, "poor"),))
    >>> by_content([item])["poor"]
    Agreement(called=9.0, right=5.0, marked=5.0, found=5.0)
    """
    return summed(items, _content)


def _content(item: Judged) -> WeightedPlaces:
    words = content_words(item.text)
    return np.stack([words[:, 0], words[:, 0] + 1], axis=1), (words[:, 1] - words[:, 0]).astype(float)


def content_words(text: str) -> NDArray[np.int64]:
    """(start, end) of the words that say something by themselves, in order."""
    found = [(word.start, word.end) for word in words_of(Text(text)) if word.content]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def by_cover(items: Iterable[Judged]) -> dict[Verdict, Agreement]:
    """Span by span, of good and poor ones, each by the share of its characters that the other side marked (as in
    SemEval 2020, task 11): where a span is cut in two does not matter, how much it covers does.

    >>> item = Judged("Seven ships left.", (Span(0, 5, "poor"),), (Span(0, 10, "poor"),))
    >>> by_cover([item])["poor"]
    Agreement(called=1.0, right=0.5, marked=1.0, found=1.0)
    """
    total: dict[Verdict, Agreement] = {"good": Agreement(), "poor": Agreement()}
    for item in items:
        for verdict in total:
            theirs, ours = (places_of(spans, verdict) for spans in (item.people, item.critic or ()))
            right, found = _covered(ours, theirs, len(item.text)), _covered(theirs, ours, len(item.text))
            total[verdict] += Agreement(float(len(ours)), right, float(len(theirs)), found)
    return total


def _covered(places: NDArray[np.int64], by: NDArray[np.int64], size: int) -> float:
    """The share of each place that lies in the others, summed."""
    # What lies beyond the text covers nothing.
    places, by = places.clip(0, size), by.clip(0, size)
    edges = np.bincount(by[:, 0], minlength=size + 1) - np.bincount(by[:, 1], minlength=size + 1)
    inside = np.append(0, np.cumsum(np.cumsum(edges)[:size] > 0))
    lengths = np.maximum(places[:, 1] - places[:, 0], 1)
    return float(((inside[places[:, 1]] - inside[places[:, 0]]) / lengths).sum())


@dataclass(frozen=True, slots=True)
class Curve:
    """Precision and recall of calling everything poor whose score is at least the threshold, thresholds falling."""

    thresholds: Numbers
    precision: Numbers
    recall: Numbers
    base: float
    """The share that is poor: the precision of calling everything so."""

    @property
    def average_precision(self) -> float:
        """Precision averaged over the steps of recall; no interpolation between them."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())

    def at_precision(self, wanted: float) -> tuple[float, float]:
        """(recall, threshold): the most recall with at least this precision; (0, infinity) where there is none."""
        enough = np.flatnonzero(self.precision >= wanted)
        if not len(enough):
            return 0.0, float("inf")
        return float(self.recall[enough[-1]]), float(self.thresholds[enough[-1]])

    def at_threshold(self, threshold: float) -> tuple[float, float]:
        """(precision, recall) of a threshold that was chosen elsewhere; (0, 0) where nothing reaches it."""
        reached = np.flatnonzero(self.thresholds >= threshold)
        return (float(self.precision[reached[-1]]), float(self.recall[reached[-1]])) if len(reached) else (0.0, 0.0)


def curve(scores: ArrayLike, poor: ArrayLike, weight: ArrayLike | None = None) -> Curve:
    """One score a unit, whether it is poor, and what it weighs (default 1).

    >>> found = curve([0.9, 0.8, 0.8, 0.1], [True, False, True, False])
    >>> found.recall.tolist(), found.at_precision(0.6)
    ([0.5, 1.0, 1.0], (1.0, 0.8))
    """
    values, marks, weights = _columns(scores, poor, weight)
    order = np.argsort(-values, kind="stable")
    values, marks, weights = values[order], marks[order] * weights[order], weights[order]
    total = marks.sum()
    if not total > 0:
        raise InvalidData("a curve should have something poor to find, got none")
    last = np.append(values[1:] != values[:-1], True)
    hits, called = np.cumsum(marks)[last], np.cumsum(weights)[last]
    return Curve(values[last], hits / called, hits / total, float(total / weights.sum()))


def content_scores(
    text: str, offsets: Offsets, scores: ArrayLike, people: Sequence[Span]
) -> tuple[Numbers, NDArray[np.bool_], Numbers]:
    """Scores of tokens → (score, is poor, characters) of each content word, for `curve`. A word's score is the mean of
    its tokens'; one that no token touches (it was cut off) is never called: minus infinity."""
    words = content_words(text)
    places = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    values = np.asarray(scores, dtype=float)
    if len(values) != len(places):
        raise InvalidData(f"scores should be one a token, got {len(values)} for {len(places)} tokens")
    touches = (places[None, :, 0] < words[:, 1, None]) & (words[:, 0, None] < places[None, :, 1])
    touches &= (places[:, 1] > places[:, 0])[None, :]
    count = touches.sum(axis=1)
    mean = np.divide(touches @ values, count, out=np.full(len(words), -np.inf), where=count > 0)
    poor = project(people, np.stack([words[:, 0], words[:, 0] + 1], axis=1)) == SIGN["poor"]
    return mean, poor, (words[:, 1] - words[:, 0]).astype(float)


def calibration_error(
    probabilities: ArrayLike, happened: ArrayLike, weight: ArrayLike | None = None, bins: int = 15
) -> float:
    """Expected calibration error: how far, on average, the probability of a bin is from how often it happened. Bins are
    of equal width.

    >>> calibration_error([0.9, 0.9, 0.1, 0.1], [True, False, False, False]) # |0.9 − 0.5| / 2 + |0.1 − 0| / 2
    0.25
    """
    values, marks, weights = _columns(probabilities, happened, weight)
    if ((values < 0) | (values > 1)).any():
        raise InvalidData("probabilities should lie in 0 … 1")
    if not weights.sum() > 0:
        raise InvalidData("calibration should have something to look at, got nothing")
    index = np.minimum((values * bins).astype(np.int64), bins - 1)
    said, was = (np.bincount(index, column * weights, bins) for column in (values, marks))
    return float(np.abs(said - was).sum() / weights.sum())


def _columns(values: ArrayLike, marks: ArrayLike, weight: ArrayLike | None) -> tuple[Numbers, Numbers, Numbers]:
    first, second = np.asarray(values, dtype=float), np.asarray(marks, dtype=float)
    third = np.ones_like(first) if weight is None else np.asarray(weight, dtype=float)
    if not first.shape == second.shape == third.shape or first.ndim != 1:
        raise InvalidData(f"columns should be of one length, got {first.shape}, {second.shape} and {third.shape}")
    if np.isnan(first).any():
        raise InvalidData("scores should be numbers, got NaN")
    return first, second, third


@dataclass(frozen=True, slots=True)
class Replies:
    """What became of written critiques."""

    replies: int
    parsed: int
    quotes: int
    found: int

    @property
    def parse_rate(self) -> float:
        return self.parsed / self.replies if self.replies else 0.0

    @property
    def quote_found_rate(self) -> float:
        return self.found / self.quotes if self.quotes else 0.0


def replies(alignments: Iterable[Alignment | None]) -> Replies:
    """Counts of written critiques, aligned; None: could not be read. A quote is found or missed, never both.

    >>> replies([None, Alignment((Span(0, 3, "poor", provenance="exact"),))])
    Replies(replies=2, parsed=1, quotes=1, found=1)
    """
    known = list(alignments)
    read = [alignment for alignment in known if alignment is not None]
    found = sum(span.provenance in QUOTED for alignment in read for span in alignment.spans)
    missed = sum(len(alignment.missed) for alignment in read)
    return Replies(len(known), len(read), found + missed, found)
