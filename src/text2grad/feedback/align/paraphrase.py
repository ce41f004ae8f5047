"""Words that a critique talks about without quoting them. The last rung.

Enters: the completion, the clauses that point at nothing by themselves, the source. Leaves: spans with the probability
that they are meant. Clauses are taken to sentences (`sentences`), what they say there is turned into evidence
(`gather`, `evidence`), a small learned scorer (`tagger`) reads it, and the words are chosen that make the most of it.
Below the threshold: nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback import lexicon
from text2grad.feedback.align import cues
from text2grad.feedback.align.evidence import DENIES, MET, POINTING, UNSUPPORTED, Support, Token, evidence, tokens_of
from text2grad.feedback.align.gather import gather
from text2grad.feedback.align.places import Place
from text2grad.feedback.align.said import mentions_of
from text2grad.feedback.align.sentences import Index, named_units
from text2grad.feedback.align.settings import CodeSettings, ParaphraseSettings
from text2grad.feedback.align.stems import FUNCTION_WORDS, content_stems
from text2grad.feedback.align.tagger import word_tagger
from text2grad.feedback.align.text import Text
from text2grad.feedback.parse import Clause
from text2grad.types import Provenance, Span, Verdict

Similarity = Callable[[str, Sequence[str]], NDArray[np.float32]]
"""(clause, windows) → how alike in meaning, −1 to 1."""

_GLUE = frozenset(" \t\n-–—'’\"“”(),&/")
_LONGEST_SENTENCE = 80
"""Words; a longer stretch without a full stop is read in pieces."""


class Prose:
    """The completion's sentences as tokens; made once for praise and blame."""

    def __init__(self, text: Text, support: Support | None, stretches: Sequence[Place] | None = None) -> None:
        self.raw = text.raw
        self.support = support
        self.places: list[Place] = []
        self.tokens: list[list[Token]] = []
        for start, end in text.sentences if stretches is None else stretches:
            tokens = tokens_of(text.raw, start, end)
            for first in range(0, len(tokens), _LONGEST_SENTENCE):
                piece = tokens[first : first + _LONGEST_SENTENCE]
                self.places.append((piece[0].start, piece[-1].end))
                self.tokens.append(piece)
        self.index = Index(self.tokens, support)

    @cached_property
    def windows(self) -> list[str]:
        """The sentences as an embedder reads them: without the small words, which cost a third of its time and say
        nothing that the others do not."""
        found = []
        for place, tokens in zip(self.places, self.tokens, strict=True):
            content = " ".join(token.text for token in tokens if token.lower not in FUNCTION_WORDS)
            found.append(content or self.raw[slice(*place)])
        return found


def paraphrases(
    prose: Prose,
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
    quoted: Sequence[Place] = (),
    blocks: Sequence[Place] = (),
    similar: Similarity | None = None,
) -> list[Span]:
    """Spans of the clauses, all of which carry the one verdict (or none, which is taken for it)."""
    spans, about, nearest = take_to_sentences(prose, clauses, verdict, settings, blocks, similar)
    numbers = sorted(about)
    rows = rows_of(prose, about, numbers, quoted, praise=verdict == "good")
    for number, row, probabilities in zip(numbers, rows, word_tagger()(rows), strict=True):
        found: list[Span] = []
        if points(row, praise=verdict == "good"):
            found = _choose(prose, prose.tokens[number], probabilities, about[number], verdict, settings)
        if not found and number in nearest:
            clause, likeness = nearest[number]
            found = [span_of(prose.places[number], clause.verdict or verdict, likeness, clause)]
        spans += found
    return spans


def rows_of(
    prose: Prose,
    about: Mapping[int, Sequence[Clause]],
    numbers: Sequence[int],
    quoted: Sequence[Place],
    *,
    praise: bool,
) -> list[NDArray[np.float32]]:
    """The evidence of each sentence. Praise is not held against the source: what is well said may be well known."""
    support = None if praise else prose.support
    return [evidence(prose.raw, prose.tokens[n], gather(about[n], praise), support, quoted) for n in numbers]


def points(rows: NDArray[np.float32], *, praise: bool) -> bool:
    """Whether anything in a sentence is met by the critique's words, is of a kind that it names, or is what it denies
    the source; without any of that the scorer would only guess. For praise only words count."""
    columns = MET if praise else POINTING
    denied = not praise and bool((rows[:, UNSUPPORTED] * rows[:, DENIES]).any())
    return denied or bool(rows[:, columns].any())


