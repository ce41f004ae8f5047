"""Numbers in a text, as values that can be compared: "1,200", "twelve hundred" and "1.2 thousand" are one.

Enters: a string. Leaves: `Number`s with their places, in order, never overlapping. English words; digits of any script.
"one" and "first" are left out: they are articles and adverbs more often than counts.
"""

import re
from math import floor, isinf, log10
from typing import NamedTuple

_SMALL = {
    "zero": 0, "one": 1, "two": 2, "second": 2, "three": 3, "third": 3, "four": 4, "fourth": 4, "five": 5, "fifth": 5,
    "six": 6, "sixth": 6, "seven": 7, "seventh": 7, "eight": 8, "eighth": 8, "nine": 9, "ninth": 9, "ten": 10,
    "tenth": 10, "eleven": 11, "eleventh": 11, "twelve": 12, "twelfth": 12, "dozen": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {
    "hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
    "k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9, "tn": 1e12,
}  # fmt: skip
_WORD = rf"(?:{'|'.join(sorted([*_SMALL, 'hundred', 'thousand'], key=len, reverse=True))})\b"
_SEPARATORS = "[,'’\u00a0\u2009\u202f]"
_NUMBER = re.compile(
    rf"(?P<money>[£$€])?(?<!\w)(?<!\d[.,])"
    rf"(?:(?P<figure>\d{{1,3}}(?:{_SEPARATORS}\d{{3}})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?)(?:st|nd|rd|th|s)?"
    rf"|(?P<words>{_WORD}(?:(?:\s+and)?[\s-]+{_WORD})*))"
    r"(?:(?:\s+|-)?(?P<scale>thousand|million|billion|trillion|mn|bn|tn|k|m)\b)?"
    r"(?P<percent>\s?%|\s+per\s?cent\b)?",
    re.IGNORECASE,
)


class Number(NamedTuple):
    start: int
    end: int
    value: float
    measure: str | None = None
    """Of money and percent: £, $, € or %."""

    @property
    def year(self) -> bool:
        return self.measure is None and self.value == int(self.value) and 1000 <= self.value < 2100


def numbers_of(raw: str) -> list[Number]:
    """All of them, in order.

    >>> [(number.value, number.measure) for number in numbers_of("£1,200 for twenty-five men, 3.5m, 40 per cent")]
    [(1200.0, '£'), (25.0, None), (3500000.0, None), (40.0, '%')]
    """
    numbers = []
    for match in _NUMBER.finditer(raw):
        if match[0].lower() == "one":
            continue
        value = float(re.sub(_SEPARATORS, "", match["figure"])) if match["figure"] else _spoken(match["words"])
        value *= _SCALES.get((match["scale"] or "").lower(), 1.0)
        if not isinf(value):
            measure = match["money"] or ("%" if match["percent"] else None)
            numbers.append(Number(match.start(), match.end(), value, measure))
    return numbers


def same_value(stated: Number, known: Number, loose: bool) -> bool:
    """Whether a number may stand for another: equal, or (`loose`) what rounding to its own figures gives.

    >>> a, b, c = numbers_of("200 198 240")
    >>> same_value(a, b, loose=True), same_value(a, b, loose=False), same_value(a, c, loose=True)
    (True, False, False)
    """
    if stated.measure != known.measure and (stated.measure == "%" or None not in (stated.measure, known.measure)):
        return False
    if stated.value == known.value:
        return True
    if not loose or stated.value == 0 or known.value == 0:
        return False
    last_figure = 10.0 ** (floor(log10(stated.value)) - len(f"{stated.value:.5e}".split("e")[0].rstrip("0")) + 2)
    return abs(known.value - stated.value) <= min(last_figure / 2, 0.1 * known.value)


def _spoken(words: str) -> float:
    """ "two hundred and five" → 205."""
    total = current = 0.0
    for word in re.split(r"[\s-]+", words.lower()):
        if word in ("hundred", "thousand"):
            current = max(current, 1.0) * _SCALES[word]
            if word == "thousand":
                total, current = total + current, 0.0
        elif word != "and":
            current += _SMALL[word]
    return total + current
