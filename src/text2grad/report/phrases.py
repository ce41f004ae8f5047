"""Which words of a critique are about which span: the links between a critique and its completion, for any display.

Enters: a critique's text, the completion's, their alignment. Leaves: stretches of the critique, in order, that do not
overlap. A link is made on evidence alone: the span's comment stands in the critique; or a sentence there says of
several quotes ("“x” and “y” are right.") what the comment says of one ("“x” is right."); or, without a comment, the
words are quoted as often as there are spans of them, all with one verdict. What could be meant of two places is linked
to none. Knows nothing of colours.
"""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from text2grad.types import Alignment, Span

_CITED = re.compile(
    r"“([^“”]+)”|\"([^\"]+)\"|«([^«»]+)»|「([^「」]+)」|`([^`]+)`|(?<!\w)['‘]([^'‘’]+)['’](?!\w)",
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_CLAUSE_END = re.compile(r"[.!?,;:](?=\s|$)|[\n—–]|\bbut\b")
_NUMBER = {"are": "is", "were": "was"}
_JOINING = re.compile(r"\b\d+ more\b|\band\b")
"""What a sentence about several quotes has otherwise than one about a single quote."""
_NEGATED = re.compile(
    r"(?:\b(?:not|never|no|nor|neither|hardly|barely|without)|n['’]t)\s+(?:(?:quite|very|really|entirely|all)\s+)?\W?$",
    re.IGNORECASE,
)
_LACKING = re.compile(
    r"n['’]t\b|\b(?:not|never|no|nor|without|miss\w*|omit\w*|omission|lack\w*|leaves?|left|skips?|forg[eo]t\w*|should|absent)\b",
    re.IGNORECASE,
)
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana and Han: scripts without spaces between words."""
_LETTER = f"(?:[^\\W{_UNSPACED}]|[\u0300-\u036f\u0900-\u0963\u0966-\u0dff])"
"""With the vowel signs of Indian scripts, which are no \\w."""

Place = tuple[int, int]


class Phrase(NamedTuple):
    """Characters of the critique, and what of the alignment they are: several spans may share one phrase."""

    start: int
    end: int
    kind: Literal["span", "missed", "omission"]
    indices: tuple[int, ...]


def phrases(critique: str, completion: str, alignment: Alignment) -> list[Phrase]:
    """The phrase of each span: its own words where they are quoted or said, else the clause; then what was missed.

    Of phrases that overlap, the shorter stays: it says something more particular.

    >>> from text2grad.types import Span
    >>> phrases("Fine, but 'nine' is wrong.", "nine ships", Alignment((Span(0, 4, "poor", comment="'nine' is wrong"),)))
    [Phrase(start=11, end=15, kind='span', indices=(0,))]
    """
    reading = _Reading(critique)
    found: dict[Place, Phrase] = {}
    for place, index in sorted(_of_spans(reading, completion, alignment.spans)):
        earlier = found.get(place)
        found[place] = Phrase(*place, "span", (*(earlier.indices if earlier else ()), index))
    for index, missed in enumerate(alignment.missed):
        for place in [place for place in reading.said(missed.quote) if place not in found][:1]:
            found[place] = Phrase(*place, "missed", (index,))
    for index, words in enumerate(alignment.omissions):
        free = [place for place in reading.said(words) if place not in found]
        if free:
            place = max(free, key=reading.lacking)
            found[place] = Phrase(*place, "omission", (index,))
    kept: list[Phrase] = []
    for phrase in sorted(found.values(), key=lambda phrase: (phrase.end - phrase.start, phrase.start)):
        if all(phrase.end <= other.start or phrase.start >= other.end for other in kept):
            kept.append(phrase)
    return sorted(kept)


def _of_spans(reading: "_Reading", completion: str, spans: Sequence[Span]) -> Iterator[tuple[Place, int]]:
    """(place in the critique, index) of each span that has one. Spans of which the same is said in the same places take
    them in their order, and share them where there are fewer; not where their verdicts differ, which order cannot
    tell."""
    groups: dict[tuple[str, tuple[Place, ...]], list[int]] = {}
    for index, span in enumerate(spans):
        words = span.slice(completion)
        if span.comment:
            alike = sum(other.comment == span.comment for other in spans)
            said = reading.about(span.comment, words, alike)
        else:
            same = [other for other in spans if _plain(other.slice(completion)) == _plain(words)]
            said = reading.cited(words) if not any(other.comment for other in same) else []
        groups.setdefault((span.comment, tuple(said)), []).append(index)
    for (comment, places), indices in groups.items():
        several = len({spans[index].verdict for index in indices}) > 1
        if several and (len(places) > 1 or len({_plain(spans[index].slice(completion)) for index in indices}) == 1):
            continue
        if places and (comment or len(places) == len(indices)):
            indices.sort(key=lambda index: spans[index].start)
            for turn, index in enumerate(indices):
                yield places[turn * len(places) // len(indices)], index


class _Reading:
    """A critique, its quotes and its sentences."""

    def __init__(self, critique: str) -> None:
        self.critique = critique
        self.quotes = _quotes(critique)
        self.masked = _masked(critique)
        self.clause_ends = [end.end() for end in _CLAUSE_END.finditer(self.masked)]
        self.sentence_ends = [end.end() for end in _SENTENCE_END.finditer(self.masked)]
        edges = [0, *self.sentence_ends, len(critique)]
        self.sentences = [(start, end, _form(self.masked[start:end])) for start, end in pairwise(edges) if start < end]

    def about(self, comment: str, words: str, spans: int) -> list[Place]:
        """Where the critique says this comment, which so many spans have, of these words."""
        verbatim = [place for place in _occurrences(comment, self.critique) if not self._is_denied(place[0])]
        if verbatim:
            # Words that a comment quotes twice are what it is about where they come first: “x” contradicts “x”.
            cited = [runs[0] for place in verbatim if (runs := self._runs_with(words, *place))]
            return [place for run in cited for place in run] or self._unquoted(verbatim, words, spans)
        form = _form(_masked(comment))
        alike = [(start, end) for start, end, said_here in self.sentences if said_here == form]
        return [place for start, end in alike for place in self._alike(comment, words, start, end)]

    def _is_denied(self, start: int) -> bool:
        return _NEGATED.search(self.critique[max(0, start - 40) : start]) is not None

    def _unquoted(self, verbatim: Sequence[Place], words: str, spans: int) -> list[Place]:
        """Places of a comment that does not quote the words: none whose clause is about another quote, and where there
        are more than spans, those in a clause or a sentence with the words."""
        clauses = [(place, _around(place, self.clause_ends)) for place in verbatim]
        of_it = [place for place, clause in clauses if self.cited(words, *clause)]
        places = [place for place, (a, b) in clauses if place in of_it or not self._quoted(a, b, place)]
        if len(places) > spans:
            near = [place for place in places if self.cited(words, *_around(place, self.sentence_ends))]
            places = next((kept for kept in (of_it, near) if 0 < len(kept) <= spans), [])
        return [next(self._plainly(words, *place), place) for place in places]

    def _quoted(self, first: int, last: int, beside: Place) -> bool:
        """Whether there are quotes between, other than in a place."""
        return any(first <= a and b <= last and not (beside[0] <= a and b <= beside[1]) for a, b in self.quotes)

    def _alike(self, comment: str, words: str, start: int, end: int) -> list[Place]:
        """Quotes of the words in a sentence of the comment's form, if it says of them what the comment does."""
        sentence = self.critique[start:end]
        told, here = _runs(comment), _runs(sentence)
        if len(told) != len(here):
            return []
        mine = [number for number, run in enumerate(told) if any(_cites(comment[a:b], words) for a, b in run)][:1]
        for number, (one, other) in enumerate(zip(told, here, strict=True)):
            same = {_plain(comment[a:b]) for a, b in one} == {_plain(sentence[a:b]) for a, b in other}
            if number not in mine and not same:
                return []
        places = [(start + a, start + b) for number in mine for a, b in here[number]]
        return [(a, b) for a, b in places if _cites(self.critique[a:b], words)]

    def _runs_with(self, words: str, first: int, last: int) -> list[list[Place]]:
        """Of each run of quotes in a place those that are the words; runs without any are left out."""
        runs = [[(first + a, first + b) for a, b in run] for run in _runs(self.critique[first:last])]
        found = [[(a, b) for a, b in run if _cites(self.critique[a:b], words)] for run in runs]
        return [run for run in found if run]

    def cited(self, words: str, first: int = 0, last: int | None = None) -> list[Place]:
        """Quotes that are these words, or the beginning of them and "…"."""
        last = len(self.critique) if last is None else last
        return [(a, b) for a, b in self.quotes if first <= a and b <= last and _cites(self.critique[a:b], words)]

    def said(self, words: str) -> Iterator[Place]:
        """Quotes of the words, then the words wherever else they stand."""
        yield from self.cited(words)
        yield from self._plainly(words, 0, len(self.critique))

    def lacking(self, place: Place) -> tuple[bool, bool, bool, int]:
        """How much speaks for words here being what is left out: a sentence that says so, and that is not about other
        words; the last of several."""
        start, end = _around(place, self.sentence_ends)
        inside = any(a <= place[0] and place[1] <= b and (a, b) != place for a, b in self.quotes)
        lacks = _LACKING.search(self.masked, start, end) is not None
        return not inside, lacks, not self._quoted(start, end, place), place[0]

    def _plainly(self, words: str, first: int, last: int) -> Iterator[Place]:
        for start, end in _occurrences(words, self.critique[first:last], re.IGNORECASE):
            yield first + start, first + end


def _around(place: Place, ends: Sequence[int]) -> Place:
    """From the last of the ends before a place to the first at its own end or behind it."""
    before, behind = bisect_right(ends, place[0]), bisect_right(ends, place[1] - 1)
    return (ends[before - 1] if before else 0), (ends[behind] if behind < len(ends) else sys.maxsize)


def _occurrences(words: str, text: str, flags: int = 0) -> Iterator[Place]:
    """The words as such, and not as a part of other words. Searched as they are: lower case may be longer than what it
    is the lower case of."""
    open_start, open_end = re.match(_LETTER, words), re.search(f"{_LETTER}$", words)
    for found in re.compile(re.escape(words), flags).finditer(text):
        before, behind = text[max(found.start() - 1, 0) : found.start()], text[found.end() : found.end() + 1]
        joined = (open_start and re.match(_LETTER, before)) or (open_end and re.match(_LETTER, behind))
        if not joined:
            yield found.span()


def _quotes(text: str) -> list[Place]:
    return [match.span(match.lastindex or 0) for match in _CITED.finditer(text)]


def _masked(text: str) -> str:
    """Without what is quoted, but as long."""
    return _CITED.sub(lambda match: "\x00" * len(match[0]), text)


def _form(masked: str) -> tuple[str, ...]:
    """What a sentence says, the same of one quote and of several in a row.

    >>> _form(_masked("“x”, “y” and 2 more repeat it.")) == _form(_masked("“x” repeats it."))
    True
    >>> _form(_masked("“x” repeats it.")) == _form(_masked("It repeats “x”."))
    False
    """
    words = re.findall(r"\w+|\x00+", _JOINING.sub(" ", masked.lower()))
    plain = [_NUMBER.get(word, word).removesuffix("s") if word[0] != "\x00" else "" for word in words]
    return tuple(word for before, word in pairwise(["x", *plain]) if word or before)


@lru_cache(256)
def _runs(text: str) -> list[list[Place]]:
    """Quotes with nothing between them but what joins them are one run: they have one role."""
    masked, runs = _masked(text), list[list[Place]]()
    for a, b in _quotes(text):
        between = masked[runs[-1][-1][1] : a] if runs else "x"
        if re.search(r"\w", _JOINING.sub(" ", between.lower())):
            runs.append([])
        runs[-1].append((a, b))
    return runs


@lru_cache(4096)
def _plain(words: str) -> str:
    return " ".join(words.casefold().split())


def _cites(quoted: str, words: str) -> bool:
    quoted, words = _plain(quoted), _plain(words)
    return quoted == words or (len(quoted) > 1 and quoted[-1] == "…" and words.startswith(quoted[:-1]))
