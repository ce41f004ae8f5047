"""What a reward model learns from an annotated completion, and what it says of a new one. Numbers over tokens.

Enters: spans and a critique, with the characters of each token; or, the other way, what the span head gave each token.
Leaves: a `Lesson`; or a `Critique`. Position T, after the T tokens of the completion, is the decision to stop: what is
left out belongs there, and whatever of the score no span explains.

Two kinds of lessons, by what the critiques hold (`feedback/score.py`):

score       each token's worth is its share of what its span earns: Q(end) − Q(start), or the verdict times c where
            there is a score and no Q. Summed over the tokens, stop included, it is score − Q("").
verdicts    worth is the span's severity, 1 where none is given; nothing is summed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from text2grad._checked import Real
from text2grad.config import settings
from text2grad.feedback.align.overlap import SIGN, owners
from text2grad.feedback.critics.words import cite, listed
from text2grad.feedback.rewards import Slope, kind_of, verdict_sum
from text2grad.feedback.units import Units, joined, units_of
from text2grad.types import Alignment, Critique, Quote, Verdict

Kind = Literal["score", "verdicts"]
Numbers = NDArray[np.float64]
VERDICTS: tuple[Verdict, ...] = ("poor", "neutral", "good")
"""The classes of the span head, in order."""
POOR, NEUTRAL, GOOD = range(3)
_LEAST = 1e-6
"""What is worth less is worth nothing: rounding."""
LEFT_OUT = "something that should be there"


@dataclass(frozen=True, slots=True)
class Lesson:
    """The labels of one completion: T tokens, then the decision to stop."""

    verdicts: NDArray[np.int64]
    worths: Numbers
    """Never negative: the verdict has the sign."""
    start: float
    """Q of the empty text."""


@settings
class Calibration:
    """How the span head's numbers are read; chosen on validation data, stored with the weights."""

    kind: Literal["score", "verdicts"] = "verdicts"
    """What the worth of a token is: its share of the score, or a severity."""
    temperature: Annotated[Real, Gt(0)] = 1.0
    """Divides the logits."""
    poor: Annotated[Real, Ge(0), Le(1)] = 0.5
    """From this probability on a token is called poor."""
    good: Annotated[Real, Ge(0), Le(1)] = 0.5
    """From this probability on a token is called good, unless it is called poor."""
    confidence: Annotated[Real, Ge(0), Le(1)] = 0.0
    """A completion whose tokens are on average less sure than this is not scored."""
    scale: Annotated[Real, Gt(0)] = 1.0
    """What a worth of 1 from the head stands for."""
    start: Real = 0.0
    """Q of the empty text, on average."""


def lesson_of(critique: Critique, alignment: Alignment, offsets: NDArray[np.int64], kind: Kind, unit: float) -> Lesson:
    """The labels of a completion. `unit`: what a verdict earns where there is a score and no Q.

    >>> from text2grad.types import Span
    >>> said = Critique("", quality=((0, -1.0), (4, -0.5), (5, -0.5), (9, -0.75)), score=-0.75)
    >>> where = Alignment((Span(0, 4, "good"), Span(5, 9, "poor")))
    >>> lesson = lesson_of(said, where, np.array([(0, 2), (2, 4), (4, 5), (5, 9)]), "score", 0.0)
    >>> lesson.verdicts.tolist(), lesson.worths.tolist(), lesson.start
    ([2, 2, 1, 0, 1], [0.25, 0.25, 0.0, 0.25, 0.0], -1.0)
    """
    mine = owners(alignment.spans, offsets)
    counts = np.bincount(mine[mine >= 0], minlength=len(alignment.spans))
    gains, start, stop = _gains(critique, alignment, kind, unit, counts)
    shares = gains / counts.clip(1) if kind == "score" else gains
    earned = np.append(np.append(shares, 0.0)[mine], stop)
    signs = np.append(np.array([SIGN[span.verdict] for span in alignment.spans] + [0.0])[mine], np.sign(stop))
    # The verdict is what was said. Where its span earned nothing, or the other way, it is worth nothing.
    return Lesson((signs + 1).astype(np.int64), (earned * signs).clip(0.0), start)


