"""How far spans that a critic gives agree with spans that people marked.

Enters: `Judged` completions: people's spans and the critic's, None where its reply could not be read. Leaves:
precision, recall and F1 of each verdict, by tokens or by spans. A reply that could not be read is wrong everywhere:
what people marked there is missed, "no verdict" included.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.align.overlap import SIGN, project
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.rows import Row
from text2grad.feedback.text import Text
from text2grad.types import Span, Verdict

Numbers = NDArray[np.float64]
Offsets = Sequence[tuple[int, int]]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Judged:
    """A completion, what people marked in it, and what a critic said; None: its reply could not be read."""

    text: str
    people: tuple[Span, ...]
    critic: tuple[Span, ...] | None
    offsets: Offsets | None = None
    """Of the tokens; None: words stand for them."""

    @classmethod
    def of(cls, row: Mapping[str, Any], critic: Sequence[Span] | None, offsets: Offsets | None = None) -> "Judged":
        """An annotated row, whose spans are people's, and what a critic gives."""
        people = tuple(Span.from_json(span) for span in row["spans"])
        return cls(row["completion"], people, None if critic is None else tuple(critic), offsets)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Sums, so that completions add up: `a + b`. Where nothing was called, precision is 0, and so is recall where
    nothing was marked.

    >>> found = Agreement(called=4, right=3, marked=6, found=3)
    >>> found.precision, found.recall, found.f1
    (0.75, 0.5, 0.6)
    """

    called: float = 0.0
    """What the critic gave this verdict to."""
    right: float = 0.0
    """Of that, what people gave it to, too."""
    marked: float = 0.0
    """What people gave this verdict to."""
    found: float = 0.0
    """Of that, what the critic gave it to, too."""

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def precision(self) -> float:
        return self.right / self.called if self.called else 0.0

    @property
    def recall(self) -> float:
        return self.found / self.marked if self.marked else 0.0

    @property
    def f1(self) -> float:
        precision, recall = self.precision, self.recall
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0

    def to_json(self) -> dict[str, float]:
        sums = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, **sums}


def by_tokens(items: Iterable[Judged]) -> dict[Verdict, Agreement]:
    """Token by token, whatever its length; a token in no span has the verdict neutral.

    >>> item = Judged("Seven ships left.", (Span(0, 5, "poor"),), (Span(0, 11, "poor"),))
    >>> by_tokens([item])["poor"]
    Agreement(called=2.0, right=1.0, marked=1.0, found=1.0)
    """
    return summed(items, _tokens)


def by_spans(items: Iterable[Judged], least: float = 0.5) -> dict[Verdict, Agreement]:
    """Span by span, of good and poor ones. Two agree if what they share, of what they cover together, is `least` or
    more (IoU); with `least` 0, if they touch.

    >>> item = Judged("Seven ships left.", (Span(0, 5, "poor"),), (Span(0, 11, "poor"),))
    >>> by_spans([item])["poor"].found, by_spans([item], least=0.0)["poor"].found
    (0.0, 1.0)
    """
    total: dict[Verdict, Agreement] = {"good": Agreement(), "poor": Agreement()}
    for item in items:
        for verdict in total:
            theirs, ours = (places_of(spans, verdict) for spans in (item.people, item.critic or ()))
            agree = _agree(theirs, ours, least)
            found, right = agree.any(axis=1).sum(), agree.any(axis=0).sum()
            total[verdict] += Agreement(float(len(ours)), float(right), float(len(theirs)), float(found))
    return total


def places_of(spans: Sequence[Span], verdict: Verdict) -> NDArray[np.int64]:
    return np.array([(s.start, s.end) for s in spans if s.verdict == verdict], dtype=np.int64).reshape(-1, 2)


def _agree(theirs: NDArray[np.int64], ours: NDArray[np.int64], least: float) -> NDArray[np.bool_]:
    start = np.maximum(theirs[:, None, 0], ours[None, :, 0])
    end = np.minimum(theirs[:, None, 1], ours[None, :, 1])
    shared = np.maximum(end - start, 0)
    lengths = (theirs[:, 1] - theirs[:, 0])[:, None] + (ours[:, 1] - ours[:, 0])[None, :]
    enough: NDArray[np.bool_] = (shared > 0) & (shared >= least * (lengths - shared))
    return enough


WeightedPlaces = tuple[NDArray[np.int64], Numbers]
"""Places whose verdict is looked up, and the weight of each."""


def _tokens(item: Judged) -> WeightedPlaces:
    offsets = item.offsets if item.offsets is not None else [(start, end) for start, end, _ in Text(item.text).words]
    places = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    return places, (places[:, 1] > places[:, 0]).astype(float)


def summed(items: Iterable[Judged], units: Callable[[Judged], WeightedPlaces]) -> dict[Verdict, Agreement]:
    """Place by place, by the weight of each."""
    total = {verdict: Agreement() for verdict in VERDICTS}
    for item in items:
        places, weight = units(item)
        theirs = project(item.people, places)
        ours = project(item.critic, places) if item.critic is not None else np.full(len(places), np.nan)
        for verdict in VERDICTS:
            mark, call = theirs == SIGN[verdict], ours == SIGN[verdict]
            both = float(weight[mark & call].sum())
            total[verdict] += Agreement(float(weight[call].sum()), both, float(weight[mark].sum()), both)
    return total


@dataclass(frozen=True, slots=True)
class Agreements:
    """How far two sets of annotated completions agree."""

    items: int
    """Completions that both have."""
    unmatched: int
    """Completions that only one of them has, or of which the texts differ."""
    differing: int
    """Of the unmatched, pairs with the same id and different texts."""
    words: Mapping[Verdict, Agreement]
    spans: Mapping[Verdict, Agreement]
    kappa: float | None
    """Cohen's kappa over words; None where one of them gives every word the same verdict."""
    scores: float | None
    """Spearman's rank correlation of the scores; None where fewer than three completions have two."""


