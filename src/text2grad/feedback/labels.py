"""Token labels: what a reward model learns from a critique, and the critique that its predictions stand for.

Enters: a critique located in a text, and the characters of each token. Leaves: `TokenLabels`. Or the other way round:
what the span head predicts for each token becomes a `Critique`. Position T, after the T tokens of the completion, is
the decision to stop. Omissions belong there, and the part of the score that no span explains. No torch.

Two kinds of labels, by what the critiques hold (`feedback/rewards.py`):

score       A token's reward is its share of what its span earns: Q(end) − Q(start), or verdict × scale where there is a
            score and no Q. All rewards, that of the stop included, sum to score − Q("").
verdicts    The reward is the sign of the verdict times the severity of the span, 1 if none is given.
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
from text2grad.feedback.rewards import empty_quality, kind_of, quality_at, total_of
from text2grad.feedback.text import FUNCTION_WORDS, words_and_signs
from text2grad.types import Alignment, Critique, Quote, Verdict

LabelKind = Literal["score", "verdicts"]
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
VERDICTS: tuple[Verdict, ...] = ("poor", "neutral", "good")
"""The classes of the span head, in order."""
POOR, NEUTRAL, GOOD = range(3)
LEFT_OUT = "something that should be there"
_ROUNDING = 1e-6
"""Rewards below this are rounding errors."""


@dataclass(frozen=True, slots=True)
class TokenLabels:
    """The labels of one completion: T tokens, then the decision to stop."""

    verdicts: Integers
    """0 poor, 1 neutral, 2 good."""
    rewards: Numbers
    """Signed. A verdict can have a reward of 0, never one of the other sign."""
    start: float
    """Q of the empty text."""


@settings
class Calibration:
    """How the span head's numbers are read. Chosen on validation data, stored with the weights."""

    kind: Literal["score", "verdicts"] = "verdicts"
    """What the reward of a token is: its share of the score, or a severity."""
    temperature: Annotated[Real, Gt(0)] = 1.0
    """Divides the logits."""
    poor: Annotated[Real, Ge(0), Le(1)] = 0.5
    """A word is called poor from this probability on."""
    good: Annotated[Real, Ge(0), Le(1)] = 0.5
    """A word is called good from this probability on, unless it is called poor."""
    confidence: Annotated[Real, Ge(0), Le(1)] = 0.0
    """A completion with a lower mean confidence is not scored."""
    scale: Annotated[Real, Gt(0)] = 1.0
    """The head predicts the size of rewards in units of this."""
    start: Real = 0.0
    """Mean Q of the empty text."""


# ------------------------------------------------------------------------------------------------- critique → labels


def label_tokens(
    critique: Critique, alignment: Alignment, offsets: Integers, kind: LabelKind, scale: float = 0.0
) -> TokenLabels:
    """The labels of a completion. `scale`: the reward of a verdict where there is a score and no Q.

    >>> from text2grad.types import Span
    >>> critique = Critique("", quality=((0, -1.0), (4, -0.5), (5, -0.5), (9, -0.75)), score=-0.75)
    >>> alignment = Alignment((Span(0, 4, "good"), Span(5, 9, "poor")))
    >>> labels = label_tokens(critique, alignment, np.array([(0, 2), (2, 4), (4, 5), (5, 9)]), "score")
    >>> labels.verdicts.tolist(), labels.rewards.tolist(), labels.start
    ([2, 2, 1, 0, 1], [0.25, 0.25, 0.0, -0.25, 0.0], -1.0)
    """
    spans, owner_T = alignment.spans, owners(alignment.spans, offsets)
    tokens = np.bincount(owner_T[owner_T >= 0], minlength=len(spans))
    sign = np.array([SIGN[span.verdict] for span in spans])
    earned, start, stop = sign * [span.severity or 1.0 for span in spans], 0.0, 0.0
    if kind == "verdicts":
        stop = -1.0 if alignment.omissions or critique.omissions else 0.0
    else:
        earned = scale * earned
        if critique.quality:
            edges = np.array([(span.start, span.end) for span in spans], dtype=np.int64).reshape(-1, 2)
            earned, start = np.diff(quality_at(critique, edges))[:, 0], empty_quality(critique)
        # A verdict stays as the critic gave it. A span that earned against its verdict, or that has no token, gets
        # nothing, and what it earned belongs to the stop.
        earned = np.where((earned * sign > 0) & (tokens > 0), earned, 0.0)
        stop = total_of(critique, alignment, "") - float(earned.sum())
        stop = stop if abs(stop) > _ROUNDING else 0.0
        earned = earned / tokens.clip(1)
    signs = np.append(np.append(sign, 0.0)[owner_T], np.sign(stop))
    return TokenLabels((signs + 1).astype(np.int64), np.append(np.append(earned, 0.0)[owner_T], stop), start)


