"""Numbers and dates in a text, as values that can be compared: "1,200", "twelve hundred" and "1.2 thousand" are one.

Enters: a string. Leaves: `Number`s and `Date`s with their places, in order, never overlapping. English words; digits of
any script. "one" and "first" are left out: they are articles and adverbs more often than counts.
"""

import re
from math import floor, log10
from typing import NamedTuple

_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ORDINALS = {
    "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10,
    "eleventh": 11, "twelfth": 12, "thirteenth": 13, "fourteenth": 14, "fifteenth": 15, "sixteenth": 16,
    "seventeenth": 17, "eighteenth": 18, "nineteenth": 19, "twentieth": 20, "thirtieth": 30,
}  # fmt: skip
_SMALL = {
    **{word: value for value, word in enumerate(_UNITS)},
    **{word: 10 * value for value, word in enumerate(_TENS, 2)},
    "dozen": 12,
    "first": 1,
}
_SCALES = {
    "hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12,
    "k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9, "tn": 1e12,
}  # fmt: skip
_MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sept sep", "october oct", "november nov", "december dec"), 1,
    )
    for name in names.split()
}  # fmt: skip
_MEASURES = {
    alias: names.split()[0]
    for names in (
        "% percent", "km kilometre kilometres kilometer kilometers", "metre metres meter meters",
        "cm centimetre centimetres centimeter centimeters", "mm millimetre millimetres", "mile miles",
        "foot feet ft", "inch inches", "kg kilogram kilograms kilo kilos", "tonne tonnes ton tons",
        "pound pounds £", "dollar dollars $", "euro euros €", "litre litres liter liters", "acre acres",
        "hectare hectares", "second seconds", "minute minutes", "hour hours", "day days", "week weeks",
        "month months", "year years", "degree degrees",
    )
    for alias in names.split()
}  # fmt: skip

