"""Which sentences of the completion a clause is about.

Enters: the completion's sentences, a clause. Leaves: sentence indices per clause. A completion of one sentence is what
every clause is about. In a longer one, the rarer a clause's words are in the completion, the more they point; a clause
whose words stand nowhere is about no sentence in particular. Cost: the clauses' words, through an index.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from text2grad.feedback.align import cues
from text2grad.feedback.align.evidence import Support, Token
from text2grad.feedback.align.ordinals import picks
from text2grad.feedback.align.said import mentions_of
from text2grad.feedback.align.stems import FUNCTION_WORDS

NEAR_BEST = 0.7
"""A sentence that has this share of the best one's weight is meant as well."""
MOST = 3
"""Sentences that one clause can be about."""
FEW = 4
"""A completion of so few sentences is searched whole where a clause names only a kind ("the date is wrong")."""

_UNITS = r"sentence|line|paragraph|stanza|verse"
_BLOCKS = frozenset(("paragraph", "stanza"))
_WORK = (
    r"text|story|tale|novel|book|chapter|poem|song|speech|essay|summary|piece|article|letter|e?-?mail|answer|response|"
    r"post|report|passage|section|paragraph|stanza|draft|scene|code|document|review"
)
_PART = re.compile(
    r"\bthe (?:very )?(?P<part>opening|beginning|start|intro(?:duction)?|ending|end|conclusion|close)\b"
    rf"(?=\s*(?:[.,;:!?)–—]|$)|\s+(?:of|to|in) (?:the |this |your |its |that )?(?:\w+ )?(?:{_WORK})\b"
    r"|\s+(?:and|but|is|was|could|should|would|must|might|can|may|will|just|too|\w+(?:[^\Ws]s|ed|ly|n['’]t))\b)",
    re.IGNORECASE,
)
"""A part of the text by its own name; "the end of June" is none."""
_ENDS = frozenset(("ending", "end", "conclusion", "close"))


@dataclass(frozen=True, slots=True)
class Named:
    """The sentences or paragraphs that a clause names."""

    places: tuple[tuple[int, int], ...]
    outright: bool
    """"The last sentence"; "the end" gives way to words that point elsewhere."""
    rest: str
    """The clause without the words that name them."""


class Index:
    """The sentences of one completion by their stems."""

    def __init__(self, sentences: Sequence[Sequence[Token]], support: Support | None) -> None:
        self.count = len(sentences)
        self.postings: dict[str, list[int]] = {}
        self.unsupported: set[str] = set()
        for number, tokens in enumerate(sentences):
            for token in tokens:
                if token.lower in FUNCTION_WORDS:
                    continue
                if support is not None and not support.holds(token):
                    self.unsupported.update(token.stems)
                for part in token.stems:
                    places = self.postings.setdefault(part, [])
                    if not places or places[-1] != number:
                        places.append(number)

    def about(self, clause: str, names_kind: bool) -> list[int]:
        """Indices of the sentences that the clause is about, best first."""
        if self.count <= 1:
            return list(range(self.count))
        # "His first name" is about a name and not about the word "first"; such words point only where no other does.
        weights = self._weigh(cues.without_kinds(clause)) or self._weigh(clause)
        if not weights:
            return list(range(self.count)) if names_kind and self.count <= FEW else []
        ranked = sorted(weights, key=lambda number: (-weights[number], number))
        return [number for number in ranked[:MOST] if weights[number] >= NEAR_BEST * weights[ranked[0]]]

    def _weigh(self, words: str) -> dict[int, float]:
        """Sentence → how much these words point at it."""
        weights: dict[int, float] = {}
        most = max(3, self.count // 5)
        for wanted in {mention.stem for mention in mentions_of(words) if mention.meant}:
            places = self.postings.get(wanted, ())
            if not places or len(places) > most:
                continue
            weight = math.log((self.count + 1) / len(places)) * (1.5 if wanted in self.unsupported else 1.0)
            for number in places:
                weights[number] = weights.get(number, 0.0) + weight
        return weights


def named_units(clause: str, sentences: Sequence[tuple[int, int]], blocks: Sequence[tuple[int, int]]) -> Named | None:
    """What a clause names by number, by order or as a part ("the last two sentences", "the opening").

    >>> named_units("The last sentence is weak.", [(0, 4), (5, 9)], [(0, 9)])
    Named(places=((5, 9),), outright=True, rest='The   is weak.')
    """
    if len(sentences) < 2:
        return None
    for pick in picks(clause, _UNITS):
        units = blocks if pick.unit in _BLOCKS else sentences
        places = tuple(units[place] for place in pick.of(len(units))) if len(units) > 1 else ()
        if places:
            return Named(places, True, f"{clause[: pick.start]} {clause[pick.end :]}")
    match = _PART.search(clause)
    if not match:
        return None
    place = sentences[-1] if match["part"].lower() in _ENDS else sentences[0]
    return Named((place,), False, f"{clause[: match.start()]} {clause[match.end() :]}")
