"""Free critique text → clauses with a verdict each, and their quotes with what they are quoted for.

Enters: the words of a critique, and the completion where there is one (it settles how quotation marks pair up).
Leaves: its clauses, in order. Knows nothing of places in the completion: that is `align`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from text2grad.feedback import lexicon
from text2grad.feedback.quotes import Quoted, find_quotes
from text2grad.feedback.text import ABBREVIATION
from text2grad.types import Verdict

QuoteRole = Literal["meant", "offered", "source", "either"]
"""What a quote is there for: the words that are meant, words offered in their stead, words of the source; or nobody can
say from the critique alone ("A instead of B"), and the texts decide."""

_SENTENCE_END = re.compile(
    # Possessive, and begun only where a run of blanks begins: a run is read once, however long.
    r"(?<=[.!?])[\"'”’)\]]*\s++(?=\x00|[\"'“‘(\[`]?[^\W_])|(?<=[。！？；])|\n++(?:[—–]\s++)?|;\s++"
    r"|(?<![^\S\n])[^\S\n]++[—–]\s++|(?<=[^\d]):\s++(?=[A-Z0-9(])"
)
_LIST_MARK = re.compile(r"^\W*[a-z0-9]{1,2}[.)]\s*$")
_TURN = (
    r"(?:but|however|although|though|whereas|while|yet|except|apart from|even though|nevertheless|unfortunately|"
    r"whilst)\b"
)
_CONTRAST = re.compile(
    # "Anything but clear" turns nothing. The blanks are read once, as above.
    rf"(?:,|(?<![\s,])(?<!anything)(?<!nothing)(?<!\ball))\s++(?={_TURN})"
    r"|(?<=\w)\s++(?=(?:and (?:also|it|the|that|in addition))\s)|,\s++",
    re.IGNORECASE,
)
_LONGEST = 2_000
"""Characters of a sentence; a longer one is cut at white space."""
_GAP = re.compile(r"\s+")
_PIECE = re.compile(r",\s|\s(?:and|nor|also|or)\s", re.IGNORECASE)
_STRONG = re.compile(_TURN, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CitedQuote:
    """A quote with its role; positions are in the critique, marks included."""

    text: str
    start: int
    end: int
    role: QuoteRole


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that is said: words with one verdict."""

    start: int
    end: int
    text: str
    plain: str
    """The same with its quotes blanked: what is said in the critic's own words."""
    verdict: Verdict | None
    severity: float | None
    sentence: int
    quotes: tuple[CitedQuote, ...] = ()


def parse(critique: str, completion: str = "", default: Verdict | None = None) -> list[Clause]:
    """The clauses of a critique, in order. A clause without a verdict of its own takes its sentence's, then the
    critique's if that only blames, then `default`; else it stays None.

    >>> clauses = parse('The opening is lovely, but "seven ships" is wrong: it should be "nine ships".')
    >>> [(clause.verdict, [(quote.text, quote.role) for quote in clause.quotes]) for clause in clauses]
    [('good', []), ('poor', [('seven ships', 'meant'), ('nine ships', 'offered')])]
    """
    quotes = find_quotes(critique, completion)
    # Inside quotes nothing splits and no word is a verdict: same length, so that positions stay true.
    masked = _mask(critique, quotes)
    cited = [_cite(masked, index, quotes) for index in range(len(quotes))]
    pieces = [
        (number, start, end)
        for number, (first, last) in enumerate(_bounded(masked))
        for start, end in _clauses(masked, first, last)
    ]
    verdicts = _verdicts(masked, pieces, default)
    clauses = []
    position = 0
    for (number, start, end), verdict in zip(pieces, verdicts, strict=True):
        inside = []
        while position < len(cited) and cited[position].start < end:
            inside.append(cited[position])
            position += 1
        words = masked[start:end]
        plain = words.replace("\x00", " ").strip()
        severity = lexicon.severity_of(words)
        clauses.append(Clause(start, end, critique[start:end].strip(), plain, verdict, severity, number, tuple(inside)))
    return clauses


def remainders(clause: Clause) -> list[Clause]:
    """What a clause says beside its quotes: pieces between commas and joining words that quote nothing, and blame or
    praise by themselves ("the "Tommy" is invented, and the position is wrong").

    >>> [part.text for part in remainders(parse('The "Tommy" is invented, and his position is wrong.')[0])]
    ['and his position is wrong.']
    """
    edges = [0, *(match.start() for match in _PIECE.finditer(clause.text)), len(clause.text)]
    parts = []
    for start, end in pairwise(edges):
        text = clause.text[start:end].strip(" ,")
        quoted = any(quote.start - clause.start < end and start < quote.end - clause.start for quote in clause.quotes)
        if not quoted and len(text.split()) > 2 and (verdict := lexicon.verdict_of(text)):
            parts.append(replace(clause, text=text, plain=text, verdict=verdict, quotes=()))
    return parts


def _mask(critique: str, quotes: list[Quoted]) -> str:
    parts = []
    position = 0
    for quote in quotes:
        parts += [critique[position : quote.start], "\x00" * (quote.end - quote.start)]
        position = quote.end
    return "".join([*parts, critique[position:]])


