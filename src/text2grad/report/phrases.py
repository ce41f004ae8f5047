"""Which words of a critique are about which span: the links between a critique and its completion, for any display.

Enters: a critique's text, the completion's, their alignment. Leaves: stretches of the critique, in order, that do not
overlap. Knows nothing of colours.
"""

import re
from typing import Literal, NamedTuple

from text2grad.types import Alignment


class Phrase(NamedTuple):
    """Characters of the critique, and what of the alignment they are: several spans may share one phrase."""

    start: int
    end: int
    kind: Literal["span", "missed", "omission"]
    indices: tuple[int, ...]


def phrases(critique: str, completion: str, alignment: Alignment) -> list[Phrase]:
    """The phrase of each span: its own words where the clause has them, else the clause; then what was missed.

    Of phrases that overlap, the shorter stays: it says something more particular.

    >>> from text2grad.types import Span
    >>> phrases("Fine, but 'nine' is wrong.", "nine ships", Alignment((Span(0, 4, "poor", comment="'nine' is wrong"),)))
    [Phrase(start=11, end=15, kind='span', indices=(0,))]
    """
    found: dict[tuple[int, int], Phrase] = {}
    for index, span in enumerate(alignment.spans):
        start = critique.find(span.comment) if span.comment else -1
        if start < 0:
            continue
        end = start + len(span.comment)
        # Searched in the words as they are: lower case may be longer than what it is the lower case of.
        inner = re.compile(re.escape(span.slice(completion)), re.IGNORECASE).search(critique, start, end)
        if inner:
            start, end = inner.span()
        earlier = found.get((start, end))
        found[start, end] = Phrase(start, end, "span", (*(earlier.indices if earlier else ()), index))
    rest = [("missed", index, missed.quote) for index, missed in enumerate(alignment.missed)]
    rest += [("omission", index, words) for index, words in enumerate(alignment.omissions)]
    for kind, index, words in rest:
        start = critique.find(words)
        if start >= 0:
            end = start + len(words)
            found.setdefault((start, end), Phrase(start, end, "missed" if kind == "missed" else "omission", (index,)))
    kept: list[Phrase] = []
    for phrase in sorted(found.values(), key=lambda phrase: (phrase.end - phrase.start, phrase.start)):
        if all(phrase.end <= other.start or phrase.start >= other.end for other in kept):
            kept.append(phrase)
    return sorted(kept)
