"""Whole words of a text, and numbers of tokens made numbers of words: what a judge calls poor is a word, not half of
one.

Enters: a text, the characters of each token, numbers a token. Leaves: units (a word, or signs that stand together), and
numbers a unit. In scripts without spaces a unit is a character. No loop over tokens.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.critics.words import UNSPACED
from text2grad.feedback.text import FUNCTION_WORDS

Numbers = NDArray[np.float64]
_INSIDE = r"(?:['’]|(?<=\d)[.,:٫٬](?=\d))"
"""What may stand within a word, or a number or a time of day."""
_SPACED = re.compile(rf"\w+(?:{_INSIDE}\w+)*|[^\w\s]+")
_LINKS = frozenset(",-–—/&'’\"“”")


@cache
def _any() -> re.Pattern[str]:
    """Of any script: marks and joiners belong to the letter before them, which `\\w` does not know."""
    known = [*range(0x20000), *range(0xE0100, 0xE01F0)]
    marks = "".join(chr(one) for one in known if unicodedata.category(chr(one))[0] == "M") + "\u00ad\u200c\u200d\u2060"
    letter = rf"\w[{re.escape(marks)}]*"
    word = rf"(?:(?!{UNSPACED}){letter})+"
    return re.compile(rf"(?={UNSPACED}){letter}|{UNSPACED}|{word}(?:{_INSIDE}{word})*|[^\w\s]+")


@dataclass(frozen=True, slots=True)
class Units:
    """Words and signs in order, and which tokens are theirs."""

    places: NDArray[np.int64]
    """(U, 2): the characters of each."""
    tokens: tuple[NDArray[np.int64], NDArray[np.int64]]
    """(U,) each: its tokens, from … to; none touches it if they are equal."""
    starts: NDArray[np.int64]
    """(T,): where each token begins."""

    @property
    def unit(self) -> NDArray[np.int64]:
        """(T,): the unit that each token begins in, or before; −1 for white space at the end."""
        unit = np.searchsorted(self.places[:, 1], self.starts, "right")
        return np.where(unit < len(self.places), unit, -1)

    def mean(self, numbers: Numbers) -> Numbers:
        """(T, …) → (U, …): over the tokens that touch it; 0 where none does."""
        sums = np.zeros((len(numbers) + 1, *numbers.shape[1:]))
        numbers.cumsum(0, out=sums[1:])
        first, last = self.tokens
        count = np.maximum(last - first, 1).reshape(-1, *[1] * (numbers.ndim - 1))
        found: Numbers = (sums[last] - sums[first]) / count
        return found

    def pooled(self, numbers: Numbers) -> Numbers:
        """(T, …) → (T, …): each token has what its unit has."""
        if not len(self.places):
            return numbers
        unit = self.unit
        inside = (unit >= 0).reshape(-1, *[1] * (numbers.ndim - 1))
        return np.where(inside, self.mean(numbers)[unit], numbers)


def units_of(text: str, offsets: NDArray[np.int64]) -> Units:
    """
    >>> units = units_of("Un-real cars", np.array([(0, 2), (2, 3), (3, 5), (5, 7), (7, 12)]))
    >>> units.places.tolist(), units.unit.tolist()
    ([[0, 2], [2, 3], [3, 7], [8, 12]], [0, 1, 2, 2, 3])
    >>> units.mean(np.array([0.5, 0, 1, 0.5, 0])).tolist()
    [0.5, 0.0, 0.75, 0.0]
    """
    found = [match.span() for match in (_SPACED if text.isascii() else _any()).finditer(text)]
    places = np.array(found, dtype=np.int64).reshape(-1, 2)
    # Tokens come in the order of their text; some share a character.
    starts, ends = np.maximum.accumulate(offsets.reshape(-1, 2)).T
    first, last = ends.searchsorted(places[:, 0], "right"), starts.searchsorted(places[:, 1], "left")
    return Units(places, (first, np.maximum(first, last)), starts)


def joined(text: str, units: Units, called: NDArray[np.int64], neutral: int) -> NDArray[np.int64]:
    """Verdicts of units → the same, where one link ("of", a comma: what says nothing by itself) between two units of
    one verdict has their verdict, too. Not over the end of a line.

    >>> units = units_of("rest of it", np.array([(0, 4), (4, 7), (7, 10)]))
    >>> joined("rest of it", units, np.array([0, 1, 0]), 1).tolist()
    [0, 0, 0]
    """
    taken = called.copy()
    between = (called[1:-1] == neutral) & (called[:-2] == called[2:]) & (called[:-2] != neutral)
    for place in (between.nonzero()[0] + 1).tolist():
        (_, before), (start, end), (after, _) = units.places[place - 1 : place + 2].tolist()
        word = text[start:end]
        if (word in _LINKS or word.lower() in FUNCTION_WORDS) and "\n" not in text[before:after]:
            taken[place] = called[place - 1]
    return taken
