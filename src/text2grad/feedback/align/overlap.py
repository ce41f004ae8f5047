"""Which span a character belongs to where several cover it. One rule, the same for every task:

the shortest span wins, because it says something more particular; of two equally long ones the surer wins; then the
one of stronger provenance; then poor before good before neutral, then the one that begins first. Spans stay whole in
an `Alignment`, so that nothing said is lost; the rule is applied where each character needs one verdict (projection,
display)."""

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import get_args

from text2grad.types import Provenance, Span

_STRENGTH = {name: rank for rank, name in enumerate(get_args(Provenance))}
_GRAVITY = {"poor": 0, "good": 1, "neutral": 2}


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
    """(start, end, index of the winning span) of every covered stretch, in order, not overlapping.

    >>> segments([Span(0, 10, "good"), Span(3, 5, "poor")])
    [(0, 3, 0), (3, 5, 1), (5, 10, 0)]
    """
    ranks = {index: rank for rank, index in enumerate(sorted(range(len(spans)), key=lambda i: precedence(spans[i])))}
    by_start = sorted(range(len(spans)), key=lambda index: spans[index].start)
    cuts = sorted({edge for span in spans for edge in (span.start, span.end)})
    active: list[tuple[int, int]] = []
    found: list[tuple[int, int, int]] = []
    position = 0
    for start, end in pairwise(cuts):
        while position < len(by_start) and spans[by_start[position]].start <= start:
            heapq.heappush(active, (ranks[by_start[position]], by_start[position]))
            position += 1
        while active and spans[active[0][1]].end <= start:
            heapq.heappop(active)
        if not active:
            continue
        winner = active[0][1]
        if found and found[-1][2] == winner and found[-1][1] == start:
            found[-1] = (found[-1][0], end, winner)
        else:
            found.append((start, end, winner))
    return found
