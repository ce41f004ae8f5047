"""Quotation marks → the text between them. Straight, curly, angle and CJK quotes, backticks, code fences, block quotes.

Enters: a critique, and the completion where there is one. Leaves: `Quoted` stretches, in order, never overlapping. An
apostrophe is no quote. The completion settles what marks alone cannot: `"print("hello")"` is one quote if the
completion holds `print("hello")`.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

_PAIRS = {
    "“": "”“", "„": "“”", "«": "»", "»": "«", "‹": "›", "「": "」", "『": "』", "《": "》", "〈": "〉", "〝": "〞〟",
    "＂": "＂",
}  # fmt: skip
_BLOCK_LINE = r"[ ]{0,3}>(?!>)[^\n]*"
_OPENING = re.compile(
    rf"(?P<block>^{_BLOCK_LINE}(?:\n{_BLOCK_LINE})*)|`+|\"|[“„«»‹「『《〈〝＂]|(?<!\w)['‘‚](?=\S)", re.M
)
_BLOCK_MARK = re.compile(r"^[ ]{0,3}>[ \t]?", re.M)
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
_SINGLE = re.compile(r"(?<!\s)['’‘](?!\w)|(?<=\s)['’](?=[\s.,;:!?)]|$)")
_HEAD = 64
"""Characters by which a reading too long for a plain quote is first looked for in the completion."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quote in the critique: the text without its marks, and where the whole stands, marks included."""

    text: str
    start: int
    end: int


def find_quotes(critique: str, completion: str = "") -> list[Quoted]:
    """All quotes of a critique, from left to right.

    >>> [quote.text for quote in find_quotes("The players' bus isn't 'late', it is “early”; see `x = 1` and 「東京」.")]
    ['late', 'early', 'x = 1', '東京']
    >>> [quote.text for quote in find_quotes('The line "print("hi")" is fine.', 'print("hi")')]
    ['print("hi")']
    """
    found = []
    position = passed = 0
    traces = tracebacks(critique)
    while opening := _OPENING.search(critique, position):
        while passed < len(traces) and traces[passed][1] <= opening.start():
            passed += 1
        if passed < len(traces) and traces[passed][0] <= opening.start():
            position = traces[passed][1]
            continue
        quote = _block(opening, completion) if opening["block"] else _close(critique, opening, completion)
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


def _block(opening: re.Match[str], completion: str) -> Quoted:
    """Lines behind ">" are one quote; marks around the whole of it are the critic's, unless the completion has them."""
    inner = _BLOCK_MARK.sub("", opening[0]).strip()
    if len(inner) > 2 and inner[0] in '"“' and inner[-1] in '"”' and inner not in completion:
        inner = inner[1:-1]
    return Quoted(inner if inner.strip(_NOTHING) else "", opening.start(), opening.end())


@lru_cache(maxsize=16)
def _closings(critique: str, mark: str) -> list[tuple[int, int]]:
    """(begin, end) of all marks that can close this one. Looked up once per critique, so that marks which nothing
    closes (an apostrophe in front of a word, ten thousand times) do not each read the rest of it."""
    pattern = re.compile(f"(?<!`){mark}(?!`)") if mark[0] == "`" else _closing_pattern(mark)
    return [match.span() for match in pattern.finditer(critique)]


def _close(critique: str, opening: re.Match[str], completion: str) -> Quoted | None:
    mark = opening[0]
    if mark == '"' and _is_inch(critique, opening.start()):
        return None
    plain = longest = None
    closings = _closings(critique, mark)
    first = bisect_left(closings, (opening.end(), 0))
    for inner_end, end in closings[first : first + _CLOSINGS]:
        if plain is not None and critique[plain.end - 1] not in completion:
            # A longer reading has this mark inside, which the completion has nowhere.
            break
        if len(mark) < 3 and not _worth_reading(critique, opening.end(), inner_end, completion):
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
        # A longer reading needs the completion's word for it, and begins with this one: where this one is not in the
        # completion, none is.
        if inner not in completion:
            break
        longest = quote
    return longest or plain


def _worth_reading(critique: str, start: int, end: int, completion: str) -> bool:
    """Whether a stretch can be a quote: short enough for a plain one, or it begins as something in the completion."""
    if end - start <= _LONGEST:
        return True
    return end - start <= len(completion) and critique[start : start + _HEAD] in completion


def _closing_pattern(mark: str) -> re.Pattern[str]:
    if mark in "'‘‚":
        # Between letters it is an apostrophe: don't, l'eau. Behind a blank it closes if nothing is opened by it.
        return _SINGLE
    return re.compile(f"[{_PAIRS.get(mark, mark)}]")


def _is_inch(critique: str, position: int) -> bool:
    """A straight mark behind a digit that nothing opened: 5'10"."""
    return position > 0 and critique[position - 1].isdigit() and not critique[position + 1 : position + 2].isalnum()
