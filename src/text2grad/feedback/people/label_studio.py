"""Label Studio: its JSON export in, tasks and a labelling configuration out, without their package.

An annotation becomes one row. Offsets are written in characters, with each region's text beside them, and read by
`offsets.py`, which holds them to that text. What else a row has travels in the task's `data` and comes back.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.common import AGENT, ID, Answer, Tool, as_text, checked_rows, objects, to_file
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
  <Header value="Score, from -1 to 1" size="5"/>
  <Number name="score" toName="completion" min="-1" max="1" step="0.1"/>
</View>
"""
"""The labelling configuration: verdicts as labels, a comment per region, a critique, a revision and a score."""


def write_label_studio(rows: Iterable[Mapping[str, Any]], path: str | Path, *, people: bool = False) -> None:
    """Tasks for the import (JSON), and beside them, ending in `.xml`, the labelling configuration. Spans,
    critique, revision and score that a row has are written as predictions, which the tool shows to the annotator. With
    `people`, as annotations: the author is `annotator` of the task's data, for the tool knows its own users only, and
    takes who imports the file for the annotator."""
    path = Path(path)
    tasks = [_task(row, people) for row in checked_rows(rows)]
    write_atomic(path.with_suffix(".xml"), CONFIG.encode())
    write_atomic(path, to_file(tasks))


def is_task(item: Mapping[str, Any]) -> bool:
    return "data" in item and ("annotations" in item or "predictions" in item)


def _task(row: Mapping[str, Any], people: bool) -> dict[str, Any]:
    completion = row["completion"]
    data = {key: value for key, value in row.items() if key not in ("id", "spans", "critique", "revision", "score")}
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
    if (score := row.get("score")) is not None:
        control = {"id": "score", "from_name": "score", "to_name": "completion", "type": "number"}
        result.append({**control, "value": {"number": score}})
    task: dict[str, Any] = {"data": {ID: row["id"], **data, SHOWN: as_text(row.get("prompt"))}}
    if result and people:
        task["annotations"] = [{"result": result}]
    elif result:
        task["predictions"] = [{"model_version": AGENT, "result": result}]
    return task


def _answers(item: Mapping[str, Any], suggestions: bool) -> dict[str, Mapping[str, Any]]:
    """Person → annotation. Two annotations of one person are told apart by their own ids."""
    annotations = objects(item.get("annotations") or (suggestions and item.get("predictions")) or [], "annotations")
    if not annotations:
        raise InvalidData("nobody has annotated it")
    data = item.get("data")
    author = data.get("annotator") if isinstance(data, Mapping) and len(annotations) == 1 else None
    people = [_annotator(each, author or place) for place, each in enumerate(annotations, 1)]
    return {
        person if people.count(person) == 1 else f"{person}.{each.get('id', place)}": each
        for place, (person, each) in enumerate(zip(people, annotations, strict=True), 1)
    }


def _annotator(annotation: Mapping[str, Any], place: object) -> str:
    who = annotation.get("completed_by", annotation.get("model_version"))
    if isinstance(who, Mapping):
        who = who.get("email") or who.get("id")
    return str(place if who is None else who)


def _read(annotation: Mapping[str, Any], _spans: str) -> Answer:
    """Marked regions, the comments on them by the regions' ids, and what other controls hold."""
    if annotation.get("was_cancelled"):
        raise InvalidData("the annotator skipped it")
    answer = Answer()
    results = objects(annotation.get("result") or [], "result")
    comments: dict[Any, list[str]] = {each.get("id"): [] for each in results if each.get("type") == "labels"}
    for each in results:
        value = each.get("value")
        if not isinstance(value, Mapping):
            raise InvalidData(f"value: should be an object, got {shorten(value)}")
        if each.get("type") == "labels":
            continue
        control, text = str(each.get("from_name")), value.get("text")
        if control == "score" and each.get("type") == "number":
            answer.texts[control] = value.get("number")
            continue
        written = [text] if isinstance(text, str) else text
        if not isinstance(written, list) or not all(isinstance(part, str) for part in written):
            answer.texts[control] = dict(value)
        elif each.get("id") in comments:
            comments[each.get("id")] += ["\n".join(written)]
        else:
            before = answer.texts.get(control)
            answer.texts[control] = "\n".join([before, *written] if isinstance(before, str) else written)
    for each in results:
        if each.get("type") == "labels":
            labels, meta = each["value"].get("labels"), each.get("meta")
            if not isinstance(labels, list) or len(labels) != 1:
                raise InvalidData(f"a region should have one label, got {shorten(labels)}")
            severity = meta.get("severity") if isinstance(meta, Mapping) else None
            comment = " ".join(comments[each.get("id")])
            answer.marks.append({**each["value"], "label": labels[0], "severity": severity, "comment": comment})
    return answer


def _ours(item: Mapping[str, Any]) -> list[Any]:
    """The regions that `write_label_studio` predicted."""
    copies = [each.get("prediction") for each in _objects_in(item.get("annotations"))]
    predictions = _objects_in([*_objects_in(item.get("predictions")), *copies])
    results = (_objects_in(each.get("result")) for each in predictions if each.get("model_version") == AGENT)
    return [each.get("value") for result in results for each in result]


def _objects_in(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _own_id(item: Mapping[str, Any]) -> Any:
    data = item.get("data")
    return data.get(ID) if isinstance(data, Mapping) else None


LABEL_STUDIO = Tool("data", _own_id, _answers, _read, _ours, hidden=(ID, "id", SHOWN))
