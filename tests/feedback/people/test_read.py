"""Tables and JSON lines from people, with the habits of spreadsheets; the kind is found from the content."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad import config
from text2grad.errors import InvalidData
from text2grad.feedback.people import PeopleSettings, Rejected, read_people
from text2grad.feedback.people.common import CORRECTED

HEADER = "id,prompt,completion,critique,revision\r\n"
SHIPS = {"id": "7", "completion": "Seven ships left.", "critique": "It is nine."}


def read(
    tmp_path: Path, data: bytes | str, name: str = "people.csv", columns: dict[str, str] | None = None, **settings: Any
) -> list[Any]:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return list(read_people(path, config.build(PeopleSettings, settings, "test"), columns))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tables_as_spreadsheets_write_them(tmp_path: Path, delimiter: str, encoding: str, end: str) -> None:
    lines = [["id", "completion", "critique"], ["7", '"Seven ships, ""left""; 🦩\n\nthen|\tsank."', "It is nine."]]
    data = end.join(delimiter.join(line) for line in lines) + end
    (row,) = read(tmp_path, data.encode(encoding))
    assert row == {"id": "7", "completion": 'Seven ships, "left"; 🦩\n\nthen|\tsank.', "critique": "It is nine."}


def test_json_lines_and_a_json_list(tmp_path: Path) -> None:
    for data in (
        json.dumps(SHIPS) + "\n",
        "\ufeff" + json.dumps(SHIPS) + "\r\n\r\n",
        json.dumps([SHIPS], indent=2),
    ):
        assert read(tmp_path, data, "people.json") == [SHIPS]


def test_columns_by_other_names(tmp_path: Path) -> None:
    data = "nr;output;notes;fixed;completion\n1;Seven.;It is nine.;Nine.;100%\n"
    names = {"id": "nr", "completion": "output", "critique": "notes", "revision": "fixed"}
    (row,) = read(tmp_path, data, columns=names)
    assert row == {
        "id": "1",
        "completion": "Seven.",
        "critique": "It is nine.",
        "revision": "Nine.",
        "completion_column": "100%",
    }
    (bad,) = read(tmp_path, data.replace(";completion", ";share"))
    assert bad.reason.startswith("completion: should be a text, nothing came; the columns are nr, output, notes")
    assert bad.reason.endswith("try columns.completion=output")


def test_corrections_without_a_critique_and_spans_in_a_table(tmp_path: Path) -> None:
    spans = '"[{""start"": 0, ""end"": 5, ""verdict"": ""poor""}]"'
    data = f'completion,revision,spans,passages\nSeven.,Nine.,,\nSeven.,,{spans},"[""Nine ships.""]"\n'
    first, second = read(tmp_path, data)
    assert (first["id"], first["critique"], first["revision"]) == ("line-2", CORRECTED, "Nine.")
    assert second["spans"] == [{"start": 0, "end": 5, "verdict": "poor"}]
    assert (second["critique"], second["passages"]) == ("Marked: 1 poor.", ["Nine ships."])


def test_what_is_not_in_the_encoding_is_reported_by_its_line(tmp_path: Path) -> None:
    data = HEADER.encode() + b'1,,"Two\r\nlines.",ok,\r\n2,,Caf\xe9.,ok,\r\n3,,Tea.,ok,\r\n'
    one, two, three = read(tmp_path, data)
    assert (one["completion"], three["id"]) == ("Two\r\nlines.", "3")
    assert isinstance(two, Rejected) and (two.line, two.id) == (4, "2")
    assert two.reason.startswith("completion: holds half of a surrogate pair, or a byte that is no text")
    assert read(tmp_path, data, encoding="cp1252")[1]["completion"] == "Café."
    lines = b'{"completion": "Caf\xe9", "critique": "x"}\n' + json.dumps(SHIPS).encode()
    bad, good = read(tmp_path, lines, "people.jsonl")
    assert (bad.line, good) == (1, SHIPS) and "a byte that is no text" in bad.reason
    (bad,) = read(tmp_path, b'[\n{"completion": "Caf\xe9", "critique": "x"}]', "people.json")
    assert (bad.line, bad.id) == (1, "line-1") and "a byte that is no text" in bad.reason
    with pytest.raises(InvalidData, match="encoding: should be one that Python knows, got 'klingon'"):
        read(tmp_path, data, encoding="klingon")


def test_broken_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    data = HEADER + '1,,"a"b,ok,\r\n2,,c,ok\r\n\r\n3,,d,,\r\n4,,e,fine,\r\n'
    quote, short, silent, good = read(tmp_path, data)
    assert (quote.line, short.line, silent) == (2, 3, {"id": "3", "completion": "d"})
    assert "is not CSV" in quote.reason
    assert short.reason == "should have 5 fields like the header, got 4"
    assert good == {"id": "4", "completion": "e", "critique": "fine"}
    lines = '{"id": 1\n[1]\n{"id": 2, "completion": " ", "critique": "x"}\n' + json.dumps(SHIPS)
    first, second, third, row = read(tmp_path, lines, "people.jsonl")
    assert ("is not JSON" in first.reason, second.line, third.id, row) == (True, 2, 2, SHIPS)


def test_several_people_on_one_id(tmp_path: Path) -> None:
    lines = ["1,ada,Seven.,No.", "1,bob,Seven.,Yes.", "1,bob,Seven.,Again.", "2,,Six.,Hm.", "2,,Six.,Hm."]
    data = "\n".join(["id,annotator,completion,critique", *lines])
    found = read(tmp_path, data)
    assert [row["id"] for row in found if isinstance(row, dict)] == ["1", "1#bob", "2"]
    assert [(bad.line, bad.id) for bad in found if isinstance(bad, Rejected)] == [(4, "1#bob"), (6, "2")]
    assert found[2].to_json()["reason"].startswith("its id was used before")


def test_files_that_cannot_be_read_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match="got an empty file"):
        read(tmp_path, "\ufeff \r\n")
    with pytest.raises(InvalidData, match="should be a readable file: No such file"):
        list(read_people(tmp_path / "nowhere.csv"))
    with pytest.raises(InvalidData, match=r"line 2, column 1: should be JSON: .*; was it cut off\?"):
        read(tmp_path, '[{"completion": "a"},\n', "people.json")
    with pytest.raises(InvalidData, match="each column once, got 'id' several times"):
        read(tmp_path, "id,id,completion\n")


def test_a_long_field_is_a_field(tmp_path: Path) -> None:
    (row,) = read(tmp_path, f"id,completion,critique\n1,{'a' * 200_000},ok\n")
    assert len(row["completion"]) == 200_000


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(str.encode),
    st.sampled_from([b"", b"id,completion,critique\n", b"[", b"{"]),
)
def test_no_content_crashes_it(tmp_path_factory: pytest.TempPathFactory, content: bytes, start: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(start + content)
    try:
        found = list(read_people(path))
    except InvalidData:
        return
    assert all(isinstance(each, dict | Rejected) for each in found)
