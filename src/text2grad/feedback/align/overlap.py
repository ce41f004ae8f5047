"""Which span a character belongs to, and the verdict of every token.

Enters: spans in characters; for tokens, the characters that each covers. Leaves: segments that do not overlap; one
number per token. One rule for every task, in two steps:

1. Blame stands. A good or neutral span inside a longer poor one does not count: wrong phrases are made of words that
   are right by themselves ("Kent" in "in a Kent village"). Except where the good words are quoted and the blame is not:
   a line of code or a paraphrase has ends that were inferred, and a quote inside it is the surer evidence.
2. Of the others the shortest wins, because it says something more particular; of two equally long ones the surer; then
   the one of stronger provenance; then poor before good before neutral; then the one that begins first.

An `Alignment` keeps its spans whole, so that nothing said is lost; the rule is applied where each character needs one
verdict, and where verdicts are counted. A token belongs to a span if they share a character; an empty token to none.
"""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from text2grad.types import Provenance, Span

SIGN = {"good": 1.0, "poor": -1.0, "neutral": 0.0}
_STRENGTH = {name: rank for rank, name in enumerate(get_args(Provenance))}
_GRAVITY = {"poor": 0, "good": 1, "neutral": 2}
_QUOTED = ("given", "exact", "normalised", "fuzzy")
"""Provenances of spans whose ends somebody gave."""


def standing(spans: Sequence[Span]) -> list[int]:
    """Indices of the spans that count: all but those that a longer poor span overrules.

    >>> standing([Span(0, 17, "poor"), Span(5, 9, "good"), Span(12, 30, "good")])
    [0, 2]
    """
    poor = [span for span in spans if span.verdict == "poor"]
    return [i for i, span in enumerate(spans) if span.verdict == "poor" or not any(_overrules(p, span) for p in poor)]


def _overrules(poor: Span, span: Span) -> bool:
    longer = poor.end - poor.start > span.end - span.start
    inside = poor.start <= span.start and span.end <= poor.end
    return longer and inside and (poor.provenance in _QUOTED or span.provenance not in _QUOTED)


def precedence(span: Span) -> tuple[float, ...]:
    """Sort key: the span that wins comes first."""
    return (
        span.end - span.start,
        -span.confidence,
        _STRENGTH[span.provenance],
        _GRAVITY[span.verdict],
        span.start,
    )


def segments(spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    """(start, end, index of the winning span) of every covered stretch, in order.

    >>> segments([Span(0, 10, "good"), Span(3, 5, "poor")])
    [(0, 3, 0), (3, 5, 1), (5, 10, 0)]
    """
    cuts, ranks, order = _painted(spans)
    edges = np.flatnonzero(np.diff(ranks, prepend=-1))
    stretches = zip(cuts[edges].tolist(), cuts[edges[1:]].tolist(), ranks[edges].tolist(), strict=False)
    return [(start, end, order[rank]) for start, end, rank in stretches if rank < len(order)]


def _painted(spans: Sequence[Span]) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Where spans begin and end; the rank of the winner behind each of these cuts, `len(order)` where there is none;
    and `order`, the spans' indices by rank."""
    order = sorted(standing(spans), key=lambda index: precedence(spans[index]))
    cuts = np.unique(np.array([(span.start, span.end) for span in spans], dtype=np.int64))
    ranks = np.full(len(cuts), len(order), dtype=np.int64)
    for rank in reversed(range(len(order))):
        span = spans[order[rank]]
        ranks[slice(*np.searchsorted(cuts, (span.start, span.end)))] = rank
    return cuts, ranks, order


def owners(spans: Sequence[Span], offsets: ArrayLike) -> NDArray[np.int64]:
    """Index of the span that each token belongs to, −1 for none. Nothing here loops over tokens.

    >>> owners([Span(3, 8, "poor")], [(0, 3), (3, 5), (5, 9), (9, 9)]).tolist()
    [-1, 0, 0, -1]
    """
    tokens = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    winners = np.full(len(tokens), -1, dtype=np.int64)
    if not spans or not len(tokens):
        return winners
    cuts, ranks, order = _painted(spans)
    first = np.maximum(np.searchsorted(cuts, tokens[:, 0], side="right") - 1, 0)
    stop = np.searchsorted(cuts, tokens[:, 1], side="left")
    touches = (first < stop) & (tokens[:, 1] > tokens[:, 0])
    by_rank = np.append(order, -1)
    winners[touches] = by_rank[ranks[first[touches]]]
    # Few tokens touch several stretches; theirs is the best-ranked span of them.
    several = touches & (stop - first > 1)
    if several.any():
        bounds = np.stack([first[several], stop[several]], axis=1).ravel()
        winners[several] = by_rank[np.minimum.reduceat(np.append(ranks, len(order)), bounds)[::2]]
    return winners


def project(spans: Sequence[Span], offsets: ArrayLike, *, severity: bool = False) -> NDArray[np.float64]:
    """+1, −1 and 0 per token by verdict; with `severity`, times the severity where the critique gives one.

    >>> project([Span(0, 2, "good"), Span(3, 8, "poor", severity=0.5)], [(0, 3), (3, 8)], severity=True).tolist()
    [1.0, -0.5]
    """
    signs = np.array([SIGN[span.verdict] * ((span.severity or 1.0) if severity else 1.0) for span in spans] + [0.0])
    return signs[owners(spans, offsets)]