def _bounded(masked: str) -> Iterator[tuple[int, int]]:
    """Sentences, very long ones in pieces: what is said of one thing is never so long."""
    for start, end in _sentences(masked):
        while end - start > _LONGEST and (gap := _GAP.search(masked, start + _LONGEST // 2, end)):
            yield start, gap.start()
            start = gap.end()
        if masked[start:end].strip():
            yield start, end


def _sentences(masked: str) -> Iterator[tuple[int, int]]:
    start = 0
    for gap in _SENTENCE_END.finditer(masked):
        back = max(start, gap.start() - 12)
        ends_none = ABBREVIATION.search(masked, back, gap.start()) or _LIST_MARK.search(masked, back, gap.start())
        if ends_none and "\n" not in gap[0]:
            continue
        if masked[start : gap.start()].strip():
            yield start, gap.start()
        # Also past blanks alone: what was read once is not read again.
        start = gap.end()
    if masked[start:].strip():
        yield start, len(masked)


def _clauses(masked: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut a sentence where the verdict turns: at a word of contrast, or at a comma with unlike verdicts on its two
    sides. Each piece between seams is judged once; a clause's verdict so far is the last one said in it."""
    seams = [seam for seam in _CONTRAST.finditer(masked, first, last) if seam.start() > first]
    edges = [first, *(edge for seam in seams for edge in seam.span()), last]
    pieces = [(edges[k], edges[k + 1]) for k in range(0, len(edges), 2)]
    start, so_far = first, lexicon.verdict_of(masked[slice(*pieces[0])])
    for (_, before), (after, end) in pairwise(pieces):
        ahead = lexicon.verdict_of(masked[after:end])
        turns = so_far is not None and ahead is not None and so_far != ahead
        if (turns or _STRONG.match(masked, after)) and masked[start:before].strip():
            yield start, before
            start, so_far = after, ahead
        else:
            so_far = ahead or so_far
    yield start, last


def _verdicts(masked: str, pieces: list[tuple[int, int, int]], default: Verdict | None) -> list[Verdict | None]:
    """The verdict of each clause. One without its own takes that of its sentence (the last one said), turned where a
    word of contrast turns praise; else blame, where the whole critique knows nothing but blame. Praise does not spread
    so far: a clause that was not understood must never earn a reward."""
    own = [_verdict(masked[start:end]) for _, start, end in pieces]
    said = {number: verdict for (number, _, _), verdict in zip(pieces, own, strict=True) if verdict is not None}
    overall: Verdict | None = "poor" if set(said.values()) == {"poor"} else default
    verdicts: list[Verdict | None] = []
    for index, (number, start, _) in enumerate(pieces):
        near = said[number] if number in said else _lent(masked, pieces, own, index)
        if near == "good" and own[index] is None and _STRONG.match(masked, start):
            near = "poor"
        verdicts.append(own[index] or near or overall)
    return verdicts


def _verdict(words: str) -> Verdict | None:
    """A clause that holds the source against what was said ("while the article says …") blames without a word of it."""
    held = _STRONG.match(words) and lexicon.SOURCE_SAYS.search(words)
    return "poor" if held else lexicon.verdict_of(words)


def _lent(masked: str, pieces: list[tuple[int, int, int]], own: list[Verdict | None], index: int) -> Verdict | None:
    """Quotes that stand by themselves, or lead up to a colon, are what the next clause is about ("> …", then "This is
    lovely."); behind a colon, what the one before was about."""
    _, start, end = pieces[index]
    if "\x00" not in masked[start:end]:
        return None
    if index and masked[max(0, start - 8) : start].rstrip().endswith(":"):
        return own[index - 1]
    alone = masked[end : end + 1] == ":" or not any(map(str.isalnum, masked[start:end]))
    return own[index + 1] if alone and index + 1 < len(own) else None


def _cite(masked: str, index: int, quotes: list[Quoted]) -> CitedQuote:
    quote = quotes[index]
    # Back to the sentence's beginning at most: what was said of an earlier quote does not reach over a full stop.
    before = _tail(masked[max(0, quote.start - 160) : quote.start])
    after = masked[quote.end : quote.end + 100]
    return CitedQuote(quote.text, quote.start, quote.end, _role(before, after))


def _tail(before: str) -> str:
    cut = 0
    for gap in _SENTENCE_END.finditer(before):
        # A colon leads up to its quote: "the source reads: …", also over a line break.
        if ":" not in gap[0] and not before[: gap.start()].endswith(":"):
            cut = gap.end()
    return before[cut:]


def _role(before: str, after: str) -> QuoteRole:
    """What a quote between these words is there for; other quotes in them are \\x00."""
    claim = _source_says(before)
    if claim and claim["says"] and lexicon.LEADS_UP.fullmatch(before, claim.end()):
        return "source"
    earlier, mark, near = before.rpartition("\x00")
    if mark and lexicon.INSTEAD_OF.match(near):
        # "A instead of B": B is what stands there if A is asked for, and what was wanted if the text has A.
        earlier = earlier.rstrip("\x00")
        return "meant" if lexicon.OFFERS_BEFORE.search(earlier) or _source_says(earlier) else "either"
    offer = lexicon.OFFERS_BEFORE.search(before)
    if offer and not lexicon.NEGATED_CLAIM.search(before, max(0, offer.start() - 24)):
        return "offered"
    if lexicon.OFFERS_AFTER.match(after):
        return "offered"
    # "According to the source, “…” is wrong" quotes no source; "…, “…” died" does.
    return "either" if claim else "meant"


def _source_says(before: str) -> re.Match[str] | None:
    """Where the source is made to say what follows: the last speaker named is the source, and nothing negates it."""
    claims = list(lexicon.SOURCE_SAYS.finditer(before))
    if not claims or lexicon.COMPLETION_SAYS.search(before, claims[-1].end()):
        return None
    # In front of a mere mention there is room for a verb: "cannot be gathered from the source that …".
    room = 12 if claims[-1]["says"] else 24
    return None if lexicon.NEGATED_CLAIM.search(before, max(0, claims[-1].start() - room)) else claims[-1]
