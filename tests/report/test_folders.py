"""Run folders: whole, half, killed, and none at all."""

from pathlib import Path

import pytest

from tests.report.made_runs import write_rows, write_run
from text2grad.errors import RunError
from text2grad.report.folders import read_runs
from text2grad.report.page import build


def test_a_whole_run_has_its_numbers_settings_and_facts(tmp_path: Path) -> None:
    (run,) = read_runs([write_run(tmp_path / "a", "span", seed=7, updates=8)])
    assert (run.name, run.seed, run.last_update, run.planned, run.trouble) == ("a", 7, 8, 8, ())
    assert run.config["optim.learning_rate"] == 1e-5
    assert set(run.metrics[0]) == {"held_out/score", "held_out/length", "held_out/diversity", "held_out/repetition"}
    assert run.warnings == ((3, "reward/residual_ratio is 1.2: span rewards add variance"),)
    assert run.facts["data"]["train.jsonl"] == "ab" * 32


def test_an_unfinished_run_with_a_torn_line_is_read_and_said_to_be_unfinished(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=8)
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(lines[:6]) + lines[6][:20])
    (run,) = read_runs([folder])
    assert run.last_update == 5
    assert run.trouble == ("not finished: 5 of 8 updates so far",)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=2)
    for name in ("config.yaml", "run.json", "rollouts.jsonl"):
        (folder / name).unlink()
    (run,) = read_runs([folder])
    assert [words.split(",")[0] for words in run.trouble] == ["no config.yaml", "no run.json", "no rollouts.jsonl"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.yaml", b"a: [", "config.yaml is no YAML of settings"),
        ("config.yaml", b"a: 2026-99-99", "config.yaml is no YAML of settings"),
        ("config.yaml", b"a: &a {b: *a}", "config.yaml is no YAML of settings"),
        ("config.yaml", b"a: &a [*a]", "config.yaml is no YAML of settings"),
        ("config.yaml", b"[" * 1500, "config.yaml is no YAML of settings"),
        ("config.yaml", b"a: 0x" + b"f" * 5000, "config.yaml is no YAML of settings"),
        ("config.yaml", b"[1]", "config.yaml is no YAML of settings"),
        ("metrics.jsonl", b'{"update": 1%s, "a": 1}\n' % (b"0" * 400), "numbers were skipped: 1"),
        ("metrics.jsonl", b'{"update": 1, "a": 1%s, "b": -1e308}\n' % (b"0" * 400), "±1e+100 were skipped: 2"),
        ("run.json", b"[1]", "run.json should be a JSON object"),
        ("metrics.jsonl", b"", "metrics.jsonl is empty"),
        (
            "metrics.jsonl",
            b'{"update": 1, "score/mean": 0.5}\nrubbish\n{"update": true}\n',
            "numbers were skipped: 2",
        ),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    folder = write_run(tmp_path / "a", updates=2)
    (folder / name).write_bytes(content)
    (run,) = read_runs([folder])
    assert any(said in words for words in run.trouble)
    assert said.split(":")[-1] in build([run]).html.decode(), "and there is a page that says it"


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=2)
    (folder / "metrics.jsonl").write_text('{"update": 1, "a": NaN, "b": Infinity, "c": true, "d": "x", "e": 2}\n')
    (run,) = read_runs([folder])
    assert run.metrics == {1: {"e": 2.0}}


def test_rows_of_one_update_are_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=2)
    (folder / "metrics.jsonl").write_text('{"update": 2, "b": 2}\n{"update": 1, "a": 1}\n{"update": 2, "c": 3}\n')
    (run,) = read_runs([folder])
    assert list(run.metrics.items()) == [(1, {"a": 1.0}), (2, {"b": 2.0, "c": 3.0})]


def test_what_is_no_run_is_refused_with_what_was_wanted(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", updates=1)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("x")
    for path, said in (
        ("nowhere", "there is nothing of that name"),
        ("notes", "got a folder that holds todo.txt"),
        ("notes/todo.txt", "got a file"),
        (".", "got a folder that holds notes, runs"),
        ("runs/a/metrics.jsonl", "did you mean"),
    ):
        with pytest.raises(RunError, match="should be a run folder") as caught:
            read_runs([tmp_path / path])
        assert said in str(caught.value)


def test_names_are_as_long_as_it_takes(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / arm / "seed-1", arm, updates=1) for arm in ("span", "scalar")]
    assert [run.name for run in read_runs(folders)] == ["span/seed-1", "scalar/seed-1"]
    assert [run.name for run in read_runs(folders[:1])] == ["seed-1"]


def test_a_run_with_a_model_is_finished(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", updates=8)
    write_rows(folder / "metrics.jsonl", [{"update": n, "held_out/watched": 3.0 - n} for n in (0, 2, 4)])
    (run,) = read_runs([folder])
    assert run.unfinished == "not finished: 4 of 8 updates so far"
    assert "a is not finished: 4 of 8 updates so far." in build([run]).html.decode()
    (folder / "model").mkdir()
    (run,) = read_runs([folder])
    assert not run.unfinished and "not finished" not in build([run]).html.decode()
