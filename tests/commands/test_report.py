"""`text2grad report` on folders: where the page goes, what is said, what is refused."""

import json
import webbrowser
from pathlib import Path

import pytest

from tests.report.made_runs import write_run
from text2grad.cli import main


def test_one_run_gets_its_page_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "a", updates=8)
    assert main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    assert (run / "report.html").read_bytes().startswith(b"<!doctype html>")
    assert f"wrote {run / 'report.html'}" in said and "held-out score rose from" in said


def test_several_get_one_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [str(write_run(tmp_path / arm, arm, updates=8)) for arm in ("span", "scalar")]
    monkeypatch.chdir(tmp_path)
    assert main(["report", *runs]) == 0
    assert "final score of scalar" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not (tmp_path / "span" / "report.html").exists()


def test_a_folder_of_runs_is_its_runs_and_files_beside_them_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arm in ("span", "scalar"):
        write_run(tmp_path / "demo" / arm, arm, updates=8)
    start = write_run(tmp_path / "demo" / "start", updates=1)
    (start / "metrics.jsonl").write_text('{"update": 1, "loss/mean": 2.5, "held_out/loss": 2.0}\n')
    for name in ("report.html", "summary.json", "settings.yaml"):
        (tmp_path / "demo" / name).write_text("x")
    (tmp_path / "demo" / "cache").mkdir()
    assert main(["report", str(tmp_path / "demo")]) == 0
    whole = capsys.readouterr()
    assert "final score of scalar" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert whole.err.splitlines() == [
        f"{tmp_path / 'demo' / 'cache'}: left out, a folder without metrics.jsonl is no run",
        f"{start}: left out, supervised fine-tuning has no scores",
    ]
    monkeypatch.chdir(tmp_path)
    assert main(["report", *(f"demo/{path.name}" for path in sorted((tmp_path / "demo").iterdir()))]) == 0
    starred = capsys.readouterr()
    assert starred.out.splitlines()[:-1] == whole.out.splitlines()[:-1]
    assert [line.split(":")[0] for line in starred.err.splitlines()] == [
        *("demo/cache", "demo/report.html", "demo/settings.yaml", "demo/summary.json", "demo/start"),
    ]
    assert main(["report", "demo/start"]) == 0, "named alone, it is what is wanted"


def test_a_preference_run_is_called_by_its_name_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "span", updates=2)
    run = write_run(tmp_path / "pairs", updates=2)
    rows = [{"update": n, "held_out/loss": 0.7 - n / 10, "held_out/accuracy": n / 2} for n in range(3)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = json.loads((run / "run.json").read_text())
    facts["command"] = ["text2grad", "dpo", "pairs"]
    (run / "run.json").write_text(json.dumps(facts))
    assert main(["report", str(tmp_path)]) == 0
    assert f"{run}: left out, a preference run has no scores" in capsys.readouterr().err
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8").split("<h3>More metrics</h3>")[0]
    assert "held-out loss fell from 0.700 to 0.500" in page and "<h4>held_out/accuracy</h4>" in page


def test_a_folder_keeps_the_order_in_which_its_runs_were_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for hour, arm in enumerate(("text2grad", "scalar")):
        facts = write_run(tmp_path / arm, arm, updates=2) / "run.json"
        facts.write_text(facts.read_text().replace("T16:", f"T1{hour}:"))
    write_run(tmp_path / "aside", "none", updates=2)
    (tmp_path / "aside" / "run.json").unlink()
    assert main(["report", str(tmp_path)]) == 0
    said = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert said[:3] == ["text2grad", "scalar", "aside"]


def test_a_link_to_a_run_beside_it_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run-1", updates=2)
    (tmp_path / "latest").symlink_to("run-1")
    monkeypatch.chdir(tmp_path)
    for words in (["."], ["latest", "run-1"], [".", "run-1"], [".", "."], ["run-1", "latest", "run-1"]):
        assert main(["report", *words]) == 0
        said = capsys.readouterr()
        assert said.out.startswith("run-1: held-out score") and ": left out, the same run as " in said.err


def test_out_names_the_file_and_an_old_page_is_replaced(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", updates=2)
    out = tmp_path / "new" / "page.html"
    for _ in range(2):
        assert main(["report", str(run), "--out", str(out)]) == 0
    assert out.stat().st_size > 10_000 and not list(tmp_path.rglob(".aside-*"))


def test_it_reads_a_run_that_is_being_written(tmp_path: Path) -> None:
    from text2grad.runs import Jsonl

    run = write_run(tmp_path / "a", updates=2)
    with Jsonl(run / "metrics.jsonl"):
        assert main(["report", str(run)]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "wants at least one run folder"),
        (["{here}/nowhere"], "should be a run folder"),
        (["{here}/a/config.yaml"], "did you mean"),
        (["{here}/a", "{here}/nowhere"], "there is nothing of that name"),
        (["{here}/a", "--out", "{here}"], "got a folder; say"),
        (["{here}/a", "--out", "{here}/a/config.yaml/x.html"], "x.html"),
    ],
)
def test_refusals_say_what_was_wanted(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "a", updates=1)
    assert main(["report", *(word.format(here=tmp_path) for word in words)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.html"))


@pytest.mark.parametrize("works", [True, False])
def test_open_opens_the_page(
    tmp_path: Path, works: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def start(url: str) -> bool:
        opened.append(url)
        return works

    monkeypatch.setattr(webbrowser, "open", start)
    run = write_run(tmp_path / "a b", updates=1)
    assert main(["report", str(run), "--open"]) == 0
    assert opened == [(run / "report.html").as_uri()]
    assert ("no browser could be started" in capsys.readouterr().out) != works


def test_it_names_the_file_and_the_line_that_it_could_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = write_run(tmp_path / "a", updates=3)
    whole = (made / "rollouts.jsonl").read_bytes()
    (made / "rollouts.jsonl").write_bytes(whole + b"\x8f\xffno row\n")
    assert main(["report", str(made)]) == 0
    line = 1 + whole.count(b"\n")
    told = capsys.readouterr().err
    assert f"{made}/rollouts.jsonl: 1 row could not be read, the first because: line {line} is no row" in told
    for bytes_ in (b"\x8f\xff\x00\x01", b"\x8f\n\xff\x00\n"):
        (made / "rollouts.jsonl").write_bytes(bytes_)
        assert main(["report", str(made)]) == 0
        assert "could not be read, the first because: line 1 is no row" in capsys.readouterr().err
    (made / "rollouts.jsonl").write_bytes(b'{"update": 1}\n')
    assert main(["report", str(made)]) == 0
    assert "could not be read, the first because: line 1: Rollout" in capsys.readouterr().err
