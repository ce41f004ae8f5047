"""QA-Feedback's published shape → annotated rows; small made-up files, and the real one where it is at hand."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import InvalidData
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.rows import Row
from text2grad.tasks.qa_feedback import Half, read_qa_feedback

TEXT = "Fjord came out in 2017. It is long. It is long."
PASSAGES = [["Fjord", "Fjord is an album.", "It came out\n\nin 2016."], ["Tern", "Tern is a label."]]


def mark(kind: str, start: int, end: int, explanation: str = "") -> dict[str, Any]:
    return {"error type": kind, "start": start, "end": end, "explanation": explanation}


def item(*errors: dict[str, Any], missing: tuple[dict[str, Any], ...] = (), **other: Any) -> dict[str, Any]:
    feedback = {
        "errors": list(errors),
        "missing-info": list(missing),
        "corrected-prediction": "Fjord came out in 2016.",
    }
    row = {"question": "When did Fjord come out?", "passages": PASSAGES, "gold": "In 2016.", "prediction 1": TEXT}
    return row | {"feedback": feedback} | other


def read(folder: Path, *rows: Any, **options: Any) -> list[dict[str, Any]]:
    path = folder / "qa.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return list(read_qa_feedback(path, **options))


def said(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["completion"][span["start"] : span["end"]], span["verdict"]) for span in row["spans"]]


WRONG = mark("Wrong-Grounding", 18, 22, '{"passage_id":1,"sentence_id":[2]}')
AGAIN = mark("Redundant", 36, 47, "It is long.")


def test_what_passages_contradict_is_poor_and_other_marks_are_neutral(tmp_path: Path) -> None:
    (row,) = read(tmp_path, item(WRONG, AGAIN))
    assert said(row) == [("2017", "poor"), ("It is long.", "neutral")]
    assert row["critique"]["feedback"] == (
        "“2017”: the passages say something else: “It came out in 2016.”. "
        "“It is long.”: this was said before: “It is long.”."
    )
    assert row["spans"][0]["comment"].startswith("Wrong-Grounding: ")
    assert (row["id"], row["question"], row["reference"]) == ("qa-0", "When did Fjord come out?", "In 2016.")
    assert row["passages"][1] == "Tern\nTern is a label."
    assert row["prompt"].startswith("Answer") and row["prompt"].endswith("Tern is a label.")


def test_what_is_missing_is_an_omission(tmp_path: Path) -> None:
    missing = {"error type": "Missing-Answer", "passage_id": 2, "sentence_id": [0, 1]}
    (row,) = read(tmp_path, item(WRONG, missing=(missing,)))
    assert row["critique"]["omissions"] == ["Tern Tern is a label."]
    assert row["critique"]["feedback"].endswith("Missing: “Tern Tern is a label.”.")


def test_nothing_marked_is_good_as_a_whole(tmp_path: Path) -> None:
    (row,) = read(tmp_path, item())
    assert said(row) == [(TEXT, "good")]
    assert row["critique"]["feedback"] == "Nothing is wrong."


@pytest.mark.parametrize(("half", "ids"), [("even", ["qa-0", "qa-2"]), ("odd", ["qa-1"]), (None, None)])
def test_the_split_is_by_parity(tmp_path: Path, half: Half | None, ids: list[str] | None) -> None:
    found = [row["id"] for row in read(tmp_path, item(), item(), item(), half=half)]
    assert found == (ids or ["qa-0", "qa-1", "qa-2"])


def test_a_group_is_its_passages(tmp_path: Path) -> None:
    first, second, third = read(tmp_path, item(), item(question="Who?"), item(passages=PASSAGES[:1]))
    assert first["group"] == second["group"] != third["group"]


def test_aligning_a_row_again_changes_nothing(tmp_path: Path) -> None:
    (row,) = read(tmp_path, item(WRONG, AGAIN))
    assert Row.of(row).align(AlignSettings()).to_json()["spans"] == row["spans"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([1], "line 1: should be a JSON object"),
        (item(question=None), "line 1: question should be there as str"),
        (item(feedback={"errors": []}), "item 0, feedback: missing-info should be there as list"),
        (item(mark("Wrong-Grounding", 40, 60)), "item 0: .*should end within its text"),
        (item(mark("Dull", 0, 2)), "item 0: .*Dull"),
        (item(missing=({"passage_id": 9, "sentence_id": [0]},)), "item 0: IndexError"),
        (item(mark("Wrong-Grounding", 0, 2) | {"explanation": "{half"}), "item 0: JSONDecodeError"),
        (item(mark("Wrong-Grounding", 0, 2) | {"explanation": 5}), "item 0: AttributeError"),
        (item(passages=["a text"]), "passages should be lists of sentences, got 'a text'"),
        (item(passages=[[5]]), "passages should be lists of sentences, got \\[5\\]"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, row: Any, words: str) -> None:
    with pytest.raises(InvalidData, match=words):
        read(tmp_path, row)


def test_what_is_no_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"question": "x"}')
    with pytest.raises(InvalidData, match="passages should be there as list, the row has question"):
        list(read_qa_feedback(tmp_path / "a.json"))
    (tmp_path / "a.json").write_text("[{")
    with pytest.raises(InvalidData, match="should be JSON"):
        list(read_qa_feedback(tmp_path / "a.json"))


@pytest.mark.skipif("TEXT2GRAD_DATA" not in os.environ, reason="needs the data folder, named by TEXT2GRAD_DATA")
def test_the_published_file() -> None:
    path = Path(os.environ["TEXT2GRAD_DATA"]) / "qa" / "qa_feedback_dev.json"
    rows = list(read_qa_feedback(path))
    verdicts = [span["verdict"] for row in rows for span in row["spans"]]
    assert (len(rows), verdicts.count("poor"), verdicts.count("good")) == (500, 315, 36)
    assert len(list(read_qa_feedback(path, "odd"))) == 250
