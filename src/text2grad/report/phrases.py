"""Which words of a critique are about which span: the links between a critique and its completion, for any display.

Enters: a critique's text, the completion's, their alignment. Leaves: stretches of the critique, in order, without
overlap. A link needs evidence: the critique contains the span's comment, no more often than spans have it; or a
sentence says about several quotes ("“x” and “y” are right.") what the comment says about one ("“x” is right."); or,
without a comment, the words are quoted as often as there are spans of them, all with one verdict. Words that could mean
two places are not linked.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from text2grad.types import Alignment, Span

_CITED = re.compile(
    r"“([^“”]+)”|\"([^\"]+)\"|«([^«»]+)»|「([^「」]+)」|`([^`]+)`|(?<!\w)['‘]([^'‘’]+)['’](?!\w)",
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_JOINING = re.compile(r"\b\d+ more\b|\band\b", re.IGNORECASE)
"""What only a sentence about several quotes has."""
_LACKING = re.compile(
    r"n['’]t\b|\b(?:not|never|no|nor|without|miss\w*|omit\w*|omission|lack\w*|leaves?|left|skips?|forg[eo]t\w*|should|absent)\b",
    re.IGNORECASE,
)
_UNSPACED = ("THAI", "LAO", "MYANMAR", "KHMER", "CJK", "HIRAGANA", "KATAKANA")
"""Scripts without spaces between words, as Unicode names their characters."""

Place = tuple[int, int]


class Phrase(NamedTuple):
    """Characters of the critique, and what of the alignment they are: several spans may share one phrase."""

    start: int
    end: int
    kind: Literal["span", "missed", "omission"]
    indices: tuple[int, ...]


def phrases(critique: str, completion: str, alignment: Alignment) -> list[Phrase]:
    """The phrase of each span: its words where they are quoted or named, else its comment; then what was missed.

    Of overlapping phrases the shorter stays: it is more specific.

    >>> from text2grad.types import Span
    >>> phrases("Fine, but 'nine' is wrong.", "nine ships", Alignment((Span(0, 4, "poor", comment="'nine' is wrong"),)))
    [Phrase(start=11, end=15, kind='span', indices=(0,))]
    """
    reading = _Reading(critique)
    linked: dict[Place, Phrase] = {}
    for place, index in sorted(_of_spans(reading, completion, alignment.spans)):
        earlier = linked.get(place)
        linked[place] = Phrase(*place, "span", (*(earlier.indices if earlier else ()), index))
    for index, missed in enumerate(alignment.missed):
        if free := [place for place in reading.mentions(missed.quote) if place not in linked]:
            linked[free[0]] = Phrase(*free[0], "missed", (index,))
    for index, words in enumerate(alignment.omissions):
        if free := [place for place in reading.mentions(words) if place not in linked]:
            place = max(free, key=reading.lacking)
            linked[place] = Phrase(*place, "omission", (index,))
    kept: list[Phrase] = []
    for phrase in sorted(linked.values(), key=lambda phrase: (phrase.end - phrase.start, phrase.start)):
        if all(phrase.end <= other.start or phrase.start >= other.end for other in kept):
            kept.append(phrase)
    return sorted(kept)


def _of_spans(reading: "_Reading", completion: str, spans: Sequence[Span]) -> Iterator[tuple[Place, int]]:
    """(place in the critique, index) of each span that has one. Spans with the same comment and the same places take
    the places in order, and share them where there are fewer; not where their verdicts differ, which order cannot
    tell."""
    groups: dict[tuple[str, tuple[Place, ...]], list[int]] = {}
    for index, span in enumerate(spans):
        words = span.slice(completion)
        if span.comment:
            alike = sum(other.comment == span.comment for other in spans)
            places = reading.about(span.comment, words, alike)
        else:
            same = [other for other in spans if _plain(other.slice(completion)) == _plain(words)]
            places = reading.cited(words) if not any(other.comment for other in same) else []
        groups.setdefault((span.comment, tuple(places)), []).append(index)
    for (comment, shared), indices in groups.items():
        several = len({spans[index].verdict for index in indices}) > 1
        if several and (len(shared) > 1 or len({_plain(spans[index].slice(completion)) for index in indices}) == 1):
            continue
        if shared and (comment or len(shared) == len(indices)):
            indices.sort(key=lambda index: spans[index].start)
            for turn, index in enumerate(indices):
                yield shared[turn * len(shared) // len(indices)], index


class _Reading:
    """A critique, its quotes and its sentences."""

    def __init__(self, critique: str) -> None:
        self.critique = critique
        self.quotes = _quotes(critique)
        self.masked = _CITED.sub(lambda match: "\x00" * len(match[0]), critique)
        ends = [end.end() for end in _SENTENCE_END.finditer(self.masked)]
        self.sentences = [(start, end) for start, end in pairwise([0, *ends, len(critique)]) if start < end]

    def about(self, comment: str, words: str, spans: int) -> list[Place]:
        """Where the critique says this comment, which so many spans have, about these words."""
        places = list(_occurrences(comment, self.critique))
        form = _form(comment, words) if not places else ()
        alike = [place for place in self.sentences if form and _form(self.critique[slice(*place)], words) == form]
        cited = [place for some in places or alike for place in self._first_run(words, *some)]
        if cited or len(places) > spans:
            return cited
        return [next(self._plainly(words, *place), place) for place in places]

    def _first_run(self, words: str, first: int, last: int) -> list[Place]:
        """The quotes of the words that stand together first: “x” contradicts “x” is about the first “x”."""
        text = self.critique[first:last]
        runs = ([(first + a, first + b) for a, b in run if _cites(text[a:b], words)] for run in _runs(text))
        return next(filter(None, runs), [])

    def cited(self, words: str) -> list[Place]:
        """Quotes of these words, or of their beginning and "…"."""
        return [(a, b) for a, b in self.quotes if _cites(self.critique[a:b], words)]

    def mentions(self, words: str) -> Iterator[Place]:
        """Quotes of the words, then the words wherever else they stand."""
        yield from self.cited(words)
        yield from self._plainly(words, 0, len(self.critique))

    def lacking(self, place: Place) -> tuple[bool, bool, bool, int]:
        """How much evidence there is that words here are what is left out: not inside another quote, a sentence that
        says so, one that is not about other words; the last of several."""
        others = [(a, b) for a, b in self.quotes if (a, b) != place]
        inside = any(a <= place[0] and place[1] <= b for a, b in others)
        start, end = next((a, b) for a, b in self.sentences if a <= place[0] < b)
        lacks = _LACKING.search(self.masked, start, end) is not None
        return not inside, lacks, not any(start <= a < end for a, _ in others), place[0]

    def _plainly(self, words: str, first: int, last: int) -> Iterator[Place]:
        for start, end in _occurrences(words, self.critique[first:last], re.IGNORECASE):
            yield first + start, first + end


def _occurrences(words: str, text: str, flags: int = 0) -> Iterator[Place]:
    """Whole words only. Not searched in lower case, which may change the length."""
    for match in re.compile(re.escape(words), flags).finditer(text):
        start, end = match.span()
        cut_before = _joins(words[:1]) and _joins(text[:start][-1:])
        cut_behind = _joins(words[-1:]) and _joins(text[end : end + 1])
        if not cut_before and not cut_behind:
            yield start, end


def _joins(character: str) -> bool:
    """Whether a character belongs to a word that spaces end: `\\w` lacks the vowel signs of Indian scripts."""
    letter = character == "_" or unicodedata.category(character or " ")[0] in "LMN"
    return letter and not unicodedata.name(character, "").startswith(_UNSPACED)


def _quotes(text: str) -> list[Place]:
    return [match.span(match.lastindex or 0) for match in _CITED.finditer(text)]


@lru_cache(4096)
def _form(text: str, words: str) -> tuple[str | frozenset[str], ...]:
    """What a sentence says about the quoted words: the same for one quote and for several in a row.

    >>> _form("“x”, “y” and 2 more repeat “z”.", "x") == _form("“x” repeats “z”.", "x")
    True
    >>> _form("“x” repeats “z”.", "x") == _form("“z” repeats “x”.", "x")
    False
    """
    form: list[str | frozenset[str]] = []
    position, about = 0, False
    for run in [*_runs(text), []]:
        between = text[position : run[0][0] if run else None]
        tokens = re.findall(r"\w+", _JOINING.sub(" ", between.lower()))
        form += [{"are": "is", "were": "was"}.get(token, token).removesuffix("s") for token in tokens]
        if run:
            mine = not about and any(_cites(text[a:b], words) for a, b in run)
            form.append("“”" if mine else frozenset(_plain(text[a:b]) for a, b in run))
            position, about = run[-1][1], about or mine
    return tuple(form)


@lru_cache(256)
def _runs(text: str) -> list[list[Place]]:
    """Quotes with only joining words between them are one run: they have one role."""
    runs: list[list[Place]] = []
    for a, b in _quotes(text):
        if not runs or re.search(r"\w", _JOINING.sub(" ", text[runs[-1][-1][1] : a])):
            runs.append([])
        runs[-1].append((a, b))
    return runs


@lru_cache(4096)
def _plain(words: str) -> str:
    return " ".join(words.casefold().split())


def _cites(quoted: str, words: str) -> bool:
    quoted, words = _plain(quoted), _plain(words)
    return quoted == words or (len(quoted) > 1 and quoted[-1] == "…" and words.startswith(quoted[:-1]))
