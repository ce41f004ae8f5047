"""Argilla 2.x: exported records in, records and dataset settings out. No package of theirs is needed.

Enters: the objects of an export, or rows of the project's format. Leaves: rows and `Rejected`, or files. A response
becomes one row. Argilla's spans have no text of their own and no comments. Its API counts characters; its browser page
counts UTF-16 units (argilla-io/argilla issue 5729, closed without a fix), but leaves the offsets of a suggestion that
is accepted as they are. So what a response has in common with our suggestion is in characters; for the rest,
`offsets.py` finds out or asks. Of a row, id, prompt, completion, critique text, revision and spans travel; join the
rest by id.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.common import (
    AGENT,
    ID,
    Found,
    PeopleSettings,
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
from text2grad.feedback.people.offsets import Place, Region, to_characters
from text2grad.feedback.rows import Rejected
from text2grad.runs import write_atomic

_FIELDS = ("prompt", "completion")


def write_argilla(rows: Iterable[Mapping[str, Any]], path: str | Path) -> None:
    """Records for `dataset.records.from_json`, and beside them, ending in `.settings.json`, the dataset's settings for
    `Settings.from_json`. Spans, critique and revision that a row has are written as suggestions."""
    path = Path(path)
    records = [_record(row) for row in checked_rows(rows)]
    write_atomic(path.with_suffix(".settings.json"), to_file(_dataset_settings()))
    write_atomic(path, to_file(records))


def is_record(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("fields"), Mapping) and ("responses" in item or "suggestions" in item)


def read_argilla(
    items: Sequence[tuple[int, Mapping[str, Any]]], name: str, settings: PeopleSettings
) -> Iterator[Found]:
    """Rows from exported records, each with its number."""
    for number, item in items:
        metadata = item.get("metadata")
        own = metadata.get(ID) if isinstance(metadata, Mapping) else None
        # Argilla's ids and terms are texts; as JSON, a number comes back as a number.
        with suppress(ValueError, TypeError):
            own = json.loads(own)  # type: ignore[arg-type]
        identity = id_of((own, item.get("id")), f"{name}-{number}")
        try:
            responses = _responses(item, settings)
        except InvalidData as problem:
            yield Rejected(number, identity, str(problem))
            continue
        for who, response in responses.items():
            row_id = several(identity, who, len(responses) > 1)
            try:
                if response.status != "submitted":
                    raise InvalidData(f"the response of {who} is {response.status}, not submitted")
                row = _row(item, row_id, response.values, settings)
                yield finish({**row, "annotator": who}, number)
            except InvalidData as problem:
                yield Rejected(number, row_id, str(problem))


@dataclass
class _Response:
    """What one person said about a record, by question."""

    values: dict[str, Any] = field(default_factory=dict)
    status: str = "submitted"


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt = as_text(row.get("prompt"))
    spans = [{"start": span["start"], "end": span["end"], "label": span["verdict"]} for span in row["spans"]]
    values = {"spans": spans, "critique": row["critique"], "revision": row.get("revision")}
    return {
        "id": str(row["id"]),
        "fields": ({"prompt": prompt} if prompt else {}) | {"completion": row["completion"]},
        "metadata": {ID: json.dumps(row["id"])},
        "suggestions": {
            name: {"value": value, "score": None, "agent": AGENT} for name, value in values.items() if value
        },
        "responses": {},
        "vectors": {},
    }


def _responses(item: Mapping[str, Any], settings: PeopleSettings) -> dict[str, _Response]:
    """By person. Where nobody has responded, the suggestions count if they are wanted."""
    if not isinstance(item.get("fields"), Mapping):
        raise InvalidData(
            f"fields: should be an object with the texts of the record, got {shorten(item.get('fields'))}"
        )
    responses = item.get("responses") or {}
    if not isinstance(responses, Mapping):
        raise InvalidData(
            "responses: should be an object of questions, as Argilla 2 writes it; records of Argilla 1 are read by "
            "Argilla 2, and exported from there"
        )
    by_person: dict[str, _Response] = {}
    for question, given in responses.items():
        for each in objects(given, f"responses.{question}"):
            response = by_person.setdefault(str(each.get("user_id")), _Response())
            response.values[question] = each.get("value")
            response.status = str(each.get("status") or response.status)
    suggested = _suggestions(item)
    if not by_person and settings.suggestions and suggested:
        agent = next(iter(suggested.values())).get("agent") or "suggestion"
        by_person[str(agent)] = _Response({question: each.get("value") for question, each in suggested.items()})
    if not by_person:
        raise InvalidData("nobody has responded")
    return by_person


def _suggestions(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    suggestions = item.get("suggestions")
    pairs = suggestions.items() if isinstance(suggestions, Mapping) else ()
    return {question: each for question, each in pairs if isinstance(each, Mapping)}


def _ours(item: Mapping[str, Any], question: str) -> frozenset[Place]:
    """Offsets of the spans that `write_argilla` suggested: characters, whatever the page counts."""
    suggestion = _suggestions(item).get(question, {})
    spans = suggestion.get("value")
    return places_in(spans if suggestion.get("agent") == AGENT and isinstance(spans, list) else ())


def _row(
    item: Mapping[str, Any], identity: str | int, values: Mapping[str, Any], settings: PeopleSettings
) -> dict[str, Any]:
    names, fields = settings.columns, item["fields"]
    completion = completion_in(fields, names.completion)
    kept = {
        "prompt" if key == names.prompt else key: value
        for key, value in fields.items()
        if value is not None and key != names.completion and (names.completion in fields or value != completion)
    }
    row: dict[str, Any] = {"id": identity, **kept, "completion": completion}
    if not row.get("prompt"):
        row.pop("prompt", None)
    unread = []
    for question, value in values.items():
        if question == names.spans:
            row["spans"] = _spans(completion, value, _ours(item, names.spans), settings)
        elif question in (names.critique, names.revision):
            row["critique" if question == names.critique else "revision"] = value
        elif value is not None:
            unread.append(question)
    return row | ({"unread": sorted(unread)} if unread else {})


def _spans(completion: str, value: Any, ours: frozenset[Place], settings: PeopleSettings) -> list[dict[str, Any]]:
    marked = objects(value or [], settings.columns.spans)
    texts = [each.get("text") if isinstance(each.get("text"), str) else None for each in marked]
    regions = [Region(*whole_numbers(each, "a span"), text) for each, text in zip(marked, texts, strict=True)]
    places = to_characters(completion, regions, settings.units, ours=ours)
    return [
        {"start": start, "end": end, "verdict": verdict_of(each.get("label"), settings.labels)}
        for (start, end), each in zip(places, marked, strict=True)
    ]


def _dataset_settings() -> dict[str, Any]:
    """In the form that Argilla 2.x writes and reads."""
    labels = [{"value": label, "text": label, "description": None} for label in ("good", "poor", "neutral")]
    span = {"type": "span", "field": "completion", "allow_overlapping": True, "visible_options": 3, "options": labels}
    text = {"type": "text", "use_markdown": False}
    return {
        "guidelines": "Mark what is good and what is poor in the completion; say why; correct it if you can.",
        "fields": [
            {"name": name, "title": name.capitalize(), "required": name == "completion", "settings": text}
            for name in _FIELDS
        ],
        "questions": [
            {"name": "spans", "title": "Mark good and poor parts", "required": False, "settings": span},
            {"name": "critique", "title": "What about it?", "required": True, "settings": text},
            {"name": "revision", "title": "How it should have been", "required": False, "settings": text},
        ],
        "metadata": [{"name": ID, "title": ID, "visible_for_annotators": False, "settings": {"type": "terms"}}],
        "vectors": [],
        "allow_extra_metadata": True,
    }
