"""The whole of alignment: a completion and a critique in, spans, missed quotes and omissions out.

Enters: characters only; a `Completion`'s text or a string, a `Critique` or its words, optionally the source, a
revision, an embedder. Leaves: an `Alignment`. Refuses to know tokens (see `project`), models (an embedder is a
callable) and files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import InvalidData
from text2grad.feedback.align import quoted
from text2grad.feedback.align.boundaries import settle
from text2grad.feedback.align.evidence import Support
from text2grad.feedback.align.paraphrase import Similarity
from text2grad.feedback.align.quoted import Wanted
from text2grad.feedback.align.revision import changed
from text2grad.feedback.align.roles import refusals
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.align.stems import content_stems
from text2grad.feedback.align.text import Text
from text2grad.feedback.align.unquoted import from_clauses, split_omissions
from text2grad.feedback.parse import Clause, Parsed, parse, remainders
from text2grad.feedback.quotes import tracebacks
from text2grad.types import Alignment, Completion, Critique, Missed, Span, Verdict

Embedder = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → one row each, of length one. Lives in `models`; here it is only called."""

_DEFAULT = AlignSettings()


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
    said = critique if isinstance(critique, Critique) else Critique(critique)
    check_sizes(text, said, settings)
    if said.quotes or said.quotes_only:
        return _given_quotes(Text(text), said, settings, Text(source) if source else None)
    ready = prepare(text, said.feedback, source, settings, verdict)
    revised = _from_revision(ready, revision or said.revision, settings)
    clauses = ready.clauses
    if revised:
        # A correction says what was wrong better than any paraphrase of the blame; praise it does not know.
        clauses = [clause for clause in clauses if clause.verdict == "good"]
    default = verdict or settings.verdict
    loose = from_clauses(
        ready.text,
        said.feedback,
        clauses,
        default,
        ready.source,
        ready.support,
        settings,
        ready.spans,
        similarity(embed),
    )
    # A quote or a correction says better what is meant than anything that was only gathered from words.
    loose = [span for span in loose if not any(_overlaps(span, known) for known in (*ready.spans, *revised))]
    omissions = tuple(dict.fromkeys((*said.omissions, *ready.omissions)))
    return Alignment(_ordered([*ready.spans, *revised, *loose]), tuple(ready.missed), omissions)


@dataclass(frozen=True, slots=True)
class Ready:
    """A critique after the rungs for quotes: what they found, and the clauses that they left open."""

    text: Text
    source: Text | None
    parsed: Parsed
    spans: list[Span]
    missed: list[Missed]
    omissions: list[str]
    clauses: list[Clause]
    support: Support | None
    """What the source supports."""


def prepare(
    completion: str, critique: str, source: str | None, settings: AlignSettings, verdict: Verdict | None = None
) -> Ready:
    """Read the critique, locate its quotes, set its omissions apart. The scorers are trained on what is left."""
    text, origin = Text(completion), Text(source) if source else None
    parsed = parse(critique, completion, verdict)
    spans, missed, settled = _from_quotes(text, parsed, verdict or settings.verdict, settings, origin)
    support = Support.of(source) if source else None
    traces = tracebacks(critique)
    said = [c for c in parsed.clauses if not any(start <= c.start and c.end <= end + 1 for start, end in traces)]
    clauses = [part for clause in said for part in (remainders(clause) if clause in settled else [clause])]
    there, gone = split_omissions(clauses, text, support)
    return Ready(text, origin, parsed, spans, missed, [missing for _, missing in gone], there, support)


def similarity(embed: Embedder | None) -> Similarity | None:
    """How alike a clause and some windows are, from an embedder whose rows are of length one."""
    if embed is None:
        return None

    def similar(clause: str, windows: Sequence[str]) -> NDArray[np.float32]:
        rows = np.asarray(embed([clause, *windows]), dtype=np.float32)
        alike: NDArray[np.float32] = rows[1:] @ rows[0]
        return alike

    return similar


def _overlaps(span: Span, known: Span) -> bool:
    return span.start < known.end and known.start < span.end


