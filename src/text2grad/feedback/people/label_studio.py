"""Label Studio: exports in (JSON and JSON-MIN), tasks and a labelling configuration out, without their package.

Enters: the objects of an export, or rows of the project's format. Leaves: rows and `Rejected`, or files. Offsets:
written in characters, with each region's text beside them; read by `offsets.py`, which holds them to that text. What
else a row has travels in the task's `data` and comes back. An annotation becomes one row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.items import Found, Rejected, finish, several
from text2grad.feedback.people.offsets import Place, Region, decides, to_characters
from text2grad.feedback.people.settings import PeopleSettings, Units
from text2grad.feedback.people.shown import as_text, checked_rows, completion_in, to_file, verdict_of
from text2grad.runs import write_atomic

ID = "text2grad_id"
SHOWN = "shown"
AGENT = "text2grad"
"""The model version of our predictions, by which they are known again."""
CONFIG = """<View>
  <Header value="Prompt" size="5"/>
  <Text name="shown" value="$shown"/>
  <Header value="Completion: mark what is good and what is poor" size="5"/>
  <Labels name="spans" toName="completion">
    <Label value="good" background="#2e7d32" hotkey="g"/>
    <Label value="poor" background="#c62828" hotkey="p"/>
    <Label value="neutral" background="#757575" hotkey="n"/>
  </Labels>
  <Text name="completion" value="$completion" granularity="symbol" saveTextResult="yes"/>
  <TextArea name="comment" toName="completion" perRegion="true" editable="true" placeholder="What about this part?"/>
  <TextArea name="critique" toName="completion" rows="3" editable="true" placeholder="What about the whole?"/>
  <TextArea name="revision" toName="completion" rows="3" editable="true" placeholder="How it should have been"/>
