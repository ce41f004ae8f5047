"""What a measured pair is, and how a prediction of it is scored.

Enters: characters that a method chose. Leaves: F1, precision, recall, hit, abstention and the length of what was chosen
over the length of gold. Only non-white characters count.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal

_SMALL = """
a an the of in on at to for from by with and or but as is are was were be been being has have had it its his her
their he she they this that these those which who whom whose will would can could may might do does did not so than
then there up out into over
"""
SMALL = frozenset(_SMALL.split())
Part = Literal["develop", "held out"]


@dataclass(frozen=True)
class Item:
    """A critique of a completion, and the characters that it is about."""

    kind: str
    name: str
    completion: str
    critique: str
    revision: str | None
    source: str | None
    gold: frozenset[int]
    """Indices of the non-white characters that are meant."""
    universe: frozenset[int]
    """Indices of the characters that count at all."""
    lines: bool = False
    """Predictions are snapped to whole lines."""
    praise: bool = False
    """The critique may praise: spans of every verdict count, not only of blame."""

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The gold as places in the completion; white space between two gold characters belongs to the span."""
        places = sorted(self.gold)
        cuts = [k + 1 for k, (a, b) in enumerate(pairwise(places)) if self.completion[a + 1 : b].strip()]
        return [(places[a], places[b - 1] + 1) for a, b in pairwise([0, *cuts, len(places)])]


def visible(text: str) -> frozenset[int]:
    return frozenset(index for index, character in enumerate(text) if not character.isspace())


def spanned(
    kind: str,
    name: str,
    completion: str,
    critique: str,
    source: str | None,
    spans: Iterable[tuple[int, int]],
    revision: str | None = None,
    *,
    lines: bool = False,
    praise: bool = False,
) -> Item | None:
    """The item of marked spans; None without gold, or where gold is over 80 % of the text."""
    universe = visible(completion)
    gold = frozenset(place for start, end in spans for place in range(start, end)) & universe
    if not gold or len(gold) > 0.8 * len(universe):
        return None
    return Item(kind, name, completion, critique, revision, source, gold, universe, lines, praise)


def part_of(name: str) -> Part:
    """Which half a text belongs to, by its name alone."""
    return "develop" if hashlib.sha256(name.encode()).digest()[0] % 2 else "held out"


def snap_to_lines(text: str, places: set[int]) -> set[int]:
    """Every line that holds one of the characters, whole."""
    found: set[int] = set()
    for match in re.finditer(r"[^\n]+", text):
        line = range(match.start(), match.end())
        if not places.isdisjoint(line):
            found.update(line)
    return found


@dataclass(frozen=True)
class Score:
    f1: float
    hit: bool
    """The intersection is at least half of the union."""
    precision: float
    """0 where nothing was chosen."""
    recall: float
    length: float
    """Characters chosen over characters of gold: over 1 marks too much, under 1 too little."""
    abstained: bool


MEASURES = tuple(field.name for field in fields(Score))


def measure(item: Item, places: set[int]) -> Score:
    if item.lines:
        places = snap_to_lines(item.completion, places)
    found = places & item.universe
    both, union, gold = len(found & item.gold), len(found | item.gold), len(item.gold)
    return Score(
        2 * both / (len(found) + gold), both / union >= 0.5, both / max(1, len(found)), both / gold,
        len(found) / gold, not found,
    )  # fmt: skip


def score(item: Item, places: set[int]) -> tuple[float, bool, bool]:
    """(character F1, hit, whether nothing was predicted)."""
    found = measure(item, places)
    return found.f1, found.hit, found.abstained