def kind_for(critiques: Sequence[Critique]) -> Kind:
    """The kind of lessons that all of these critiques can give."""
    return "score" if critiques and all(kind_of(said) != "verdicts" for said in critiques) else "verdicts"


def unit_for(found: Sequence[tuple[Critique, Alignment]]) -> float:
    """c, over all critiques that have a score and no Q."""
    slope = Slope()
    judged = [(verdict_sum(where), said.score) for said, where in found if kind_of(said) == "score"]
    slope.see([x for x, _ in judged], [y for _, y in judged if y is not None])
    return slope.value


def _gains(
    critique: Critique, alignment: Alignment, kind: Kind, unit: float, counts: NDArray[np.int64]
) -> tuple[Numbers, float, float]:
    """What each span earns, Q of the empty text, and what is left for the decision to stop."""
    severities = np.array([SIGN[span.verdict] * (span.severity or 1.0) for span in alignment.spans])
    if kind == "verdicts":
        return severities, 0.0, -1.0 if alignment.omissions or critique.omissions else 0.0
    if critique.quality:
        ends, values = (np.array(column) for column in zip(*critique.quality, strict=True))
        start = float(values[0]) if ends[0] == 0 else 0.0
        edges = np.array([(span.start, span.end) for span in alignment.spans], dtype=np.int64).reshape(-1, 2)
        known = np.searchsorted(ends, edges, side="right") - 1
        at_edges = np.where(known >= 0, values[np.maximum(known, 0)], start)
        gains = at_edges[:, 1] - at_edges[:, 0]
        total = (float(values[-1]) if critique.score is None else critique.score) - start
    else:
        gains, start, total = unit * severities, 0.0, critique.score or 0.0
    # What a token takes from a span counts; a span that no token belongs to, or earns against its verdict, does not.
    taken = float(gains[(gains * severities > 0) & (counts > 0)].sum())
    stop = total - taken
    return gains, start, stop if abs(stop) > _LEAST else 0.0


# ------------------------------------------------------------------------------------------------- what it says


def critique_of(
    text: str,
    offsets: NDArray[np.int64],
    probs: Numbers,
    worths: Numbers,
    read: Calibration,
    caution: float = 0.0,
) -> Critique:
    """What the span head said of a text, as a critique. `probs`: (T + 1, 3), `worths`: (T + 1, 2) if poor and if good;
    both as the calibration leaves them. `caution`: standard deviations taken off the score.

    >>> said = critique_of("Nine cars", np.array([(0, 4), (4, 9)]), np.array([[0, 0, 1], [0.75, 0.25, 0], [0, 1, 0]]),
    ...                    np.ones((3, 2)), Calibration(kind="score"))
    >>> [(quote.text, quote.verdict) for quote in said.quotes], said.score
    ([('Nine', 'good'), ('cars', 'poor')], 0.25)
    """
    quotes = tuple(_quotes(text, units_of(text, offsets), probs[:-1], worths[:-1], read))
    left_out = read.kind == "verdicts" and verdicts_of(probs[-1:], read)[0] == POOR
    omissions = (LEFT_OUT,) if left_out else ()
    score, quality = None, None
    if read.kind == "score":
        expected = _expected(probs, worths, caution)
        if not text.strip():
            # No completion to learn from is empty, so what it seems to earn is a guess: saying nothing earns nothing.
            expected = expected.clip(max=0.0)
        sums = read.start + expected.cumsum()
        score = float(sums[-1])
        quality = _curve(text, offsets, sums[:-1], read.start)
    return Critique(_feedback(quotes, omissions), quotes, omissions, score, quality, quotes_only=True)


