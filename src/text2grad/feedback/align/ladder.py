"""The whole of alignment: a completion and a critique in, spans, missed quotes and omissions out.

Enters: characters only; a `Completion`'s text or a string, a `Critique` or its words, optionally the source, a
revision, an embedder. Leaves: an `Alignment`. Refuses to know tokens (see `overlap`), models (an embedder is a
callable) and files. The rungs, strongest first: quotes (`locate`), a corrected version (`revision`), references to code
(`code`), paraphrase (`paraphrase`). What is said to be missing is set apart before the last two (`omissions`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import InvalidData
from text2grad.feedback.align import code, locate
from text2grad.feedback.align.evidence import stems_of
from text2grad.feedback.align.omissions import split_omissions
from text2grad.feedback.align.paraphrase import Embedder, Prose, paraphrases
from text2grad.feedback.align.revision import changed
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.parse import Clause, parse, remainders
from text2grad.feedback.quotes import tracebacks
from text2grad.feedback.text import Place, Text
from text2grad.types import Alignment, Completion, Critique, Missed, Span, Verdict

_AT_ONCE = 256
"""Pairs that `align_many` reads before their texts are embedded together."""
_MOST_CLAUSES = 400
"""Clauses of a critique that are searched for paraphrases: cost grows with their number."""
_DEFAULT = AlignSettings()
_FENCE = re.compile(r"^```[^\n]*\n(.*?)(?:^```[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)


def align(
    completion: str | Completion,
    critique: str | Critique,
    *,
    source: str | None = None,
    revision: str | None = None,
    verdict: Verdict | None = None,
    embed: Embedder | None = None,
    settings: AlignSettings = _DEFAULT,
) -> Alignment:
    """Find the words that a critique is about.

    `source` is what the completion was written from (or the prompt), `revision` the completion as it should have
    been, and `verdict` the verdict of what is said without praise or blame (default: the settings'). A `Critique`
    with quotes, or with `quotes_only`, is taken at its word: they are located, its `feedback` is not read again.

    >>> found = align("Nine ships left on Tuesday.", 'A fine count, but "on Tuesday" is wrong.')
    >>> [(span.slice("Nine ships left on Tuesday."), span.verdict, span.provenance) for span in found.spans]
    [('on Tuesday', 'poor', 'exact')]
    """
    text = completion.text if isinstance(completion, Completion) else completion
    critique = critique if isinstance(critique, Critique) else Critique(critique)
    check_sizes(text, critique, settings)
    if critique.quotes or critique.quotes_only:
        return _given_quotes(Text(text), critique, settings, Text(source) if source else None)
    ready = prepare(text, critique.feedback, source, settings, verdict)
    corrected = (revision or critique.revision) if settings.revision.use else None
    places = changed(text, corrected)[0] if corrected else []
    # A correction says what was wrong better than any paraphrase of the blame; praise it does not know.
    clauses = [clause for clause in ready.clauses if clause.verdict == "good" or not places]
    known = [*ready.spans, *_from_revision(ready, places)]
    loose = _from_clauses(ready, clauses, verdict or settings.verdict, settings, embed)
    # A quote or a correction says better what is meant than anything that was only gathered from words.
    loose = [span for span in loose if not any(span.start < at.end and at.start < span.end for at in known)]
    omissions = tuple(dict.fromkeys((*critique.omissions, *ready.omissions)))
    return Alignment(*_sorted([*known, *loose, *ready.missed]), omissions)


@dataclass(frozen=True, slots=True)
class Pair:
    """What `align` takes, as one thing."""

    completion: str | Completion
    critique: str | Critique
    source: str | None = None
    revision: str | None = None
    verdict: Verdict | None = None

    def align(self, settings: AlignSettings, embed: Embedder | None) -> Alignment:
        given = {"source": self.source, "revision": self.revision}
        return align(self.completion, self.critique, **given, verdict=self.verdict, embed=embed, settings=settings)


def align_many(
    pairs: Iterable[Pair], *, embed: Embedder | None = None, settings: AlignSettings = _DEFAULT
) -> Iterator[Alignment]:
    """Alignments in the order of the pairs, the same as one by one. With an embedder, each pair is read once to learn
    which texts it asks about; all of them are embedded together; the pairs that asked are read again.

    >>> [len(found.spans) for found in align_many([Pair("Nine ships.", 'The "Nine" is right.'), Pair("x", '"y"?')])]
    [1, 0]
    """
    if embed is None:
        yield from (pair.align(settings, None) for pair in pairs)
        return
    waiting = iter(pairs)
    while chunk := list(islice(waiting, _AT_ONCE)):
        asked: list[list[str]] = [[] for _ in chunk]
        first = [pair.align(settings, _asking(texts)) for pair, texts in zip(chunk, asked, strict=True)]
        texts = list(dict.fromkeys(text for texts in asked for text in texts))
        rows = dict(zip(texts, embed(texts), strict=True)) if texts else {}

        def known(texts: Sequence[str], rows: dict[str, NDArray[np.float32]] = rows) -> NDArray[np.float32]:
            return np.stack([rows[text] for text in texts])

        for pair, texts, alignment in zip(chunk, asked, first, strict=True):
            yield pair.align(settings, known) if texts else alignment


def _asking(asked: list[str]) -> Embedder:
    """An embedder that only remembers what it was asked."""

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        asked.extend(texts)
        return np.zeros((len(texts), 1), dtype=np.float32)

    return embed


def check_sizes(text: str, critique: Critique, settings: AlignSettings) -> None:
    """Raise `InvalidData` for what is too large to be meant."""
    limits = settings.limits
    for name, length, limit in (
        ("critique", len(critique.feedback) + sum(len(quote.text) for quote in critique.quotes), limits.critique),
        ("completion", len(text), limits.completion),
    ):
        if length > limit:
            raise InvalidData(
                f"{name}: should have at most {limit:,} characters, got {length:,}; if that is meant, set "
                f"align.limits.{name} higher (in text2grad align it is limits.{name})"
            )


@dataclass(frozen=True, slots=True)
class Ready:
    """A critique after the rungs for quotes: what they found, and the clauses that they left open."""

    text: Text
    critique: str
    parsed: list[Clause]
    spans: tuple[Span, ...]
    missed: tuple[Missed, ...]
    omissions: list[str]
    clauses: list[Clause]
    source: frozenset[str] | None
    """The stems of the source."""

    @property
    def quoted(self) -> list[Place]:
        return [(span.start, span.end) for span in self.spans]


def prepare(
    completion: str, critique: str, source: str | None, settings: AlignSettings, verdict: Verdict | None = None
) -> Ready:
    """Read the critique, locate its quotes, set its omissions apart. The scorers are trained on what is left."""
    text, origin = Text(completion), Text(source) if source else None
    parsed = parse(critique, completion, verdict)
    found, settled = _from_quotes(text, parsed, verdict or settings.verdict, settings, origin)
    stems = stems_of(source) if source else None
    traces = tracebacks(critique)
    own = [c for c in parsed if not any(start <= c.start and c.end <= end + 1 for start, end in traces)]
    clauses = [part for clause in own for part in (remainders(clause) if clause in settled else [clause])]
    there, missing = split_omissions(clauses, completion, stems)
    return Ready(text, critique, parsed, *_sorted(found), missing, there, stems)


def _given_quotes(text: Text, critique: Critique, settings: AlignSettings, source: Text | None) -> Alignment:
    """Quotes that came as data. The same text quoted several times means its places one after the other."""
    found: list[Span | Missed] = []
    counts, turns = Counter(quote.text for quote in critique.quotes), Counter[str]()
    for quote in critique.quotes:
        turn, hint = turns[quote.text], quote.start
        turns[quote.text] += 1
        if hint is None and counts[quote.text] > 1:
            places = locate.locate(text, quote.text, settings.quotes)[0]
            hint = places[turn][0] if turn < len(places) else None
        wanted = locate.Wanted(quote.text, quote.verdict, quote.severity, quote.comment, f"{quote.comment} \x00", hint)
        found += locate.place(text, wanted, settings.quotes, source)
    return Alignment(*_sorted(found), critique.omissions)


def _from_quotes(
    text: Text, parsed: list[Clause], default: Verdict, settings: AlignSettings, source: Text | None
) -> tuple[list[Span | Missed], set[Clause]]:
    """Spans and missed quotes, and the clauses that have a quote of what they mean."""
    found: list[Span | Missed] = []
    settled: set[Clause] = set()
    for _, sentence in groupby(parsed, key=lambda clause: clause.sentence):
        cited = [(clause, quote) for clause in sentence for quote in clause.quotes]
        refused = locate.refusals(text, [quote for _, quote in cited], source, settings.quotes)
        for (clause, quote), reason in zip(cited, refused, strict=True):
            if reason is None:
                wanted = locate.Wanted.of(clause, quote, clause.verdict or default)
                found += locate.place(text, wanted, settings.quotes, source)
            else:
                found.append(Missed(quote.text, reason))
            # Found or not, a quote that is meant is what the clause is about: its other words are about the quote.
            if reason in (None, locate.QUOTES_SOURCE):
                settled.add(clause)
    return found, settled


def _sorted(found: Iterable[Span | Missed]) -> tuple[tuple[Span, ...], tuple[Missed, ...]]:
    """Spans in the order of the text, and missed quotes in that of the critique."""
    found = list(found)
    spans = sorted((each for each in found if isinstance(each, Span)), key=lambda span: (span.start, span.end))
    return tuple(spans), tuple(each for each in found if isinstance(each, Missed))


def _from_revision(ready: Ready, places: Sequence[Place]) -> Iterator[Span]:
    for start, end in places:
        # Where it was both said and corrected, what was said is the closer description.
        if not any(span.start <= start and end <= span.end for span in ready.spans):
            comment = _about(ready.parsed, ready.text.raw[start:end])
            yield Span(start, end, "poor", provenance="revision", confidence=0.9, comment=comment)


def _about(parsed: list[Clause], words: str) -> str:
    """The clause that shares most content words with these; the only clause, where there is one; else nothing."""
    wanted = content_stems(words)
    clauses = [clause for clause in parsed if clause.verdict != "good"]
    shared = [len(wanted & content_stems(clause.text)) for clause in clauses]
    if not any(shared):
        return clauses[0].text if len(clauses) == 1 else ""
    return clauses[shared.index(max(shared))].text


def regions_of(text: Text) -> tuple[list[code.Line], list[Place]]:
    """The completion's lines of code and its sentences of prose. Fenced code makes a completion both."""
    fences = list(_FENCE.finditer(text.raw))
    if not fences:
        lines = code.code_lines(text.raw)
        return (lines, []) if lines else ([], text.sentences)
    blocks = [code.code_lines(fence[1], fence.start(1), certain=True) for fence in fences]
    outside = [
        place for place in text.sentences if not any(place[0] < f.end() and f.start() < place[1] for f in fences)
    ]
    return [line for block in blocks for line in block or ()], outside


def _from_clauses(
    ready: Ready, clauses: Sequence[Clause], default: Verdict, settings: AlignSettings, embed: Embedder | None
) -> list[Span]:
    """Clauses that quote nothing → spans; blame and praise apart, so that neither lends the other its words."""
    clauses = clauses[:_MOST_CLAUSES]
    lines, sentences = regions_of(ready.text)
    groups: list[tuple[Verdict, list[Clause]]] = [
        ("poor" if default == "good" else default, [clause for clause in clauses if clause.verdict != "good"]),
        ("good", [clause for clause in clauses if clause.verdict == "good"]),
    ]
    groups = [(verdict, group) for verdict, group in groups if group]
    spans: list[Span] = []
    if lines and settings.code.use:
        broken = code.broken_line(lines, ready.critique)
        spans += [broken] if broken else []
        offered = [missed.quote for missed in ready.missed if missed.reason == locate.OFFERED and not ready.spans]
        spans += [span for quote in offered if (span := code.replaced_line(lines, quote))]
        for verdict, group in groups:
            spans += code.in_code(lines, group, verdict, settings.code, ready.quoted)
    if sentences and settings.paraphrase.use and groups:
        prose = Prose(ready.text.raw, sentences, ready.source)
        for verdict, group in groups:
            spans += paraphrases(prose, group, verdict, settings.paraphrase, embed)
    # One span per place and verdict: the surest.
    surest: dict[tuple[int, int, str], Span] = {}
    for span in sorted(spans, key=lambda span: span.confidence):
        surest[span.start, span.end, span.verdict] = span
    return list(surest.values())
