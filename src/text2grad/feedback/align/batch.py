"""Many critiques at once. The same alignments as one by one, in the same order; what batching buys is the embedder's
time.

Enters: pairs of completion and critique. Leaves: one `Alignment` each. Without an embedder this is `align` in a loop.
With one, every pair is read once to see which texts have to be compared, all of them are embedded together, and those
pairs are read again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.align.ladder import Embedder, align
from text2grad.feedback.align.settings import AlignSettings
from text2grad.types import Alignment, Completion, Critique, Verdict

AT_ONCE = 256
"""Pairs that are read before their texts are embedded together."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What `align` takes, as one thing."""

    completion: str | Completion
    critique: str | Critique
    source: str | None = None
    revision: str | None = None
    verdict: Verdict | None = None

    def align(self, settings: AlignSettings, embed: Embedder | None) -> Alignment:
        return align(
            self.completion,
            self.critique,
            source=self.source,
            revision=self.revision,
            verdict=self.verdict,
            embed=embed,
            settings=settings,
        )


def align_many(
    pairs: Iterable[Pair], *, embed: Embedder | None = None, settings: AlignSettings | None = None
) -> Iterator[Alignment]:
    """Alignments in the order of the pairs.

    >>> [len(found.spans) for found in align_many([Pair("Nine ships.", 'The "Nine" is right.'), Pair("x", '"y"?')])]
    [1, 0]
    """
    settings = settings or AlignSettings()
    waiting = iter(pairs)
    while chunk := list(islice(waiting, AT_ONCE)):
        if embed is None:
            yield from (pair.align(settings, None) for pair in chunk)
            continue
        asked = [_Asked() for _ in chunk]
        first = [pair.align(settings, ask) for pair, ask in zip(chunk, asked, strict=True)]
        texts = list(dict.fromkeys(text for ask in asked for text in ask.texts))
        table = dict(zip(texts, embed(texts), strict=True)) if texts else {}
        for pair, ask, found in zip(chunk, asked, first, strict=True):
            yield pair.align(settings, _Known(table)) if ask.texts else found


class _Asked:
    """An embedder that only remembers what it was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts.extend(texts)
        return np.zeros((len(texts), 1), dtype=np.float32)


class _Known:
    """An embedder that has already answered."""

    def __init__(self, table: dict[str, NDArray[np.float32]]) -> None:
        self.table = table

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.table[text] for text in texts])
