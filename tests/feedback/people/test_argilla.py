"""Argilla: offsets survive out and in; several people's responses become several rows."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.feedback.people.rows import marked_rows, places
from text2grad import config
from text2grad.feedback.people import PeopleSettings, Rejected, read_people, write_argilla
from text2grad.feedback.people.offsets import to_utf16
from text2grad.feedback.rows import Row
from text2grad.runs import encode_row

FLAMINGO = "🦩🦩 Seven ships left on Tuesday."


def record(responses: Any, completion: str = FLAMINGO, **more: Any) -> dict[str, Any]:
    return {"id": "r1", "fields": {"completion": completion}, "responses": responses, "suggestions": {}, **more}


def span(start: int, end: int, label: str = "poor") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


def read(folder: Path, data: Any, **settings: Any) -> list[Any]:
    path = folder / "records.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return list(read_people(path, config.build(PeopleSettings, settings, "test")))


@given(st.lists(marked_rows(), min_size=1, max_size=3, unique_by=lambda row: str(row["id"])))
def test_offsets_survive_out_and_in(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "records.json"
        write_argilla(rows, path)
        found = list(read_people(path, PeopleSettings(suggestions=True)))
    for row, back in zip(rows, found, strict=True):
        assert isinstance(back, dict), back
        assert (back["id"], back["completion"], places(back)) == (row["id"], row["completion"], places(row))
        Row.read(encode_row(back))


@given(marked_rows(), st.sampled_from(["utf16", "characters"]))
def test_responses_are_read_in_the_units_that_are_set(row: dict[str, Any], units: str) -> None:
    text = row["completion"]
    marked = []
    for each in row["spans"]:
        place = each["start"], each["end"]
        start, end = to_utf16(text, place) if units == "utf16" else place
        marked.append(span(start, end, each["verdict"]))
    responses = {"spans": [{"value": marked, "user_id": "ada"}]}
    with TemporaryDirectory() as folder:
        (back,) = read(Path(folder), [record(responses, text)], units=units)
        assert places(back) == places(row)
        (found,) = read(Path(folder), [record(responses, text)])
        if max(text) <= "\uffff":
            assert places(found) == places(row), "where both units count alike, no setting is needed"


@pytest.mark.parametrize("place", [(3, 8), (5, 10)])
def test_the_reading_that_ends_at_words_is_found(tmp_path: Path, place: tuple[int, int]) -> None:
    (row,) = read(tmp_path, [record({"spans": [{"value": [span(*place)], "user_id": "ada"}]})])
    assert places(row) == [(3, 8, "poor")]


def test_a_doubtful_reading_is_not_guessed(tmp_path: Path) -> None:
    (back,) = read(tmp_path, [record({"spans": [{"value": [span(4, 7)], "user_id": "ada"}]})])
    assert isinstance(back, Rejected) and "set units=" in back.reason


def test_each_response_is_a_row_of_its_own(tmp_path: Path) -> None:
    responses = {
        "spans": [{"value": [span(5, 10)], "user_id": "ada"}, {"value": [], "user_id": "bob"}],
        "critique": [{"value": "Wrong count.", "user_id": "ada"}, {"value": "Fine.", "user_id": "bob"}],
        "revision": [{"value": "Nine ships left.", "user_id": "ada"}],
        "rating": [{"value": 2, "user_id": "bob"}],
    }
    ada, bob = read(tmp_path, [record(responses)])
    assert (ada["id"], ada["critique"], ada["revision"]) == ("r1#ada", "Wrong count.", "Nine ships left.")
    assert places(ada) == [(3, 8, "poor")]
    assert (bob["id"], bob["critique"], bob["spans"], bob["unread"]) == ("r1#bob", "Fine.", [], ["rating"])


def test_records_of_the_older_version(tmp_path: Path) -> None:
    values = {"spans": {"value": [span(5, 10)]}, "critique": {"value": "Wrong count."}}
    responses = [
        {"user_id": "ada", "status": "submitted", "values": values},
        {"user_id": "bob", "status": "discarded", "values": {}},
    ]
    ada, bob = read(tmp_path, [record(responses, suggestions=[])])
    assert (ada["id"], places(ada)) == ("r1#ada", [(3, 8, "poor")])
    assert isinstance(bob, Rejected)
    assert (bob.id, bob.reason) == ("r1#bob", "the response of bob is discarded, not submitted")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    items = [
        record({}),
        record({"spans": [{"value": [span(0, 1, "odd")], "user_id": "ada"}]}),
        record({"spans": [{"value": [span(0, 99)], "user_id": "ada"}]}),
        record({"spans": "x"}),
        record({"spans": [{"value": [{"start": 0.5, "end": 1}], "user_id": "ada"}]}),
    ]
    for back, wanted in zip(
        read(tmp_path, items),
        [
            "nobody has responded",
            "the label 'odd'",
            "at 0–99 should lie within the 31",
            "list of objects",
            "whole numbers",
        ],
        strict=True,
    ):
        assert isinstance(back, Rejected) and wanted in back.reason


def test_settings_and_records_fit_together(tmp_path: Path) -> None:
    rows = [{"id": 3, "completion": "Seven.", "critique": {"feedback": "Wrong."}, "spans": []}]
    write_argilla(rows, tmp_path / "records.json")
    made = json.loads((tmp_path / "records.settings.json").read_text(encoding="utf-8"))
    (found,) = json.loads((tmp_path / "records.json").read_text(encoding="utf-8"))
    assert found["fields"].keys() <= {field["name"] for field in made["fields"]}
    assert found["suggestions"].keys() <= {question["name"] for question in made["questions"]}
    assert found["suggestions"] == {"critique": {"value": "Wrong.", "score": None, "agent": "text2grad"}}
    span_question = made["questions"][0]["settings"]
    assert (span_question["type"], span_question["field"]) == ("span", "completion")