def agreement(first: Iterable[Mapping[str, Any]], second: Iterable[Mapping[str, Any]] | None = None) -> Agreements:
    """Rows with spans, or with critiques that are located now, matched by id. Without `second`: what several people say
    of the same items in `first`, whose ids are `ID#ANNOTATOR`, each pair of them.

    >>> row = {"id": 1, "completion": "Seven ships left.", "critique": '"Seven" is wrong.'}
    >>> agreement([row], [row]).words["poor"].f1
    1.0
    """
    mine = [Row.of(row) for row in first]
    if second is None:
        pairs, unmatched = _within(mine)
    else:
        theirs = {str(row.id): row for row in map(Row.of, second)}
        pairs = [(row, theirs[str(row.id)]) for row in mine if str(row.id) in theirs]
        unmatched = len(mine) + len(theirs) - 2 * len(pairs)
    same = [(one, other) for one, other in pairs if one.completion == other.completion]
    items = [Judged(one.completion, located(one), located(other)) for one, other in same]
    words = by_tokens(items)
    scores = [(a.critique.score, b.critique.score) for a, b in same]
    known = [(a, b) for a, b in scores if a is not None and b is not None]
    differing = len(pairs) - len(same)
    return Agreements(
        len(same), unmatched + differing, differing, words, by_spans(items), _kappa(words), _correlation(known)
    )


def located(row: Row) -> tuple[Span, ...]:
    """The spans that a row brings, or else those of its critique."""
    return row.spans or row.align(AlignSettings()).spans


def _within(rows: Sequence[Row]) -> tuple[list[tuple[Row, Row]], int]:
    """Pairs of rows about the same item, and how many rows are alone."""
    by_item: dict[str, list[Row]] = {}
    for row in rows:
        by_item.setdefault(str(row.id).partition("#")[0], []).append(row)
    pairs = [pair for several in by_item.values() for pair in combinations(several, 2)]
    return pairs, sum(len(several) == 1 for several in by_item.values())


def _kappa(words: Mapping[Verdict, Agreement]) -> float | None:
    total = sum(each.marked for each in words.values())
    if not total:
        return None
    observed = sum(each.right for each in words.values()) / total
    chance = sum(each.called * each.marked for each in words.values()) / total**2
    return (observed - chance) / (1 - chance) if chance < 1 else None


def _correlation(scores: Sequence[tuple[float, float]]) -> float | None:
    if len(scores) < 3:
        return None
    ranks = []
    for column in zip(*scores, strict=True):
        # Places in ascending order; equal numbers share the mean of theirs.
        _, place, count = np.unique(column, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[place])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if all(map(np.std, ranks)) else None
