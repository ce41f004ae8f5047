"""Label Studio: its JSON export in, tasks and a labelling configuration out, without their package.

Enters: the objects of an export, or rows of the project's format. Leaves: rows and `Rejected`, or files. Offsets are
written in characters, with each region's text beside them, and read by `offsets.py`, which holds them to that text.
What else a row has travels in the task's `data` and comes back. An annotation becomes one row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.common import (
    AGENT,
    ID,
    Found,
    PeopleSettings,
    Units,
    as_text,
    checked_rows,
    completion_in,
    finish,
    id_of,
    objects,
    places_in,
    several,
    to_file,
    verdict_of,
    whole_numbers,
)
from text2grad.feedback.people.offsets import Place, Region, decides, to_characters
from text2grad.feedback.rows import Rejected
from text2grad.runs import write_atomic

SHOWN = "shown"
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
    return isinstance(item.get("data"), Mapping) and ("annotations" in item or "predictions" in item)


def read_label_studio(
    items: Sequence[tuple[int, Mapping[str, Any]]], name: str, settings: PeopleSettings
) -> Iterator[Found]:
    """Rows from the objects of an export, each with its number."""
    units = settings.units if settings.units != "auto" else _counting(items, settings)
    for number, item in items:
        data = item.get("data")
        own = data.get(ID) if isinstance(data, Mapping) else None
        identity = id_of((own, item.get("id")), f"{name}-{number}")
        try:
            yield from _task_rows(item, identity, number, settings, units)
        except InvalidData as problem:
            yield Rejected(number, identity, str(problem))


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    completion = row["completion"]
    data = {key: value for key, value in row.items() if key not in ("id", "spans", "critique", "revision")}
    result: list[dict[str, Any]] = []
    for number, span in enumerate(row["spans"]):
        place = {"start": span["start"], "end": span["end"]}
        text = completion[span["start"] : span["end"]]
        region = {"id": f"span{number}", "to_name": "completion"}
        value = {**place, "text": text, "labels": [span["verdict"]]}
        meta = {} if span["severity"] is None else {"meta": {"severity": span["severity"]}}
        result.append({"value": value, "from_name": "spans", **region, "type": "labels", **meta})
        if span["comment"]:
            remark = {**place, "text": [span["comment"]]}
            result.append({"value": remark, "from_name": "comment", **region, "type": "textarea"})
    for name in ("critique", "revision"):
        if text := row.get(name):
            control = {"id": name, "from_name": name, "to_name": "completion", "type": "textarea"}
            result.append({**control, "value": {"text": [text]}})
    task: dict[str, Any] = {"data": {ID: row["id"], **data, SHOWN: as_text(row.get("prompt"))}}
    return task | ({"predictions": [{"model_version": AGENT, "result": result}]} if result else {})


def _task_rows(
    item: Mapping[str, Any], identity: str | int, number: int, settings: PeopleSettings, units: Units
) -> Iterator[Found]:
    data = item.get("data")
    if not isinstance(data, Mapping):
        raise InvalidData(f"data: should be an object with the texts of the task, got {shorten(data)}")
    annotations = item.get("annotations") or (settings.suggestions and item.get("predictions")) or []
    annotations = objects(annotations, "annotations")
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
            row = _row(data, row_id, annotation.get("result") or [], settings, units, _ours(item, annotation))
        except InvalidData as problem:
            yield Rejected(number, row_id, str(problem))
        else:
            yield finish({**row, "annotator": str(who)}, number)


def _annotator(annotation: Mapping[str, Any], place: int) -> object:
    who = annotation.get("completed_by", annotation.get("model_version"))
    if isinstance(who, Mapping):
        who = who.get("email") or who.get("id")
    return place if who is None else who


def _ours(item: Mapping[str, Any], annotation: Mapping[str, Any]) -> frozenset[Place]:
    """Offsets of the regions that `write_label_studio` predicted, in characters: a version of the tool that counts
    otherwise leaves those that nobody touches as they are."""
    predictions = [*_objects_in(item.get("predictions")), annotation.get("prediction")]
    own = [each for each in _objects_in(predictions) if each.get("model_version") == AGENT]
    return places_in(result.get("value") for each in own for result in _objects_in(each.get("result")))


def _objects_in(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _row(
    data: Mapping[str, Any],
    identity: str | int,
    result: Any,
    settings: PeopleSettings,
    units: Units,
    ours: frozenset[Place],
) -> dict[str, Any]:
    """One annotation. A control that means nothing here is named in the row's `unread`."""
    names = settings.columns
    completion = completion_in(data, names.completion)
    known = {names.prompt: "prompt", names.critique: "critique", names.revision: "revision"}
    kept = {
        known.get(key, key): value
        for key, value in data.items()
        if key not in (ID, SHOWN, "id", names.completion, names.spans)
        and (names.completion in data or value != completion)
    }
    row: dict[str, Any] = {"id": identity, **kept, "completion": completion}
    marked, comments, texts, unread = _sorted_results(result)
    for control, text in texts.items():
        if control in (names.critique, names.revision):
            row[known[control]] = text
        else:
            unread.append(f"{control} (textarea)")
    places = to_characters(completion, [_region(each) for each in marked], settings.units, units, ours)
    row["spans"] = [
        _span(place, each, comments.get(each.get("id")), settings) for place, each in zip(places, marked, strict=True)
    ]
    return row | ({"unread": sorted(set(unread))} if unread else {})


