"""The settings of people's files: what their columns and labels are called, and how their offsets count."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from text2grad.config import settings
from text2grad.types import Verdict

Kind = Literal["auto", "rows", "csv", "label_studio", "argilla"]
"""`rows`: JSON lines, or one JSON list, of objects in the project's own format."""
Units = Literal["auto", "characters", "utf16"]


@settings
class ColumnSettings:
    """What the project's fields are called in the file."""

    id: str = "id"
    """Of the item; where a line has none, the file's name and the line number are its id."""
    prompt: str = "prompt"
    """What the model was asked."""
    completion: str = "completion"
    """What the model wrote. In a Labelling tool's export, the only text of an item counts if none has this name."""
    critique: str = "critique"
    """What the person says about it."""
    revision: str = "revision"
    """The completion as the person would have it."""
    spans: str = "spans"
    """What the person marked: a list of objects, or the name of the labelling tool's control."""
    comment: str = "comment"
    """The labelling tool's control for a remark on one marked region."""
    annotator: str = "annotator"
    """Who says it."""


@settings
class PeopleSettings:
    """How files from people are read."""

    kind: Kind = "auto"
    """What the file is; `auto` looks at its content."""
    columns: ColumnSettings = field(default_factory=ColumnSettings)
    """Names in the file."""
    labels: Mapping[str, Verdict] = field(
        default_factory=lambda: {"good": "good", "poor": "poor", "neutral": "neutral"}
    )
    """Label → verdict; case does not matter. An item with another label is rejected and says so."""
    units: Units = "auto"
    """What offsets of labelling tools count: `characters` (Unicode code points) or `utf16` units, as browsers do, where
    an emoji is two. `auto` finds out from the region's own text, then from which reading is possible; an item that
    leaves it open is rejected. What this package suggested, and nobody changed, is in characters always."""
    suggestions: bool = False
    """Where nobody has annotated an item, take what was suggested to them (a tool's predictions) for an annotation."""
    encoding: str = "utf-8"
    """Of text files; a byte order mark says otherwise."""
    delimiter: Literal["auto", ",", ";", "\t", "|"] = "auto"
    """Of CSV files; `auto` takes the one by which the header has most of the columns above."""
