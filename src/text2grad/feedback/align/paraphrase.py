"""Words that a critique talks about without quoting them. The last rung.

Enters: the completion's sentences, clauses that quote nothing, the source. Leaves: spans with the probability that
they are meant. A clause is taken to the sentences that it is about; what the clauses say there becomes evidence, one
row per word (`evidence`, and `context` for one of the scorers); one of two small learned scorers reads the rows
(`scorer`), and the likeliest words are chosen. Below the threshold: nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.align.context import CONTEXT, SourceWords, context
from text2grad.feedback.align.evidence import (
    COLUMNS,
    Aim,
    Rows,
    Token,
    cues_in,
    evidence,
    kinds_in,
    met,
    points,
    sharpened,
    tokens_of,
)
from text2grad.feedback.align.helpers import Embedder
from text2grad.feedback.align.ordinals import picks
from text2grad.feedback.align.scorer import best_words, filled, sentence_scorer, span_of, word_scorer
from text2grad.feedback.align.settings import ParaphraseSettings
from text2grad.feedback.lexicon import content_stems, source_says
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import BLOCK, ENGLISH, FUNCTION_WORDS, Place, pattern, word_set
from text2grad.types import Span, Verdict

_GLUE = frozenset(" \t\n-–—'’\"“”(),&/")
_LONGEST_SENTENCE = 80
"""Words; a longer stretch without a full stop is read in pieces."""
_NEAR_BEST = 0.5
"""A sentence that has this share of the best one's weight may be meant as well."""
_MOST = 4
"""Sentences that one clause can be about."""
_WEAK = 0.2
"""With an embedder: a clause whose best sentence holds no more than this of its content is searched by meaning first.
Words such as articles are shared by chance in languages whose function words are not known."""
_PLAIN = 0.5
"""A sentence that shares more than this with an earlier one repeats it; one that shares less than the rest of this with
all others is foreign to them."""
_MOST_HOLDERS = 50
"""Sentences that are looked at for one word when a repetition is searched for: cost grows with their number."""
_FEW = 4
"""A completion of so few sentences is searched whole where a clause names only a kind ("the date is wrong")."""
_PART = re.compile(
    r"\bthe (?:(?P<first>opening|beginning|introduction)|ending|conclusion)\b(?! \w+ony\b)", re.IGNORECASE
)
"""A part of the text by its own name."""


_EDGE = re.compile(
    r"\b(?:(?P<first>beginning|start|first (?:part|half|clause))|end|second half|last (?:part|clause)) of\b",
    re.IGNORECASE,
)
_BIT = re.compile(rf"\b(?:{pattern(ENGLISH['part_of'])})\b", re.IGNORECASE)
"""A part of a sentence is spoken of: a clause, or its first or last one."""
_CUT = re.compile(r"[,;:()—–]")
_JOINS = word_set(ENGLISH["joins"])
_PRAISED = 0.5
"""The least chance of a word that is praised."""
_OF_CLAUSE = 0.3
"""Share of a clause that has to be chosen, so that the whole of it is."""
_LONGEST_CLAUSE = 15
"""Words; what is longer is hardly one clause."""


def clause_units(raw: str, tokens: Sequence[Token]) -> list[Place]:
    """The clauses of a sentence, by its signs and joining words: first word and end of each.

    >>> clause_units(raw := "He left, which hurt, because of rain.", tokens_of(raw))
    [(0, 2), (2, 4), (4, 7)]
    """
    cuts = [
        k
        for k in range(1, len(tokens))
        if tokens[k].lower in _JOINS or _CUT.search(raw, tokens[k - 1].end, tokens[k].start)
    ]
    return list(pairwise([0, *cuts, len(tokens)]))


