"""Words that a critique talks about without quoting them. The last rung.

Enters: the completion's sentences, clauses that quote nothing, the source. Leaves: spans with the probability that
they are meant. A clause is taken to the sentences that it is about; what the clauses say there becomes evidence, one
row per word (`evidence`); a small learned scorer reads the rows (`scorer`), and the likeliest words are chosen. Below
the threshold: nothing.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback import lexicon
from text2grad.feedback.align.evidence import (
    COLUMNS,
    Support,
    Token,
    evidence,
    kinds_in,
    mentions_of,
    points,
    tokens_of,
    without_kinds,
)  # fmt: skip
from text2grad.feedback.align.ordinals import picks
from text2grad.feedback.align.scorer import Rows, best_words, span_of, word_scorer
from text2grad.feedback.align.settings import ParaphraseSettings
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import BLOCK, FUNCTION_WORDS, Place
from text2grad.types import Span, Verdict

Similarity = Callable[[str, Sequence[str]], NDArray[np.float32]]
"""(clause, windows) → how alike in meaning, −1 to 1."""

_GLUE = frozenset(" \t\n-–—'’\"“”(),&/")
_LONGEST_SENTENCE = 80
"""Words; a longer stretch without a full stop is read in pieces."""
_NEAR_BEST = 0.7
"""A sentence that has this share of the best one's weight is meant as well."""
_MOST = 3
"""Sentences that one clause can be about."""
_FEW = 4
"""A completion of so few sentences is searched whole where a clause names only a kind ("the date is wrong")."""
_WORK = (
    r"text|story|tale|novel|book|chapter|poem|song|speech|essay|summary|piece|article|letter|e?-?mail|answer|response|"
    r"post|report|passage|section|paragraph|stanza|draft|scene|code|document|review"
)
_PART = re.compile(
    r"\bthe (?:very )?(?P<part>opening|beginning|start|intro(?:duction)?|ending|end|conclusion|close)\b"
    rf"(?=\s*(?:[.,;:!?)–—]|$)|\s+(?:of|to|in) (?:the |this |your |its |that )?(?:\w+ )?(?:{_WORK})\b"
    r"|\s+(?:and|but|is|was|could|should|would|must|might|can|may|will|just|too|\w+(?:[^\Ws]s|ed|ly|n['’]t))\b)",
    re.IGNORECASE,
)
"""A part of the text by its own name; "the end of June" is none."""
_ENDS = frozenset(("ending", "end", "conclusion", "close"))


