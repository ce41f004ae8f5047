"""The whole of alignment: a completion and a critique in, spans, missed quotes and omissions out.

Enters: characters only; a `Completion`'s text or a string, a `Critique` or its words, optionally the source, a
revision, helpers. Leaves: an `Alignment`. Refuses to know tokens (see `overlap`), models (helpers are callables) and
files. The rungs, strongest first: quotes (`locate`), a corrected version (`revision`), lines and sentences that are
named, what a locator quotes (`helpers`), references to code (`code`), paraphrase (`paraphrase`). What is said to be
missing is set apart before these (`omissions`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby, islice

from text2grad.errors import InvalidData
from text2grad.feedback.align import code, locate
from text2grad.feedback.align.context import SourceWords
from text2grad.feedback.align.helpers import NO_HELP, Embedder, Helpers, Locate, Memory, Question, located
from text2grad.feedback.align.omissions import split_omissions
from text2grad.feedback.align.paraphrase import Prose, paraphrases
from text2grad.feedback.align.revision import changed
from text2grad.feedback.align.scorer import span_of
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.parse import Clause, parse, remainders
from text2grad.feedback.quotes import tracebacks
from text2grad.feedback.text import Place, Text
from text2grad.types import Alignment, Completion, Critique, Missed, Span, Verdict

_AT_ONCE = 256
"""Pairs that `align_many` reads before a helper is asked about all of them."""
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
    locate: Locate | None = None,
    settings: AlignSettings = _DEFAULT,
) -> Alignment:
    """Find the words that a critique is about.

    `source` is what the completion was written from (or the prompt), `revision` the completion as it should have
    been, and `verdict` the verdict of what is said without praise or blame (default: the settings'). A `Critique`
    with quotes, or with `quotes_only`, is taken at its word: they are located, its `feedback` is not read again.
    `embed` compares sentences, `locate` quotes what a critique is about (`align.locator.Locator`); without it, the
    settings' `locator` is asked, at the environment's address.

    >>> found = align("Nine ships left on Tuesday.", 'A fine count, but "on Tuesday" is wrong.')
    >>> [(span.slice("Nine ships left on Tuesday."), span.verdict, span.provenance) for span in found.spans]
    [('on Tuesday', 'poor', 'exact')]
    """
    pair = Pair(completion, critique, source, revision, verdict)
    (found,) = align_many([pair], embed=embed, locate=locate, settings=settings)
    return found


def _align(pair: "Pair", settings: AlignSettings, helpers: Helpers) -> Alignment:
    text, critique, source, verdict = pair.text, pair.said, pair.source, pair.verdict
    check_sizes(text, critique, settings)
    if critique.quotes or critique.quotes_only:
        return _given_quotes(Text(text), critique, settings, Text(source) if source else None)
    ready = prepare(text, critique.feedback, source, settings, verdict)
    corrected = (pair.revision or critique.revision) if settings.revision.use else None
    places = changed(text, corrected)[0] if corrected else []
    # A correction says what was wrong better than any paraphrase of the blame; praise it does not know.
    clauses = [clause for clause in ready.clauses if clause.verdict == "good" or not places]
    known = [*ready.spans, *_from_revision(ready, places)]
    if helpers.locate is not None:
        named, clauses = _named(ready, clauses, verdict or settings.verdict)
        known += named
    quoted, invented = _from_locator(ready, clauses, source, settings, helpers.locate)
    # Of what a correction has settled, the locator's praise alone is news.
    quoted = [span for span in quoted if span.verdict == "good" or not places]
    loose = quoted or _from_clauses(ready, clauses, verdict or settings.verdict, settings, helpers.embed)
    # A quote or a correction says better what is meant than anything that was only gathered from words.
    loose = [span for span in loose if not any(span.start < at.end and at.start < span.end for at in known)]
    omissions = tuple(dict.fromkeys((*critique.omissions, *ready.omissions)))
    return Alignment(*_sorted([*known, *loose, *ready.missed, *invented]), omissions)


@dataclass(frozen=True, slots=True)
class Pair:
    """What `align` takes, as one thing."""

    completion: str | Completion
    critique: str | Critique
    source: str | None = None
    revision: str | None = None
    verdict: Verdict | None = None

    @property
    def text(self) -> str:
        return self.completion.text if isinstance(self.completion, Completion) else self.completion

    @property
    def said(self) -> Critique:
        return self.critique if isinstance(self.critique, Critique) else Critique(self.critique)

    def align(self, settings: AlignSettings, helpers: Helpers = NO_HELP) -> Alignment:
        """Without what the settings name: no model is opened here."""
        return _align(self, settings, helpers)


def align_many(
    pairs: Iterable[Pair],
    *,
    embed: Embedder | None = None,
    locate: Locate | None = None,
    settings: AlignSettings = _DEFAULT,
) -> Iterator[Alignment]:
    """Alignments in the order of the pairs, the same as one by one. With a helper, each pair is aligned once to learn
    what it asks; all questions are put together; the pairs that asked are aligned again.

    >>> [len(found.spans) for found in align_many([Pair("Nine ships.", 'The "Nine" is right.'), Pair("x", '"y"?')])]
    [1, 0]
    """
    with ExitStack() as stack:
        if locate is None and settings.locator is not None:
            from text2grad.feedback.align.locator import Locator

            locate = stack.enter_context(Locator(settings.locator))
        helpers = Helpers(embed, locate)
        if helpers == NO_HELP:
            yield from (pair.align(settings) for pair in pairs)
            return
        waiting = iter(pairs)
        while chunk := list(islice(waiting, _AT_ONCE)):
            memory = Memory(helpers)
            found: list[Alignment | InvalidData] = []
            for _ in in_rounds(chunk, settings, memory, found):
                memory.settle()
            for alignment in found:
                if isinstance(alignment, InvalidData):
                    raise alignment
                yield alignment


def in_rounds(
    pairs: Sequence[Pair], settings: AlignSettings, memory: Memory, found: list[Alignment | InvalidData]
) -> Iterator[None]:
    """Fill `found`, one entry per pair. Whenever the memory is to be settled, it stops: whoever drives it does that."""
    found[:] = [Alignment()] * len(pairs)
    left = list(range(len(pairs)))
    while left:
        asking = []
        for index in left:
            before = memory.asked
            try:
                found[index] = pairs[index].align(settings, memory.helpers)
            except InvalidData as problem:
                found[index] = problem
            asking += [index] if memory.asked > before else []
        if asking:
            yield
        left = asking


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
    source: SourceWords | None

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
    words = SourceWords(source) if source else None
    traces = tracebacks(critique)
    own = [c for c in parsed if not any(start <= c.start and c.end <= end + 1 for start, end in traces)]
    clauses = [part for clause in own for part in (remainders(clause) if clause in settled else [clause])]
    there, missing = split_omissions(clauses, completion, words.stems if words else None)
    return Ready(text, critique, parsed, *_sorted(found), missing, there, words)


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


def _named(ready: Ready, clauses: Sequence[Clause], default: Verdict) -> tuple[list[Span], list[Clause]]:
    """Lines, traceback frames and sentences that are named outright, and the clauses that name none."""
    lines, sentences = regions_of(ready.text)
    prose = Prose(ready.text.raw, sentences, ready.source)
    broken = code.broken_line(lines, ready.critique)
    spans, left = [broken] if broken else [], []
    for clause in clauses:
        by_line = [(lines[index].start, lines[index].end) for index in sorted(code.named_lines(lines, clause.plain))]
        spans += [span_of(place, default, 0.95, clause, "code") for place in by_line]
        by_sentence = [] if by_line or not sentences else prose.named(clause.plain)
        spans += [span_of(place, default, 0.7, clause) for place in by_sentence]
        left += [] if by_line or by_sentence else [clause]
    return spans, left


def _from_locator(
    ready: Ready, clauses: Sequence[Clause], source: str | None, settings: AlignSettings, locate: Locate | None
) -> tuple[list[Span], list[Missed]]:
    """What a locator quotes, and what it invents. It is asked only where a clause has no quote of its own."""
    if locate is None or not clauses:
        return [], []
    (quotes,) = locate([Question(ready.text.raw, ready.critique, source)])
    return located(ready.text, quotes, ready.critique, ready.parsed, settings.quotes)


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
