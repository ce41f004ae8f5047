"""Quotes → places in the completion: the first three rungs of the ladder.

Enters: the completion, quotes with their clauses, the source. Leaves: a list of `Span` or a `Missed` for every quote.
Exact means character for character; normalised means alike after `fold`; fuzzy means within a bound of edits. A quote
never falls through to paraphrase: one that nobody wrote lands nowhere, and is counted. Where a quote occurs several
times, the critique's words choose; where they do not, the setting `quotes.ambiguous` does, and the span says so.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from rapidfuzz.distance import OSA
from rapidfuzz.fuzz import partial_ratio_alignment

from text2grad.feedback.align.ordinals import ORDINAL, ordinal, picks
from text2grad.feedback.align.settings import QuoteSettings
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.parse import CitedQuote, Clause
from text2grad.feedback.text import BLOCK, Place, Text, fold, splits_word, stem
from text2grad.types import Missed, Occurrence, Provenance, Span, Verdict

QUOTES_SOURCE = "quotes the source"
OFFERED = "offered instead, not quoted from the completion"
NOT_THERE = "not in the completion"

_MOST = 1_000
"""Places of one quote that are looked at; a quote found oftener ("a") is ambiguous whatever the rest."""
_WORK = 50_000_000
"""Characters that are searched for near misses of a text's quotes, all together: seconds. Further quotes that do not
stand in it as they are, are not looked for."""
_ELISION = re.compile(r"\s*(?:\.{3,}|…|\[(?:\.{3}|…)\]|\(\.{3}\))\s*")
_FARTHEST = 400
"""Characters that an elision ("the dam … at noon") may stand for."""
_EDGE = " \t\r\n.,;:!?…\"'"
_NEAR = 300
"""Characters of the clause on each side of a quote that help to tell its places apart."""


# ---- The rungs -------------------------------------------------------------------------------------------------------


def exact(text: Text, quote: str) -> list[Place]:
    """Every place of the quote as it is, then without the white space around it. Places may overlap ("aa" in "aaa").

    >>> exact(Text("no no no"), "no no")
    [(0, 5), (3, 8)]
    """
    return _whole_words(text, _find(text.raw, quote) or _find(text.raw, quote.strip()))


def normalised(text: Text, quote: str) -> list[Place]:
    """Every place whose folded characters are the folded quote's; then without the punctuation at its edges (people put
    their own commas inside the marks); then with an elision inside.

    >>> normalised(Text("The Dam—it  broke."), "the dam-it broke,")
    [(0, 17)]
    >>> normalised(Text("The dam on the hill broke at noon."), "the dam ... at noon")
    [(0, 33)]
    """
    folded = fold(quote)[0]
    for wanted in (folded, folded.strip(_EDGE)):
        if wanted and (places := _find(text.folded, wanted)):
            return _whole_words(text, [text.unfold(start, end) for start, end in places])
    return _elided(text, quote)


def _find(text: str, wanted: str) -> list[Place]:
    places: list[Place] = []
    start = text.find(wanted) if wanted else -1
    while start >= 0 and len(places) < _MOST:
        places.append((start, start + len(wanted)))
        start = text.find(wanted, start + 1)
    return places


def _whole_words(text: Text, places: list[Place]) -> list[Place]:
    """Where a quote stands both as words and inside words ("he" in "the"), only the words count. Inside a number, of
    which it would make another one ("50 euros" in "150 euros"), it does not stand at all."""
    places = [place for place in places if not cuts_number(text.raw, *place)]
    whole = [place for place in places if not any(splits_word(text.raw, edge) for edge in place)]
    return whole or places


_BEFORE_DIGIT, _BEHIND_DIGIT = re.compile(r"\d[.,]?$"), re.compile(r"\.\d|\d|,\d{3}(?!\d)")
_THOUSAND = re.compile(r"\d{3}(?!\d)")


def cuts_number(raw: str, start: int, end: int) -> bool:
    """Whether a stretch begins or ends inside a number.

    >>> [cuts_number("It costs 1,150 euros.", *place) for place in ((9, 20), (11, 20), (12, 20), (9, 10))]
    [False, True, True, True]
    >>> [cuts_number("f(1, 2,3) is x1.", *place) for place in ((2, 3), (5, 6), (7, 8), (14, 15))]
    [False, False, False, False]
    """
    before = _BEFORE_DIGIT.search(raw[max(0, start - 2) : start]) if raw[start].isdigit() else None
    if before and (not before[0].endswith(",") or _THOUSAND.match(raw, start)):
        return True
    return raw[end - 1].isdigit() and bool(_BEHIND_DIGIT.match(raw, end))


def _elided(text: Text, quote: str) -> list[Place]:
    parts = [part for piece in _ELISION.split(quote) if (part := fold(piece)[0].strip(_EDGE))]
    if len(parts) < 2 or any(len(part) < 3 for part in parts):
        return []
    places = []
    for start, end in _find(text.folded, parts[0]):
        for part in parts[1:]:
            begin = text.folded.find(part, end, end + _FARTHEST + len(part))
            if begin < 0:
                break
            end = begin + len(part)
        else:
            places.append(text.unfold(start, end))
    return places


_NUMBER = re.compile(r"\d+")


def fuzzy(text: Text, quote: str, settings: QuoteSettings) -> tuple[list[Place], float]:
    """(places, share of the quote that is right) of the nearest words within the bound. Every number must be the same,
    so that an invented quote finds nothing.

    >>> places, right = fuzzy(Text("The harbour master spoke."), "harbor mastr spoke", QuoteSettings())
    >>> places, round(right, 2)
    ([(4, 24)], 0.89)
    >>> fuzzy(Text("13 people died."), "12 people died", QuoteSettings())
    ([], 0.0)
    """
    wanted = fold(quote)[0].strip(_EDGE)
    limit = int(settings.fuzzy * len(wanted))
    if len(wanted) < settings.shortest_fuzzy or limit == 0 or not text.words:
        return [], 0.0
    # One edit costs up to two of its points, and the window may be cut off by as many characters.
    window = partial_ratio_alignment(wanted, text.folded, score_cutoff=100 * (1 - 2 * settings.fuzzy))
    if window is None or window.dest_start == window.dest_end:
        return [], 0.0
    inside = text.words_touching(*text.unfold(window.dest_start, window.dest_end))
    numbers = _NUMBER.findall(wanted)
    best, there = limit + 1, ""
    # The window is as long as the quote: at either end it may have a word too many or too few.
    ends = (range(max(0, edge - 1), min(edge + 2, len(text.words))) for edge in (inside.start, inside.stop - 1))
    for first, last in product(*ends):
        words = fold(text.raw[text.words[first][0] : text.words[last][1]])[0] if first <= last else ""
        edits = OSA.distance(wanted, words, score_cutoff=limit)
        if edits < best and _NUMBER.findall(words) == numbers:
            best, there = edits, words
    if not there:
        return [], 0.0
    places = _whole_words(text, [text.unfold(start, end) for start, end in _find(text.folded, there)])
    return places, 1.0 - best / len(wanted)


Located = tuple[list[Place], Provenance, float]


def locate(text: Text, quote: str, settings: QuoteSettings) -> Located:
    """All places of the quote on the strongest rung that has any, with the confidence of that rung. Looked for once,
    however often a critique comes back to it."""
    key = (quote, settings.fuzzy, settings.shortest_fuzzy)
    if key not in text.located:
        text.located[key] = _locate(text, quote, settings)
    located: Located = text.located[key]
    return located


def _locate(text: Text, quote: str, settings: QuoteSettings) -> Located:
    if places := exact(text, quote):
        return places, "exact", 1.0
    if places := normalised(text, quote):
        return places, "normalised", 0.97
    if text.searched > _WORK:
        return [], "fuzzy", 0.0
    text.searched += len(text.folded)
    places, right = fuzzy(text, quote, settings)
    return places, "fuzzy", 0.95 * right


# ---- One quote → its spans -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """One quote to be located, with all that helps."""

    text: str
    verdict: Verdict
    severity: float | None
    comment: str
    context: str
    """The clause, with \\x00 where the quote stands."""
    hint: int | None = None
    """Where the critique says it begins."""

    @classmethod
    def of(cls, clause: Clause, quote: CitedQuote, verdict: Verdict) -> "Wanted":
        left, right = quote.start - clause.start, quote.end - clause.start
        before, after = clause.text[max(0, left - _NEAR) : max(0, left)], clause.text[right : right + _NEAR]
        return cls(quote.text, verdict, clause.severity, clause.text, f"{before} \x00 {after}")


def place(text: Text, wanted: Wanted, settings: QuoteSettings, source: Text | None) -> Sequence[Span | Missed]:
    """The quote's spans, or why there are none."""
    places, provenance, confidence = locate(text, wanted.text, settings)
    if not places and wanted.hint is not None and text.raw.startswith(wanted.text, wanted.hint):
        # A part of a number, but the critic says that it is meant.
        places, provenance, confidence = [(wanted.hint, wanted.hint + len(wanted.text))], "exact", 1.0
    if not places:
        in_source = source is not None and locate(source, wanted.text, settings)[0]
        return [Missed(wanted.text, QUOTES_SOURCE if in_source else NOT_THERE)]
    chosen, occurrence = choose(text, places, wanted, settings)
    if not chosen:
        return [Missed(wanted.text, f"occurs {len(places)} times, and nothing says which is meant")]
    if occurrence == "ambiguous" and settings.ambiguous == "first":
        # All places are equally likely; the setting picks, the confidence admits it.
        confidence /= len(places)
    return [
        Span(
            *spot,
            verdict=wanted.verdict,
            severity=wanted.severity,
            provenance=provenance,
            confidence=confidence,
            comment=wanted.comment,
            occurrence=occurrence,
        )
        for spot in chosen
    ]