</View>
"""
"""The labelling configuration: verdicts as labels, a comment per region, a critique and a corrected version."""


def write_label_studio(rows: Iterable[Mapping[str, Any]], path: str | Path) -> None:
    """Tasks for the import (JSON), and beside them, ending in `.xml`, the labelling configuration. Spans,
    critique and revision that a row has are written as predictions, which the tool shows to the annotator."""
    path = Path(path)
    tasks = [_task(row) for row in checked_rows(rows)]
    write_atomic(path.with_suffix(".xml"), CONFIG.encode())
    write_atomic(path, to_file(tasks))


def is_task(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("data"), Mapping) and any(
        key in item for key in ("annotations", "predictions", "completions")
    )


def is_minimal(item: Mapping[str, Any]) -> bool:
    """JSON-MIN: data, controls and what the tool notes of an annotation side by side; which of it is there varies."""
    noted = sum(key in item for key in ("annotation_id", "annotator", "created_at", "updated_at", "lead_time"))
    return ("annotation_id" in item and noted > 1) or any(_is_marked(value) for value in item.values())


def _is_marked(value: Any) -> bool:
    """Whether a value is a list of regions as Label Studio has them: its labels are a list, ours a verdict."""
    return bool(_objects(value)) and all(
        isinstance(each.get("labels", each.get("hypertextlabels")), list) and "start" in each
        for each in _objects(value)
    )


def read_label_studio(
    items: Sequence[tuple[int, Mapping[str, Any]]], name: str, settings: PeopleSettings
) -> Iterator[Found]:
    """Rows from the objects of an export, each with its number."""
    units = settings.units if settings.units != "auto" else _counting(items, settings)
    for number, item in items:
        identity = _identity(item, name, number)
        try:
            if is_minimal(item) and not is_task(item):
                yield finish(_minimal_row(item, identity, settings, units), number)
            else:
                yield from _task_rows(item, identity, number, settings, units)
        except InvalidData as problem:
            yield Rejected(number, identity, str(problem))


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    completion = row["completion"]
    data = {key: value for key, value in row.items() if key not in ("id", "spans", "critique", "revision")}
    task: dict[str, Any] = {"data": {ID: row["id"], **data, SHOWN: as_text(row.get("prompt"))}}
    result: list[dict[str, Any]] = []
    for number, span in enumerate(row.get("spans") or ()):
        start, end = span["start"], span["end"]
        place = {"start": start, "end": end}
        common = {"id": f"span{number}", "to_name": "completion"}
        region = {"value": {**place, "text": completion[start:end], "labels": [span["verdict"]]}, "from_name": "spans"}
        result.append({**region, **common, "type": "labels"})
        if span.get("severity") is not None:
            result[-1]["meta"] = {"severity": span["severity"]}
        if span.get("comment"):
            remark = {"value": {**place, "text": [span["comment"]]}, "from_name": "comment"}
            result.append({**remark, **common, "type": "textarea"})
    critique = row.get("critique")
    texts = {"critique": critique.get("feedback") if isinstance(critique, Mapping) else critique}
    for name, text in (texts | {"revision": row.get("revision")}).items():
        if text:
            said = {"id": name, "from_name": name, "to_name": "completion", "type": "textarea"}
            result.append({**said, "value": {"text": [text]}})
    if result:
        task["predictions"] = [{"model_version": AGENT, "result": result}]
    return task


def _identity(item: Mapping[str, Any], name: str, number: int) -> str | int:
    data = item.get("data")
    given = data.get(ID) if isinstance(data, Mapping) else item.get(ID)
    for value in (given, item.get("id")):
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return value
    return f"{name}-{number}"


def _task_rows(
    item: Mapping[str, Any], identity: str | int, number: int, settings: PeopleSettings, units: Units
) -> Iterator[Found]:
    data = item.get("data")
    if not isinstance(data, Mapping):
        raise InvalidData(f"data: should be an object with the texts of the task, got {shorten(data)}")
    annotations = item.get("annotations") or item.get("completions") or []
    if not annotations and settings.suggestions:
        annotations = item.get("predictions") or []
    if not isinstance(annotations, list) or not all(isinstance(each, Mapping) for each in annotations):
        raise InvalidData(f"annotations: should be a list of objects, got {shorten(annotations)}")
    if not annotations:
        raise InvalidData("nobody has annotated it")
    names = [_annotator(each, place) for place, each in enumerate(annotations, 1)]
    for place, annotation in enumerate(annotations):
        # Two annotations of one person are told apart by their own ids.
        who = names[place] if names.count(names[place]) == 1 else f"{names[place]}.{annotation.get('id', place + 1)}"
        row_id = several(identity, who, len(annotations) > 1)
        try:
            if annotation.get("was_cancelled"):
                raise InvalidData(f"annotator {who} skipped it")
            ours = _ours([*_objects(item.get("predictions")), annotation.get("prediction")])
            row = _row(data, row_id, annotation.get("result") or [], settings, units, ours)
        except InvalidData as problem:
            yield Rejected(number, row_id, str(problem))
        else:
            yield finish({**row, "annotator": str(who)}, number)


def _ours(predictions: Sequence[Any]) -> frozenset[Place]:
    """Offsets of the regions that `write_label_studio` predicted, in characters: a version of the tool that counts
    otherwise leaves those that nobody touches as they are."""
    own = [each for each in _objects(predictions) if each.get("model_version") == AGENT]
    values = [result.get("value") for each in own for result in _objects(each.get("result"))]
    places = ((value.get("start"), value.get("end")) for value in _objects(values))
    return frozenset((start, end) for start, end in places if type(start) is int and type(end) is int)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _annotator(annotation: Mapping[str, Any], place: int) -> object:
    who = annotation.get("completed_by", annotation.get("model_version"))
    if isinstance(who, Mapping):
        who = who.get("email") or who.get("id")
    return place if who is None else who


def _row(
    data: Mapping[str, Any],
    identity: str | int,
    result: Any,
    settings: PeopleSettings,
    units: Units,
    ours: frozenset[Place],
) -> dict[str, Any]:
    """One annotation. A control that means nothing here is named in the row's `unread`."""
    columns = settings.columns
    completion = completion_in(data, columns.completion)
    marked, comments, texts, unread = _sorted_results(result)
    named = {columns.critique: "critique", columns.revision: "revision"}
    row = _columns(data, identity, completion, settings)
    for control, words in texts.items():
        if control in named:
            row[named[control]] = words
        else:
            unread.append(f"{control} (textarea)")
    regions = [_region(item) for item in marked]
    places = to_characters(completion, regions, settings.units, units, ours)
    row["spans"] = [
        _span(place, item, comments.get(item.get("id")), settings) for place, item in zip(places, marked, strict=True)
    ]
    if unread:
        row["unread"] = sorted(set(unread))
    return row


def _columns(data: Mapping[str, Any], identity: str | int, completion: str, settings: PeopleSettings) -> dict[str, Any]:
    names = settings.columns
    known = {names.prompt: "prompt", names.critique: "critique", names.revision: "revision"}
    kept = {
        known.get(key, key): value
        for key, value in data.items()
        if key not in (ID, SHOWN, "id", names.completion, names.spans)
        and (names.completion in data or value != completion)
    }
    return {"id": identity, **kept, "completion": completion}


