"""Places of a quote in a text: exact and normalised. Two rungs of the ladder, strongest first.

Enters: the completion and a quote. Leaves: all (start, end) places, in order. Exact means character for character;
normalised means alike after `fold`. Which of several places is meant is decided in `occurrences`.
"""

import re
import unicodedata

from text2grad.feedback.align.text import Text, fold

Place = tuple[int, int]

MOST = 1_000
"""Places of one quote that are looked at; a quote found oftener ("a") is ambiguous whatever the rest."""
_ELISION = re.compile(r"\s*(?:\.{3,}|…|\[(?:\.{3}|…)\]|\(\.{3}\))\s*")
_FARTHEST = 400
"""Characters that an elision ("the dam … at noon") may stand for."""
_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0xD7FF), (0xF900, 0x10FFFF))
"""Han, kana, Hangul syllables, Thai, Lao, Khmer, Burmese: words run together."""
UNSPACED = "".join(f"{chr(first)}-{chr(last)}" for first, last in _UNSPACED)
"""The same, for a set in a regular expression."""
_EDGE = " \t\r\n.,;:!?…\"'"


def exact(text: Text, quote: str) -> list[Place]:
    """Every place of the quote as it is, then without the white space around it. Places may overlap ("aa" in "aaa").

    >>> exact(Text("aaa"), "aa")
    [(0, 2), (1, 3)]
    """
    return _whole_words(text, _find(text.raw, quote) or _find(text.raw, quote.strip()))


def normalised(text: Text, quote: str) -> list[Place]:
    """Every place whose folded characters are the folded quote's; then without the punctuation at its edges (people put
    their own commas inside the marks); then with an elision inside.

    >>> normalised(Text("The Dam—it  broke."), "the dam-it broke,")
    [(0, 17)]
    >>> normalised(Text("The dam on the hill broke at noon."), "the dam ... at noon")
    [(0, 33)]
    """
    folded = fold(quote)[0]
    for wanted in (folded, folded.strip(_EDGE)):
        if wanted and (found := _find(text.folded, wanted)):
            return _whole_words(text, [text.unfold(start, end) for start, end in found])
    return _elided(text, quote)


def _find(text: str, wanted: str) -> list[Place]:
    found: list[Place] = []
    if not wanted:
        return found
    place = text.find(wanted)
    while place >= 0 and len(found) < MOST:
        found.append((place, place + len(wanted)))
        place = text.find(wanted, place + 1)
    return found


def _whole_words(text: Text, places: list[Place]) -> list[Place]:
    """Where a quote stands both as words and inside words ("he" in "the"), only the words count."""
    if len(places) < 2:
        return places
    whole = [place for place in places if not splits_word(text.raw, place[0]) and not splits_word(text.raw, place[1])]
    return whole or places


def splits_word(raw: str, position: int) -> bool:
    """Whether a cut here would go through a word or a character. Scripts without spaces have no such places but those
    in front of a mark.

    >>> splits_word("the", 1), splits_word("the cat", 3), splits_word("東京都", 1), splits_word("cafe\u0301s", 4)
    (True, False, False, True)
    """
    if not 0 < position < len(raw):
        return False
    left, right = raw[position - 1], raw[position]
    if right.isascii() and left.isascii():
        return (left.isalnum() or left == "_") and (right.isalnum() or right == "_")
    if _mark(right):
        return not left.isspace()
    base = position - 1
    while base > 0 and _mark(raw[base]):
        base -= 1
    return all((side.isalnum() or side == "_") and not _unspaced(side) for side in (raw[base], right))


def _mark(character: str) -> bool:
    """Written onto the character before it: an accent, a vowel sign."""
    return not character.isascii() and unicodedata.category(character)[0] == "M"


def _unspaced(character: str) -> bool:
    code = ord(character)
    return code >= _UNSPACED[0][0] and any(first <= code <= last for first, last in _UNSPACED)


def _elided(text: Text, quote: str) -> list[Place]:
    parts = [fold(part)[0].strip(_EDGE) for part in _ELISION.split(quote)]
    parts = [part for part in parts if part]
    if len(parts) < 2 or any(len(part) < 3 for part in parts):
        return []
    found = []
    for start, end in _find(text.folded, parts[0]):
        for part in parts[1:]:
            place = text.folded.find(part, end, end + _FARTHEST + len(part))
            if place < 0:
                break
            end = place + len(part)
        else:
            found.append(text.unfold(start, end))
    return found