# ---- Which of several places -----------------------------------------------------------------------------------------

_TIME = r"(?:time|use|usage|instance|occurrence|mention|appearance|one)"
_NAMED = re.compile(
    rf"\b(?P<ordinal>{ORDINAL})\s+(?:{_TIME}\s*(?:of\s+)?(?:the\s+)?(?:word\s+|phrase\s+)?|word\s+|phrase\s+)?\x00"
    rf"|\x00\s*(?:,\s*)?(?:the\s+)?(?P<after>{ORDINAL})\s+{_TIME}\b",
    re.IGNORECASE,
)
_EVERY = re.compile(
    r"\b(?:every|each|all|both|any|repeated(?:ly)?|repeats?|repetition|overus\w+|throughout|again and again|twice|"
    r"times|too often|everywhere|always)\b",
    re.IGNORECASE,
)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_COMPARED = 64
"""Places whose surroundings are compared; among more, no clause has words enough to tell them apart."""


def choose(text: Text, places: list[Place], wanted: Wanted, settings: QuoteSettings) -> tuple[list[Place], Occurrence]:
    """The meant places. What decides, in order: a given start; the critique says so ("the second", "in line 3", "in the
    last sentence", "every"); the words around one place are the clause's more than around any other; the setting."""
    if len(places) == 1:
        return places, "only"
    if wanted.hint is not None:
        hint = wanted.hint
        return [min(places, key=lambda place: abs(place[0] - hint))], "resolved"
    if match := _NAMED.search(wanted.context):
        # "The fifth" of two is none of them.
        index = ordinal(match["ordinal"] or match["after"])
        exists = -len(places) <= index < len(places)
        return ([places[index]], "resolved") if exists else ([], "ambiguous")
    if named := _by_part(text, places, wanted.context) or _by_context(text, places, wanted):
        return named, "resolved"
    return {"first": places[:1], "all": places, "none": []}[settings.ambiguous], "ambiguous"


