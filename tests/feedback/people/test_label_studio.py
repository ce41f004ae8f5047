"""Label Studio: offsets survive out and in, in whatever units a version counts; nothing vanishes."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.feedback.people.rows import marked_rows, places, to_utf16
from text2grad import config
from text2grad.errors import InvalidData
from text2grad.feedback.people import PeopleSettings, Rejected, read_people, write_label_studio
from text2grad.feedback.rows import Row
from text2grad.runs import encode_row

FLAMINGO = "🦩🦩 Seven ships left on Tuesday."


def region(start: int, end: int, label: str = "poor", text: str | None = None, **more: Any) -> dict[str, Any]:
    value = {"start": start, "end": end, "labels": [label]} | ({} if text is None else {"text": text})
    return {"id": f"r{start}", "from_name": "spans", "to_name": "completion", "type": "labels", "value": value, **more}


def textarea(name: str, words: str, identity: str = "whole") -> dict[str, Any]:
    return {"id": identity, "from_name": name, "to_name": "completion", "type": "textarea", "value": {"text": [words]}}


def task(*results: list[dict[str, Any]], completion: str = FLAMINGO, **data: Any) -> dict[str, Any]:
    annotations = [{"id": n, "completed_by": n, "result": result} for n, result in enumerate(results, 1)]
    return {"id": 5, "data": {"completion": completion, **data}, "annotations": annotations}


def read(tmp_path: Path, data: Any, columns: dict[str, str] | None = None, **settings: Any) -> list[Any]:
    path = tmp_path / "export.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return list(read_people(path, config.build(PeopleSettings, settings, "test"), columns))


@given(st.lists(marked_rows(), min_size=1, max_size=3, unique_by=lambda row: str(row["id"])))
def test_offsets_and_comments_survive_out_and_in(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.json"
        write_label_studio(rows, path)
        found = list(read_people(path, PeopleSettings(suggestions=True)))
    assert [row["id"] for row in found if isinstance(row, dict)] == [row["id"] for row in rows], found
    for row, back in zip(rows, found, strict=True):
        assert isinstance(back, dict)
        assert back["completion"] == row["completion"] and places(back) == places(row)
        assert [span.get("comment") for span in back["spans"]] == [span.get("comment") for span in row["spans"]]
        Row.of(json.loads(encode_row(back)))


@given(marked_rows(), st.sampled_from(["utf16", "characters"]))
def test_an_annotators_offsets_are_read_in_either_unit(row: dict[str, Any], units: str) -> None:
    text = row["completion"]
    result = []
    for span in row["spans"]:
        place = span["start"], span["end"]
        start, end = to_utf16(text, place) if units == "utf16" else place
        result.append(region(start, end, span["verdict"], text[slice(*place)]))
    with TemporaryDirectory() as folder:
        (back,) = read(Path(folder), [task(result, completion=text)], units=units)
        assert places(back) == places(row)
        # Where the texts of the regions leave only one reading, that reading needs no setting.
        (found,) = read(Path(folder), [task(result, completion=text)])
        if isinstance(found, Rejected):
            assert "set people.units=utf16" in found.reason
        else:
            for span, wanted in zip(found["spans"], row["spans"], strict=True):
                assert text[span["start"] : span["end"]].split() == text[wanted["start"] : wanted["end"]].split()


@pytest.mark.parametrize(("start", "end"), [(3, 8), (5, 10)])
def test_the_regions_text_decides_what_is_counted(tmp_path: Path, start: int, end: int) -> None:
    (row,) = read(tmp_path, [task([region(start, end, text="Seven")])])
    assert places(row) == [(3, 8, "poor")]


def test_a_text_that_both_readings_give_is_not_guessed_at(tmp_path: Path) -> None:
    doubtful = task([region(5, 6, text="a")], completion="🦩 aaaaaa")
    (back,) = read(tmp_path, [doubtful])
    assert isinstance(back, Rejected) and "set people.units=utf16" in back.reason
    (row,) = read(tmp_path, [doubtful], units="utf16")
    assert places(row) == [(4, 5, "poor")]


def test_a_text_that_no_reading_gives_is_reported(tmp_path: Path) -> None:
    (back,) = read(tmp_path, [task([region(3, 8, text="Seven"), region(9, 14, text="boats")])])
    assert isinstance(back, Rejected) and (back.line, back.id) == (1, 5)
    assert back.reason == (
        "region 2 at 9–14 should be 'boats', got 'ships' counting characters and 'n shi' counting UTF-16 units; is the "
        "completion the text that was marked?"
    )


@given(st.lists(marked_rows(), min_size=1, max_size=3, unique_by=lambda row: str(row["id"])), st.booleans())
@example([{"id": 1, "completion": "🦩aaaa", "spans": [{"start": 3, "end": 4, "verdict": "poor"}]}], True)
def test_a_prediction_that_is_submitted_as_it_is_comes_back_exactly(rows: list[dict[str, Any]], named: bool) -> None:
    """Whatever the Unicode, with the settings that nobody touched, in an export whose other offsets are UTF-16."""
    with TemporaryDirectory() as folder:
        write_label_studio(rows, Path(folder) / "tasks.json")
        tasks = json.loads((Path(folder) / "tasks.json").read_text(encoding="utf-8"))
        for each in tasks:
            (predicted,) = each["predictions"]
            each["annotations"] = [{"completed_by": 1, "result": predicted["result"]}]
            if named:
                each["annotations"][0]["prediction"] = predicted
                each["predictions"] = []
        marked = {**task([region(5, 10, text="Seven")]), "id": "another"}
        other, *found = read(Path(folder), [marked, *tasks])
    assert [places(row) for row in found if isinstance(row, dict)] == [places(row) for row in rows], found
    assert places(other) == [(3, 8, "poor")]


@pytest.mark.parametrize(("place", "wanted"), [((1, 8), (1, 8)), ((24, 33), (22, 31))])
def test_without_texts_the_only_possible_reading(
    tmp_path: Path, place: tuple[int, int], wanted: tuple[int, int]
) -> None:
    (row,) = read(tmp_path, [task([region(*place)])])
    assert places(row) == [(*wanted, "poor")]


@pytest.mark.parametrize("place", [(4, 7), (5, 10), (9, 14)])
def test_without_texts_nothing_is_guessed(tmp_path: Path, place: tuple[int, int]) -> None:
    (back,) = read(tmp_path, [task([region(*place)])])
    assert isinstance(back, Rejected) and "set people.units=utf16" in back.reason
    (row,) = read(tmp_path, [task([region(*place)])], units="utf16")
    assert places(row) == [(place[0] - 2, place[1] - 2, "poor")]


def test_comments_critique_revision_severity_and_other_columns(tmp_path: Path) -> None:
    result = [
        region(3, 8, text="Seven", meta={"severity": 0.5}),
        textarea("comment", "nine, says the report", "r3"),
        textarea("critique", "A wrong count."),
        textarea("revision", "Nine ships left on Tuesday."),
        {"id": "c", "from_name": "tone", "type": "choices", "value": {"choices": ["dry"]}},
    ]
    (row,) = read(tmp_path, [task(result, prompt="Summarise.", reference="Nine ships left.")])
    assert row == {
        "id": 5,
        "prompt": "Summarise.",
        "reference": "Nine ships left.",
        "completion": FLAMINGO,
        "critique": "A wrong count.",
        "revision": "Nine ships left on Tuesday.",
        "spans": [{"start": 3, "end": 8, "verdict": "poor", "severity": 0.5, "comment": "nine, says the report"}],
        "unread": ["tone"],
        "annotator": "1",
    }


def test_comments_are_the_critique_where_nobody_wrote_one(tmp_path: Path) -> None:
    commented = [region(3, 8, text="Seven"), textarea("comment", "it is nine", "r3")]
    bare = [region(3, 8, text="Seven"), region(9, 14, "good", text="ships")]
    first, second = read(tmp_path, [task(commented, bare)])
    assert (first["id"], first["critique"]) == ("5#1", "it is nine.")
    assert (second["id"], second["critique"]) == ("5#2", "Marked: 1 good, 1 poor.")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    skipped = {"id": 1, "data": {"completion": "a"}, "annotations": [{"was_cancelled": True, "completed_by": 3}]}
    items = [
        skipped,
        {"id": 2, "data": {"completion": "a"}, "annotations": []},
        task([region(0, 1, "Hallucination", "🦩")]),
        task([region(0, 99, text="x")]),
        task([region(3, 8, text="Seven")], completion=7),  # type: ignore[arg-type]
        task([]),
        "no object",
        {"id": 8, "data": None, "annotations": []},
        task([{"type": "labels", "value": {"start": "0", "end": 1, "labels": ["poor"]}}]),
    ]
    reasons = [back.reason for back in read(tmp_path, items)]
    for reason, wanted in zip(
        reasons,
        [
            "the annotator skipped it",
            "nobody has annotated it",
            "the label 'Hallucination' has no verdict",
            "should be 'x', got nothing",
            "completion: should be the text that was marked, got 7",
            "says nothing about the completion",
            "should be a JSON object, got 'no object'",
            "data: should be an object",
            "whole numbers for start and end",
        ],
        strict=True,
    ):
        assert wanted in reason
    (row,) = read(tmp_path, [items[2]], labels={"hallucination": "poor"})
    assert places(row) == [(0, 1, "poor")]


def test_the_only_text_of_a_task_is_the_completion(tmp_path: Path) -> None:
    item = task([region(3, 8, text="Seven")])
    item["data"] = {"text": FLAMINGO}
    (row,) = read(tmp_path, [item])
    assert row["completion"] == FLAMINGO and "text" not in row


def test_the_labelling_configuration_goes_with_the_tasks(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Count."}]
    write_label_studio(
        [{"id": 1, "completion": "Seven.", "prompt": messages, "passages": ["Nine."]}], tmp_path / "t.json"
    )
    view = ElementTree.parse(tmp_path / "t.xml").getroot()
    assert [label.get("value") for label in view.iter("Label")] == ["good", "poor", "neutral"]
    assert {area.get("name"): area.get("perRegion") for area in view.iter("TextArea")} == {
        "comment": "true",
        "critique": None,
        "revision": None,
    }
    (made,) = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert {text.get("value", "")[1:] for text in view.iter("Text")} <= made["data"].keys()
    assert made["data"]["shown"] == "user: Count." and made["data"]["passages"] == ["Nine."]
    assert "predictions" not in made


def test_rows_that_cannot_be_shown_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    good = {"id": 1, "completion": "Seven."}
    with pytest.raises(InvalidData, match="row 2, id 2: completion: should be a text"):
        write_label_studio([good, {"id": 2}], tmp_path / "t.json")
    with pytest.raises(InvalidData, match=r"row 1, id 1: Span\(0, 9\)"):
        write_label_studio([{**good, "spans": [{"start": 0, "end": 9, "verdict": "poor"}]}], tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == []


def test_rows_of_our_own_are_not_taken_for_an_export(tmp_path: Path) -> None:
    mine = {"id": 1, "completion": "Six.", "critique": "x", "spans": [{"start": 0, "end": 3, "verdict": "good"}]}
    (row,) = read(tmp_path, [{**mine, "annotator": "ada", "created_at": "2026-01-01"}])
    assert places(row) == [(0, 3, "good")] and row["created_at"] == "2026-01-01"