def _sorted_results(
    result: Any,
) -> tuple[list[Mapping[str, Any]], dict[Any, str], dict[str, str], list[str]]:
    """(marked regions, region id → comment, control → text about the whole, controls that are not known)."""
    results = objects(result, "result")
    marked = [each for each in results if each.get("type") in ("labels", "hypertextlabels")]
    ids = {each.get("id") for each in marked}
    comments: dict[Any, str] = {}
    texts: dict[str, str] = {}
    unread: list[str] = []
    for each in results:
        if each.get("type") in ("labels", "hypertextlabels"):
            continue
        text = _text(each.get("value"))
        if each.get("type") != "textarea" or text is None:
            unread.append(f"{each.get('from_name', '?')} ({each.get('type', '?')})")
        elif each.get("id") in ids:
            comments[each.get("id")] = " ".join(filter(None, (comments.get(each.get("id")), text)))
        else:
            control = str(each.get("from_name"))
            texts[control] = "\n".join(filter(None, (texts.get(control), text)))
    return marked, comments, texts, unread


def _text(value: Any) -> str | None:
    """What a text area holds: one text, or several."""
    text = value.get("text") if isinstance(value, Mapping) else None
    parts = [text] if isinstance(text, str) else text
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        return None
    return "\n".join(parts)


def _region(result: Mapping[str, Any]) -> Region:
    value = result.get("value")
    if not isinstance(value, Mapping):
        raise InvalidData(f"value: should be an object with start and end, got {shorten(value)}")
    text, absolute = value.get("text"), value.get("globalOffsets")
    start, end = whole_numbers(absolute if isinstance(absolute, Mapping) else value, "a region")
    return Region(start, end, text if isinstance(text, str) else None)


def _span(place: Place, result: Mapping[str, Any], comment: str | None, settings: PeopleSettings) -> dict[str, Any]:
    labels = result["value"].get("labels") or result["value"].get("hypertextlabels") or []
    if not isinstance(labels, list) or len(labels) != 1:
        raise InvalidData(f"a region should have one label, got {shorten(labels)}")
    span: dict[str, Any] = {"start": place[0], "end": place[1], "verdict": verdict_of(labels[0], settings.labels)}
    meta = result.get("meta")
    if isinstance(meta, Mapping) and meta.get("severity") is not None:
        span["severity"] = meta["severity"]
    return span | ({"comment": comment} if comment else {})


def _counting(items: Sequence[tuple[int, Mapping[str, Any]]], settings: PeopleSettings) -> Units:
    """What the file's offsets count, by the first annotation whose texts leave one reading only. One export has one
    version's habits; an annotation that fits both ways is read like the others. Our own predictions say nothing."""
    for _, item in items:
        for each in (*_objects_in(item.get("annotations")), *_objects_in(item.get("predictions"))):
            try:
                completion = completion_in(item["data"], settings.columns.completion)
                regions = [_region(region) for region in _sorted_results(each.get("result"))[0]]
            except (InvalidData, TypeError, AttributeError, KeyError):
                continue  # it is read again, and rejected with its reason, in its turn
            ours = _ours(item, each)
            units = decides(completion, [region for region in regions if (region.start, region.end) not in ours])
            if units != "auto":
                return units
    return "characters"
