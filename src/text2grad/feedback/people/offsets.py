"""What a labelling tool's offsets count. Enters: a text, and places in somebody's units. Leaves: places in characters,
or the reason why they cannot be told.

Python counts code points, browsers UTF-16 units, where characters beyond U+FFFF are two; Label Studio has done both,
and some versions count CRLF as one. What this package wrote counts characters, and a region that has the very offsets
of one that it suggested is that one, untouched. Any other is settled by its own text, where it carries one; without,
only where a single reading is possible. Otherwise nobody knows, and that is said: a guess may be wrong in silence.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.common import Units

Place = tuple[int, int]
_SPACES = re.compile(r"(?:\\n|\s)+")


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


def decides(text: str, regions: Sequence[Region]) -> Units:
    """Which units the regions' own texts leave possible; `auto` where that is both or neither."""
    if text.isascii() or all(region.text is None for region in regions):
        return "auto"
    fits = [_fits(text, regions, _bounds(text, utf16, crlf=False), exactly=True) for utf16 in (False, True)]
    if fits[0] is None:
        return "utf16" if fits[1] is not None else "auto"
    return "characters" if fits[1] is None else "auto"


def to_characters(
    text: str,
    regions: Sequence[Region],
    units: Units,
    first: Units = "characters",
    ours: Collection[Place] = (),
) -> list[Place]:
    """All regions of one person in one text: they count alike, but for those with the offsets of `ours`, what this
    package suggested there: they count characters, whatever `units` says of the rest. `first` is believed where both
    readings give the texts of the regions.

    >>> to_characters("🦩 ab", [Region(3, 5, "ab")], "auto"), to_characters("🦩 ab", [Region(2, 4, "ab")], "auto")
    ([(2, 4)], [(2, 4)])
    """
    kept = [_suggested(text, region, ours) for region in regions]
    others = [region for region, suggested in zip(regions, kept, strict=True) if not suggested]
    if units == "auto":
        found = iter(_found(text, others, first))
    else:
        found = iter(_only(text, others, _bounds(text, utf16=units == "utf16", crlf=False), units))
    return [(r.start, r.end) if suggested else next(found) for r, suggested in zip(regions, kept, strict=True)]


def _suggested(text: str, region: Region, ours: Collection[Place]) -> bool:
    """Whether a region is what this package suggested, untouched; its text, where it has one, must agree."""
    if (region.start, region.end) not in ours or not 0 <= region.start < region.end <= len(text):
        return False
    return region.text is None or _alike(text[region.start : region.end], region.text)


def _found(text: str, regions: Sequence[Region], first: Units) -> list[Place]:
    order = (True, False) if first == "utf16" else (False, True)
    readings = [_bounds(text, utf16, crlf) for crlf in (False, True) for utf16 in order]
    if any(region.text is not None for region in regions):
        return _by_text(text, regions, readings)
    possible: list[list[Place]] = []
    for bounds in readings[:2]:
        places = [_place(bounds, region) for region in regions]
        found = [place for place in places if place is not None]
        if len(found) == len(regions) and found not in possible:
            possible.append(found)
    if len(possible) == 1:
        return possible[0]
    if not possible:
        raise InvalidData(_outside(text, regions))
    raise InvalidData(
        "its offsets may count characters or UTF-16 units, and the completion holds characters (emoji, say) for which "
        "that differs; set people.units=utf16 for what was marked in a page that counts as browsers do (Argilla's), or "
        "people.units=characters for what a program wrote"
    )


def _by_text(text: str, regions: Sequence[Region], readings: Sequence[Sequence[int]]) -> list[Place]:
    for exactly in (True, False):
        for bounds in readings:
            places = _fits(text, regions, bounds, exactly)
            if places is not None:
                return places
    # None of them fits all: speak of the first region that no reading gives.
    number = next(
        (n for n, region in enumerate(regions) if all(_fits(text, [region], b, False) is None for b in readings)), 0
    )
    region = regions[number]
    shown = [
        shorten(text[slice(*place)], 40) if (place := _place(_bounds(text, utf16, False), region)) else "nothing"
        for utf16 in (False, True)
    ]
    raise InvalidData(
        f"region {number + 1} at {region.start}–{region.end} should be {shorten(region.text, 40)}, got {shown[0]} "
        f"counting characters and {shown[1]} counting UTF-16 units; is the completion the text that was marked?"
    )


def _fits(text: str, regions: Sequence[Region], bounds: Sequence[int], exactly: bool) -> list[Place] | None:
    """The places by one reading, if it gives every region its own text."""
    places: list[Place] = []
    for region in regions:
        place = _place(bounds, region)
        if place is None:
            return None
        said = text[slice(*place)]
        if region.text is not None and said != region.text and (exactly or not _alike(said, region.text)):
            return None
        places.append(place)
    return places


def _only(text: str, regions: Sequence[Region], bounds: Sequence[int], units: Units) -> list[Place]:
    places = [_place(bounds, region) for region in regions]
    found = [place for place in places if place is not None]
    if len(found) < len(regions):
        raise InvalidData(_outside(text, [regions[places.index(None)]]))
    for number, (region, place) in enumerate(zip(regions, found, strict=True), 1):
        if region.text is not None and not _alike(text[slice(*place)], region.text):
            raise InvalidData(
                f"region {number} at {region.start}–{region.end} should be {shorten(region.text, 40)}, got "
                f"{shorten(text[slice(*place)], 40)} counting {units}"
            )
    return found


def _outside(text: str, regions: Sequence[Region]) -> str:
    worst = max(regions, key=lambda region: region.end)
    return (
        f"the region at {worst.start}–{worst.end} should lie within the {len(text)} characters of the completion, "
        "begin before it ends and cut no character in half"
    )


def _bounds(text: str, utf16: bool, crlf: bool) -> list[int]:
    """Unit boundary → character boundary; −1 inside a character."""
    if not crlf and (not utf16 or text.isascii()):
        return list(range(len(text) + 1))
    found: list[int] = []
    for position, character in enumerate(text):
        if crlf and character == "\r" and text[position + 1 : position + 2] == "\n":
            continue
        found.append(position)
        if utf16 and character > "\uffff":
            found.append(-1)
    found.append(len(text))
    return found


def _place(bounds: Sequence[int], region: Region) -> Place | None:
    if not 0 <= region.start < region.end < len(bounds):
        return None
    start, end = bounds[region.start], bounds[region.end]
    return (start, end) if 0 <= start < end else None


def _alike(ours: str, theirs: str) -> bool:
    """The same text, but for white space: tools write line ends as spaces, as `\\n` or not at all."""
    return ours == theirs or _SPACES.sub(" ", ours).strip() == _SPACES.sub(" ", theirs).strip()