def take_to_sentences(
    prose: Prose,
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
    blocks: Sequence[Place],
    similar: Similarity | None,
) -> tuple[list[Span], dict[int, list[Clause]], dict[int, tuple[Clause, float]]]:
    """Spans of clauses that name a sentence outright; sentence → the clauses about it; and sentence → the clause that
    only means it, with how alike they are."""
    about: dict[int, list[Clause]] = {}
    spans: list[Span] = []
    nearest: dict[int, tuple[Clause, float]] = {}
    numbers: list[int] = []
    for clause in clauses:
        before = numbers
        named = named_units(clause.plain, prose.places, blocks)
        numbers = prose.index.about(named.rest if named else clause.plain, False)
        if named is not None:
            inside = [n for n in numbers if any(a <= prose.places[n][0] < b for a, b in named.places)]
            if inside or named.outright or not numbers:
                numbers = inside
            if not numbers:
                spans += [span_of(place, clause.verdict or verdict, 0.7, clause) for place in named.places]
        elif not numbers and _only_held(clause.plain):
            # What the source says is about what was just blamed.
            numbers = before
        elif not numbers:
            near = _by_meaning(prose, clause, settings, similar) if similar else None
            if near is not None:
                numbers = [near[0]]
                nearest[near[0]] = (clause, near[1])
            else:
                numbers = prose.index.about(clause.plain, bool(cues.cues_of(_own(clause.plain))))
        for number in numbers:
            about.setdefault(number, []).append(clause)
    return spans, about, nearest


def _only_held(words: str) -> bool:
    """Whether all that a clause brings up is held against the completion."""
    mentions = mentions_of(words)
    return bool(mentions) and not any(mention.meant for mention in mentions)


def _own(words: str) -> str:
    """A clause up to where the source is made to say something."""
    said = lexicon.SOURCE_SAYS.search(words)
    held = said and not lexicon.NEGATED_CLAIM.search(words, max(0, said.start() - 12), said.end() + 9)
    return words[: said.start()] if said and held else words


def _choose(
    prose: Prose,
    tokens: Sequence[Token],
    probabilities: NDArray[np.float32],
    clauses: Sequence[Clause],
    verdict: Verdict,
    settings: ParaphraseSettings,
) -> list[Span]:
    if verdict == "good":
        # Trained on blame; of praise only what is rather sure.
        chosen = probabilities >= max(0.5, settings.certain)
    else:
        chosen = best_words(probabilities, np.array([token.end - token.start for token in tokens]), settings)
    chosen = _with_units(prose.raw, tokens, chosen)
    spans = []
    run: list[int] = []
    for index in [*np.flatnonzero(chosen).tolist(), None]:
        joined = run and index is not None and _GLUE.issuperset(prose.raw[tokens[run[-1]].end : tokens[index].start])
        if run and not (joined and index == run[-1] + 1):
            clause = _cause(clauses, [tokens[k] for k in run])
            place = (tokens[run[0]].start, tokens[run[-1]].end)
            confidence = float(probabilities[run].mean())
            spans.append(span_of(place, clause.verdict or verdict, confidence, clause))
            run = []
        if index is not None:
            run.append(index)
    return spans


def _with_units(raw: str, tokens: Sequence[Token], chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A number brings the unit behind it."""
    whole = chosen.copy()
    for index in np.flatnonzero(chosen[:-1]).tolist():
        token, after = tokens[index], tokens[index + 1]
        number = token.text[0].isdigit() or token.lower in cues.NUMBER_WORDS
        if number and after.lower in cues.UNITS and raw[token.end : after.start] == " ":
            whole[index + 1] = True
    return whole


def best_words(
    probabilities: NDArray[np.float32], lengths: NDArray[np.int64], settings: ParaphraseSettings | CodeSettings
) -> NDArray[np.bool_]:
    """Every word that is likely enough; where none is, those whose choice has the highest expected F1 if the
    probabilities are true; none at all where the best is below the threshold.

    >>> best_words(np.array([0.3, 0.02, 0.28], dtype=np.float32), np.array([5, 5, 5]), ParaphraseSettings()).tolist()
    [True, False, True]
    """
    chosen = probabilities >= settings.certain
    if chosen.any() or not len(probabilities) or probabilities.max() < settings.threshold:
        return chosen
    order = np.argsort(-probabilities, kind="stable")
    mass = probabilities[order] * lengths[order]
    expected = 2 * np.cumsum(mass) / (np.cumsum(lengths[order]) + mass.sum())
    chosen[order[: int(np.argmax(expected)) + 1]] = True
    return chosen


def _cause(clauses: Sequence[Clause], tokens: Sequence[Token]) -> Clause:
    """The clause that shares most with the chosen words; the first of several that share as much."""
    if len(clauses) == 1:
        return clauses[0]
    stems = {part for token in tokens for part in token.stems}
    return max(clauses, key=lambda clause: len(stems & {mention.stem for mention in mentions_of(clause.plain)}))


def _by_meaning(
    prose: Prose, clause: Clause, settings: ParaphraseSettings, similar: Similarity
) -> tuple[int, float] | None:
    """No word in common: the sentence that is nearest in meaning, if it is near, and nearer than any other."""
    if len(prose.places) < 2 or not content_stems(clause.plain):
        return None
    scores = similar(clause.plain, prose.windows)
    best, second = np.argsort(-scores)[:2].tolist()
    if scores[best] < settings.similarity or scores[best] - scores[second] < settings.margin:
        return None
    return best, float(min(1.0, scores[best]))


def span_of(
    place: Place, verdict: Verdict, confidence: float, clause: Clause, provenance: Provenance = "paraphrase"
) -> Span:
    """The span that a clause causes without quoting it."""
    return Span(
        *place,
        verdict=verdict,
        severity=clause.severity,
        provenance=provenance,
        confidence=round(min(1.0, confidence), 4),
        comment=clause.text,
    )