def _by_part(text: Text, places: list[Place], clause: str) -> list[Place]:
    for pick in picks(clause, "sentence|line|paragraph|stanza|verse"):
        if pick.unit == "sentence":
            parts = text.sentences
        else:
            pattern = _LINE if pick.unit in ("line", "verse") else BLOCK
            parts = [match.span() for match in pattern.finditer(text.raw)]
        for index in pick.of(len(parts)):
            for spot in places:
                if parts[index][0] <= spot[0] < parts[index][1]:
                    return [spot]
    return places if _EVERY.search(clause) else []


def _by_context(text: Text, places: list[Place], wanted: Wanted) -> list[Place]:
    """The one place whose sentence shares more content words with the clause than any other's."""
    stems = content_stems(wanted.context.replace("\x00", " ")) - content_stems(wanted.text)
    if not stems or len(places) > _COMPARED:
        return []
    starts = [start for start, _ in text.sentences]
    scores = []
    for start, _ in places:
        sentence = text.sentences[max(0, bisect_right(starts, start) - 1)]
        words = [text.words[k] for k in text.words_between(*sentence)]
        # Nearer words count more: two places may share one sentence.
        scores.append(sum(3 if abs(begin - start) < 40 else 1 for begin, _, word in words if stem(word) in stems))
    best = max(scores)
    return [places[scores.index(best)]] if best > 0 and scores.count(best) == 1 else []


# ---- What the quotes of a sentence are there for ---------------------------------------------------------------------


def refusals(
    text: Text, quotes: Sequence[CitedQuote], source: Text | None, settings: QuoteSettings
) -> list[str | None]:
    """Why each quote of a sentence is not looked for; None for those that are. The critic's words propose a role, the
    texts decide: the words alone mislead ("actually, “…” is wrong" offers nothing), so that a quote which stands in the
    completion, and only there, is meant unless its sentence means another that was found."""
    landed = any(quote.role == "meant" and _lands(text, quote, settings) for quote in quotes)
    return [_refusal(text, quote, source, landed, settings) for quote in quotes]


def _refusal(text: Text, quote: CitedQuote, source: Text | None, landed: bool, settings: QuoteSettings) -> str | None:
    if quote.role == "meant":
        return None
    in_text = bool(exact(text, quote.text) or normalised(text, quote.text))
    in_source = source is not None and _lands(source, quote, settings)
    # A demand stays one; words that leave it open, or that name a source which is here to be asked, give way.
    loose = quote.role == "either" or (quote.role == "source" and source is not None)
    if in_text and not in_source and not landed and loose:
        return None
    if in_source or (quote.role == "source" and source is None):
        return QUOTES_SOURCE
    return OFFERED if in_text or quote.role == "offered" else NOT_THERE


def _lands(text: Text, quote: CitedQuote, settings: QuoteSettings) -> bool:
    return bool(locate(text, quote.text, settings)[0])
