"""Facts about written language, stated once: words, sentences, scripts without spaces, abbreviations, stems.

Enters: a string. Leaves: places in it and forms of its words that can be compared. The string itself never changes.
Stems and function words are English; words of other scripts are compared as they are written.
"""

import re
import tomllib
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any

from text2grad.writing import ONE_UNSPACED, UNSPACED

_ENGLISH = resources.files("text2grad.feedback").joinpath("english.toml")
ENGLISH: dict[str, Any] = tomllib.loads(_ENGLISH.read_text(encoding="utf-8"))
"""Lists of words, and patterns."""
Place = tuple[int, int]
"""Start and end in characters, half open."""

_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
"""Accents and vowel signs, for a set: they belong to the word, but a regular expression counts them as none."""
WORD = re.compile(rf"[\w{_MARKS}]+(?:['’][\w{_MARKS}]+)*")
_LETTERS = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
COMPOUND = re.compile(rf"[£$€#@]?{_LETTERS}(?:[-'’.,/:&]{_LETTERS})*%?")
"""A word with its hyphens, its decimal point, its currency or per cent sign."""
PIECE = re.compile(rf"(?=\w)[{UNSPACED}]|[^\W{UNSPACED}]+(?:['’.,][^\W{UNSPACED}]+)*|[^\w\s]")
"""A word, a character of a script without spaces, or a sign: what a diff compares."""
WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
"""Letters and digits, or a sign: what a grammar of plain English reads."""
_INSIDE = r"(?:['’]|(?<=\d)[.,:٫٬](?=\d))"
"""Signs inside a word, a number or a time of day."""
_WORD_OR_SIGNS = re.compile(rf"\w+(?:{_INSIDE}\w+)*|[^\w\s]+")
ABBREVIATION = re.compile(
    r"(?<![^\s(\[\"'“‘])(?:Mr|Mrs|Ms|Dr|St|Prof|Rev|Hon|vs|e\.g|i\.e|etc|cf|No|Fig|approx|Sgt|Gen|Col|Capt|Lt|Sen|Rep|"
    r"Gov|Jr|Sr|Jan|Feb|Aug|Sept|Oct|Nov|Dec|(?:[A-Z]\.)*[A-Z])\.$"
)
"""A full stop at the end of a stretch that ends no sentence."""
BLOCK = re.compile(r"(?:[^\n]*\S[^\n]*\n?)+")
"""A paragraph: lines without a blank line between them."""
_SENTENCE_END = re.compile(r"(?<=[.!?…؟۔।])[\"'”’)\]]*\s+(?=\S)|(?<=[。！？])|\n+")
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»＂〝〞〟「」『』", '"'),
        **dict.fromkeys("‘’‚‛‹›′`´ʼ＇", "'"),
        **dict.fromkeys("‐‑‒–—―−﹣－", "-"),
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u200f", ""),
        "…": "...",
    }
)
_RUN = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")


