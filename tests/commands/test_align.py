"""`text2grad align` on files: good lines, bad lines, what is printed, exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from text2grad.cli import main

GOOD = {"id": "a", "completion": "Nine ships left on Tuesday.", "critique": 'The "on Tuesday" is wrong.'}


def write(path: Path, *lines: dict[str, Any] | bytes) -> str:
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines) + b"\n"
    )
    return str(path)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_writes_one_row_a_line_with_ids_kept(tmp_path: Path) -> None:
    source = write(
        tmp_path / "in.jsonl", GOOD, b"", {**GOOD, "id": 7, "prompt": [{"role": "user", "content": "Count."}]}
    )
    assert main(["align", source, str(tmp_path / "out.jsonl")]) == 0
    first, second = rows(tmp_path / "out.jsonl")
    assert (first["id"], second["id"]) == ("a", 7)
    assert first["spans"][0] == {
        "start": 16,
        "end": 26,
        "verdict": "poor",
        "severity": None,
        "provenance": "exact",
        "confidence": 1.0,
        "comment": 'The "on Tuesday" is wrong.',
        "occurrence": "only",
    }
    assert (first["missed"], first["omissions"]) == ([], [])
    assert not (tmp_path / "out.rejected.jsonl").exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{broken", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1, 2]", "should be a JSON object"),
        ({"id": "b", "critique": "x"}, "completion: should be a text, nothing came"),
        ({"id": "b", "completion": "x"}, "critique: should be a text"),
        (
            {"id": "b", "completion": "", "critique": "y"},
            "completion: should hold at least one visible character",
        ),
        (
            {"id": "b", "completion": "x", "critique": " \n"},
            "critique: should hold at least one visible character",
        ),
        (
            {"id": "b", "completion": "x", "critique": "y" * 1_000_000},
            "critique: should have at most 200,000 characters",
        ),
        ({"id": "b", "completion": "x", "critique": "y", "revision": 3}, "revision: should be a text"),
        ({"id": "b", "completion": "x", "critique": "y", "prompt": [1]}, "prompt: should be"),
        ({"id": "b", "completion": "x", "critique": {"feedback": 1}}, "Critique.feedback"),
        (
            {
                "id": "b",
                "completion": "x",
                "critique": "y",
                "spans": [{"start": 0, "end": 9, "verdict": "poor"}],
            },
            "should end within",
        ),
        ({"id": "b", "completion": "x", "critique": "y", "verdict": "bad"}, "verdict: should be"),
        ({"id": "b", "completion": "\ud800", "critique": "y"}, "surrogate"),
    ],
)
def test_a_bad_line_is_reported_and_the_rest_is_done(
    tmp_path: Path, line: dict[str, Any] | bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.jsonl", GOOD, line, GOOD)
    assert main(["align", source, str(tmp_path / "out.jsonl")]) == 1
    assert [row["id"] for row in rows(tmp_path / "out.jsonl")] == ["a", "a"]
    (rejected,) = rows(tmp_path / "out.rejected.jsonl")
    assert rejected["line"] == 2
    assert rejected["id"] == ("b" if isinstance(line, dict) and "id" in line else None)
    assert reason in rejected["reason"]
    assert "1 of 3 lines" in capsys.readouterr().err


def test_columns_of_any_file_have_the_names_they_have(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text('output,notes\nSeven ships left.,"""Seven"" is wrong."\n')
    words = ["align", str(source), str(tmp_path / "out.jsonl"), "columns.completion=output", "columns.critique=notes"]
    assert main(words) == 0
    (row,) = rows(tmp_path / "out.jsonl")
    assert (row["id"], row["spans"][0]["start"], row["spans"][0]["end"]) == ("line-2", 0, 5)


def test_control_characters_and_right_to_left_text_are_text(tmp_path: Path) -> None:
    odd = {
        "id": "c",
        "completion": "a\u0000\u001b[31mשלום עולם\u202eb",
        "critique": 'The "שלום עולם" is good.',
    }
    assert main(["align", write(tmp_path / "in.jsonl", odd), str(tmp_path / "out.jsonl")]) == 0
    (row,) = rows(tmp_path / "out.jsonl")
    assert odd["completion"][row["spans"][0]["start"] : row["spans"][0]["end"]] == "שלום עולם"


def test_nothing_done_is_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    assert main(["align", write(tmp_path / "bad.jsonl", b"{"), str(out)]) == 2
    assert not out.exists()
    assert len(rows(tmp_path / "out.rejected.jsonl")) == 1
    assert main(["align", write(tmp_path / "empty.jsonl"), str(out)]) == 2
    assert main(["align", str(tmp_path / "none.jsonl"), str(out)]) == 2
    assert "none.jsonl: should be a readable file" in capsys.readouterr().err


