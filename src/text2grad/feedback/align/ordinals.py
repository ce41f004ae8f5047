"""How critics point at parts by number or order: "the last two sentences", "the 2nd line", "lines 3, 4 and 10".

Enters: words of a critique, a pattern for the parts. Leaves: which parts are picked, as ranges; a part that does not
exist is picked by nobody.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_NTH = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth",
)  # fmt: skip
_COUNTS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_PLACES = {
    **{word: place for place, word in enumerate(_NTH)},
    **dict.fromkeys(("opening", "initial"), 0),
    **dict.fromkeys(("last", "final", "latter", "closing", "concluding"), -1),
    "penultimate": -2,
}
_DIGITS = r"\d{1,7}(?!\d)"
_CARDINAL = rf"(?:{_DIGITS}|{'|'.join(reversed(_COUNTS))})"
ORDINAL = rf"(?:{'|'.join(_PLACES)}|(?<!\d)[1-9]\d{{0,5}}(?:st|nd|rd|th))"
"""One word, to be put between word boundaries."""
_TO = r"\s*(?:-|–|—|\bto\b|\bthrough\b)\s*"
_AND = r"(?:\s*,\s*(?:and|or)\b|\s*,|\s*&|\s+and\b|\s+or\b)\s*"


def ordinal(word: str) -> int:
    """Index that an ordinal names, from the end where it is negative.

    >>> ordinal("second"), ordinal("22nd"), ordinal("last")
    (1, 21, -1)
    """
    word = word.lower()
    return _PLACES[word] if word in _PLACES else int(word[:-2]) - 1


def _cardinal(word: str) -> int:
    word = word.lower()
    if word.startswith("couple"):
        return 2
    return 3 if word == "few" else _COUNTS.index(word) if word in _COUNTS else int(word)


@dataclass(frozen=True, slots=True)
class Pick:
    start: int
    end: int
    """Where the words that pick stand."""
    unit: str
    """What is picked, in the singular, lower case."""
    ranges: tuple[tuple[int, int], ...]
    """First and last index, both counted from 0, or both from the end where they are negative."""
    numbered: bool
    """By number ("line 3"), not by order ("the third line")."""

    def of(self, count: int) -> list[int]:
        """The indices that exist among so many, in order."""
        chosen: set[int] = set()
        for first, last in self.ranges:
            if last < 0:
                first, last = max(0, count + first), count + last
            chosen.update(range(first, min(last, count - 1) + 1))
        return sorted(chosen)


@lru_cache(maxsize=8)
def _patterns(units: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    # "On line 3, 4 spaces are missing": only several are listed with commas.
    more = rf"(?:(?:{_TO}|(?(several){_AND}|\s+and\s+))(?:(?P=unit)s?\s+)?{_DIGITS})*"
    numbered = (
        rf"\b(?P<unit>{units})(?P<several>s)?\s*(?:(?:no\.?|numbers?|#)\s*)?"
        rf"(?P<list>{_DIGITS}{more}|{_CARDINAL}\b(?:\s+and\s+{_CARDINAL}\b)*)"
    )
    ordered = (
        rf"\b(?P<list>{ORDINAL}(?:(?:{_AND})(?:the\s+)?{ORDINAL})*)\s+(?:(?P<count>{_CARDINAL}|few|couple(?:\s+of)?)\s+)?"
        rf"(?P<unit>{units})s?\b"
    )
    return re.compile(numbered, re.IGNORECASE), re.compile(ordered, re.IGNORECASE)


def picks(words: str, units: str) -> Iterator[Pick]:
    """Everything that the words pick; `units` is a pattern of nouns in the singular.

    >>> [pick.of(9) for pick in picks("Lines 2, 3 and 5-7; the last two lines; the 2nd line; line nine", "line")]
    [[1, 2, 4, 5, 6], [8], [7, 8], [1]]
    """
    numbered, ordered = _patterns(units)
    for match in numbered.finditer(words):
        yield Pick(match.start(), match.end(), match["unit"].lower(), tuple(_ranges(match["list"])), True)
    for match in ordered.finditer(words):
        places = [ordinal(word) for word in re.findall(rf"\b{ORDINAL}\b", match["list"], re.IGNORECASE)]
        ranges = [(place, place) for place in places]
        if match["count"] and places[-1] in (0, -1):
            count = max(1, _cardinal(match["count"]))
            ranges[-1] = (0, count - 1) if places[-1] == 0 else (-count, -1)
        yield Pick(match.start(), match.end(), match["unit"].lower(), tuple(ranges), False)


def _ranges(words: str) -> Iterator[tuple[int, int]]:
    for match in re.finditer(rf"\b({_CARDINAL})(?:{_TO}(?:[a-z]+\s+)?({_DIGITS}))?", words, re.IGNORECASE):
        first, last = _cardinal(match[1]) - 1, _cardinal(match[2] or match[1]) - 1
        if last >= 0:
            yield max(0, first), max(first, last)
