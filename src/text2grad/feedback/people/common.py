"""What all files of people share: the settings, what a label means, and how a row is completed and checked.

Enters: fields as they were found in a file, or rows to be shown. Leaves: rows that `feedback.rows` accepts, or
`InvalidData` that names the setting to change. Knows no file format.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal

from text2grad._checked import shorten
from text2grad.config import settings
from text2grad.errors import InvalidData
from text2grad.feedback.rows import Item, Rejected, Row, check_writable, identity, spans_in
from text2grad.types import Verdict

Kind = Literal["auto", "rows", "csv", "label_studio", "argilla"]
"""`rows`: JSON lines, or one JSON list, of objects in the project's own format."""
Units = Literal["auto", "characters", "utf16"]

CORRECTED = "There is a corrected version."
"""The critique of a person who only corrects; it quotes nothing, so nothing is located by it."""
ID = "text2grad_id"
"""The field of a tool's item that holds a row's own id."""
AGENT = "text2grad"
"""Who suggests what this package writes into a tool: our own suggestions are recognised by it."""


@settings
class ColumnSettings:
    """What the project's fields are called in the file."""

    id: str = "id"
    """Of the item; where a line has none, the file's name and the line number are its id."""
    prompt: str = "prompt"
    """What the model was asked."""
    completion: str = "completion"
    """What the model wrote. In a labelling tool's export, the only text of an item counts if none has this name."""
    critique: str = "critique"
    """What the person says about it."""
    revision: str = "revision"
    """The completion as the person would have it."""
    spans: str = "spans"
    """What the person marked: a list of objects, or the name of the labelling tool's control."""
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


Found = tuple[int, dict[str, Any]] | Rejected
"""(line, row), or why there is no row."""


def finish(row: dict[str, Any], line: int) -> Found:
    """Give the row a critique where the person did not write one, and check it."""
    try:
        critique = row.get("critique")
        if critique is None or (isinstance(critique, str) and not critique.strip()):
            if row.get("spans"):
                row["critique"] = _remarks(row["spans"])
            elif row.get("revision"):
                row["critique"] = CORRECTED
            else:
                raise InvalidData("says nothing about the completion: it has no critique, no revision and no spans")
        check_writable(row)
        Row.of(row)
    except InvalidData as problem:
        return Rejected(line, None if isinstance(row.get("id"), bool) else identity(row), str(problem))
    return line, row


def _remarks(spans: Any) -> str:
    """Marked spans as a critique: the remarks on them, or how many there are of each verdict. It quotes nothing: the
    spans themselves say where."""
    if not isinstance(spans, list) or not all(isinstance(span, Mapping) for span in spans):
        raise InvalidData(f"spans: should be a list of objects with start, end and verdict, got {shorten(spans)}")
    remarks = [str(span["comment"]).strip() for span in spans if str(span.get("comment") or "").strip()]
    if remarks:
        return " ".join(text if text[-1] in ".!?…。！？" else f"{text}." for text in remarks)
    counts = {verdict: sum(span.get("verdict") == verdict for span in spans) for verdict in ("good", "poor", "neutral")}
    return f"Marked: {', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count)}."


def id_of(candidates: Iterable[Any], default: str) -> str | int:
    """The first that can be an id."""
    usable = (each for each in candidates if isinstance(each, str | int) and not isinstance(each, bool) and each != "")
    return next(usable, default)


def several(identity: str | int, annotator: object, others: bool) -> str | int:
    """The id of one person's row: the item's own, with `#ANNOTATOR` behind it where several people annotated the item.

    >>> several(7, "ada", others=True), several(7, "ada", others=False)
    ('7#ada', 7)
    """
    return f"{identity}#{annotator}" if others else identity


def objects(value: Any, where: str) -> list[Mapping[str, Any]]:
    """A list of objects; `where` is its name in the error."""
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise InvalidData(f"{where}: should be a list of objects, got {shorten(value)}")
    return value


def whole_numbers(value: Mapping[str, Any], what: str) -> tuple[int, int]:
    """The start and end of a marked region."""
    start, end = value.get("start"), value.get("end")
    if type(start) is not int or type(end) is not int:
        raise InvalidData(f"{what} should have whole numbers for start and end, got {shorten(dict(value))}")
    return start, end


def places_in(values: Iterable[Any]) -> frozenset[tuple[int, int]]:
    """The offsets of the values that have some."""
    places = ((value.get("start"), value.get("end")) for value in values if isinstance(value, Mapping))
    return frozenset((start, end) for start, end in places if type(start) is int and type(end) is int)


def completion_in(data: Mapping[str, Any], name: str) -> str:
    """The text that was marked: the one of that name, or the only one there is."""
    if isinstance(data.get(name), str):
        return str(data[name])
    texts = [value for key, value in data.items() if isinstance(value, str) and key not in (ID, "id")]
    if len(texts) == 1 and name not in data:
        return texts[0]
    raise InvalidData(
        f"{name}: should be the text that was marked, got {shorten(data.get(name))}; the item has "
        f"{', '.join(map(str, data)) or 'nothing'}; set columns.completion to one of them"
    )


def verdict_of(label: object, labels: Mapping[str, Verdict]) -> Verdict:
    """What a label means."""
    verdict = {key.lower(): verdict for key, verdict in labels.items()}.get(str(label).lower())
    if verdict is None:
        raise InvalidData(
            f"the label {shorten(label)} has no verdict; the labels known are {', '.join(labels)}; set labels to "
            "say what yours mean"
        )
    return verdict


def checked_rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Rows fit to be shown: each with an id and a text, its spans inside it; completion and critique as texts."""
    for number, row in enumerate(rows, 1):
        try:
            completion = Item.of(row).completion
            spans = [span.to_json() for span in spans_in(row, completion)]
        except InvalidData as problem:
            raise InvalidData(f"row {number}, id {row.get('id')}: {problem}") from None
        critique = row.get("critique")
        feedback = critique.get("feedback") if isinstance(critique, Mapping) else critique
        yield {**row, "completion": completion, "spans": spans, "critique": feedback}


def as_text(prompt: Any) -> str:
    """A prompt, as people see it."""
    if isinstance(prompt, list):
        turns = [turn for turn in prompt if isinstance(turn, Mapping)]
        return "\n\n".join(f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in turns)
    return prompt if isinstance(prompt, str) else ""


def to_file(data: Any) -> bytes:
    """Readable JSON; halves of surrogate pairs, from somebody's file, as escapes, since UTF-8 cannot hold them."""
    try:
        return json.dumps(data, ensure_ascii=False, indent=1).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(data, indent=1).encode() + b"\n"
