"""DeFacto's published shape → annotated rows; small made-up files, and the real ones where they are at hand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import InvalidData
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.people import Rejected
from text2grad.feedback.rows import Row
from text2grad.tasks.defacto import defacto_task, read_defacto

ARTICLE = "Nine ships left the quay at noon, the harbour master said."


def item(candidate: str, summary: str | None, has_error: bool = True, doc_id: int = 7, **other: Any) -> dict[str, Any]:
    feedback = {"summary": summary, "explanation": "It is nine.", "instruction": "", "evidence": ""}
    row = {"article": ARTICLE, "abstract": "Nine ships leave.", "candidate": candidate, "doc_id": doc_id}
    return row | {"has_error": has_error, "feedback": feedback} | other


def read(folder: Path, *rows: Any) -> list[dict[str, Any] | Rejected]:
    path = folder / "defacto.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return list(read_defacto(path))


def said(row: dict[str, Any] | Rejected) -> list[tuple[str, str]]:
    assert isinstance(row, dict)
    return [(row["completion"][span["start"] : span["end"]], span["verdict"]) for span in row["spans"]]


def test_what_the_correction_removed_is_poor_and_the_rest_has_no_verdict(tmp_path: Path) -> None:
    (row,) = read(tmp_path, item("Seven ships left the old quay.", "Nine ships left the quay."))
    assert said(row) == [("Seven", "poor"), ("old", "poor")]
    assert isinstance(row, dict)
    assert row["id"] == "defacto-7" and row["prompt"].endswith(ARTICLE)
    assert (row["passages"], row["reference"]) == ([ARTICLE], "Nine ships leave.")
    assert (row["critique"]["feedback"], row["critique"]["revision"]) == ("It is nine.", "Nine ships left the quay.")


@pytest.mark.parametrize("summary", ["", None, "Another text that somebody wrote here."])
def test_a_summary_without_an_error_is_good_as_a_whole(tmp_path: Path, summary: str | None) -> None:
    (row,) = read(tmp_path, item("Nine ships left.", summary, has_error=False))
    assert said(row) == [("Nine ships left.", "good")]
    assert isinstance(row, dict) and row["critique"]["revision"] is None


def test_what_the_correction_only_added_is_missing(tmp_path: Path) -> None:
    (row,) = read(tmp_path, item("Seven ships left.", "Nine ships left at noon."))
    assert said(row) == [("Seven", "poor")]
    assert isinstance(row, dict) and row["critique"]["omissions"] == ["at noon"]


@pytest.mark.parametrize("summary", ["Seven ships left at noon.", "Nobody saw anything whatever here.", None])
def test_a_correction_that_marks_nothing_is_counted_and_left_out(tmp_path: Path, summary: str | None) -> None:
    good = item("Nine ships left.", "", has_error=False, doc_id=8)
    first, second = read(tmp_path, item("Seven ships left.", summary), good)
    assert isinstance(first, Rejected) and (first.line, first.id) == (1, "defacto-7")
    assert "does not say which words" in first.reason
    assert isinstance(second, dict)


def test_a_group_is_an_article(tmp_path: Path) -> None:
    rows = read(
        tmp_path,
        item("Seven ships left.", "Nine ships left."),
        item("Nine ships left.", "", False, 8),
        item("Nine ships left.", "", False, 9, article="Another one."),
    )
    first, second, third = (row["group"] for row in rows if isinstance(row, dict))
    assert first == second != third


def test_aligning_a_row_again_changes_nothing(tmp_path: Path) -> None:
    (row,) = read(tmp_path, item("Seven ships left the old quay.", 'Nine ships left the "old quay".'))
    assert isinstance(row, dict)
    assert Row.of(row).align(AlignSettings()).to_json()["spans"] == row["spans"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"article": None}, "line 1: article should be there as str, got None"),
        ({"feedback": {}}, "line 1: feedback: explanation should be there as str, the row has nothing"),
        ({"has_error": 1}, "line 1: has_error should be there as bool, got 1"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidData, match=words):
        read(tmp_path, item("Seven ships left.", "Nine ships left.") | change)


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="no such file"):
        list(read_defacto(tmp_path / "none.jsonl"))


def test_an_empty_summary_is_rejected_by_itself(tmp_path: Path) -> None:
    found = read(tmp_path, item(" ", "", has_error=False), item("Nine ships left.", "", has_error=False, doc_id=8))
    assert isinstance(found[0], Rejected) and "completion" in found[0].reason
    assert isinstance(found[1], dict)


@pytest.mark.skipif("TEXT2GRAD_DATA" not in os.environ, reason="needs the data folder, named by TEXT2GRAD_DATA")
@pytest.mark.parametrize(("split", "rows", "left_out"), [("train", 977, 23), ("val", 471, 15)])
def test_the_published_files(split: str, rows: int, left_out: int) -> None:
    found = list(read_defacto(Path(os.environ["TEXT2GRAD_DATA"]) / "summarization" / f"defacto_{split}.jsonl"))
    kept = [row for row in found if isinstance(row, dict)]
    assert (len(kept), len(found) - len(kept)) == (rows, left_out)
    assert len({row["id"] for row in kept}) == rows


def test_the_critic_is_the_one_that_agrees_with_people() -> None:
    assert defacto_task("train.jsonl").critic == "support"
