"""What a labelling tool's offsets count. Enters: a text, and regions in somebody's units. Leaves: places in characters,
or the reason why they cannot be told.

Python counts code points, browsers UTF-16 units, where characters beyond U+FFFF are two; Label Studio has done both.
What this package wrote counts characters, and a region that has the very offsets of one that it suggested is that one,
untouched. The others are read so that each gives its own text, where it carries one. If both readings do, and differ,
nobody knows, and that is said: a guess may be wrong in silence.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from text2grad._checked import shorten
from text2grad.errors import InvalidData

Place = tuple[int, int]
Units = Literal["auto", "characters", "utf16"]
_SPACES = re.compile(r"(?:\\n|\s)+")
_NAMES: dict[Units, str] = {"characters": "characters", "utf16": "UTF-16 units"}


@dataclass(frozen=True, slots=True)
class Region:
    start: int
    end: int
    text: str | None
    """As the tool gives it, if it does."""


def to_utf16(text: str, place: Place) -> Place:
    """A place in characters → in UTF-16 units.

    >>> to_utf16("🦩 ab", (2, 4))
    (3, 5)
    """
    start, end = (position + sum(character > "\uffff" for character in text[:position]) for position in place)
    return start, end


def to_characters(text: str, regions: Sequence[Region], units: Units, ours: Collection[Place] = ()) -> list[Place]:
    """All regions of one person in one text: they count alike, but for those with the offsets of `ours`, what this
    package suggested there: they count characters, whatever `units` says of the rest.

    >>> to_characters("🦩 ab", [Region(3, 5, "ab")], "auto"), to_characters("🦩 ab", [Region(2, 4, "ab")], "auto")
    ([(2, 4)], [(2, 4)])
    """
    suggested = [_is_suggested(text, region, ours) for region in regions]
    others = [region for region, own in zip(regions, suggested, strict=True) if not own]
    places = iter(_read(text, others, units))
    return [(r.start, r.end) if own else next(places) for r, own in zip(regions, suggested, strict=True)]


def _is_suggested(text: str, region: Region, ours: Collection[Place]) -> bool:
    """Whether a region is what this package suggested, untouched; its text, where it has one, must agree."""
    if (region.start, region.end) not in ours or not 0 <= region.start < region.end <= len(text):
        return False
    return region.text is None or _alike(text[region.start : region.end], region.text)


def _read(text: str, regions: Sequence[Region], units: Units) -> list[Place]:
    """The places by the only reading that fits every region; one that gives the texts exactly goes before one that
    gives them but for white space."""
    counted: list[Units] = [units] if units != "auto" else list(_NAMES)
    for exactly in (True, False):
        readings = (_fit(text, regions, _bounds(text, each), exactly) for each in counted)
        possible = {tuple(places) for places in readings if places is not None}
        if len(possible) == 1:
            return list(possible.pop())
        if possible:
            raise InvalidData(
                "its offsets may count characters or UTF-16 units, and the completion holds characters (emoji, say) "
                "for which that differs; set people.units=utf16 for what was marked in a page that counts as browsers "
                "do (Argilla's), or people.units=characters for what a program wrote"
            )
    raise InvalidData(_mismatch(text, regions, counted))


def _fit(text: str, regions: Sequence[Region], bounds: Sequence[int], exactly: bool) -> list[Place] | None:
    """The places by one reading, if it gives every region its own text."""
    places: list[Place] = []
    for region in regions:
        place = _place(bounds, region)
        if place is None:
            return None
        here = text[slice(*place)]
        if region.text is not None and here != region.text and (exactly or not _alike(here, region.text)):
            return None
        places.append(place)
    return places


def _mismatch(text: str, regions: Sequence[Region], counted: Sequence[Units]) -> str:
    """About the first region that no reading gives."""
    bounds = {units: _bounds(text, units) for units in counted}
    wrong = (
        n for n, r in enumerate(regions) if all(_fit(text, [r], b, exactly=False) is None for b in bounds.values())
    )
    number = next(wrong, 0)
    region = regions[number]
    if region.text is None:
        return (
            f"the region at {region.start}–{region.end} should lie within the {len(text)} characters of the "
            "completion, begin before it ends and cut no character in half"
        )
    places = {units: _place(bounds[units], region) for units in counted}
    came = " and ".join(
        f"{shorten(text[slice(*place)], 40) if place else 'nothing'} counting {_NAMES[units]}"
        for units, place in sorted(places.items())
    )
    return (
        f"region {number + 1} at {region.start}–{region.end} should be {shorten(region.text, 40)}, got {came}; is the "
        f"completion the text that was marked?"
    )


def _bounds(text: str, units: Units) -> list[int]:
    """Unit boundary → character boundary; −1 inside a character."""
    bounds: list[int] = []
    for position, character in enumerate(text):
        bounds.append(position)
        if units == "utf16" and character > "\uffff":
            bounds.append(-1)
    return [*bounds, len(text)]


def _place(bounds: Sequence[int], region: Region) -> Place | None:
    if not 0 <= region.start < region.end < len(bounds):
        return None
    start, end = bounds[region.start], bounds[region.end]
    return (start, end) if 0 <= start < end else None


def _alike(ours: str, theirs: str) -> bool:
    """The same text, but for white space: tools write line ends as spaces, as `\\n` or not at all."""
    return ours == theirs or _SPACES.sub(" ", ours).strip() == _SPACES.sub(" ", theirs).strip()
