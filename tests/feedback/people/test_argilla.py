"""Argilla: offsets survive out and in; several people's responses become several rows."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.feedback.people.rows import marked_rows, places, to_utf16
from text2grad import config
from text2grad.feedback.people import PeopleSettings, Rejected, read_people, write_argilla
from text2grad.feedback.rows import Row
from text2grad.runs import encode_row

FLAMINGO = "🦩🦩 Seven ships left on Tuesday."


def record(responses: Any, completion: str = FLAMINGO, **more: Any) -> dict[str, Any]:
    return {"id": "r1", "fields": {"completion": completion}, "responses": responses, "suggestions": {}, **more}


def span(start: int, end: int, label: str = "poor") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label}


def read(folder: Path, data: Any, columns: Any = None, **settings: Any) -> list[Any]:
    path = folder / "records.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return list(read_people(path, config.build(PeopleSettings, settings, "test"), columns))


@given(st.lists(marked_rows(), min_size=1, max_size=3, unique_by=lambda row: str(row["id"])))
def test_offsets_survive_out_and_in(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "records.json"
        write_argilla(rows, path)
        found = list(read_people(path, PeopleSettings(suggestions=True)))
    for row, back in zip(rows, found, strict=True):
        assert isinstance(back, dict), back
        assert (back["id"], back["completion"], places(back)) == (row["id"], row["completion"], places(row))
        Row.of(json.loads(encode_row(back)))


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


@given(st.lists(marked_rows(), min_size=1, max_size=3, unique_by=lambda row: str(row["id"])))
def test_a_suggestion_that_is_submitted_as_it_is_comes_back_exactly(rows: list[dict[str, Any]]) -> None:
    """With the settings that nobody touched, whatever the Unicode."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "records.json"
        write_argilla(rows, path)
        records = json.loads(path.read_text(encoding="utf-8"))
        for each in records:
            values = {name: {"value": said["value"]} for name, said in each["suggestions"].items()}
            each["responses"] = {name: [{"user_id": "ada", **one}] for name, one in values.items()}
        found = read(Path(folder), records)
    assert [places(row) for row in found if isinstance(row, dict)] == [places(row) for row in rows], found


@given(marked_rows(), marked_rows(), st.sampled_from(["utf16", "characters"]), st.sampled_from(["auto", "set"]))
def test_a_changed_suggestion_is_read_right_or_not_at_all(
    row: dict[str, Any], other: dict[str, Any], units: str, known: str
) -> None:
    """Our spans are kept as they are; what a person adds is in the page's units, and never guessed at."""
    text = row["completion"]
    added = [each for each in other["spans"] if each["end"] <= len(text)]
    mine = [(each["start"], each["end"]) for each in row["spans"]]
    marked = [span(each["start"], each["end"], each["verdict"]) for each in row["spans"]]
    for each in added:
        place = each["start"], each["end"]
        start, end = to_utf16(text, place) if units == "utf16" else place
        assume((start, end) not in mine or (start, end) == place)
        marked.append(span(start, end, each["verdict"]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "out.json"
        write_argilla([row], path)
        (made,) = json.loads(path.read_text(encoding="utf-8"))
        made["responses"] = {"spans": [{"value": marked, "user_id": "ada"}]}
        (back,) = read(Path(folder), [made], None, **({"units": units} if known == "set" else {}))
    if isinstance(back, Rejected):
        assert known == "auto" and "set people.units=utf16" in back.reason
    else:
        assert places(back) == places({"spans": [*row["spans"], *added]})


@pytest.mark.parametrize(("place", "wanted"), [((1, 8), (1, 8)), ((24, 33), (22, 31))])
def test_the_only_possible_reading_is_taken(tmp_path: Path, place: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Inside a pair of UTF-16 units nothing begins; and behind the last character nothing ends."""
    (row,) = read(tmp_path, [record({"spans": [{"value": [span(*place)], "user_id": "ada"}]})])
    assert places(row) == [(*wanted, "poor")]


@pytest.mark.parametrize("place", [(4, 7), (5, 10), (9, 14)])
def test_a_doubtful_reading_is_not_guessed(tmp_path: Path, place: tuple[int, int]) -> None:
    """Not even where one reading ends at words: (9, 14) is "ships" in characters, but may have been "n shi"."""
    (back,) = read(tmp_path, [record({"spans": [{"value": [span(*place)], "user_id": "ada"}]})])
    assert isinstance(back, Rejected)
    assert "set people.units=utf16" in back.reason and "people.units=characters" in back.reason


def test_each_response_is_a_row_of_its_own(tmp_path: Path) -> None:
    responses = {
        "spans": [{"value": [span(5, 10)], "user_id": "ada"}, {"value": [], "user_id": "bob"}],
        "critique": [{"value": "Wrong count.", "user_id": "ada"}, {"value": "Fine.", "user_id": "bob"}],
        "revision": [{"value": "Nine ships left.", "user_id": "ada"}],
        "rating": [{"value": 2, "user_id": "bob"}],
    }
    ada, bob = read(tmp_path, [record(responses)], units="utf16")
    assert (ada["id"], ada["critique"], ada["revision"]) == ("r1#ada", "Wrong count.", "Nine ships left.")
    assert places(ada) == [(3, 8, "poor")]
    assert (bob["id"], bob["critique"], bob["spans"], bob["unread"]) == ("r1#bob", "Fine.", [], ["rating"])


def test_a_response_that_was_not_submitted_is_rejected(tmp_path: Path) -> None:
    responses = {
        "spans": [{"value": [span(5, 10)], "user_id": "ada", "status": "submitted"}],
        "critique": [{"value": "Hm.", "user_id": "bob", "status": "discarded"}],
    }
    ada, bob = read(tmp_path, [record(responses)], units="utf16")
    assert (ada["id"], places(ada)) == ("r1#ada", [(3, 8, "poor")])
    assert isinstance(bob, Rejected)
    assert (bob.id, bob.reason) == ("r1#bob", "the response of bob is discarded, not submitted")


def test_records_of_the_older_version_are_rejected_with_what_to_do(tmp_path: Path) -> None:
    (back,) = read(tmp_path, [record([{"user_id": "ada", "values": {}}])])
    assert isinstance(back, Rejected) and "records of Argilla 1 are read by Argilla 2" in back.reason


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
