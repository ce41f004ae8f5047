"""Words that a critique talks about without quoting them. The last rung.

Enters: the completion's sentences, clauses that quote nothing, the source. Leaves: spans with the probability that
they are meant. A clause is taken to the sentences that it is about; what the clauses say there becomes evidence, one
row per word (`evidence`); a small learned scorer reads the rows (`scorer`), and the likeliest words are chosen. Below
the threshold: nothing.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.align.evidence import COLUMNS, Rows, Token, evidence, kinds_in, points, tokens_of
from text2grad.feedback.align.ordinals import picks
from text2grad.feedback.align.scorer import best_words, span_of, word_scorer
from text2grad.feedback.align.settings import ParaphraseSettings
from text2grad.feedback.lexicon import content_stems, source_says
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import BLOCK, FUNCTION_WORDS, Place
from text2grad.types import Span, Verdict

Embedder = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → one row each, of length one. Lives in `models`; here it is only called."""

_GLUE = frozenset(" \t\n-–—'’\"“”(),&/")
_LONGEST_SENTENCE = 80
"""Words; a longer stretch without a full stop is read in pieces."""
_NEAR_BEST = 0.7
"""A sentence that has this share of the best one's weight is meant as well."""
_MOST = 3
"""Sentences that one clause can be about."""
_FEW = 4
"""A completion of so few sentences is searched whole where a clause names only a kind ("the date is wrong")."""
_PART = re.compile(
    r"\bthe (?:(?P<first>opening|beginning|introduction)|ending|conclusion)\b(?! \w+ony\b)", re.IGNORECASE
)
"""A part of the text by its own name."""