class Prose:
    """The completion's sentences as words, indexed by stem; made once for praise and blame."""

    def __init__(self, raw: str, sentences: Sequence[Place], support: Support | None) -> None:
        self.raw = raw
        self.support = support
        self.tokens: list[list[Token]] = []
        for start, end in sentences:
            tokens = tokens_of(raw, start, end)
            self.tokens += [tokens[k : k + _LONGEST_SENTENCE] for k in range(0, len(tokens), _LONGEST_SENTENCE)]
        self.places = [(tokens[0].start, tokens[-1].end) for tokens in self.tokens]
        self._holders: dict[str, list[int]] = {}
        """Stem → the sentences that hold it."""
        self._unsupported: set[str] = set()
        for number, tokens in enumerate(self.tokens):
            content = [token for token in tokens if token.lower not in FUNCTION_WORDS]
            for part in {part for token in content for part in token.stems}:
                self._holders.setdefault(part, []).append(number)
            if support is not None:
                self._unsupported.update(part for token in content if not support.holds(token) for part in token.stems)

    @cached_property
    def blocks(self) -> list[Place]:
        return [match.span() for match in BLOCK.finditer(self.raw)]

    @cached_property
    def windows(self) -> list[str]:
        """The sentences as an embedder reads them: without function words, which cost a third of its time and add
        nothing."""
        content = [" ".join(t.text for t in tokens if t.lower not in FUNCTION_WORDS) for tokens in self.tokens]
        return [words or self.raw[slice(*place)] for words, place in zip(content, self.places, strict=True)]

    def about(self, clause: str, names_kind: bool = False) -> list[int]:
        """Indices of the sentences that a clause is about, best first. The rarer its words are in the completion, the
        more they point; a clause whose words stand nowhere is about no sentence in particular."""
        if len(self.places) <= 1:
            return list(range(len(self.places)))
        # "His first name" is about a name and not about the word "first"; such words point only where no other does.
        weights = self._weigh(without_kinds(clause)) or self._weigh(clause)
        if not weights:
            return list(range(len(self.places))) if names_kind and len(self.places) <= _FEW else []
        ranked = sorted(weights, key=lambda number: (-weights[number], number))
        return [number for number in ranked[:_MOST] if weights[number] >= _NEAR_BEST * weights[ranked[0]]]

    def _weigh(self, words: str) -> dict[int, float]:
        """Sentence → how much these words point at it."""
        count = len(self.places)
        weights: dict[int, float] = {}
        for wanted in {mention.stem for mention in mentions_of(words) if mention.meant}:
            holders = self._holders.get(wanted, ())
            if 0 < len(holders) <= max(3, count // 5):
                weight = math.log((count + 1) / len(holders)) * (1.5 if wanted in self._unsupported else 1.0)
                for number in holders:
                    weights[number] = weights.get(number, 0.0) + weight
        return weights


@dataclass(frozen=True, slots=True)
class Named:
    """The sentences or paragraphs that a clause names."""

    places: tuple[Place, ...]
    outright: bool
    """"The last sentence"; "the end" gives way to words that point elsewhere."""
    rest: str
    """The clause without the words that name them."""


def named_parts(clause: str, sentences: Sequence[Place], blocks: Sequence[Place]) -> Named | None:
    """What a clause names by number, by order or as a part ("the last two sentences", "the opening").

    >>> named_parts("The last sentence is weak.", [(0, 4), (5, 9)], [(0, 9)])
    Named(places=((5, 9),), outright=True, rest='The   is weak.')
    """
    if len(sentences) < 2:
        return None
    for pick in picks(clause, "sentence|line|paragraph|stanza|verse"):
        parts = blocks if pick.unit in ("paragraph", "stanza") else sentences
        places = tuple(parts[index] for index in pick.of(len(parts))) if len(parts) > 1 else ()
        if places:
            return Named(places, True, f"{clause[: pick.start]} {clause[pick.end :]}")
    if match := _PART.search(clause):
        place = sentences[-1 if match["part"].lower() in _ENDS else 0]
        return Named((place,), False, f"{clause[: match.start()]} {clause[match.end() :]}")
    return None


@dataclass(frozen=True, slots=True)
class Routed:
    """Where clauses lead."""

    spans: list[Span]
    """Of clauses that name a sentence outright and say nothing closer."""
    about: dict[int, list[Clause]]
    """Sentence → the clauses about it."""
    nearest: dict[int, tuple[Clause, float]]
    """Sentence → the clause that shares no word with it but means it, and how alike they are."""


def route(
    prose: Prose,
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
    similar: Similarity | None = None,
) -> Routed:
    """Take each clause to the sentences that it is about."""
    routed = Routed([], {}, {})
    numbers: list[int] = []
    for clause in clauses:
        before = numbers
        named = named_parts(clause.plain, prose.places, prose.blocks)
        numbers = prose.about(named.rest if named else clause.plain)
        if named is not None:
            inside = [n for n in numbers if any(a <= prose.places[n][0] < b for a, b in named.places)]
            if inside or named.outright or not numbers:
                numbers = inside
            if not numbers:
                routed.spans.extend(span_of(place, verdict, 0.7, clause) for place in named.places)
        elif not numbers and _only_compared(clause.plain):
            # What the source says is about what was just blamed.
            numbers = before
        elif not numbers and similar and (near := _by_meaning(prose, clause, settings, similar)):
            numbers = [near[0]]
            routed.nearest[near[0]] = (clause, near[1])
        elif not numbers:
            says = lexicon.source_says(clause.plain)
            numbers = prose.about(clause.plain, bool(kinds_in(clause.plain[: says.start() if says else None])))
        for number in numbers:
            routed.about.setdefault(number, []).append(clause)
    return routed


def paraphrases(
    prose: Prose,
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
    quoted: Sequence[Place] = (),
    similar: Similarity | None = None,
) -> list[Span]:
    """Spans of the clauses, all of which carry the one verdict (or none, which is taken for it)."""
    routed = route(prose, clauses, verdict, settings, similar)
    spans, about = routed.spans, sorted(routed.about.items())
    # Praise is not compared with the source: what is well said may be well known.
    support = None if verdict == "good" else prose.support
    rows = [evidence(prose.raw, prose.tokens[number], group, support, quoted) for number, group in about]
    for (number, group), row, probabilities in zip(about, rows, word_scorer(COLUMNS)(rows), strict=True):
        chosen: list[Span] = []
        if points(row, praise=verdict == "good"):
            chosen = _choose(prose.raw, prose.tokens[number], probabilities, group, verdict, settings)
        if not chosen and number in routed.nearest:
            clause, likeness = routed.nearest[number]
            chosen = [span_of(prose.places[number], verdict, likeness, clause)]
        spans += chosen
    return spans


def _only_compared(words: str) -> bool:
    """Whether all that a clause brings up is what the source or a better version says."""
    mentions = mentions_of(words)
    return bool(mentions) and not any(mention.meant for mention in mentions)


def _by_meaning(
    prose: Prose, clause: Clause, settings: ParaphraseSettings, similar: Similarity
) -> tuple[int, float] | None:
    """The sentence that is nearest in meaning, if it is near, and nearer than any other."""
    if len(prose.places) < 2 or not lexicon.content_stems(clause.plain):
        return None
    scores = similar(clause.plain, prose.windows)
    best, second = np.argsort(-scores)[:2].tolist()
    if scores[best] < settings.similarity or scores[best] - scores[second] < settings.margin:
        return None
    return best, float(min(1.0, scores[best]))


def _choose(
    raw: str,
    tokens: Sequence[Token],
    probabilities: Rows,
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
) -> list[Span]:
    if verdict == "good":
        # The scorer learned from blame; of praise only what is rather sure.
        chosen = probabilities >= max(0.5, settings.certain)
    else:
        chosen = best_words(probabilities, np.array([token.end - token.start for token in tokens]), settings)
    runs: list[list[int]] = []
    for index in np.flatnonzero(chosen).tolist():
        gap = raw[tokens[index - 1].end : tokens[index].start]
        if runs and runs[-1][-1] == index - 1 and _GLUE.issuperset(gap):
            runs[-1].append(index)
        else:
            runs.append([index])
    spans = []
    for run in runs:
        place = (tokens[run[0]].start, tokens[run[-1]].end)
        cause = _cause(clauses, {part for k in run for part in tokens[k].stems})
        spans.append(span_of(place, verdict, float(probabilities[run].mean()), cause))
    return spans


def _cause(clauses: Sequence[Clause], stems: set[str]) -> Clause:
    """The clause that shares most with the chosen words; the first of several that share as much."""
    shared = [len(stems & {mention.stem for mention in mentions_of(clause.plain)}) for clause in clauses]
    return clauses[shared.index(max(shared))]