_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DAY2 = r"(?P<day2>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<{0}>1\d{{3}}|20\d\d)"
_NAMES = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE = re.compile(
    rf"(?:(?P<iso>(?:1\d{{3}}|20\d\d)-\d{{2}}-\d{{2}})|{_DAY}(?:\s+of)?\s+(?P<month>{_NAMES})\b\.?(?:,?\s+{_YEAR.format('year')}\b)?"
    rf"|(?P<month2>{_NAMES})\b\.?\s+(?:{_DAY2}\b(?!,\d|\.\d)(?:,?\s+{_YEAR.format('year2')}\b)?|{_YEAR.format('year3')}\b))",
    re.IGNORECASE,
)
_DIGIT = "(?:" + "|".join(_UNITS[1:10]) + ")"
_ORDINAL = "(?:" + "|".join(_ORDINALS) + ")"
_TEEN = "(?:" + "|".join(_UNITS[10:]) + ")"
_TEN = "(?:" + "|".join(_TENS) + ")"
_BELOW_100 = rf"(?:{_TEN}(?:[-\s](?:{_DIGIT}|{_ORDINAL}|first))?|{_TEEN}|{_ORDINAL}|dozen|{_DIGIT})"
_BELOW_1000 = rf"(?:{_DIGIT}\s+hundred\b(?:\s+(?:and\s+)?{_BELOW_100})?|hundred\b|{_BELOW_100})"
_SPOKEN = rf"(?:{_BELOW_1000}(?:\s+thousand\b(?:\s+(?:and\s+)?{_BELOW_1000})?)?|thousand)\b"
_NUMBER = re.compile(
    r"(?:(?P<figure>\d{1,3}(?:[,'’\u00a0\u2009\u202f]\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?)(?P<suffix>st|nd|rd|th|s)?"
    rf"|(?P<words>{_SPOKEN}))"
    r"(?:(?:\s+|-)?(?P<scale>hundred|thousand|million|billion|trillion|mn|bn|tn|k|m)\b)?"
    r"(?P<percent>\s?%|\s+per\s?cent\b)?",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[^\W_]+")
_BEGINNINGS = frozenset({*_SMALL, *_ORDINALS, *_MONTHS, "hundred", "thousand"} - {"zero", "first"})
"""Words that a number or a date may begin with."""
_SEPARATORS = re.compile("[,'’\u00a0\u2009\u202f]")
_AFTER = re.compile(r"[\s-]*([^\W\d_]+)")


class Number(NamedTuple):
    start: int
    end: int
    value: float
    measure: str | None = None
    """What it counts, where that is a unit of measure, money or percent; one spelling for each."""

    @property
    def year(self) -> bool:
        return self.measure is None and self.value == int(self.value) and 1000 <= self.value < 2100


class Date(NamedTuple):
    start: int
    end: int
    year: int | None
    month: int
    day: int | None

    def agrees(self, other: "Date") -> bool:
        """Whether both can be the same day: what both say is the same."""
        pairs = ((self.year, other.year), (self.month, other.month), (self.day, other.day))
        return all(a is None or b is None or a == b for a, b in pairs)


Fact = Number | Date


def facts_of(raw: str) -> list[Fact]:
    """All of them, in order.

    >>> [(fact.value, fact.measure) for fact in facts_of("£1,200 for twenty-five miles, 3.5 million, 40 per cent")
    ...  if isinstance(fact, Number)]
    [(1200.0, 'pound'), (25.0, 'mile'), (3500000.0, None), (40.0, '%')]
    >>> [(day.year, day.month, day.day) for day in facts_of("August 31, 2018; 2nd of May") if isinstance(day, Date)]
    [(2018, 8, 31), (None, 5, 2)]
    """
    facts: list[Fact] = []
    position = 0
    for token in _TOKEN.finditer(raw):
        start = token.start()
        if start < position or not (token[0][0].isdecimal() or token[0].lower() in _BEGINNINGS):
            continue
        fact = _date(raw, start) or _number(raw, start)
        if fact is not None:
            facts.append(fact)
            position = fact.end
    return facts


def same_value(stated: Number, known: Number, loose: bool) -> bool:
    """Whether a number may stand for another: equal, or (`loose`) what rounding to its own figures gives.

    >>> a, b, c = (fact for fact in facts_of("200 198 240") if isinstance(fact, Number))
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


def _date(raw: str, start: int) -> Date | None:
    match = _DATE.match(raw, start)
    if match is None or (start and raw[start - 1].isalnum()):
        return None
    if match["iso"]:
        year, month, number = (int(part) for part in match["iso"].split("-"))
        return Date(start, match.end(), year, month, number) if 1 <= month <= 12 and 1 <= number <= 31 else None
    name = match["month"] or match["month2"]
    if name[0].islower():
        return None  # "may 10", "march 5 miles": a month has a capital
    said_day = match["day"] or match["day2"]
    said_year = match["year"] or match["year2"] or match["year3"]
    day = int(said_day) if said_day else None
    if day is not None and not 1 <= day <= 31:
        return None
    return Date(start, match.end(), int(said_year) if said_year else None, _MONTHS[name.lower()], day)


def _number(raw: str, start: int) -> Number | None:
    match = _NUMBER.match(raw, start)
    glued = start > 0 and (raw[start - 1].isalnum() or raw[start - 1] in "_.,")
    if match is None or glued or (match[0].lower() == "one"):
        return None
    value = float(_SEPARATORS.sub("", match["figure"])) if match["figure"] else _spoken(match["words"])
    if value == float("inf"):
        return None
    money = start - 1 if start and raw[start - 1] in "£$€" else None
    begin = start if money is None else money
    measure = _measure(raw, match) if money is None else _MEASURES[raw[money]]
    return Number(begin, match.end(), value * _SCALES.get((match["scale"] or "").lower(), 1.0), measure)


def _spoken(words: str) -> float:
    """ "two hundred and five" → 205."""
    total = current = 0.0
    for word in re.split(r"[\s-]+", words.lower()):
        if word in ("hundred", "thousand"):
            current = max(current, 1.0) * _SCALES[word]
            if word == "thousand":
                total, current = total + current, 0.0
        elif word != "and":
            current += _SMALL.get(word, 0) or _ORDINALS.get(word, 0)
    return total + current


def _measure(raw: str, match: re.Match[str]) -> str | None:
    if match["percent"]:
        return "%"
    if match["suffix"] or (match["words"] and match["words"].lower().split()[-1] in _ORDINALS):
        return None
    after = _AFTER.match(raw, match.end())
    return _MEASURES.get(after[1].lower()) if after else None
