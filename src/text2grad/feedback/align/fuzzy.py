"""Quotes with slips of the pen: places whose characters are within a bound of edits. The rung below normalised.

Enters: the completion, a quote, the bound. Leaves: the best places, or none. Bounded twice: in edits (a share of the
quote's length, and every number must be the same, so that an invented quote finds nothing) and in work (only windows
around the quote's rarer words are looked at, so that cost does not grow with the product of the two texts).
"""

import re

from rapidfuzz.distance import OSA

from text2grad.feedback.align.places import Place
from text2grad.feedback.align.settings import QuoteSettings
from text2grad.feedback.align.text import Text, fold

_NUMBER = re.compile(r"\d+")
_ANCHORS = 3
"""Words of the quote that are looked up, rarest first: one of them must stand in the text, or nearly."""
_WINDOWS = 64
"""Windows tried for one quote."""


def fuzzy(text: Text, quote: str, settings: QuoteSettings) -> tuple[list[Place], float]:
    """(places, share of the quote that is right) of the nearest windows inside the bound.

    >>> found = fuzzy(Text("The harbour master spoke."), "harbor mastr spoke", QuoteSettings())
    >>> found[0], round(found[1], 2)
    ([(4, 24)], 0.89)
    >>> fuzzy(Text("13 people died."), "12 people died", QuoteSettings())
    ([], 0.0)
    """
    wanted = fold(quote)[0].strip(" .,;:!?\"'")
    limit = int(settings.fuzzy * len(wanted))
    if len(wanted) < settings.shortest_fuzzy or limit == 0:
        return [], 0.0
    numbers = _NUMBER.findall(wanted)
    words = wanted.split()
    best = limit + 1
    found: list[Place] = []
    for first, last in _windows(text, words):
        start, end = text.words[first][0], text.words[last][1]
        there = fold(text.raw[start:end])[0]
        edits = OSA.distance(wanted, there, score_cutoff=best)
        if edits > limit or edits > best or _NUMBER.findall(there) != numbers:
            continue
        if edits < best:
            best, found = edits, []
        if (start, end) not in found:
            found.append((start, end))
    return sorted(found), 1.0 - best / len(wanted) if found else 0.0


def _windows(text: Text, words: list[str]) -> list[tuple[int, int]]:
    """(first word, last word) of stretches that could be the quote: about as many words, around an anchor."""
    plain = [re.sub(r"^\W+|\W+$", "", word) for word in words]
    anchors = sorted((len(text.word_places.get(word, ())) or 10**6, index) for index, word in enumerate(plain) if word)
    spots = [
        (place, index)
        for count, index in anchors[:_ANCHORS]
        if count < 10**6
        for place in text.word_places[plain[index]]
    ]
    if not spots:
        # No word of it stands there as it is; the longest one may be misspelt.
        longest = max(range(len(plain)), key=lambda index: len(plain[index]))
        spots = [(place, longest) for place in _near(text, plain[longest])]
    count = len(text.words)
    # Hyphens and apostrophes can make the same stretch one word more or less.
    slack = 1 + sum(1 for word in words if re.search(r"\w\W+\w", word))
    found = []
    for place, index in spots[:_WINDOWS]:
        for before in range(max(0, index - 1), index + slack + 1):
            for length in range(max(1, len(words) - 1), len(words) + slack + 1):
                first, last = place - before, place - before + length - 1
                if 0 <= first <= place <= last < count:
                    found.append((first, last))
    return list(dict.fromkeys(found))


def _near(text: Text, word: str) -> list[int]:
    """Places of the words that are this one with a slip in it."""
    slips = max(1, len(word) // 4)
    return [
        place
        for other, places in text.word_places.items()
        if abs(len(other) - len(word)) <= slips and OSA.distance(word, other, score_cutoff=slips) <= slips
        for place in places
    ]