def _expected(probs: Numbers, worths: Numbers, caution: float) -> Numbers:
    """What each token is expected to be worth, less its share of the doubt: so many standard deviations of the sum, the
    tokens' errors taken as independent, shared by their variances. What is neutral for sure costs nothing, and four
    times as many tokens that are not cost twice as much."""
    expected: Numbers = probs[:, GOOD] * worths[:, 1] - probs[:, POOR] * worths[:, 0]
    if not caution:
        return expected
    squares = probs[:, GOOD] * worths[:, 1] ** 2 + probs[:, POOR] * worths[:, 0] ** 2
    variances = (squares - expected**2).clip(0.0)
    deviation = np.sqrt(variances.sum())
    return expected - caution * variances / deviation if deviation else expected


def verdicts_of(probs: Numbers, read: Calibration) -> NDArray[np.int64]:
    """The class that each token is called: poor or good from its threshold on; if both, what is further beyond it."""
    poor, good = probs[:, POOR] / max(read.poor, _LEAST), probs[:, GOOD] / max(read.good, _LEAST)
    return np.where((poor >= 1) & (poor >= good), POOR, np.where(good >= 1, GOOD, NEUTRAL))


def confidence_of(probs: Numbers) -> float:
    """How sure the head is of a completion: the mean over its tokens of the likeliest class's probability."""
    return float(probs.max(1).mean())


def _quotes(text: str, units: Units, probs: Numbers, worths: Numbers, read: Calibration) -> list[Quote]:
    """Runs of whole words with the same verdict. Of verdicts alone, what stands between two poor words and says nothing
    by itself is poor with them, as people mark it; where worths are of a score, every boundary is kept."""
    chances = units.mean(probs)
    called = verdicts_of(chances, read)
    severities = None
    if read.kind == "verdicts":
        called, severities = joined(text, units, called, NEUTRAL), units.mean(worths)
    edges = [0, *((called[1:] != called[:-1]).nonzero()[0] + 1).tolist(), len(called)]
    verdicts, places = called.tolist(), units.places.tolist()
    found = []
    for first, last in pairwise(edges if verdicts else []):
        verdict = verdicts[first]
        if verdict == NEUTRAL:
            continue
        start, said = places[first][0], text[places[first][0] : places[last - 1][1]]
        sure, severity = _mean(chances[first:last, verdict]), None
        if severities is not None:
            severity = min(max(_mean(severities[first:last, int(verdict == GOOD)]), 0.05), 1.0)
        comment = f"{cite(said)} is {VERDICTS[verdict]} ({sure:.0%} sure)."
        found.append(Quote(said, VERDICTS[verdict], severity, comment, start))
    return found


def _mean(few: Numbers) -> float:
    # Of a handful of numbers, `mean` takes three times as long.
    return float(np.add.reduce(few)) / len(few)


def _curve(text: str, offsets: NDArray[np.int64], sums: Numbers, start: float) -> tuple[tuple[int, float], ...]:
    """Q at the end of each character that a token ends with, white space behind it apart, as in quotes: a quote has
    all that its tokens earn. Of tokens that share a character, after the last of them."""
    solid = offsets[:, 1].copy()
    for place, end in enumerate(solid.tolist()):
        if text[end - 1 : end].isspace():
            begin = int(offsets[place, 0])
            solid[place] = begin + (len(text[begin:end].rstrip()) or end - begin)
    ends = np.maximum.accumulate(solid)
    keep = ends > 0
    keep[:-1] &= ends[1:] > ends[:-1]
    return ((0, start), *zip(ends[keep].tolist(), sums[keep].tolist(), strict=True))


def _feedback(quotes: Sequence[Quote], omissions: Sequence[str]) -> str:
    said = []
    for verdict in ("good", "poor"):
        plain = [cite(quote.text) for quote in quotes if quote.verdict == verdict]
        if plain:
            said.append(f"{listed(plain, 8)} {'is' if len(plain) == 1 else 'are'} {verdict}.")
    if omissions:
        said.append("Something is left out.")
    return " ".join(said) or "Nothing stands out."