def kind_for(critiques: Sequence[Critique]) -> LabelKind:
    """The kind of labels that all of these critiques can give."""
    return "score" if critiques and all(kind_of(critique) != "verdicts" for critique in critiques) else "verdicts"


# -------------------------------------------------------------------------------------------------------- whole words

_LINKS = frozenset(",-–—/&'’\"“”")


@dataclass(frozen=True, slots=True)
class Words:
    """The W words of a text. Aggregates per-token numbers to whole words. A word is also a run of signs, or, in scripts
    without spaces, one character."""

    places: Integers
    """(W, 2): the characters of each word."""
    tokens: Integers
    """(W, 2): its tokens, from … to."""
    starts: Integers
    """(T,): the first character of each token."""

    @classmethod
    def of(cls, text: str, offsets: Integers) -> "Words":
        """
        >>> words = Words.of("Un-real cars", np.array([(0, 2), (2, 3), (3, 5), (5, 7), (7, 12)]))
        >>> words.places.tolist(), words.mean(np.array([0.5, 0, 1, 0.5, 0])).tolist()
        ([[0, 2], [2, 3], [3, 7], [8, 12]], [0.5, 0.0, 0.75, 0.0])
        """
        places = np.array([match.span() for match in words_and_signs(text)], dtype=np.int64).reshape(-1, 2)
        # Tokens come in the order of their text; some share a character.
        starts, ends = np.maximum.accumulate(offsets.reshape(-1, 2)).T
        first, last = ends.searchsorted(places[:, 0], "right"), starts.searchsorted(places[:, 1], "left")
        return cls(places, np.stack([first, np.maximum(first, last)], 1), starts)

    def mean(self, numbers: Numbers) -> Numbers:
        """(T, …) → (W, …): the mean over the word's tokens; 0 for a word that no token touches."""
        sums = np.zeros((len(numbers) + 1, *numbers.shape[1:]))
        numbers.cumsum(0, out=sums[1:])
        first, last = self.tokens.T
        count = np.maximum(last - first, 1).reshape(-1, *[1] * (numbers.ndim - 1))
        mean: Numbers = (sums[last] - sums[first]) / count
        return mean

    def pooled(self, numbers: Numbers) -> Numbers:
        """(T, …) → (T, …): each token gets the mean of the word that it begins in or before."""
        if not len(self.places):
            return numbers
        word = np.searchsorted(self.places[:, 1], self.starts, "right")
        inside = (word < len(self.places)).reshape(-1, *[1] * (numbers.ndim - 1))
        return np.where(inside, self.mean(numbers)[word.clip(max=len(self.places) - 1)], numbers)

    def linked(self, text: str, verdicts: Integers) -> Integers:
        """Verdicts of words → the same, but a linking word ("of", a comma) between two words of one verdict gets their
        verdict. Not across lines.

        >>> words = Words.of("rest of it", np.array([(0, 4), (4, 7), (7, 10)]))
        >>> words.linked("rest of it", np.array([0, 1, 0])).tolist()
        [0, 0, 0]
        """
        linked = verdicts.copy()
        between = (verdicts[1:-1] == NEUTRAL) & (verdicts[:-2] == verdicts[2:]) & (verdicts[:-2] != NEUTRAL)
        for place in (between.nonzero()[0] + 1).tolist():
            (_, before), (start, end), (after, _) = self.places[place - 1 : place + 2].tolist()
            word = text[start:end]
            if (word in _LINKS or word.lower() in FUNCTION_WORDS) and "\n" not in text[before:after]:
                linked[place] = verdicts[place - 1]
        return linked


# --------------------------------------------------------------------------------------------- predictions → critique


