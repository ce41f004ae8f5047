"""One reader for every kind of file, and one mapping of columns: nested names, what is missing, what is nearest."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.runs.tables import nearest, pick, read_table

ROWS = [
    {"nr": 1, "output": "Seven.", "feedback": {"text": "It is nine.", "fixed": "Nine."}},
    {"nr": 2, "output": "Nine.", "feedback": {"text": "Right.", "fixed": ""}},
]
NAMES = {"id": "nr", "completion": "output", "critique": "feedback.text", "revision": "feedback.fixed"}


def written(path: Path, kind: str) -> Path:
    path = path / f"rows.{kind}"
    lines = "\n".join(map(json.dumps, ROWS)) + "\n"
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif kind == "csv":
        cells = [json.dumps(row["feedback"]).replace('"', '""') for row in ROWS]
        path.write_text(
            "nr,output,feedback\n" + "".join(f'{i},{ROWS[i - 1]["output"]},"{cells[i - 1]}"\n' for i in (1, 2))
        )
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif kind == "json":
        path.write_text(json.dumps(ROWS, indent=1))
    elif kind == "keyed.json":
        path.write_text(json.dumps({str(row["nr"]): {k: v for k, v in row.items() if k != "nr"} for row in ROWS}))
    elif kind == "data.json":
        path.write_text(json.dumps({"version": "1", "data": ROWS}))
    else:
        path.write_text(lines)
    return path


def rows_of(path: Path, columns: dict[str, str] | None = None) -> list[Any]:
    return [row for _, row in read_table(path, columns)]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "data.json", "csv", "parquet"])
def test_one_mapping_for_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    first, second = rows_of(written(tmp_path, kind), NAMES)
    assert (str(first["id"]), first["completion"]) == ("1", "Seven.")
    assert (first["critique"], first["revision"]) == ("It is nine.", "Nine.")
    assert second["critique"] == "Right." and "revision" not in second  # "" is no correction
    assert "output" not in first and "feedback" in first  # what was taken is not there twice; what holds it stays


def test_an_object_of_objects_is_rows_with_ids(tmp_path: Path) -> None:
    names = {"completion": "output", "critique": "feedback.text"}
    assert [(row["id"], row["completion"]) for row in rows_of(written(tmp_path, "keyed.json"), names)] == [
        ("1", "Seven."),
        ("2", "Nine."),
    ]


def test_one_object_on_one_line_of_jsonl_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": {"b": 1}}\n')
    assert rows_of(path) == [{"a": {"b": 1}}]
    (tmp_path / "a.json").write_text('{"a": {"b": 1}}\n')
    assert rows_of(tmp_path / "a.json") == [{"id": "a", "b": 1}]


def test_a_name_that_no_row_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl")
    with pytest.raises(
        InvalidData, match=r"columns.revision=feedback.fixd: no row has it; did you mean feedback.fixed"
    ):
        rows_of(path, {"revision": "feedback.fixd"})
    with pytest.raises(InvalidData, match=r"no row has it; the columns are nr, output, feedback, feedback.text"):
        rows_of(path, {"revision": "xyz"})


def test_a_name_that_only_a_late_row_has_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n{"x": 2, "late": "y"}\n')
    assert rows_of(path, {"revision": "late"}) == [{"x": 1}, {"revision": "y", "x": 2}]


def test_a_column_with_our_name_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"completion": "99 %", "output": "Nine."}\n')
    assert rows_of(path, {"completion": "output"}) == [{"completion": "Nine.", "completion_column": "99 %"}]


def test_one_column_may_serve_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "Nine ships left.", "output": "Nine."}\n')
    (row,) = rows_of(path, {"reference": "prompt", "completion": "output"})
    assert row == {"prompt": "Nine ships left.", "reference": "Nine ships left.", "completion": "Nine."}


def test_a_rollout_is_a_row(tmp_path: Path) -> None:
    example = {"id": "a", "prompt": "Count.", "reference": "Nine.", "columns": {"tests": ["x"]}}
    span = {"start": 0, "end": 5, "verdict": "poor"}
    rollout = {"update": 3, "example": example, "completion": {"text": "Seven."}, "index": 7, "token_rewards": [0.5]}
    rollout |= {"critique": {"feedback": "No."}, "alignment": {"spans": [span], "missed": []}, "score": 0.25}
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps(rollout) + "\n" + json.dumps(rollout | {"held_out": True, "critique": None}) + "\n")
    first, second = rows_of(path)
    assert (first["id"], second["id"]) == ("a@3.7", "a@3-held-out.7")
    assert (first["completion"], first["reference"], first["tests"]) == ("Seven.", "Nine.", ["x"])
    assert (first["critique"], first["spans"]) == ({"feedback": "No."}, [span]) and "critique" not in second


def test_the_nearest_name_is_by_spelling_or_by_meaning() -> None:
    assert nearest("completion", {"complition": "x", "output": "y"}).endswith("try columns.completion=complition")
    assert nearest("critique", {"a": 1, "meta": {"feedback": "x"}}).endswith("try columns.critique=meta.feedback")
    assert nearest("critique", {"a": 1}) == "the columns are a"


def test_nested_names() -> None:
    row = {"a.b": 1, "a": {"b": 2, "c": [{"d": 3}, {"d": 4}]}}
    assert (pick(row, "a.b"), pick(row, "a.c.-1.d"), pick(row, "a.c.0.d")) == (1, 4, 3)
    for name in ("a.c.2.d", "a.x", "b", "a.b.c"):
        with pytest.raises(KeyError):
            pick(row, name)


@pytest.mark.parametrize("content", [b"PAR1 not really", b"\x1f\x8bno gzip", b'[{"a": 1},', b"\xff\xfe\x00"])
def test_what_is_no_such_file_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InvalidData, match=r"a\.json"):
        rows_of(path)


@given(st.binary(max_size=80), st.sampled_from([b"", b"a,b\n", b"[", b"{", b"PAR1", b"\x1f\x8b", b"\xff\xfe"]))
def test_no_content_crashes_it(tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(start + content)
    try:
        found = rows_of(path)
    except InvalidData:
        return
    assert all(isinstance(row, dict | InvalidData) for row in found)


def test_a_cell_with_a_list_as_python_prints_it(tmp_path: Path) -> None:
    tests = ["assert f('a') == \"b\"", "assert f(1) == 2"]
    glued = "['assert f(1) == 2' 'assert f(2) == 4']"  # as numpy prints it
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "test_list"], [1, str(tests)], [2, json.dumps(tests)], [3, glued]])
    rows = rows_of(tmp_path / "a.csv", {"tests": "test_list"})
    assert [row["tests"] for row in rows] == [tests, tests, glued]


def test_what_cannot_be_a_column_is_not_suggested() -> None:
    assert nearest("prompt", {"# text2grad": "Train."}) == "the columns are # text2grad"
    assert nearest("completion", {"id": "line-3", "note": "x"}) == "the columns are note"  # that id was made up
    assert nearest("completion", {"id": "3", "note": "x"}) == "the columns are id, note"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", '"hello"'), ("a.jsonl", ""), ("a.jsonl", "\n\n"), ("a.csv", ""), ("a.csv", "id,b\n"), ("a.json", "[]")],
)
def test_a_file_without_rows_is_refused_in_every_kind(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    for columns in ({}, {"completion": "nowhere"}):
        with pytest.raises(InvalidData, match="should hold rows, got"):
            rows_of(tmp_path / name, columns)


def test_lines_that_an_open_quotation_mark_swallows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,completion\n1,a\n2,"b\n3,c\n4,d\n')
    first, bad = rows_of(tmp_path / "a.csv")
    assert first == {"id": "1", "completion": "a"}
    assert "it goes on to line 5, so 3 lines are lost with it" in str(bad)
    (tmp_path / "a.csv").write_text('id,completion\n2,"b\n3,"c\n4,d\n')  # the next quotation mark closes it
    assert "it goes on to line 3, so 2 lines are lost with it" in str(rows_of(tmp_path / "a.csv")[0])
