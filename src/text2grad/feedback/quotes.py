"""Quotation marks → the text between them. Straight, curly, angle and CJK quotes, backticks, code fences.

Enters: a critique, and the completion where there is one. Leaves: `Quoted` stretches, in order, never overlapping. An
apostrophe is no quote. The completion settles what marks alone cannot: `"print("hello")"` is one quote if the
completion holds `print("hello")`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PAIRS = {
    "“": "”“",
    "„": "“”",
    "«": "»",
    "»": "«",
    "‹": "›",
    "「": "」",
    "『": "』",
    "《": "》",
    "〈": "〉",
    "〝": "〞〟",
    "＂": "＂",
}
_OPENING = re.compile(r"`+|\"|[“„«»‹「『《〈〝＂]|(?<!\w)['‘‚](?=\S)")
_CLOSINGS = 16
"""How many closing marks are tried for one opening mark; keeps the cost linear in the number of marks."""
_LONGEST = 2_000
"""Characters of a quote that the completion does not confirm; marks farther apart than this are strays."""
_BLANK_LINE = re.compile(r"\n\s*\n")
_NOTHING = " \t\r\n\"'`“”"
_FENCE_LABEL = re.compile(r"^[\w+#.-]*[ \t]*\n")
_TRACEBACK = re.compile(
    r"(?:^[ \t]*Traceback[^\n]*\n)?(?:^[ \t]*File \"[^\"\n]*\", line \d+[^\n]*(?:\n[ "
    r"\t]+[^\n]*)*\n?)+(?:^\w*(?:Error|Exception|Warning)\b[^\n]*)?",
    re.M,
)
"""What Python prints when a program breaks: the marks in it are its own."""
_CLOSING_PATTERNS: dict[str, re.Pattern[str]] = {}


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quote in the critique: the text without its marks, and where the whole stands, marks included."""

    text: str
    start: int
    end: int

    @property
    def outer(self) -> tuple[int, int]:
        return self.start, self.end


def find_quotes(critique: str, completion: str = "") -> list[Quoted]:
    """All quotes of a critique, from left to right.

    >>> [quote.text for quote in find_quotes("The players' bus isn't 'late', it is “early”; see `x = 1` and 「東京」.")]
    ['late', 'early', 'x = 1', '東京']
    >>> [quote.text for quote in find_quotes('The line "print("hi")" is fine.', 'print("hi")')]
    ['print("hi")']
    """
    found = []
    position = 0
    traces = tracebacks(critique)
    while opening := _OPENING.search(critique, position):
        inside = next((end for start, end in traces if start <= opening.start() < end), None)
        if inside is not None:
            position = inside
            continue
        quote = _close(critique, opening, completion)
        if quote is None:
            position = opening.end()
        else:
            if quote.text:
                found.append(quote)
            position = quote.end
    return found


def tracebacks(critique: str) -> list[tuple[int, int]]:
    """Where a critique holds what Python prints when a program breaks."""
    return [match.span() for match in _TRACEBACK.finditer(critique)] if "line " in critique else []


def _close(critique: str, opening: re.Match[str], completion: str) -> Quoted | None:
    mark = opening[0]
    if mark == '"' and _is_inch(critique, opening.start()):
        return None
    plain = longest = None
    for inner_end, end in _closings(critique, opening, mark):
        if plain is not None and critique[plain.end - 1] not in completion:
            # A longer reading has this mark inside, which the completion has nowhere.
            break
        inner = critique[opening.end() : inner_end]
        if len(mark) >= 3:
            label = _FENCE_LABEL.match(inner)
            inner = inner[label.end() :] if label else inner
            inner = inner.rstrip("\n")
        if not inner.strip(_NOTHING):
            # Marks around nothing, or around marks, quote nothing; stepping over both keeps the next ones paired.
            if plain is None and len(mark) < 3:
                plain = Quoted("", opening.start(), end)
            continue
        quote = Quoted(inner, opening.start(), end)
        if plain is None and (len(mark) >= 3 or (len(inner) <= _LONGEST and not _BLANK_LINE.search(inner))):
            plain = quote
        if len(inner) > len(completion):
            break
        # A longer reading needs the completion's word for it: it holds the mark itself, or a blank line.
        if (plain is not quote or longest is None) and inner in completion:
            longest = quote
    return longest or plain


def _closings(critique: str, opening: re.Match[str], mark: str) -> Iterator[tuple[int, int]]:
    """(end of the inner text, end of the closing mark) of the first few marks that could close this one."""
    matches = _closing_pattern(mark).finditer(critique, opening.end())
    for _, match in zip(range(_CLOSINGS), matches, strict=False):
        yield match.start(), match.end()


def _closing_pattern(mark: str) -> re.Pattern[str]:
    if mark not in _CLOSING_PATTERNS:
        if mark[0] == "`":
            pattern = rf"(?<!`){re.escape(mark)}(?!`)"
        elif mark in "'‘‚":
            # Between letters it is an apostrophe: don't, l'eau.
            pattern = r"(?<![\s])['’‘](?!\w)"
        else:
            pattern = f"[{_PAIRS.get(mark, mark)}]"
        _CLOSING_PATTERNS[mark] = re.compile(pattern)
    return _CLOSING_PATTERNS[mark]


def _is_inch(critique: str, position: int) -> bool:
    """A straight mark behind a digit that nothing opened: 5'10"."""
    return position > 0 and critique[position - 1].isdigit() and not critique[position + 1 : position + 2].isalnum()
