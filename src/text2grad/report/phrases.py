"""Which words of a critique are about which span: the links between a critique and its completion, for any display.

Enters: a critique's text, the completion's, their alignment. Leaves: stretches of the critique, in order, that do not
overlap. A link is made on evidence alone: the span's comment stands in the critique; or a sentence there says of
several quotes ("“x” and “y” are right.") what the comment says of one ("“x” is right."); or, without a comment, the
words are quoted as often as there are spans of them. Knows nothing of colours.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from text2grad.types import Alignment, Span

_CITED = re.compile(
    r"“([^“”]+)”|\"([^\"]+)\"|«([^«»]+)»|「([^「」]+)」|`([^`]+)`|(?<!\w)['‘]([^'‘’]+)['’](?!\w)",
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_JOINING = re.compile(r"\b\d+ more\b|\b(?:and|is|are|was|were)\b")
"""What a sentence about several quotes has otherwise than one about a single quote."""
_LETTER = "[0-9A-Za-z_\u00c0-\u024f]"

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
        for place in [*reading.said(words)][:1]:
            found.setdefault(place, Phrase(*place, "omission", (index,)))
    kept: list[Phrase] = []
    for phrase in sorted(found.values(), key=lambda phrase: (phrase.end - phrase.start, phrase.start)):
        if all(phrase.end <= other.start or phrase.start >= other.end for other in kept):
            kept.append(phrase)
    return sorted(kept)


def _of_spans(reading: "_Reading", completion: str, spans: Sequence[Span]) -> Iterator[tuple[Place, int]]:
    """(place in the critique, index) of each span that has one. Spans of which the same is said take the places in
    their order, and share them where there are fewer."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, span in enumerate(spans):
        groups.setdefault((span.comment, span.slice(completion)), []).append(index)
    for (comment, words), indices in groups.items():
        if comment:
            places = reading.about(comment, words)
        else:
            places = reading.cited(words)
            alike = sum(_plain(span.slice(completion)) == _plain(words) for span in spans)
            places = places if len(places) == alike else []
        indices.sort(key=lambda index: spans[index].start)
        for turn, index in enumerate(indices if places else ()):
            yield places[turn * len(places) // len(indices)], index


class _Reading:
    """A critique, its quotes and its sentences."""

    def __init__(self, critique: str) -> None:
        self.critique = critique
        self.quotes = [(match.span(match.lastindex or 0)) for match in _CITED.finditer(critique)]
        masked = _masked(critique)
        edges = [0, *(end.end() for end in _SENTENCE_END.finditer(masked)), len(critique)]
        self.sentences = [(start, end, _form(masked[start:end])) for start, end in pairwise(edges) if start < end]

    def about(self, comment: str, words: str) -> list[Place]:
        """Where the critique says this comment of these words."""
        verbatim = [match.span() for match in re.finditer(re.escape(comment), self.critique)]
        if verbatim:
            found = [self.cited(words, *place) or [self._plainly(words, *place) or place] for place in verbatim]
        else:
            form = _form(_masked(comment))
            found = [self.cited(words, start, end) for start, end, said in self.sentences if form and said == form]
        return [place for places in found for place in places]

    def cited(self, words: str, first: int = 0, last: int | None = None) -> list[Place]:
        """Quotes that are these words, or the beginning of them and "…"."""
        wanted, last = _plain(words), len(self.critique) if last is None else last
        return [
            (start, end)
            for start, end in self.quotes
            if first <= start and end <= last and _is_quote_of(_plain(self.critique[start:end]), wanted)
        ]

    def said(self, words: str) -> Iterator[Place]:
        """Quotes of the words, then the words wherever else they stand."""
        yield from self.cited(words)
        if place := self._plainly(words, 0, len(self.critique)):
            yield place

    def _plainly(self, words: str, first: int, last: int) -> Place | None:
        """The words as such, and not as a part of other words. Searched as they are: lower case may be longer than what
        it is the lower case of."""
        before = f"(?<!{_LETTER})" if re.match(_LETTER, words) else ""
        behind = f"(?!{_LETTER})" if re.search(f"{_LETTER}$", words) else ""
        found = re.compile(before + re.escape(words) + behind, re.IGNORECASE).search(self.critique, first, last)
        return found.span() if found else None


def _masked(text: str) -> str:
    """Without what is quoted, but as long."""
    return _CITED.sub(lambda match: "\x00" * len(match[0]), text)


def _form(masked: str) -> tuple[str, ...]:
    """What a sentence says beside its quotes, the same of one and of several.

    >>> _form(_masked("“x”, “y” and 2 more repeat it.")) == _form(_masked("“x” repeats it."))
    True
    """
    return tuple(word.removesuffix("s") for word in re.findall(r"\w+", _JOINING.sub(" ", masked.lower())))


def _plain(words: str) -> str:
    return " ".join(words.casefold().split())


def _is_quote_of(quoted: str, words: str) -> bool:
    return quoted == words or (len(quoted) > 1 and quoted[-1] == "…" and words.startswith(quoted[:-1]))