class Prose:
    """The completion's sentences as words, indexed by stem; made once for praise and blame."""

    def __init__(self, raw: str, sentences: Sequence[Place], source: SourceWords | None) -> None:
        self.raw = raw
        self.source = source
        self.tokens: list[list[Token]] = []
        for start, end in sentences:
            tokens = tokens_of(raw, start, end)
            self.tokens += [tokens[k : k + _LONGEST_SENTENCE] for k in range(0, len(tokens), _LONGEST_SENTENCE)]
        self.places = [(tokens[0].start, tokens[-1].end) for tokens in self.tokens]
        self._holders: dict[str, list[int]] = {}
        """Stem → the sentences that hold it."""
        self._contents = [
            {part for token in tokens if token.lower not in FUNCTION_WORDS for part in token.stems}
            for tokens in self.tokens
        ]
        for number, content in enumerate(self._contents):
            for part in content:
                self._holders.setdefault(part, []).append(number)

    @cached_property
    def windows(self) -> list[str]:
        """The sentences as an embedder reads them: without English function words, which cost a third of its time and
        add nothing."""
        plain = [self.raw[slice(*place)] for place in self.places]
        content = [" ".join(t.text for t in tokens if t.lower not in FUNCTION_WORDS) for tokens in self.tokens]
        return [(words if text.isascii() else "") or text for words, text in zip(content, plain, strict=True)]

    def weights(self, clause: str) -> tuple[dict[int, float], float]:
        """Sentence → how much of a clause's content it holds, and how much there is. The rarer a word is in the
        completion, the more it points; one that stands everywhere points nowhere."""
        count = len(self.places)
        held: dict[int, float] = {}
        total = 0.0
        for wanted in content_stems(clause):
            holders = self._holders.get(wanted, ())
            weight = math.log((count + 1) / max(1, len(holders)))
            total += weight
            if len(holders) <= max(3, count // 5):
                for number in holders:
                    held[number] = held.get(number, 0.0) + weight
        return held, total

    def repeats(self, number: int) -> float:
        """Share of a sentence's content that one earlier sentence has, too."""
        own = self._contents[number]
        shared = Counter(holder for part in own for holder in self._holders[part][:_MOST_HOLDERS] if holder < number)
        return max(shared.values(), default=0) / max(1, len(own))

    def foreign(self, number: int) -> float:
        """Share of a sentence's content that no other sentence has."""
        own = self._contents[number]
        return sum(len(self._holders[part]) == 1 for part in own) / max(1, len(own))

    def edge(self, place: Place, clause: str) -> Place:
        """Of a place that is named, its first or last clause where its beginning or end is spoken of."""
        cue = _EDGE.search(clause)
        if cue is None or place not in self.places:
            return place
        tokens = self.tokens[self.places.index(place)]
        first, last = clause_units(self.raw, tokens)[0 if cue["first"] else -1]
        return tokens[first].start, tokens[last - 1].end

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
) -> tuple[dict[int, Aim], list[tuple[Place, Clause, float]]]:
    """Take each clause to the sentences that it may be about: (sentence → how the clauses point at it, places that are
    meant as a whole with their clause and confidence: named outright, or nearest in meaning)."""
    about: dict[int, list[tuple[Clause, float, float, bool]]] = {}
    whole: list[tuple[Place, Clause, float]] = []
    for clause in clauses:
        held, total = prose.weights(clause.plain)
        named = prose.named(clause.plain)
        inside = [n for n, (start, _) in enumerate(prose.places) if any(a <= start < b for a, b in named)]
        best = max(held.values(), default=0.0)
        ranked = [n for n in sorted(held, key=lambda n: (-held[n], n)) if held[n] >= _NEAR_BEST * best]
        if len(prose.places) == 1:
            numbers = [0]
        elif named:
            # Of a place that is named, the words that the clause speaks of; without any, all of it.
            numbers = [n for n in ranked if n in inside] or (inside if kinds_in(clause.plain) else [])
            whole += [(prose.edge(place, clause.plain), clause, 0.7) for place in named if not numbers]
        elif (number := _meant_whole(prose, clause, ranked)) is not None:
            numbers = []
            whole.append((prose.places[number], clause, 0.6 if held else 0.4))
        elif embed and best <= _WEAK * total and (near := _by_meaning(prose, clause, settings, embed)):
            numbers = []
            whole.append(near)
        else:
            numbers = ranked or _of_a_kind(prose, clause)
        for n in numbers[:_MOST]:
            mass = held.get(n, 0.0)
            about.setdefault(n, []).append((clause, mass / (total or 1.0), mass / (best or 1.0), bool(named)))
    return {
        n: Aim(
            [clause for clause, *_ in given],
            max(share for _, share, _, _ in given),
            max(relative for _, _, relative, _ in given),
            any(place for *_, place in given),
            len(prose.places),
        )
        for n, given in about.items()
    }, whole


