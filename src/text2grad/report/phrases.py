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
from text2grad.writing import ONE_UNSPACED

_QUOTE = re.compile(
    r"“([^“”]+)”|\"([^\"]+)\"|«([^«»]+)»|「([^「」]+)」|`([^`]+)`|(?<!\w)['‘]([^'‘’]+)['’](?!\w)",
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_JOINING = re.compile(r"\b\d+ more\b|\band\b", re.IGNORECASE)
"""What only a sentence about several quotes has."""

Place = tuple[int, int]


class Phrase(NamedTuple):
    """Characters of the critique, and what of the alignment they are: several spans may share one phrase."""

    start: int
    end: int
    kind: Literal["span", "missed"]
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
    for index in sorted(range(len(spans)), key=lambda index: spans[index].start):
        comment, words = spans[index].comment, spans[index].slice(completion)
        if comment:
            places = reading.about(comment, words, sum(other.comment == comment for other in spans))
        else:
            same = [other for other in spans if _plain(other.slice(completion)) == _plain(words)]
            places = reading.quotes_of(words) if not any(other.comment for other in same) else []
        groups.setdefault((comment, tuple(places)), []).append(index)
    for (comment, shared), indices in groups.items():
        words_of = {_plain(spans[index].slice(completion)) for index in indices}
        one_verdict = len({spans[index].verdict for index in indices}) == 1
        if not one_verdict and (len(shared) > 1 or len(words_of) == 1):
            continue
        if shared and (comment or len(shared) == len(indices)):
            for turn, index in enumerate(indices):
                yield shared[turn * len(shared) // len(indices)], index


class _Reading:
    """A critique, its quotes and its sentences."""

    def __init__(self, critique: str) -> None:
        self.critique = critique
        self.quotes = [match.span(match.lastindex or 0) for match in _QUOTE.finditer(critique)]
        masked = _QUOTE.sub(lambda match: "\x00" * len(match[0]), critique)
        ends = [end.end() for end in _SENTENCE_END.finditer(masked)]
        self.sentences = [(start, end) for start, end in pairwise([0, *ends, len(critique)]) if start < end]

    def about(self, comment: str, words: str, spans: int) -> list[Place]:
        """Where the critique says this comment, which so many spans have, about these words."""
        places = list(_occurrences(comment, self.critique))
        quoted = [self.quotes_of(words, *place) for place in places or self._alike(comment)]
        # The comment “x” contradicts “x” is about the first; a sentence that sums up two comments is about both.
        quotes = [place for some in quoted for place in (some if not places else some[:1])]
        if quotes or len(places) > spans:
            return quotes
        return [next(_occurrences(words, self.critique, re.IGNORECASE, *place), place) for place in places]

    def _alike(self, comment: str) -> list[Place]:
        """Sentences that say the same, perhaps about more quotes."""
        said = _without_quotes(comment)
        return [place for place in self.sentences if _without_quotes(self.critique[slice(*place)]) == said]

    def quotes_of(self, words: str, first: int = 0, last: int | None = None) -> list[Place]:
        """Quotes of these words, or of their beginning and "…"."""
        last = len(self.critique) if last is None else last
        inside = [(a, b) for a, b in self.quotes if first <= a and b <= last]
        return [(a, b) for a, b in inside if _cites(self.critique[a:b], words)]

    def mentions(self, words: str) -> list[Place]:
        """Quotes of the words, else the words wherever they stand."""
        return self.quotes_of(words) + list(_occurrences(words, self.critique, re.IGNORECASE))


def _occurrences(words: str, text: str, flags: int = 0, first: int = 0, last: int | None = None) -> Iterator[Place]:
    """Whole words only. Not searched in lower case, which may change the length."""
    last = len(text) if last is None else last
    for match in re.compile(re.escape(words), flags).finditer(text, first, last):
        start, end = match.span()
        cut_before = _joins(words[:1]) and _joins(text[first:start][-1:])
        cut_behind = _joins(words[-1:]) and _joins(text[end : min(end + 1, last)])
        if not cut_before and not cut_behind:
            yield start, end


def _joins(character: str) -> bool:
    """Whether a character belongs to a word that spaces end: `\\w` lacks the vowel signs of Indian scripts."""
    letter = character == "_" or unicodedata.category(character or " ")[0] in "LMN"
    return letter and not ONE_UNSPACED.match(character)


@lru_cache(4096)
def _without_quotes(text: str) -> list[str]:
    """What a sentence says about its quotes: the same for one quote and for several.

    >>> _without_quotes("“x”, “y” and 2 more are right.") == _without_quotes("“x” is right.")
    True
    """
    tokens = re.findall(r"\w+", _JOINING.sub(" ", _QUOTE.sub(" ", text).lower()))
    return [{"are": "is", "were": "was"}.get(token, token).removesuffix("s") for token in tokens]


@lru_cache(4096)
def _plain(words: str) -> str:
    return " ".join(words.casefold().split())


def _cites(quoted: str, words: str) -> bool:
    quoted, words = _plain(quoted), _plain(words)
    return quoted == words or (len(quoted) > 1 and quoted[-1] == "…" and words.startswith(quoted[:-1]))
