"""What all files of people share: the settings, and how rows are completed and checked.

Enters: fields as they were found in a file, items of a labelling tool, or rows to be shown. Leaves: rows that
`feedback.rows` accepts, or the reason why there is none. What differs between the tools is a `Tool`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from text2grad._checked import shorten
from text2grad.config import Renamed, settings
from text2grad.errors import InvalidData
from text2grad.feedback.people.offsets import Place, Region, Units, to_characters
from text2grad.feedback.rows import Rejected, Row, check_writable, identity, spans_in
from text2grad.types import Verdict

ToolKind = Literal["auto", "label_studio", "argilla"]

CORRECTED = "There is a corrected version."
"""The critique of a person who only corrects; it quotes nothing, so nothing is located by it."""
SCORED = "There is a score."
"""The critique of a person who only scores."""
ID = "text2grad_id"
"""The field of a tool's item that holds a row's own id."""
AGENT = "text2grad"
"""Who suggests what this package writes into a tool: our own suggestions are recognised by it."""


@settings
class PeopleSettings:
    """How files from people are read."""

    RENAMED: ClassVar = {"delimiter": None, "kind": Renamed("kind", {"rows": "auto", "csv": "auto"})}
    kind: ToolKind = "auto"
    """Which labelling tool wrote the file. `auto` looks at its items; anything else is read as rows."""
    labels: Mapping[str, Verdict] = field(
        default_factory=lambda: {"good": "good", "poor": "poor", "neutral": "neutral"}
    )
    """Label → verdict; case does not matter. An item with another label is rejected and says so."""
    units: Units = "auto"
    """Unit of a labelling tool's offsets: `characters` (Unicode code points), or `utf16` units as in browsers, where an
    emoji counts as two. `auto` compares with the region's own text, then takes the only unit that is possible. If both
    are, the item is rejected. Unchanged suggestions of this package are always in characters."""
    suggestions: bool = False
    """Where nobody has annotated an item, take what was suggested to them (a tool's predictions) for an annotation."""
    encoding: str = "utf-8"
    """Of text files; a byte order mark says otherwise."""


Found = tuple[int, dict[str, Any]] | Rejected
"""(line, row), or why there is no row."""


def finish(row: dict[str, Any], line: int) -> Found:
    """Check the row, and give it a critique where the person only marked or corrected. A row without either may be
    there to be judged."""
    try:
        critique = row.get("critique")
        if critique is None or (isinstance(critique, str) and not critique.strip()):
            if row.get("spans"):
                row["critique"] = _remarks(row["spans"])
            elif row.get("revision"):
                row["critique"] = CORRECTED
        check_writable(row)
        Row.unjudged(row)
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


@dataclass(frozen=True)
class Answer:
    """What one person says about one item of a labelling tool."""

    marks: list[dict[str, Any]] = field(default_factory=list)
    """Each with `start`, `end`, `label`, and `text`, `comment` and `severity` where the tool has them."""
    texts: dict[str, Any] = field(default_factory=dict)
    """Name of the control or question → what was answered, spans left out."""


@dataclass(frozen=True)
class Tool:
    """How one labelling tool writes its items."""

    texts: str
    """The field with the item's texts."""
    own_id: Callable[[Mapping[str, Any]], Any]
    """Item → the row's own id, if this package wrote the item."""
    answers: Callable[[Mapping[str, Any], bool], Mapping[str, Any]]
    """Item, whether suggestions count → person → what they said; `InvalidData` where nobody said anything."""
    read: Callable[[Any, str], Answer]
    """One of these answers, and the name of the question about spans, → what it says."""
    ours: Callable[[Mapping[str, Any]], Iterable[Any]]
    """Item → the spans that this package suggested."""
    hidden: tuple[str, ...] = (ID, "id")
    """Texts that are no part of the row."""


def rows_by_person(
    tool: Tool,
    number: int,
    item: Mapping[str, Any],
    default_id: str,
    settings: PeopleSettings,
    columns: Mapping[str, str],
) -> Iterator[Found]:
    """One row per person who answered. Where several did, `#PERSON` is added to the item's id."""
    candidates = (tool.own_id(item), item.get("id"))
    usable = (each for each in candidates if isinstance(each, str | int) and not isinstance(each, bool) and each != "")
    item_id = next(usable, default_id)
    try:
        texts = item.get(tool.texts)
        if not isinstance(texts, Mapping):
            raise InvalidData(f"{tool.texts}: should be an object with the item's texts, got {shorten(texts)}")
        answers = tool.answers(item, settings.suggestions)
    except InvalidData as problem:
        yield Rejected(number, item_id, str(problem))
        return
    places = ((each.get("start"), each.get("end")) for each in tool.ours(item) if isinstance(each, Mapping))
    ours = frozenset((start, end) for start, end in places if type(start) is int and type(end) is int)
    for person, answer in answers.items():
        row_id = f"{item_id}#{person}" if len(answers) > 1 else item_id
        try:
            row = _row(texts, tool.read(answer, columns.get("spans", "spans")), ours, tool.hidden, settings, columns)
            score = row.pop("score", None)
            found = finish({"id": row_id, **row, "annotator": person}, number)
            if not isinstance(found, Rejected):
                if score is not None:
                    found[1]["critique"] = {"feedback": found[1].get("critique") or SCORED, "score": score}
                if "critique" not in found[1]:
                    raise InvalidData("says nothing about the completion: no critique, no revision and no spans")
                Row.of(found[1])
            yield found
        except InvalidData as problem:
            yield Rejected(number, row_id, str(problem))


def _row(
    texts: Mapping[str, Any],
    answer: Answer,
    ours: frozenset[Place],
    hidden: tuple[str, ...],
    settings: PeopleSettings,
    columns: Mapping[str, str],
) -> dict[str, Any]:
    """What else an item holds, the completion, and what was said. Controls that mean nothing here are `unread`."""
    theirs = {name: columns.get(name, name) for name in ("prompt", "completion", "critique", "revision", "spans")}
    completion = _completion_in(texts, theirs["completion"], hidden)
    row: dict[str, Any] = {
        "prompt" if key == theirs["prompt"] else key: value
        for key, value in texts.items()
        if key not in (*hidden, theirs["completion"], theirs["spans"])
        and value not in (None, "")
        and (theirs["completion"] in texts or value != completion)
    }
    row["completion"] = completion
    said = {theirs["critique"]: "critique", theirs["revision"]: "revision", "score": "score"}
    row |= {said[key]: value for key, value in answer.texts.items() if key in said}
    for mark in answer.marks:
        if type(mark.get("start")) is not int or type(mark.get("end")) is not int:
            raise InvalidData(f"a region should have whole numbers for start and end, got {shorten(mark)}")
    texts_of = [mark["text"] if isinstance(mark.get("text"), str) else None for mark in answer.marks]
    regions = [Region(mark["start"], mark["end"], text) for mark, text in zip(answer.marks, texts_of, strict=True)]
    places = to_characters(completion, regions, settings.units, ours)
    row["spans"] = [
        {"start": start, "end": end, "verdict": _verdict_of(mark.get("label"), settings.labels)}
        | {name: mark[name] for name in ("severity", "comment") if mark.get(name) not in (None, "")}
        for (start, end), mark in zip(places, answer.marks, strict=True)
    ]
    unread = sorted(key for key, value in answer.texts.items() if key not in said and value is not None)
    return row | ({"unread": unread} if unread else {})


def objects(value: Any, where: str) -> list[Mapping[str, Any]]:
    """A list of objects; `where` is its name in the error."""
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise InvalidData(f"{where}: should be a list of objects, got {shorten(value)}")
    return value


def _completion_in(texts: Mapping[str, Any], name: str, hidden: tuple[str, ...]) -> str:
    """The text that was marked: the one of that name, or the only one there is."""
    if isinstance(texts.get(name), str):
        return str(texts[name])
    others = [value for key, value in texts.items() if isinstance(value, str) and key not in hidden]
    if len(others) == 1 and name not in texts:
        return others[0]
    raise InvalidData(
        f"{name}: should be the text that was marked, got {shorten(texts.get(name))}; the item has "
        f"{', '.join(map(str, texts)) or 'nothing'}; set columns.completion to one of them"
    )


def _verdict_of(label: object, labels: Mapping[str, Verdict]) -> Verdict:
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
            completion = Row.unjudged(row).completion
            spans = [span.to_json() for span in spans_in(row, completion)]
        except InvalidData as problem:
            raise InvalidData(f"row {number}, id {row.get('id')}: {problem}") from None
        critique = row.get("critique")
        feedback = critique.get("feedback") if isinstance(critique, Mapping) else critique
        score = critique.get("score") if isinstance(critique, Mapping) else None
        shown = {**row, "completion": completion, "spans": spans, "critique": feedback}
        yield shown if score is None else shown | {"score": score}


def as_text(prompt: Any) -> str:
    """A prompt, as people see it."""
    if isinstance(prompt, list):
        turns = [turn for turn in prompt if isinstance(turn, Mapping)]
        return "\n\n".join(f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in turns)
    return prompt if isinstance(prompt, str) else ""


def to_file(data: Any) -> bytes:
    """JSON with escapes: it may hold halves of surrogate pairs, from somebody's file, which UTF-8 cannot."""
    return json.dumps(data, indent=1).encode() + b"\n"