def _sorted_results(
    result: Any,
) -> tuple[list[Mapping[str, Any]], dict[Any, str], dict[str, str], list[str]]:
    """(marked regions, region id → comment, control → text about the whole, controls that are not known)."""
    if not isinstance(result, list) or not all(isinstance(item, Mapping) for item in result):
        raise InvalidData(f"result: should be a list of objects, got {shorten(result)}")
    marked = [item for item in result if item.get("type") in ("labels", "hypertextlabels")]
    ids = {item.get("id") for item in marked}
    comments: dict[Any, str] = {}
    texts: dict[str, str] = {}
    unread: list[str] = []
    for item in result:
        if item.get("type") in ("labels", "hypertextlabels"):
            continue
        words = _words(item.get("value"))
        if item.get("type") != "textarea" or words is None:
            unread.append(f"{item.get('from_name', '?')} ({item.get('type', '?')})")
        elif item.get("id") in ids:
            comments[item.get("id")] = " ".join(filter(None, (comments.get(item.get("id")), words)))
        else:
            control = str(item.get("from_name"))
            texts[control] = "\n".join(filter(None, (texts.get(control), words)))
    return marked, comments, texts, unread


def _words(value: Any) -> str | None:
    text = value.get("text") if isinstance(value, Mapping) else None
    parts = [text] if isinstance(text, str) else text
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        return None
    return "\n".join(parts)


def _region(item: Mapping[str, Any]) -> Region:
    value = item.get("value", item)
    if not isinstance(value, Mapping):
        raise InvalidData(f"value: should be an object with start and end, got {shorten(value)}")
    glob = value.get("globalOffsets")
    place = glob if isinstance(glob, Mapping) else value
    start, end, text = place.get("start"), place.get("end"), value.get("text")
    if type(start) is not int or type(end) is not int:
        raise InvalidData(f"a region should have whole numbers for start and end, got {shorten(dict(value))}")
    return Region(start, end, text if isinstance(text, str) else None)


def _span(
    place: tuple[int, int], item: Mapping[str, Any], comment: str | None, settings: PeopleSettings
) -> dict[str, Any]:
    value = item.get("value", item)
    labels = value.get("labels") or value.get("hypertextlabels") or []
    if not isinstance(labels, list) or len(labels) != 1:
        raise InvalidData(f"a region should have one label, got {shorten(labels)}")
    span: dict[str, Any] = {"start": place[0], "end": place[1], "verdict": verdict_of(labels[0], settings.labels)}
    meta = item.get("meta")
    if isinstance(meta, Mapping) and meta.get("severity") is not None:
        span["severity"] = meta["severity"]
    if comment:
        span["comment"] = comment
    return span


def _minimal_row(
    item: Mapping[str, Any], identity: str | int, settings: PeopleSettings, units: Units
) -> dict[str, Any]:
    """JSON-MIN: data and controls side by side. A region's only comment comes without its region there, so comments are
    a part of the critique."""
    names = settings.columns
    completion = completion_in(item, names.completion)
    own = ("annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", names.comment)
    row = _columns({key: value for key, value in item.items() if key not in own}, identity, completion, settings)
    marked = item.get(names.spans) or []
    if not isinstance(marked, list) or not all(isinstance(each, Mapping) for each in marked):
        raise InvalidData(f"{names.spans}: should be a list of regions, got {shorten(marked)}")
    places = to_characters(completion, [_region(each) for each in marked], settings.units, units)
    row["spans"] = [_span(place, each, None, settings) for place, each in zip(places, marked, strict=True)]
    for name, key in ((names.critique, "critique"), (names.revision, "revision")):
        if isinstance(item.get(name), list):
            row[key] = "\n".join(map(str, item[name]))
    if said := _loose_comments(item.get(names.comment)):
        row["critique"] = " ".join(filter(None, (row.get("critique"), said)))
    return row if item.get("annotator") is None else {**row, "annotator": str(item["annotator"])}


def _loose_comments(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    words = [part if isinstance(part, str) else _words(part) for part in parts]
    return " ".join(word for word in words if word)


def _counting(items: Sequence[tuple[int, Mapping[str, Any]]], settings: PeopleSettings) -> Units:
    """What the file's offsets count, by the first annotation whose texts leave one reading only. One export has one
    version's habits; an annotation that fits both ways is read like the others. Our own predictions say nothing."""
    for _, item in items:
        minimal = is_minimal(item) and not is_task(item)
        results = [(item.get(settings.columns.spans), frozenset[Place]())] if minimal else _all_results(item)
        for result, ours in results:
            try:
                completion = completion_in(item if minimal else item["data"], settings.columns.completion)
                marked: Any = result if minimal else _sorted_results(result)[0]
                regions = [_region(each) for each in marked]
            except (InvalidData, TypeError, AttributeError, KeyError):
                continue  # it is read again, and rejected with its reason, in its turn
            found = decides(completion, [each for each in regions if (each.start, each.end) not in ours])
            if found != "auto":
                return found
    return "characters"


def _all_results(item: Mapping[str, Any]) -> list[tuple[Any, frozenset[Place]]]:
    """(an annotation's or prediction's results, the offsets in it that may be ours)."""
    some = [each for key in ("annotations", "completions", "predictions") for each in _objects(item.get(key))]
    predictions = _objects(item.get("predictions"))
    return [(each.get("result"), _ours([*predictions, each.get("prediction")])) for each in some]