def test_old_rejects_go_when_all_lines_are_well(tmp_path: Path) -> None:
    out = str(tmp_path / "out.jsonl")
    assert main(["align", write(tmp_path / "in.jsonl", GOOD, b"{"), out]) == 1
    assert main(["align", write(tmp_path / "in.jsonl", GOOD), out]) == 0
    assert not (tmp_path / "out.rejected.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "wants a file"),
        (["in.jsonl"], "nowhere to put the spans"),
        (["a", "b", "c"], "takes IN and OUT"),
        (["in.jsonl", "out.jsonl", "quotes.ambigous=all"], "did you mean `quotes.ambiguous`"),
    ],
)
def test_words_that_do_not_go_together(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["align", *words]) == 2
    assert message in capsys.readouterr().err


def test_never_writes_over_its_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.jsonl", GOOD)
    assert main(["align", source, source]) == 2
    assert "would write over its own input" in capsys.readouterr().err
    assert rows(tmp_path / "in.jsonl") == [GOOD]


def test_given_spans_stay(tmp_path: Path) -> None:
    given = {**GOOD, "spans": [{"start": 0, "end": 4, "verdict": "good", "comment": "counted"}]}
    assert main(["align", write(tmp_path / "in.jsonl", given), str(tmp_path / "out.jsonl")]) == 0
    (row,) = rows(tmp_path / "out.jsonl")
    assert [(span["provenance"], span["verdict"]) for span in row["spans"]] == [
        ("given", "good"),
        ("exact", "poor"),
    ]


def test_settings_reach_the_aligner(tmp_path: Path) -> None:
    twice = {"id": "t", "completion": "ha ha", "critique": 'The "ha" is wrong.'}
    source = write(tmp_path / "in.jsonl", twice)
    assert main(["align", source, str(tmp_path / "out.jsonl"), "quotes.ambiguous=all"]) == 0
    assert len(rows(tmp_path / "out.jsonl")[0]["spans"]) == 2


def test_print_config_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["align", "--print-config", "quotes.ambiguous=none"]) == 0
    printed = capsys.readouterr().out
    assert "ambiguous: none" in printed
    (tmp_path / "c.yaml").write_text(printed, encoding="utf-8")
    assert main(["align", "--print-config", "--config", str(tmp_path / "c.yaml")]) == 0
    assert capsys.readouterr().out == printed


def test_the_examples_show_every_kind_of_ending(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["align", "--examples", str(tmp_path / "out.jsonl"), "--show"]) == 0
    shown = capsys.readouterr().out
    for word in ("good", "poor", "missed", "⟦range(1, n)⟧⟨−1⟩", "一片🍑"):
        assert word in shown
    assert len(rows(tmp_path / "out.jsonl")) >= 7


def test_batch_order_does_not_matter(tmp_path: Path) -> None:
    items: list[dict[str, Any] | bytes] = [
        {**GOOD, "id": str(i), "critique": f'The "{w}" is wrong.'} for i, w in enumerate(["Nine", "ships", "left"])
    ]
    for name, order in (("x", items), ("y", items[::-1])):
        assert main(["align", write(tmp_path / f"{name}.in.jsonl", *order), str(tmp_path / f"{name}.jsonl")]) == 0
    assert rows(tmp_path / "x.jsonl") == rows(tmp_path / "y.jsonl")[::-1]


def test_the_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["align", "--help"])
    assert stopped.value.code == 0
    assert "quotes.ambiguous=first" in capsys.readouterr().out


def test_the_input_and_other_peoples_files_are_never_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "x.rejected.jsonl", GOOD)
    assert main(["align", source, str(tmp_path / "x.jsonl")]) == 2
    assert "would write over its own input" in capsys.readouterr().err
    source = write(tmp_path / "in.jsonl", GOOD)
    (tmp_path / "y.rejected.jsonl").write_text("my diary\n")
    assert main(["align", source, str(tmp_path / "y.jsonl")]) == 2
    assert "is in the way" in capsys.readouterr().err
    assert (tmp_path / "y.rejected.jsonl").read_text() == "my diary\n"


@pytest.mark.parametrize("target", ["", ".", "in.jsonl/out.jsonl", "/proc/out.jsonl"])
def test_an_output_that_cannot_be_written_is_no_traceback(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", GOOD)
    assert main(["align", "in.jsonl", target]) == 2
    assert capsys.readouterr().err.startswith("text2grad align: ")


def test_a_line_is_a_line_whatever_characters_are_in_it(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", GOOD | {"critique": 'The "on Tuesday" is\u2028wrong\x85.'})
    assert main(["align", source, str(tmp_path / "out.jsonl")]) == 0
    assert len((tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()) == 1


def test_an_embedder_that_is_not_there_is_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.jsonl", GOOD)
    assert main(["align", source, str(tmp_path / "out.jsonl"), "embedder=./no-such-folder"]) == 2
    assert "no-such-folder" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