class Text:
    """A string and the views of it that several readers share; each view is made when first asked for."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self.located: dict[Any, Any] = {}
        """Quotes that were already looked for in it."""
        self.searched = 0
        """Characters that were searched for quotes with errors."""

    @cached_property
    def words(self) -> list[tuple[int, int, str]]:
        """(start, end, lower-cased word) in order; punctuation is between words."""
        return [(match.start(), match.end(), match[0].lower()) for match in WORD.finditer(self.raw)]

    @cached_property
    def word_starts(self) -> list[int]:
        return [start for start, _, _ in self.words]

    @cached_property
    def sentences(self) -> list[Place]:
        return sentences(self.raw)

    @cached_property
    def _folded(self) -> tuple[str, list[int]]:
        return fold(self.raw)

    @property
    def folded(self) -> str:
        return self._folded[0]

    def unfold(self, start: int, end: int) -> Place:
        """A stretch of the folded text → the stretch of the raw text that it came from."""
        places = self._folded[1]
        last = places[end - 1]
        # Everything that folded into the last character belongs to it: a ligature, a combining mark.
        stop = places[end] if end < len(places) else len(self.raw)
        return places[start], max(last + 1, min(stop, last + len(self.raw[last:stop].rstrip())))

    def words_between(self, start: int, end: int) -> range:
        """Indices of the words that begin in [start, end)."""
        return range(bisect_left(self.word_starts, start), bisect_left(self.word_starts, end))

    def words_touching(self, start: int, end: int) -> range:
        """Indices of the words that have a character in [start, end)."""
        first = bisect_right(self.word_starts, start) - 1
        first += first < 0 or self.words[first][1] <= start
        return range(first, max(first, bisect_left(self.word_starts, end)))


def sentences(raw: str) -> list[Place]:
    """Stretches between sentence ends and line breaks, in order. An abbreviation ends no sentence.

    >>> [text[a:b] for text in ["Dr. Ada Low wrote it. Mr. Bo did not."] for a, b in sentences(text)]
    ['Dr. Ada Low wrote it.', 'Mr. Bo did not.']
    """
    found = []
    start = 0
    for gap in _SENTENCE_END.finditer(raw):
        if ABBREVIATION.search(raw, max(start, gap.start() - 12), gap.start()) and "\n" not in gap[0]:
            continue
        if raw[start : gap.start()].strip():
            found.append((start, gap.start()))
            start = gap.end()
    if raw[start:].strip():
        found.append((start, len(raw)))
    return found


def fold(raw: str) -> tuple[str, list[int]]:
    """The text with case, white space, dashes, quotation marks and Unicode form made alike, and for each character of
    it the place in `raw` that it came from.

    >>> fold("A  “b”\\n—c")[0]
    'a "b" -c'
    """
    folded: list[str] = []
    places: list[int] = []
    blank = True
    for place, character in enumerate(raw):
        if character.isspace():
            if not blank:
                folded.append(" ")
                places.append(place)
                blank = True
            continue
        if character.isascii():
            alike = "'" if character == "`" else character.lower()
        else:
            alike = unicodedata.normalize("NFKD", character).translate(_ALIKE).casefold()
        for part in alike:
            if not part.isspace():
                folded.append(part)
                places.append(place)
        blank = blank and not alike
    if folded and folded[-1] == " ":
        folded.pop()
        places.pop()
    return "".join(folded), places


def splits_word(raw: str, position: int) -> bool:
    """Whether a cut here would go through a word or a character. In scripts without spaces only a cut in front of a
    mark does.

    >>> splits_word("the", 1), splits_word("the cat", 3), splits_word("東京都", 1), splits_word("cafe\u0301s", 4)
    (True, False, False, True)
    """
    if not 0 < position < len(raw):
        return False
    left, right = raw[position - 1], raw[position]
    if right.isascii() and left.isascii():
        return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")
    if _is_mark(right):
        return not left.isspace()
    base = position - 1
    while base > 0 and _is_mark(raw[base]):
        base -= 1
    return all((side.isalnum() or side == "_") and not ONE_UNSPACED.match(side) for side in (raw[base], right))


def words_and_signs(raw: str) -> Iterator[re.Match[str]]:
    """Words, runs of signs, and the single characters of scripts without spaces, in order.

    >>> [match[0] for match in words_and_signs("It's 3.5 東京…")]
    ["It's", '3.5', '東', '京', '…']
    """
    return (_WORD_OR_SIGNS if raw.isascii() else _any_script()).finditer(raw)


@cache
def _any_script() -> re.Pattern[str]:
    """Marks and joiners belong to the letter before them, but `\\w` does not match them."""
    points = [*range(0x20000), *range(0xE0100, 0xE01F0)]
    marks = "".join(chr(p) for p in points if unicodedata.category(chr(p))[0] == "M") + "\u00ad\u200c\u200d\u2060"
    letter, one = rf"\w[{re.escape(marks)}]*", ONE_UNSPACED.pattern
    word = rf"(?:(?!{one}){letter})+"
    return re.compile(rf"(?={one}){letter}|{one}|{word}(?:{_INSIDE}{word})*|[^\w\s]+")


def _is_mark(character: str) -> bool:
    """Written onto the character before it: an accent, a vowel sign."""
    return not character.isascii() and unicodedata.category(character)[0] == "M"


def pieces(word: str) -> list[tuple[int, int, tuple[str, ...]]]:
    """A word cut where words run together: (start, end, forms to compare by) of each piece. A character of a script
    without spaces is compared by the pairs that it makes with its neighbours; any other word is one piece, by itself.

    >>> pieces("東京都"), pieces("tram")
    ([(0, 1, ('東京',)), (1, 2, ('東京', '京都')), (2, 3, ('京都',))], [(0, 4, ('tram',))])
    """
    if word.isascii() or not ONE_UNSPACED.search(word):
        return [(0, len(word), (word,))]
    found: list[tuple[int, int, tuple[str, ...]]] = []
    for run in _RUN.finditer(word):
        start, end = run.span()
        if not ONE_UNSPACED.match(run[0]):
            found.append((start, end, (run[0],)))
            continue
        for k in range(start, end):
            pairs = [word[max(start, k - 1) : k + 1], word[k : min(end, k + 2)]]
            found.append((k, k + 1, tuple(pair for pair in pairs if len(pair) == 2) or (word[k],)))
    return found


def word_set(words: str) -> frozenset[str]:
    """The words between white space."""
    return frozenset(words.split())


def pattern(lines: str) -> str:
    """A regular expression that is written over several lines."""
    return "".join(lines.splitlines())


FUNCTION_WORDS = word_set(ENGLISH["function_words"])
_ENDINGS = (
    ("ations", "at", 3), ("ation", "at", 3), ("ings", "", 3), ("ing", "", 3), ("ies", "y", 2), ("ied", "y", 2),
    ("edly", "", 3), ("ed", "", 3), ("ments", "", 3), ("ment", "", 4), ("ers", "", 3), ("er", "", 4),
    ("ly", "", 3), ("sses", "ss", 2), ("ches", "ch", 2), ("shes", "sh", 2), ("xes", "x", 2),
    ("ss", "ss", 2), ("us", "us", 2), ("s", "", 3),
)  # fmt: skip


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A word without its commonest English endings, so that "killed" meets "kills".

    >>> [stem(word) for word in ("killed", "killing", "kills", "injuries", "Scotland's", "13")]
    ['kill', 'kill', 'kill', 'injury', 'scotland', '13']
    """
    word = word.lower().replace("’", "'")
    word = word[:-2] if word.endswith("'s") else word.removesuffix("'")
    if len(word) < 4 or not word.isascii():
        return word
    for ending, replacement, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: len(word) - len(ending)] + replacement
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word
