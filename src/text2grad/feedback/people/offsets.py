"""What a labelling tool's offsets count: code points, as Python does, or UTF-16 units, as browsers do.

Enters: a text, and regions in somebody's units. Leaves: places in characters, or the reason why they cannot be told.
Label Studio has counted both ways. Each region is read so that it gives its own text, where it carries one. If both
readings do, and differ, nobody knows, and that is said: a guess may be wrong in silence.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from text2grad._checked import shorten
from text2grad.errors import InvalidData

Place = tuple[int, int]
Units = Literal["auto", "characters", "utf16"]
_SPACES = re.compile(r"(?:\\n|\s)+")
_NAMES: dict[Units, str] = {"characters": "characters", "utf16": "UTF-16 units"}


class Region(NamedTuple):
    start: int
    end: int
    text: str | None
    """As the tool gives it, if it does."""


def to_characters(text: str, regions: Sequence[Region], units: Units, ours: Collection[Place] = ()) -> list[Place]:
    """All regions of one person in one text: they count alike, but for those with the very offsets of `ours`, what this
    package suggested: nobody touched them, and they count characters. A reading that gives the regions' texts exactly
    goes before one that gives them but for white space.

    >>> to_characters("🦩 ab", [Region(3, 5, "ab")], "auto"), to_characters("🦩 ab", [Region(2, 4, "ab")], "auto")
    ([(2, 4)], [(2, 4)])
    """
    counted: list[Units] = [units] if units != "auto" else list(_NAMES)
    bounds = [_bounds(text, each) for each in counted]
    for same in (str.__eq__, _alike):
        fits = [[_place(text, own, region, ours, same) for region in regions] for own in bounds]
        possible = {tuple(place for place in places if place) for places in fits if None not in places}
        if len(possible) == 1:
            return list(possible.pop())
        if possible:
            raise InvalidData(
                "its offsets may count characters or UTF-16 units, and the completion holds characters (emoji, say) "
                "for which that differs; set people.units=utf16 for what was marked in a page that counts as browsers "
                "do (Argilla's), or people.units=characters for what a program wrote"
            )
    wrong = [n for n in range(len(regions)) if all(places[n] is None for places in fits)]
    number = wrong[0] if wrong else 0
    region = regions[number]
    if region.text is None:
        raise InvalidData(
            f"the region at {region.start}–{region.end} should lie within the {len(text)} characters of the "
            "completion, begin before it ends and cut no character in half"
        )
    there = [_place(text, own, region._replace(text=None), (), _alike) for own in bounds]
    came = " and ".join(
        f"{shorten(text[slice(*place)], 40) if place else 'nothing'} counting {_NAMES[each]}"
        for each, place in zip(counted, there, strict=True)
    )
    raise InvalidData(
        f"region {number + 1} at {region.start}–{region.end} should be {shorten(region.text, 40)}, got {came}; is the "
        f"completion the text that was marked?"
    )


def _place(
    text: str, bounds: Sequence[int], region: Region, ours: Collection[Place], same: Callable[[str, str], bool]
) -> Place | None:
    """The region's place by one reading, if there is one and it gives the region's own text."""
    suggested = (region.start, region.end)
    untouched = suggested in ours and 0 <= region.start < region.end <= len(text)
    if untouched and (region.text is None or _alike(text[slice(*suggested)], region.text)):
        return suggested
    if not 0 <= region.start < region.end < len(bounds):
        return None
    start, end = bounds[region.start], bounds[region.end]
    fits = 0 <= start < end and (region.text is None or same(text[start:end], region.text))
    return (start, end) if fits else None


def _bounds(text: str, units: Units) -> list[int]:
    """Unit boundary → character boundary; −1 inside a character."""
    bounds: list[int] = []
    for position, character in enumerate(text):
        bounds.append(position)
        if units == "utf16" and character > "\uffff":
            bounds.append(-1)
    return [*bounds, len(text)]


def _alike(ours: str, theirs: str) -> bool:
    """The same text, but for white space: tools write line ends as spaces, as `\\n` or not at all."""
    return ours == theirs or _SPACES.sub(" ", ours).strip() == _SPACES.sub(" ", theirs).strip()
