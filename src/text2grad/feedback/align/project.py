"""Spans → tokens: which tokens a span covers, and the one verdict of every token.

Enters: spans in characters, and the characters each token covers. Leaves: arrays, one number per token. A token
belongs to a span if they share a character; an empty token (a special one) belongs to none. Vectorised: nothing here
loops over tokens.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from text2grad.feedback.align.overlap import precedence, segments
from text2grad.types import Span

SIGN = {"good": 1.0, "poor": -1.0, "neutral": 0.0}


def owners(spans: Sequence[Span], offsets: ArrayLike) -> NDArray[np.int64]:
    """Index of the span that each token belongs to, −1 for none. Of several spans that a token touches, the one that
    the rule of `overlap` puts first wins.

    >>> owners([Span(3, 8, "poor")], [(0, 3), (3, 5), (5, 9), (9, 9)]).tolist()
    [-1, 0, 0, -1]
    """
    pairs = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    found = np.full(len(pairs), -1, dtype=np.int64)
    pieces = segments(spans)
    if not pieces or not len(pairs):
        return found
    starts, ends, winners = (np.array(column, dtype=np.int64) for column in zip(*pieces, strict=True))
    first = np.searchsorted(ends, pairs[:, 0], side="right")
    stop = np.searchsorted(starts, pairs[:, 1], side="left")
    touches = (first < stop) & (pairs[:, 1] > pairs[:, 0])
    # Most tokens touch one piece. Where one touches several, the best-ranked of them is found by a running minimum.
    found[touches] = winners[first[touches]]
    many = touches & (stop - first > 1)
    if many.any():
        ranks = _ranks(spans)[winners]
        bounds = np.stack([first[many], stop[many]], axis=1).ravel()
        best = np.minimum.reduceat(np.append(ranks, ranks.max()), bounds)[::2]
        found[many] = np.argsort(_ranks(spans))[best]
    return found


def _ranks(spans: Sequence[Span]) -> NDArray[np.int64]:
    order = sorted(range(len(spans)), key=lambda index: precedence(spans[index]))
    ranks = np.empty(len(spans), dtype=np.int64)
    ranks[order] = np.arange(len(spans))
    return ranks


def project(spans: Sequence[Span], offsets: ArrayLike, *, severity: bool = False) -> NDArray[np.float64]:
    """+1, −1 and 0 per token by verdict; with `severity`, times the severity where the critique gives one.

    >>> project([Span(0, 2, "good"), Span(3, 8, "poor", severity=0.5)], [(0, 3), (3, 8)], severity=True).tolist()
    [1.0, -0.5]
    """
    signs = np.array([SIGN[span.verdict] * ((span.severity or 1.0) if severity else 1.0) for span in spans] + [0.0])
    return signs[owners(spans, offsets)]