def critique_of(text: str, offsets: Integers, probs: Numbers, sizes: Numbers, calibration: Calibration) -> Critique:
    """The span head's predictions for a text as a critique. `probs`: (T + 1, 3), of the classes; `sizes`: (T + 1, 2),
    of the reward if poor and if good; both calibrated.

    >>> critique = critique_of("Nine cars", np.array([(0, 4), (4, 9)]),
    ...                        np.array([[0, 0, 1], [0.75, 0.25, 0], [0, 1, 0]]), np.ones((3, 2)),
    ...                        Calibration(kind="score"))
    >>> [(quote.text, quote.verdict) for quote in critique.quotes], critique.score
    ([('Nine', 'good'), ('cars', 'poor')], 0.25)
    """
    quotes = tuple(_quotes(text, Words.of(text, offsets), probs[:-1], sizes[:-1], calibration))
    if calibration.kind == "verdicts":
        omissions = (LEFT_OUT,) if verdicts_of(probs[-1:], calibration)[0] == POOR else ()
        return Critique(_feedback(quotes, omissions), quotes, omissions, quotes_only=True)
    rewards = probs[:, GOOD] * sizes[:, 1] - probs[:, POOR] * sizes[:, 0]
    if not text.strip():
        # Training data has no empty completions, so a positive prediction here is a guess.
        rewards = rewards.clip(max=0.0)
    sums = calibration.start + rewards.cumsum()
    quality = _running_sums(text, offsets, sums[:-1], calibration.start)
    return Critique(_feedback(quotes, ()), quotes, (), float(sums[-1]), quality, quotes_only=True)


def verdicts_of(probs: Numbers, calibration: Calibration) -> Integers:
    """The class of each row: poor or good from its threshold on; if both, the one further beyond its threshold."""
    poor = probs[:, POOR] / max(calibration.poor, _ROUNDING)
    good = probs[:, GOOD] / max(calibration.good, _ROUNDING)
    return np.where((poor >= 1) & (poor >= good), POOR, np.where(good >= 1, GOOD, NEUTRAL))


def confidence_of(probs: Numbers) -> float:
    """Mean probability of the likeliest class over the tokens of a completion."""
    return float(probs.max(1).mean())


def _quotes(text: str, words: Words, probs: Numbers, sizes: Numbers, calibration: Calibration) -> list[Quote]:
    """Runs of whole words with the same verdict. In kind `verdicts`, links between two words join their run, as people
    mark it; in kind `score` every boundary stays, because rewards are measured there."""
    word_probs = words.mean(probs)
    verdicts, severities = verdicts_of(word_probs, calibration), None
    if calibration.kind == "verdicts":
        verdicts, severities = words.linked(text, verdicts), words.mean(sizes)
    edges = [0, *((verdicts[1:] != verdicts[:-1]).nonzero()[0] + 1).tolist(), len(verdicts)]
    verdict_list, places = verdicts.tolist(), words.places.tolist()
    quotes = []
    for first, last in pairwise(edges if verdict_list else []):
        verdict = verdict_list[first]
        if verdict == NEUTRAL:
            continue
        start, quoted = places[first][0], text[places[first][0] : places[last - 1][1]]
        sure, severity = float(word_probs[first:last, verdict].mean()), None
        if severities is not None:
            severity = min(max(float(severities[first:last, int(verdict == GOOD)].mean()), 0.05), 1.0)
        comment = f"{cite(quoted)} is {VERDICTS[verdict]} ({sure:.0%} sure)."
        quotes.append(Quote(quoted, VERDICTS[verdict], severity, comment, start))
    return quotes


def _running_sums(text: str, offsets: Integers, sums: Numbers, start: float) -> tuple[tuple[int, float], ...]:
    """The running sum of the predicted rewards, in the form of `Critique.quality`. It is hindsight: the head has read
    the whole text, so this is no quality of prefixes. Measured at the last character of each token, without trailing
    white space: quotes end there too, so a quote holds all that its tokens earn."""
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
    sentences = []
    for verdict in ("good", "poor"):
        if cited := [cite(quote.text) for quote in quotes if quote.verdict == verdict]:
            sentences.append(f"{listed(cited, 8)} {'is' if len(cited) == 1 else 'are'} {verdict}.")
    if omissions:
        sentences.append("Something is left out.")
    return " ".join(sentences) or "Nothing stands out."
