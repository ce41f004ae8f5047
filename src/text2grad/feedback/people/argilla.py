"""Argilla: exported records in (2.x, and the 1.x feedback records), records and dataset settings out. No package of
theirs is needed.

Enters: the objects of an export, or rows of the project's format. Leaves: rows and `Rejected`, or files. A response
becomes one row. Argilla's spans have no text of their own and no comments: suggestions are written, and read again, in
characters, as its API counts; its browser page counts UTF-16 units (argilla-io/argilla issue 5729, closed without a
fix), but leaves the offsets of a suggestion that is accepted as they are. So what a response has in common with our
suggestion is in characters, and for the rest `offsets.py` finds out or asks. Of a row, id, prompt, completion, critique
text, revision and spans travel; join the rest by id.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.items import Found, Rejected, finish, several
from text2grad.feedback.people.offsets import Place, Region, to_characters
from text2grad.feedback.people.settings import PeopleSettings, Units
from text2grad.feedback.people.shown import as_text, checked_rows, completion_in, to_file, verdict_of
from text2grad.runs import write_atomic

ID = "text2grad_id"
AGENT = "text2grad"
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
        identity = _identity(item, name, number)
        try:
            said = _said(item, settings)
        except InvalidData as problem:
            yield Rejected(number, identity, str(problem))
            continue
        for each in said:
            row_id = several(identity, each.who, len(said) > 1)
            try:
                yield finish(_row(item["fields"], row_id, each, settings), number)
            except InvalidData as problem:
                yield Rejected(number, row_id, str(problem))


@dataclass(frozen=True, slots=True)
class _Said:
    """What one person said about a record, by question."""

    who: str
    status: str
    values: Mapping[str, Any]
    units: Units
    ours: frozenset[Place]
    """Offsets of the spans that this package suggested."""


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    critique = row.get("critique")
    if isinstance(critique, Mapping):
        critique = critique.get("feedback")
    prompt = as_text(row.get("prompt"))
    spans = [{"start": s["start"], "end": s["end"], "label": s["verdict"]} for s in row["spans"]]
    values = {"spans": spans, "critique": critique, "revision": row.get("revision")}
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


def _identity(item: Mapping[str, Any], name: str, number: int) -> str | int:
    metadata = item.get("metadata")
    given = metadata.get(ID) if isinstance(metadata, Mapping) else None
    # Argilla's ids and terms are texts; as JSON, a number comes back as a number.
    with suppress(ValueError, TypeError):
        given = json.loads(given)  # type: ignore[arg-type]
    for value in (given, item.get("id"), item.get("external_id")):
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return value
    return f"{name}-{number}"


def _said(item: Mapping[str, Any], settings: PeopleSettings) -> list[_Said]:
    if not isinstance(item.get("fields"), Mapping):
        raise InvalidData(
            f"fields: should be an object with the texts of the record, got {shorten(item.get('fields'))}"
        )
    ours = _ours(item.get("suggestions"), settings.columns.spans)
    found = list(_responses(item.get("responses"), settings.units, ours))
    if not found and settings.suggestions:
        found = list(_suggestions(item.get("suggestions"), settings.units, ours))
    if not found:
        raise InvalidData("nobody has responded")
    return found


def _responses(responses: Any, units: Units, ours: frozenset[Place]) -> Iterator[_Said]:
    """2.x: question → responses, each with its user. 1.x: one response a user, with the values of all questions."""
    if isinstance(responses, Mapping):
        by_user: dict[str, dict[str, Any]] = {}
        status: dict[str, str] = {}
        for question, given in responses.items():
            for each in _objects(given, f"responses.{question}"):
                user = str(each.get("user_id"))
                by_user.setdefault(user, {})[question] = each.get("value")
                status[user] = str(each.get("status") or status.get(user, "submitted"))
        yield from (_Said(user, status[user], values, units, ours) for user, values in by_user.items())
    elif responses is not None:
        for number, each in enumerate(_objects(responses, "responses"), 1):
            values = each.get("values") or {}
            if not isinstance(values, Mapping):
                raise InvalidData(f"responses: should have values by question, got {shorten(values)}")
            flat = {key: v.get("value") if isinstance(v, Mapping) else v for key, v in values.items()}
            user, status_now = str(each.get("user_id") or number), str(each.get("status") or "submitted")
            yield _Said(user, status_now, flat, units, ours)


def _suggestions(suggestions: Any, units: Units, ours: frozenset[Place]) -> Iterator[_Said]:
    pairs = _by_question(suggestions)
    if pairs:
        agents = [each.get("agent") for each in pairs.values()]
        values = {name: each.get("value") for name, each in pairs.items()}
        yield _Said(str(agents[0] or "suggestion"), "submitted", values, units, ours)


def _ours(suggestions: Any, question: str) -> frozenset[Place]:
    """Offsets of the spans that `write_argilla` suggested: characters, whatever the page counts."""
    given = _by_question(suggestions).get(question, {})
    spans = given.get("value")
    if given.get("agent") != AGENT or not isinstance(spans, list):
        return frozenset()
    places = ((each.get("start"), each.get("end")) for each in spans if isinstance(each, Mapping))
    return frozenset((start, end) for start, end in places if type(start) is int and type(end) is int)


def _by_question(suggestions: Any) -> dict[str, Mapping[str, Any]]:
    """2.x: question → suggestion. 1.x: a list of suggestions that name their question."""
    if isinstance(suggestions, Mapping):
        return {name: each for name, each in suggestions.items() if isinstance(each, Mapping)}
    return {str(each.get("question_name")): each for each in _objects(suggestions or [], "suggestions")}


def _objects(value: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise InvalidData(f"{where}: should be a list of objects, got {shorten(value)}")
    return value


def _row(fields: Mapping[str, Any], identity: str | int, said: _Said, settings: PeopleSettings) -> dict[str, Any]:
    if said.status != "submitted":
        raise InvalidData(f"the response of {said.who} is {said.status}, not submitted")
    names = settings.columns
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
    for question, value in said.values.items():
        if question == names.spans:
            row["spans"] = _spans(completion, value, said, settings)
        elif question in (names.critique, names.revision):
            row["critique" if question == names.critique else "revision"] = value
        elif value is not None:
            unread.append(question)
    if unread:
        row["unread"] = sorted(unread)
    return {**row, "annotator": said.who}


def _spans(completion: str, value: Any, said: _Said, settings: PeopleSettings) -> list[dict[str, Any]]:
    marked = _objects(value or [], settings.columns.spans)
    regions = []
    for each in marked:
        start, end, text = each.get("start"), each.get("end"), each.get("text")
        if type(start) is not int or type(end) is not int:
            raise InvalidData(f"a span should have whole numbers for start and end, got {shorten(dict(each))}")
        regions.append(Region(start, end, text if isinstance(text, str) else None))
    places = to_characters(completion, regions, said.units, ours=said.ours)
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