class Prose:
    """The completion's sentences as words, indexed by stem; made once for praise and blame."""

    def __init__(self, raw: str, sentences: Sequence[Place], source: frozenset[str] | None) -> None:
        """`source`: the stems of the source."""
        self.raw = raw
        self.source = source
        self.tokens: list[list[Token]] = []
        for start, end in sentences:
            tokens = tokens_of(raw, start, end)
            self.tokens += [tokens[k : k + _LONGEST_SENTENCE] for k in range(0, len(tokens), _LONGEST_SENTENCE)]
        self.places = [(tokens[0].start, tokens[-1].end) for tokens in self.tokens]
        self._holders: dict[str, list[int]] = {}
        """Stem → the sentences that hold it."""
        for number, tokens in enumerate(self.tokens):
            for part in {part for token in tokens if token.lower not in FUNCTION_WORDS for part in token.stems}:
                self._holders.setdefault(part, []).append(number)

    @cached_property
    def windows(self) -> list[str]:
        """The sentences as an embedder reads them: without function words, which cost a third of its time and add
        nothing."""
        content = [" ".join(t.text for t in tokens if t.lower not in FUNCTION_WORDS) for tokens in self.tokens]
        return [words or self.raw[slice(*place)] for words, place in zip(content, self.places, strict=True)]

    def about(self, clause: str) -> list[int]:
        """Indices of the sentences that a clause is about, best first. The rarer its words are in the completion, the
        more they point; a clause whose words stand nowhere is about no sentence in particular."""
        count = len(self.places)
        if count <= 1:
            return list(range(count))
        weights: dict[int, float] = {}
        for wanted in content_stems(clause):
            holders = self._holders.get(wanted, ())
            if 0 < len(holders) <= max(3, count // 5):
                for number in holders:
                    weights[number] = weights.get(number, 0.0) + math.log((count + 1) / len(holders))
        ranked = sorted(weights, key=lambda number: (-weights[number], number))
        return [number for number in ranked[:_MOST] if weights[number] >= _NEAR_BEST * weights[ranked[0]]]

    def named(self, clause: str) -> list[Place]:
        """The sentences or paragraphs that a clause names by number, by order or as a part ("the last two sentences",
        "the ending").

        >>> Prose("It rained. He left.", [(0, 10), (11, 19)], None).named("The last sentence is weak.")
        [(11, 18)]
        """
        if len(self.places) < 2:
            return []
        for pick in picks(clause, "sentence|line|paragraph|stanza|verse"):
            blocks = pick.unit in ("paragraph", "stanza")
            parts = [match.span() for match in BLOCK.finditer(self.raw)] if blocks else self.places
            if len(parts) > 1 and (chosen := pick.of(len(parts))):
                return [parts[index] for index in chosen]
        if part := _PART.search(clause):
            return [self.places[0 if part["first"] else -1]]
        return []


def route(
    prose: Prose, clauses: Sequence[Clause], settings: ParaphraseSettings, embed: Embedder | None = None
) -> tuple[dict[int, list[Clause]], list[tuple[Place, Clause, float]]]:
    """Take each clause to the sentences that it is about: (sentence → the clauses about it, places that are meant as a
    whole with their clause and confidence: named outright, or nearest in meaning)."""
    about: dict[int, list[Clause]] = {}
    whole: list[tuple[Place, Clause, float]] = []
    for clause in clauses:
        numbers = prose.about(clause.plain)
        if named := prose.named(clause.plain):
            numbers = [n for n in numbers if any(a <= prose.places[n][0] < b for a, b in named)]
            whole += [(place, clause, 0.7) for place in named if not numbers]
        elif not numbers and embed and (near := _by_meaning(prose, clause, settings, embed)):
            whole.append(near)
        elif not numbers and len(prose.places) <= _FEW:
            says = source_says(clause.plain)
            if kinds_in(clause.plain[: says.start() if says else None]):
                numbers = list(range(len(prose.places)))
        for number in numbers:
            about.setdefault(number, []).append(clause)
    return about, whole


def paraphrases(
    prose: Prose,
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
    embed: Embedder | None = None,
) -> list[Span]:
    """Spans of the clauses, all of which carry the one verdict (or none, which is taken for it)."""
    about, whole = route(prose, clauses, settings, embed)
    spans = [span_of(place, verdict, confidence, clause) for place, clause, confidence in whole]
    # Praise is not compared with the source: what is well said may be well known.
    source = None if verdict == "good" else prose.source
    rows = [evidence(prose.raw, prose.tokens[number], group, source) for number, group in about.items()]
    for (number, group), row, chances in zip(about.items(), rows, word_scorer(COLUMNS)(rows), strict=True):
        if points(row, praise=verdict == "good"):
            spans += _choose(prose.raw, prose.tokens[number], chances, group, verdict, settings)
    return spans


def _by_meaning(
    prose: Prose, clause: Clause, settings: ParaphraseSettings, embed: Embedder
) -> tuple[Place, Clause, float] | None:
    """The sentence that is nearest in meaning, if it is near, and nearer than any other."""
    if len(prose.places) < 2 or not content_stems(clause.plain):
        return None
    rows = np.asarray(embed([clause.plain, *prose.windows]), dtype=np.float32)
    scores = rows[1:] @ rows[0]
    best, second = np.argsort(-scores)[:2].tolist()
    if scores[best] < settings.similarity or scores[best] - scores[second] < settings.margin:
        return None
    return prose.places[best], clause, float(scores[best])


def _choose(
    raw: str,
    tokens: Sequence[Token],
    chances: Rows,
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
) -> list[Span]:
    """The likeliest words, those that follow each other as one span."""
    if verdict == "good":
        # The scorer learned from blame; of praise only what is rather sure.
        chosen = chances >= max(0.5, settings.certain)
    else:
        chosen = best_words(chances, np.array([token.end - token.start for token in tokens]), settings)
    runs: list[list[int]] = []
    for index in np.flatnonzero(chosen).tolist():
        gap = raw[tokens[index - 1].end : tokens[index].start]
        if runs and runs[-1][-1] == index - 1 and _GLUE.issuperset(gap):
            runs[-1].append(index)
        else:
            runs.append([index])
    said = [content_stems(clause.plain) for clause in clauses]
    spans = []
    for run in runs:
        stems = {part for k in run for part in tokens[k].stems}
        # Of several clauses, the cause is the one that shares most with the chosen words.
        cause = max(range(len(clauses)), key=lambda k: len(stems & said[k]))
        place = (tokens[run[0]].start, tokens[run[-1]].end)
        spans.append(span_of(place, verdict, float(chances[run].mean()), clauses[cause]))
    return spans