def check_sizes(text: str, said: Critique, settings: AlignSettings) -> None:
    """Raise `InvalidData` for what is too large to be meant."""
    limits = settings.limits
    for name, length, limit in (
        ("critique", len(said.feedback) + sum(len(quote.text) for quote in said.quotes), limits.critique),
        ("completion", len(text), limits.completion),
    ):
        if length > limit:
            raise InvalidData(
                f"{name}: should have at most {limit:,} characters, got {length:,}; if that is meant, set "
                f"align.limits.{name} higher (in text2grad align it is limits.{name})"
            )


def _given_quotes(text: Text, said: Critique, settings: AlignSettings, source: Text | None) -> Alignment:
    """Quotes that came as data. The same text quoted several times means its places one after the other."""
    spans: list[Span] = []
    missed: list[Missed] = []
    seen: dict[str, int] = {}
    counts: dict[str, int] = {}
    for quote in said.quotes:
        counts[quote.text] = counts.get(quote.text, 0) + 1
    for quote in said.quotes:
        turn = seen[quote.text] = seen.get(quote.text, -1) + 1
        hint = quote.start
        if hint is None and counts[quote.text] > 1:
            places = quoted.locate(text, quote.text, settings.quotes)[0]
            hint = places[turn][0] if turn < len(places) else None
        wanted = Wanted(quote.text, quote.verdict, quote.severity, quote.comment, f"{quote.comment} \x00", hint)
        found = quoted.place(text, wanted, settings.quotes, source)
        if isinstance(found, Missed):
            missed.append(found)
        else:
            spans.extend(found)
    return Alignment(_ordered(spans), tuple(missed), said.omissions)


def _from_quotes(
    text: Text, parsed: Parsed, default: Verdict, settings: AlignSettings, source: Text | None
) -> tuple[list[Span], list[Missed], set[Clause]]:
    """Spans, missed quotes, and the clauses that have a quote of what they mean."""
    spans: list[Span] = []
    missed: list[Missed] = []
    settled: set[Clause] = set()
    for _, sentence in groupby(parsed.clauses, key=lambda clause: clause.sentence):
        cited = [(clause, quote) for clause in sentence for quote in clause.quotes]
        refused = refusals(text, [quote for _, quote in cited], source, settings.quotes)
        for (clause, quote), reason in zip(cited, refused, strict=True):
            if reason is not None:
                missed.append(Missed(quote.text, reason))
                continue
            verdict = clause.verdict or default
            found = quoted.place(text, quoted.wanted_of(clause, quote, verdict), settings.quotes, source)
            # Found or not, the quote is what the clause is about: its other words are about the quote.
            settled.add(clause)
            if isinstance(found, Missed):
                missed.append(found)
            else:
                spans.extend(found)
    return spans, missed, settled


def _from_revision(ready: Ready, revision: str | None, settings: AlignSettings) -> list[Span]:
    if not revision or not settings.revision.use:
        return []
    text, parsed, known = ready.text, ready.parsed, ready.spans
    places, _ = changed(text.raw, revision, settings.revision)
    made = []
    for place in places:
        start, end = settle(text.raw, place, settings.revision.boundary)
        if any(span.start <= start and end <= span.end for span in known):
            # Said and corrected: what was said is the closer description.
            continue
        comment = _about(parsed, text.raw[start:end])
        made.append(Span(start, end, "poor", provenance="revision", confidence=0.9, comment=comment))
    return made


def _about(parsed: Parsed, words: str) -> str:
    """The clause that shares most content words with these; the only clause, where there is one; else nothing."""
    wanted = content_stems(words)
    clauses = [clause for clause in parsed.clauses if clause.verdict != "good"]
    scored = [(len(wanted & content_stems(clause.text)), -index) for index, clause in enumerate(clauses)]
    best = max(scored, default=(0, 0))
    if best[0] == 0:
        return clauses[0].text if len(clauses) == 1 else ""
    return clauses[-best[1]].text


def _ordered(spans: list[Span]) -> tuple[Span, ...]:
    return tuple(sorted(spans, key=lambda span: (span.start, span.end)))
