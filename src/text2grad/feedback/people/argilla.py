"""Argilla 2.x: exported records in, records and dataset settings out. No package of theirs is needed.

A response becomes one row. Argilla's spans have no text of their own and no comments. Its API counts characters; its
browser page counts UTF-16 units (argilla-io/argilla issue 5729, closed without a fix), but leaves the offsets of a
suggestion that is accepted as they are. Of a row, id, prompt, completion, critique text, revision and spans travel;
join the rest by id.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from text2grad.errors import InvalidData
from text2grad.feedback.people.common import AGENT, ID, Answer, Tool, as_text, checked_rows, objects, to_file
from text2grad.runs import write_atomic


def write_argilla(rows: Iterable[Mapping[str, Any]], path: str | Path, *, people: bool = False) -> None:
    """Records for `dataset.records.from_json`, and beside them, ending in `.settings.json`, the dataset's settings for
    `Settings.from_json`. Spans, critique and revision that a row has are written as suggestions. With `people`,
    as responses: their user is `user_of(annotator)`, as Argilla's users are UUIDs; the name and the score are metadata.
    Its spans have no place for severities."""
    path = Path(path)
    records = [_record(row, people) for row in checked_rows(rows)]
    write_atomic(path.with_suffix(".settings.json"), to_file(_dataset_settings()))
    write_atomic(path, to_file(records))


def is_record(item: Mapping[str, Any]) -> bool:
    return "fields" in item and ("responses" in item or "suggestions" in item)


def user_of(name: str) -> str:
    """The same UUID for the same name, always."""
    return str(uuid5(NAMESPACE_URL, f"text2grad:{name}"))


def _record(row: Mapping[str, Any], people: bool) -> dict[str, Any]:
    prompt = as_text(row.get("prompt"))
    spans = [{"start": span["start"], "end": span["end"], "label": span["verdict"]} for span in row["spans"]]
    values = {"spans": spans, "critique": row["critique"], "revision": row.get("revision")}
    said = {name: value for name, value in values.items() if value}
    known = {name: row[name] for name in ("annotator", "score") if people and row.get(name) is not None}
    user = user_of(str(row.get("annotator")))
    suggestions = {name: {"value": value, "score": None, "agent": AGENT} for name, value in said.items()}
    responses = {name: [{"value": value, "user_id": user}] for name, value in said.items()}
    return {
        "id": str(row["id"]),
        "fields": ({"prompt": prompt} if prompt else {}) | {"completion": row["completion"]},
        "metadata": {ID: json.dumps(row["id"])} | known,
        "suggestions": {} if people else suggestions,
        "responses": responses if people else {},
        "vectors": {},
    }


def _metadata(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return known if isinstance(known := item.get("metadata"), Mapping) else {}


def _own_id(item: Mapping[str, Any]) -> Any:
    own = _metadata(item).get(ID)
    # Argilla's ids and terms are texts; as JSON, a number comes back as a number.
    with suppress(ValueError, TypeError):
        own = json.loads(own)  # type: ignore[arg-type]
    return own


def _answers(item: Mapping[str, Any], suggestions: bool) -> dict[str, dict[str, Any]]:
    """Person → question → value, and "" → whether the response was submitted. Where nobody has responded, the
    suggestions count if they are wanted."""
    responses = item.get("responses") or {}
    if not isinstance(responses, Mapping):
        raise InvalidData(
            "responses: should be an object of questions, as Argilla 2 writes it; records of Argilla 1 are read by "
            "Argilla 2, and exported from there"
        )
    by_person: dict[str, dict[str, Any]] = {}
    author, score = _author(item)
    for question, given in responses.items():
        for each in objects(given, f"responses.{question}"):
            person = str(each.get("user_id"))
            ours = author is not None and person == user_of(author)
            person = author if author is not None and ours else person
            values = by_person.setdefault(person, {"score": score} if ours and score is not None else {})
            if each.get("status", "submitted") not in ("submitted", None):
                values[""] = f"the response of {person} is {each['status']}, not submitted"
            values[question] = each.get("value")
    suggested = _suggestions(item)
    if not by_person and suggestions and suggested:
        agent = next(iter(suggested.values())).get("agent") or "suggestion"
        by_person[str(agent)] = {question: each.get("value") for question, each in suggested.items()}
    if not by_person:
        raise InvalidData("nobody has responded")
    return by_person


def _author(item: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Who wrote what this package exported as a person's, and their score."""
    name = _metadata(item).get("annotator")
    return name if isinstance(name, str) else None, _metadata(item).get("score")


def _read(values: Mapping[str, Any], spans: str) -> Answer:
    if "" in values:
        raise InvalidData(values[""])
    marks = [dict(mark) for mark in objects(values.get(spans) or [], spans)]
    return Answer(marks, {question: value for question, value in values.items() if question != spans})


def _suggestions(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    suggestions = item.get("suggestions")
    pairs = suggestions.items() if isinstance(suggestions, Mapping) else ()
    return {question: each for question, each in pairs if isinstance(each, Mapping)}


def _ours(item: Mapping[str, Any]) -> list[Any]:
    values = (each.get("value") for each in _suggestions(item).values() if each.get("agent") == AGENT)
    responses, author = item.get("responses"), _author(item)[0]
    said = responses.get("spans") if isinstance(responses, Mapping) and author is not None else None
    theirs = [
        each.get("value")
        for each in (said if isinstance(said, list) else ())
        if isinstance(each, Mapping) and each.get("user_id") == user_of(str(author))
    ]
    return [span for value in (*values, *theirs) if isinstance(value, list) for span in value]


ARGILLA = Tool("fields", _own_id, _answers, _read, _ours)


def _dataset_settings() -> dict[str, Any]:
    """In the form that Argilla 2.x writes and reads."""
    labels = [{"value": label, "text": label, "description": None} for label in ("good", "poor", "neutral")]
    span = {"type": "span", "field": "completion", "allow_overlapping": True, "visible_options": 3, "options": labels}
    text = {"type": "text", "use_markdown": False}
    return {
        "guidelines": "Mark what is good and what is poor in the completion; say why; correct it if you can.",
        "fields": [
            {"name": name, "title": name.capitalize(), "required": name == "completion", "settings": text}
            for name in ("prompt", "completion")
        ],
        "questions": [
            {"name": "spans", "title": "Mark good and poor parts", "required": False, "settings": span},
            {"name": "critique", "title": "What about it?", "required": True, "settings": text},
            {"name": "revision", "title": "How it should have been", "required": False, "settings": text},
        ],
        "metadata": [
            {"name": name, "title": name, "visible_for_annotators": False, "settings": {"type": kind}}
            for name, kind in ((ID, "terms"), ("annotator", "terms"), ("score", "float"))
        ],
        "vectors": [],
        "allow_extra_metadata": True,
    }