def _meant_whole(prose: Prose, clause: Clause, ranked: Sequence[int]) -> int | None:
    """The one sentence that is meant as a whole, where the clause speaks of a sentence's style, place, relevance or
    repetition. Of sentences that say the same, the later one repeats. Where no word is shared, the sentence that
    repeats most, or has least to do with the others."""
    cues = cues_in(clause.plain)
    if not cues:
        return None
    if ranked:
        return max(ranked[:2]) if "repeats" in cues else ranked[0]
    measured = prose.repeats if "repeats" in cues else prose.foreign if "relevance" in cues else None
    if measured is None:
        return None
    shares = {n: measured(n) for n in range(len(prose.places)) if len(prose.tokens[n]) > 2}
    number = max(shares, key=shares.__getitem__, default=0)
    return number if shares.get(number, 0.0) > _PLAIN else None


def _of_a_kind(prose: Prose, clause: Clause) -> list[int]:
    """All sentences of a short text where a clause that shares no word with them names a kind ("the date is wrong")."""
    says = source_says(clause.plain)
    named = len(prose.places) <= _FEW and kinds_in(clause.plain[: says.start() if says else None])
    return list(range(len(prose.places))) if named else []


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
    stems = source.stems if source else None
    rows = {number: evidence(prose.raw, prose.tokens[number], aim, stems) for number, aim in about.items()}
    rows = {number: row for number, row in rows.items() if points(row, praise=verdict == "good")}
    given = list(rows.values())
    news = None if verdict == "good" else sentence_scorer(COLUMNS, CONTEXT)
    if given and news and news.knows(given):
        # No gaps filled, no rules: these were made for other kinds, and cost this one F1.
        more = [np.hstack([row, context(prose.tokens[n], about[n], source)]) for n, row in rows.items()]
        chances = dict(zip(rows, news(more), strict=True))
        words = choose(prose, chances, settings)
    else:
        scored = zip(rows.items(), word_scorer(COLUMNS)(given), strict=True)
        chances = {n: sharpened(row, chance) for (n, row), chance in scored}
        words = {
            n: snapped(prose, n, filled(part, chances[n], settings), about[n].clauses, met(rows[n]))
            for n, part in choose(prose, chances, settings, praise=verdict == "good").items()
        }
    for n, chosen in words.items():
        spans += _runs(prose, n, chosen, chances[n], about[n].clauses, verdict)
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


def choose(
    prose: Prose, chances: dict[int, Rows], settings: ParaphraseSettings, *, praise: bool = False
) -> dict[int, NDArray[np.bool_]]:
    """Sentence → which of its words are chosen, from the chances of all sentences together."""
    if not chances:
        return {}
    lengths = np.array([token.end - token.start for number in chances for token in prose.tokens[number]])
    every = np.concatenate(list(chances.values()))
    # The scorer learned from blame; of praise only what is rather sure.
    chosen = every >= _PRAISED if praise else best_words(every, lengths, settings)
    cuts = np.cumsum([len(part) for part in chances.values()])[:-1]
    return dict(zip(chances, np.split(chosen, cuts), strict=True))


def snapped(
    prose: Prose, number: int, chosen: NDArray[np.bool_], clauses: Sequence[Clause], met: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """The chosen words of a sentence. Where the critique speaks of a part of it ("the bit about …"): the clauses that
    hold a word of the critique and of which a good part is chosen, whole, and no others."""
    tokens = prose.tokens[number]
    units = clause_units(prose.raw, tokens)
    if len(units) < 2 or not any(_BIT.search(clause.plain) for clause in clauses):
        return chosen
    sizes = np.array([token.end - token.start for token in tokens])
    whole = np.zeros_like(chosen)
    for first, last in units:
        share = sizes[first:last] @ chosen[first:last] / sizes[first:last].sum()
        if last - first <= _LONGEST_CLAUSE and share >= _OF_CLAUSE and met[first:last].any():
            whole[first:last] = True
    return whole if whole.any() else chosen


def _runs(
    prose: Prose,
    number: int,
    chosen: NDArray[np.bool_],
    chances: Rows,
    clauses: Sequence[Clause],
    verdict: Verdict,
) -> list[Span]:
    """The chosen words of a sentence, those that follow each other as one span."""
    raw, tokens = prose.raw, prose.tokens[number]
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
