"""A text with the views of it that several rungs share, each made once when first asked for.

Enters: a string. Leaves: its words with places, and its folded form (case, white space, dashes, quotation marks and
Unicode form made alike) with the place of every folded character. The string itself is never changed.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Any

_WORD = re.compile(r"\w+(?:['’]\w+)*", re.UNICODE)
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=\S)|(?<=[。！？])|\n+")
_ALIKE = {
    **dict.fromkeys("“”„‟«»＂〝〞〟「」『』", '"'),
    **dict.fromkeys("‘’‚‛‹›′`´ʼ＇", "'"),
    **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u200f", ""),
    "…": "...",
}
_TRANSLATION = str.maketrans(_ALIKE)


class Text:
    __slots__ = ("__dict__", "located", "raw")

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.located: dict[Any, Any] = {}
        """What `quoted.locate` has already looked for."""

    @cached_property
    def words(self) -> list[tuple[int, int, str]]:
        """(start, end, lower-cased word) in order; punctuation is between words."""
        return [(match.start(), match.end(), match[0].lower()) for match in _WORD.finditer(self.raw)]

    @cached_property
    def word_starts(self) -> list[int]:
        return [start for start, _, _ in self.words]

    @cached_property
    def word_places(self) -> dict[str, list[int]]:
        """Word → its indices in `words`."""
        places: dict[str, list[int]] = {}
        for index, (_, _, word) in enumerate(self.words):
            places.setdefault(word, []).append(index)
        return places

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
        """Stretches between sentence ends and line breaks, in order."""
        found = []
        start = 0
        for gap in _SENTENCE.finditer(self.raw):
            if self.raw[start : gap.start()].strip():
                found.append((start, gap.start()))
                start = gap.end()
        if self.raw[start:].strip():
            found.append((start, len(self.raw)))
        return found

    @cached_property
    def _folded(self) -> tuple[str, list[int]]:
        return fold(self.raw)

    @property
    def folded(self) -> str:
        return self._folded[0]

    def unfold(self, start: int, end: int) -> tuple[int, int]:
        """A stretch of the folded text → the stretch of the raw text that it came from."""
        places = self._folded[1]
        last = places[end - 1]
        # Everything that folded into the last character belongs to it: a ligature, a combining mark.
        stop = places[end] if end < len(places) else len(self.raw)
        return places[start], max(last + 1, min(stop, last + len(self.raw[last:stop].rstrip())))

    def words_between(self, start: int, end: int) -> range:
        """Indices of the words that begin in [start, end)."""
        return range(bisect_left(self.word_starts, start), bisect_left(self.word_starts, end))

    def word_at(self, position: int) -> tuple[int, int] | None:
        """The word that covers a character, if one does."""
        index = bisect_right(self.word_starts, position) - 1
        if index >= 0 and self.words[index][1] > position:
            return self.words[index][:2]
        return None


def fold(raw: str) -> tuple[str, list[int]]:
    """The folded text, and for each of its characters the place in `raw` that it came from.

    >>> fold("A  “b”\\n—c")[0]
    'a "b" -c'
    """
    folded: list[str] = []
    places: list[int] = []
    ascii_only = raw.isascii()
    blank = True
    for place, character in enumerate(raw):
        if character.isspace():
            if not blank:
                folded.append(" ")
                places.append(place)
                blank = True
            continue
        if ascii_only or character.isascii():
            alike = "'" if character == "`" else character.lower()
        else:
            alike = unicodedata.normalize("NFKD", character).translate(_TRANSLATION).casefold()
        for part in alike:
            if not part.isspace():
                folded.append(part)
                places.append(place)
        blank = blank and not alike
    if folded and folded[-1] == " ":
        folded.pop()
        places.pop()
    return "".join(folded), places
