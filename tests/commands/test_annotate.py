"""`text2grad annotate` as a shell sees it: complete, resumable after any kill, careful with other people's files."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from text2grad.cli import main
from text2grad.runs import encode_row, read_jsonl

ROWS = [
    {
        "id": "a",
        "prompt": "p",
        "completion": "Nine ships left on Tuesday.",
        "critique": '"on Tuesday" is wrong.',
        "x": 1,
    },
    {"id": "b", "prompt": "p", "completion": "All well.", "critique": "", "revision": None},
    {"id": "c", "prompt": [{"role": "user", "content": "p"}], "completion": "Boil it.", "revision": "Fry it."},
    {"id": "d", "completion": "Marked 🙂 here.", "spans": [{"start": 0, "end": 6, "verdict": "good"}]},
]


def written(path: Path, rows: list[Any]) -> Path:
    path.write_bytes(b"".join(row if isinstance(row, bytes) else encode_row(row) for row in rows))
    return path


def test_every_line_ends_in_one_of_the_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path / "in.jsonl", [*ROWS, b"{broken\n", b"\n", b'{"id": "e"}\n', b'{"completion": "x"}\n'])
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl"), "--critic", "people"]) == 1
    rows = {row["id"]: row for row in read_jsonl(tmp_path / "out.jsonl")}
    assert list(rows) == ["a", "c", "d"]
    assert rows["a"]["x"] == 1 and rows["a"]["critique"]["feedback"] == '"on Tuesday" is wrong.'
    assert [(s["start"], s["end"], s["verdict"]) for s in rows["a"]["spans"]] == [(16, 26, "poor")]
    assert rows["c"]["spans"][0]["provenance"] == "revision"
    assert rows["d"]["spans"][0]["provenance"] == "given"
    assert all({"critique", "spans", "missed"} <= set(row) for row in rows.values())
    rejected = list(read_jsonl(tmp_path / "out.rejected.jsonl"))
    assert [(row["line"], row["id"]) for row in rejected] == [(2, "b"), (5, None), (7, "e"), (8, "line-8")]
    assert "not scored" in rejected[0]["reason"] and "is not JSON" in rejected[1]["reason"]
    assert "3 annotated" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl.partial").exists()


def test_a_published_file_is_read_by_its_task(tmp_path: Path) -> None:
    """DeFacto as published: what people corrected is poor, a right summary is good, and other critics may judge it."""
    right = {"doc_id": 1, "article": "A dam broke at noon.", "candidate": "A dam broke.", "has_error": False}
    wrong = {"doc_id": 2, "article": "A dam broke at noon.", "candidate": "A dam broke at dawn.", "has_error": True}
    rows = [
        right | {"abstract": "Dam breaks.", "feedback": {"explanation": "Fine.", "summary": ""}},
        wrong | {"abstract": "Dam breaks.", "feedback": {"explanation": "Noon.", "summary": "A dam broke at noon."}},
        wrong | {"doc_id": 3, "feedback": {"explanation": "?", "summary": "Ships."}},
    ]
    source, target = written(tmp_path / "published.jsonl", rows), tmp_path / "out.jsonl"
    assert main(["annotate", str(source), str(target), "task=defacto"]) == 1
    first, second = read_jsonl(target)
    assert [(s["start"], s["end"], s["verdict"]) for s in first["spans"]] == [(0, 12, "good")]
    assert [second["completion"][s["start"] : s["end"]] for s in second["spans"]] == ["dawn"]
    (rejected,) = read_jsonl(tmp_path / "out.rejected.jsonl")
    assert (rejected["line"], rejected["id"]) == (3, "defacto-3")
    assert main(["annotate", str(source), str(tmp_path / "r.jsonl"), "task=defacto", "critic=reference"]) == 1
    assert next(read_jsonl(tmp_path / "r.jsonl"))["critique"]["score"] is not None
    assert main(["annotate", str(source), str(tmp_path / "x.jsonl"), "task=defact"]) == 2


def test_a_second_run_finds_nothing_to_do_and_another_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = written(tmp_path / "in.jsonl", ROWS[:1]), tmp_path / "out.jsonl"
    assert main(["annotate", str(source), str(target)]) == 0
    before = target.read_bytes()
    assert main(["annotate", str(source), str(target)]) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert main(["annotate", str(source), str(target), "align.quotes.ambiguous=all"]) == 2
    written(source, ROWS[:2])
    assert main(["annotate", str(source), str(target)]) == 2
    assert "is not the result of this input with these settings" in capsys.readouterr().err
    assert target.read_bytes() == before


@pytest.mark.parametrize("content", [b"my novel\n", b"\xff\xfe\x00", b'{"id": "a"}\n', b""])
def test_a_file_of_somebody_else_is_not_written_over(tmp_path: Path, content: bytes) -> None:
    source, target = written(tmp_path / "in.jsonl", ROWS[:1]), tmp_path / "out.jsonl"
    target.write_bytes(content)
    assert main(["annotate", str(source), str(target)]) == 2
    assert target.read_bytes() == content
    target.unlink()
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(content or b"novel")
    assert main(["annotate", str(source), str(target)]) == 2
    assert partial.read_bytes() == (content or b"novel") and not target.exists()


def test_what_is_in_the_way_of_an_unfinished_run_is_not_written_over(fault_server: Any, tmp_path: Path) -> None:
    fault_server()
    rows = [{"id": n, "prompt": "p", "completion": f"Ship number {n}."} for n in range(20)]
    source, target = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    subprocess.run(command(source, target, "critics.openai.budget.requests=9"), capture_output=True)
    assert (tmp_path / "out.jsonl.partial").exists()
    target.write_text("my novel\n")
    assert subprocess.run(command(source, target), capture_output=True).returncode == 2
    assert target.read_text() == "my novel\n"
    target.unlink()
    (tmp_path / "out.receipt.json").write_text("my shopping\n")
    assert subprocess.run(command(source, target), capture_output=True).returncode == 2
    assert (tmp_path / "out.receipt.json").read_text() == "my shopping\n"


def test_what_people_said_is_no_part_of_what_another_critic_says(tmp_path: Path) -> None:
    said = {"spans": [{"start": 0, "end": 4, "verdict": "good"}], "revision": "Nine boats left.", "verdict": "poor"}
    row = {"id": 1, "prompt": "p", "completion": "Nine ships left.", "reference": "Nine ships sank.", **said}
    plain = {key: value for key, value in row.items() if key not in said}
    source, bare = written(tmp_path / "in.jsonl", [row]), written(tmp_path / "bare.jsonl", [plain])
    found = {}
    for name, file, critic in (
        ("alone", bare, "reference"),
        ("beside", source, "reference"),
        ("people", source, "people"),
        ("both", source, "merge(people, reference)"),
        ("program first", source, "first(reference, people)"),
        ("people first", source, "first(people, reference)"),
        ("deep", source, "weighted(1*first(reference, people), 1*reference)"),
    ):
        assert main(["annotate", str(file), str(tmp_path / f"{name}.jsonl"), "--critic", critic]) == 0
        (made,) = read_jsonl(tmp_path / f"{name}.jsonl")
        found[name] = {(span["start"], span["end"], span["verdict"]) for span in made["spans"]}
    assert found["beside"] == found["alone"] and found["alone"]
    assert (0, 4, "good") in found["people"] and found["people"] - found["alone"]
    assert found["both"] >= {(0, 4, "good")} | found["alone"]
    assert found["program first"] == found["alone"] and found["people first"] == found["people"]
    assert found["deep"] == found["alone"]


def test_an_earlier_critique_that_cannot_be_read_is_nothing_to_another_critic(tmp_path: Path) -> None:
    row = {"id": 1, "prompt": "p", "completion": "Nine ships.", "reference": "Nine ships.", "critique": {"x": 1}}
    source = written(tmp_path / "in.jsonl", [row])
    assert main(["annotate", str(source), str(tmp_path / "program.jsonl"), "--critic", "reference"]) == 0
    assert main(["annotate", str(source), str(tmp_path / "next.jsonl"), "--critic", "first(people, reference)"]) == 0
    alone, after = ([row["spans"] for row in read_jsonl(tmp_path / f"{name}.jsonl")] for name in ("program", "next"))
    assert alone == after
    assert main(["annotate", str(source), str(tmp_path / "people.jsonl"), "--critic", "people"]) == 2
    (rejected,) = read_jsonl(tmp_path / "people.rejected.jsonl")
    assert "its critique cannot be read" in rejected["reason"]


def test_annotated_once_more_it_is_the_same(tmp_path: Path) -> None:
    source, first, second = written(tmp_path / "in.jsonl", ROWS), tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    assert main(["annotate", str(source), str(first)]) == 1, "one line has nothing to say"
    assert main(["annotate", str(first), str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()


def test_a_column_named_like_an_argument_is_no_crash(tmp_path: Path) -> None:
    rows = [{"id": 1, "completion": "Nine ships.", "critique": '"Nine" is wrong.', "self": 1, "prompts": 2}]
    source = written(tmp_path / "in.jsonl", rows)
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl")]) == 0
    assert next(iter(read_jsonl(tmp_path / "out.jsonl")))["prompts"] == 2


def test_wrong_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path / "in.jsonl", ROWS[:1])
    for words, message in {
        (str(source),): "wants IN.jsonl and OUT.jsonl, got 1 files",
        (str(source), str(source)): "would write over its own input",
        (str(tmp_path / "no.jsonl"), "out.jsonl"): "should be a readable file of JSON lines",
        (str(source), str(tmp_path / "o"), "--critic", "peple"): "did you mean `people`?",
        (str(source), str(tmp_path / "o"), "critics.openai.modell=x"): "there is no setting `critics.openai.modell`",
    }.items():
        assert main(["annotate", *words]) == 2
        assert message in capsys.readouterr().err


def command(source: Path, target: Path, *more: str) -> list[str]:
    words = ["annotate", str(source), str(target), "--critic", "openai:m", "critics.openai.concurrency=4", "batch=8"]
    return [sys.executable, "-m", "text2grad", *words, *more]


def test_killed_at_any_moment_and_run_again_gives_the_same_file(fault_server: Any, tmp_path: Path) -> None:
    fault_server(delay=0.01)
    rows = [{"id": n, "prompt": "p", "completion": f"Ship number {n} left the harbour."} for n in range(60)]
    source = written(tmp_path / "in.jsonl", [*rows[:30], b"{broken\n", *rows[30:]])
    subprocess.run(command(source, tmp_path / "undisturbed.jsonl"), capture_output=True)
    asked = len((tmp_path / "log").read_text().splitlines())
    environment = os.environ | {"TEXT2GRAD_CACHE": str(tmp_path / "another")}
    draw = random.Random(0)
    kills = 0
    for questions in (1, 9, 17, 30, 45, 59, 60, 60, 60):
        process = subprocess.Popen(command(source, tmp_path / "out.jsonl"), stderr=subprocess.DEVNULL, env=environment)
        while process.poll() is None and len((tmp_path / "log").read_text().splitlines()) < asked + questions:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.05))
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills >= 6
    assert subprocess.run(command(source, tmp_path / "out.jsonl"), capture_output=True, env=environment).returncode == 1
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()
    name = "{}.rejected.jsonl"
    assert (tmp_path / name.format("out")).read_bytes() == (tmp_path / name.format("undisturbed")).read_bytes()
    again = len((tmp_path / "log").read_text().splitlines()) - asked
    assert asked == 60 and again <= 60 + 4 * kills, "only what was under way at a kill is asked for again"


def test_a_spent_budget_stops_cleanly_and_a_larger_one_finishes(fault_server: Any, tmp_path: Path) -> None:
    fault_server()
    rows = [{"id": n, "prompt": "p", "completion": f"Ship number {n} left the harbour."} for n in range(20)]
    source, target = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    done = subprocess.run(command(source, target, "critics.openai.budget.requests=9"), capture_output=True, text=True)
    assert done.returncode == 2 and "the budget is spent: 9 of 9 requests" in done.stderr
    assert "about 20 requests," in done.stderr and "9 requests" in done.stderr
    assert not target.exists()
    done = subprocess.run(command(source, target), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(read_jsonl(target))) == 20
    assert "20 requests" in done.stderr and "9 of the requests in earlier runs" in done.stderr
    assert "sk-very-secret" not in done.stderr + (tmp_path / "out.receipt.json").read_text()


def test_two_processes_do_not_write_the_same_file(fault_server: Any, tmp_path: Path) -> None:
    fault_server(delay=0.5)
    rows = [{"id": n, "prompt": "p", "completion": f"Ship number {n}."} for n in range(20)]
    source, target = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    first = subprocess.Popen(command(source, target), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (tmp_path / "out.jsonl.partial").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    second = subprocess.run(command(source, target), capture_output=True, text=True)
    assert second.returncode == 2 and "being written by another process" in second.stderr
    assert first.wait() == 0


def test_memory_does_not_grow_with_the_number_of_items(tmp_path: Path) -> None:
    """Counted in peak kilobytes of the process, over inputs of which one is ten times the other."""
    code = (
        "import sys\nfrom text2grad.cli import main\n"
        "main(['annotate', sys.argv[1], sys.argv[2], 'batch=64'])\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    peaks = []
    for count in (500, 5000):
        rows = [
            {"id": n, "completion": f"Text {n} " + "word " * 100, "critique": f'"Text {n}" is wrong.'}
            for n in range(count)
        ]
        source = written(tmp_path / f"{count}.jsonl", rows)
        words = [sys.executable, "-c", code, str(source), str(tmp_path / f"{count}.out.jsonl")]
        peaks.append(int(subprocess.run(words, capture_output=True, text=True, check=True).stdout))
    assert peaks[1] < peaks[0] + 8 * 1024


def test_the_receipt_says_what_made_the_file(tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", ROWS[:1])
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl")]) == 0
    receipt = json.loads((tmp_path / "out.receipt.json").read_text())
    assert (receipt["annotated"], receipt["rejected"], receipt["settings"]["critic"]) == (1, 0, "people")


def test_program_critics_by_name_and_a_bad_column_rejects_its_row_only(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "completion": "Nine ships left.", "reference": "Nine ships left the harbour."},
        {"id": 2, "completion": "Nine ships left.", "reference": 5},
        {"id": 3, "completion": "Nine ships left."},
    ]
    source, target = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    assert main(["annotate", str(source), str(target), "--critic", "reference"]) == 1
    (row,) = read_jsonl(target)
    assert row["id"] == 1 and 0 < row["critique"]["score"] < 1 and row["critique"]["quality"][0] == [0, 0.0]
    reasons = {row["id"]: row["reason"] for row in read_jsonl(tmp_path / "out.rejected.jsonl")}
    assert "reference" in reasons[2] and reasons[3] == "not scored: it has no reference"
    said = "Nine ships left the harbour of Brindlemoor in 2018, after the fog had lifted. Nobody was hurt."
    supported = [{"id": 1, "completion": "Nine ships left the harbour of Brindlemoor in 2019.", "passages": [said]}]
    written(source, supported)
    assert main(["annotate", str(source), str(tmp_path / "s.jsonl"), "--critic", "support"]) == 0
    (row,) = read_jsonl(tmp_path / "s.jsonl")
    assert any(
        span["verdict"] == "poor" and row["completion"][span["start"] : span["end"]] == "2019" for span in row["spans"]
    )


def test_why_a_row_is_not_scored_is_said_whoever_is_asked(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": "Who?", "completion": "Nine ships left."}]
    source = written(tmp_path / "in.jsonl", rows)
    said: dict[str, str] = {}
    for critic in ("support", "first(support, reference)", "merge(reference, support)"):
        target = tmp_path / f"{len(said)}.jsonl"
        assert main(["annotate", str(source), str(target), "--critic", critic]) == 2
        (row,) = read_jsonl(target.with_name(f"{target.stem}.rejected.jsonl"))
        said[critic] = row["reason"]
    thin = "it has no passages and no source, and its prompt has fewer than 20 words"
    assert said == {
        "support": f"not scored: {thin}",
        "first(support, reference)": f"not scored: support: {thin}; reference: it has no reference",
        "merge(reference, support)": f"not scored: reference: it has no reference; support: {thin}",
    }


def test_a_critic_of_ones_own_that_raises_ends_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def judge(prompts, completions, **columns):\n    return 1 / 0\n")
    source = written(tmp_path / "in.jsonl", ROWS)
    words = [sys.executable, "-m", "text2grad", "annotate", str(source), "out.jsonl", "--critic", "own:judge"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "the critic judge raised ZeroDivisionError: division by zero (line 2 of " in done.stderr
    debugged = os.environ | {"TEXT2GRAD_DEBUG": "1"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=debugged)
    assert done.returncode == 2 and "Traceback" in done.stderr and "return 1 / 0" in done.stderr


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv"])
def test_an_id_that_comes_twice_is_rejected_the_second_time_in_any_file(tmp_path: Path, suffix: str) -> None:
    said = [("1", "", "Six."), ("2", "", "Five."), ("1", "", "Four."), ("2", "bob", "Three."), ("2", "bob", "Two.")]
    rows = [
        {"id": identity, "completion": text, "critique": "No.", **({"annotator": who} if who else {})}
        for identity, who, text in said
    ]
    source = tmp_path / f"in{suffix}"
    if suffix == ".csv":
        lines = [f"{identity},{who},{text},No." for identity, who, text in said]
        source.write_text("\n".join(["id,annotator,completion,critique", *lines]))
    elif suffix == ".json":
        source.write_text(json.dumps(rows))
    else:
        written(source, rows)
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl")]) == 1
    found = [(row["id"], row["completion"]) for row in read_jsonl(tmp_path / "out.jsonl")]
    assert found == [("1", "Six."), ("2", "Five."), ("2#bob", "Three.")]
    rejected = list(read_jsonl(tmp_path / "out.rejected.jsonl"))
    assert [row["id"] for row in rejected] == ["1", "2#bob"]
    assert {row["reason"] for row in rejected} == {
        "its id was used before; give each item its own, or name the annotator"
    }


def test_a_number_and_its_digits_are_one_id(tmp_path: Path) -> None:
    rows = [{"id": 1, "completion": "Six.", "critique": "No."}, {"id": "1", "completion": "Five.", "critique": "No."}]
    source = written(tmp_path / "in.jsonl", rows)
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl")]) == 1


def test_nothing_but_results_stays_behind(tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", ROWS[:1])
    for _ in range(2):
        assert main(["annotate", str(source), str(tmp_path / "out.jsonl")]) == 0
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["in.jsonl", "out.jsonl", "out.receipt.json"]


def test_a_critic_that_was_changed_is_not_mixed_into_an_unfinished_file(tmp_path: Path) -> None:
    """The critic stops at the second batch; then its source is edited."""
    code = (
        "from text2grad import Critique\n"
        "def judge(prompts, completions, **columns):\n"
        "    if 'stop' in completions[0]:\n        raise ValueError('enough')\n"
        "    return [Critique('SAID') for _ in completions]\n"
    )
    own = tmp_path / "own.py"
    own.write_text(code.replace("SAID", "Before."))
    rows = [{"id": n, "completion": text} for n, text in enumerate(["Six.", "stop"])]
    source = written(tmp_path / "in.jsonl", rows)
    words = [sys.executable, "-m", "text2grad", "annotate", str(source), "out.jsonl", "batch=1"]
    words += ["--critic", "first(people, own:judge)"]

    def done() -> Any:
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)

    assert "raised ValueError: enough" in done().stderr
    own.write_text(code.replace("SAID", "After."))
    refused = done()
    assert refused.returncode == 2
    assert "the source of the critic own:judge has changed" in refused.stderr and "to begin anew" in refused.stderr
    (tmp_path / "out.jsonl.partial").unlink()
    own.write_text(code.replace("SAID", "After.").replace("'stop'", "'halt'"))
    assert done().returncode == 0
    assert {row["critique"]["feedback"] for row in read_jsonl(tmp_path / "out.jsonl")} == {"After."}
    own.write_text(code)
    again = done()
    assert again.returncode == 2 and "the source of the critic own:judge has changed" in again.stderr


def test_a_critic_that_failed_at_once_can_be_mended_and_run_again(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def judge(prompts, completions, **columns):\n    return 1 / 0\n")
    source = written(tmp_path / "in.jsonl", ROWS[:1])
    words = [sys.executable, "-m", "text2grad", "annotate", str(source), "out.jsonl", "--critic", "own:judge"]
    assert subprocess.run(words, capture_output=True, cwd=tmp_path).returncode == 2
    own.write_text(
        "from text2grad import Critique\n"
        "def judge(prompts, completions, **columns):\n    return [Critique('Fine.') for _ in completions]\n"
    )
    assert subprocess.run(words, capture_output=True, cwd=tmp_path).returncode == 0


def test_peoples_files_are_read_and_tasks_for_them_written(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text(
        'id,completion,critique\n1,"Nine ships 🚢 left on Tuesday.","""on Tuesday"" is wrong."\n2,,nothing\n'
    )
    assert main(["annotate", str(table), str(tmp_path / "out.jsonl")]) == 1
    (row,) = read_jsonl(tmp_path / "out.jsonl")
    assert row["completion"][row["spans"][0]["start"] : row["spans"][0]["end"]] == "on Tuesday"
    (rejected,) = read_jsonl(tmp_path / "out.rejected.jsonl")
    assert rejected["line"] == 3
    for tool in ("label_studio", "argilla"):
        tasks = tmp_path / f"{tool}.json"
        assert main(["annotate", str(tmp_path / "out.jsonl"), str(tasks), "--tasks", tool]) == 0
        before = tasks.read_bytes()
        assert main(["annotate", str(tmp_path / "out.jsonl"), str(tasks), "--tasks", tool]) == 2
        assert tasks.read_bytes() == before
        back = tmp_path / f"{tool}.jsonl"
        assert main(["annotate", str(tasks), str(back), "people.suggestions=true"]) == 0
        (again,) = read_jsonl(back)
        places = [(span["start"], span["end"], span["verdict"]) for span in row["spans"]]
        assert places[0] in [(span["start"], span["end"], span["verdict"]) for span in again["spans"]]


@pytest.mark.system("bwrap")
def test_programs_are_run_in_the_sandbox_and_blamed_where_they_go_wrong(tmp_path: Path) -> None:
    tests = ["assert add(2, 3) == 5", "assert add(0, 0) == 0", "assert add(1, 1) == 2"]
    program = "def add(a, b):\n    if a == b == 0:\n        return 0\n    return a - b\n"
    rows = [
        {"id": "wrong", "prompt": "Add.", "completion": program, "tests": tests},
        {"id": "right", "prompt": "Add.", "completion": program.replace("-", "+"), "tests": tests},
        {"id": "cheat", "prompt": "Add.", "completion": "print('3 passed')\nraise SystemExit(0)\n", "tests": tests},
        {"id": "untested", "prompt": "Add.", "completion": program},
        {"id": "unreadable", "prompt": "Add.", "completion": program, "tests": ["assert add("]},
    ]
    source, target = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    assert main(["annotate", str(source), str(target), "--critic", "code"]) == 1
    found = {row["id"]: row for row in read_jsonl(target)}
    assert {name: row["critique"]["score"] for name, row in found.items()} == {
        "wrong": 0.0,  # one of three tests is hidden: either that one fails, or both others do
        "right": 1.0,
        "cheat": 0.0,
    }
    (span,) = found["wrong"]["spans"]
    assert program[span["start"] : span["end"]] == "return a - b" and span["verdict"] == "poor"
    assert "expected 5, got -1" in found["wrong"]["critique"]["feedback"]
    reasons = {row["id"]: row["reason"] for row in read_jsonl(tmp_path / "out.rejected.jsonl")}
    assert reasons.pop("untested") == "not scored: it has no tests"
    assert reasons.pop("unreadable").startswith("not scored: its tests cannot be used: ")
    assert not reasons


def test_the_unsafe_switch_is_loud(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": "", "completion": "def f():\n    return 1\n", "tests": ["assert f() == 1"]}]
    source = written(tmp_path / "in.jsonl", rows)
    words = ["annotate", str(source), str(tmp_path / "out.jsonl"), "--critic", "code", "--unsafe-no-sandbox"]
    done = subprocess.run([sys.executable, "-m", "text2grad", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "without a sandbox" in done.stderr.lower() or "unsafe" in done.stderr.lower()


@pytest.mark.parametrize("name", ["in.csv", "in.json", "in.jsonl"])
def test_any_file_is_judged_by_a_program_with_its_own_column_names(tmp_path: Path, name: str) -> None:
    """Tables without a critique are rows to judge, and a whole number is an id."""
    row = {
        "nr": 7,
        "program": "def double(x): return 3 * x",
        "checks": ["assert double(1) == 2", "assert double(0) == 0"],
    }
    if name == "in.csv":
        checks = json.dumps(row["checks"]).replace('"', '""')
        content = f'nr,program,checks\n7,{row["program"]},"{checks}"\n'
    else:
        content = json.dumps([row] if name == "in.json" else row)
    (tmp_path / name).write_text(content)
    names = ["columns.id=nr", "columns.completion=program", "columns.tests=checks"]
    assert main(["annotate", str(tmp_path / name), str(tmp_path / "out.jsonl"), "--critic", "code", *names]) == 0
    (found,) = read_jsonl(tmp_path / "out.jsonl")
    assert (str(found["id"]), found["critique"]["score"]) == ("7", 0.125)


def test_spans_that_are_none_and_old_names_of_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path / "in.jsonl", [{"id": 1, "output": "Seven.", "feedback": {"text": "No."}}])
    words = ["annotate", str(source), str(tmp_path / "out.jsonl"), "columns.spans=feedback"]
    assert main([*words, "people.columns.completion=output"]) == 2
    assert "`people.columns` is now `columns`" in capsys.readouterr().err
    (rejected,) = read_jsonl(tmp_path / "out.rejected.jsonl")
    assert rejected["reason"].startswith("spans: should be a list of objects with start, end and verdict, got {'text'")


def test_rollouts_and_completions_can_go_to_people(tmp_path: Path) -> None:
    example: dict[str, Any] = {"id": "a", "prompt": "Count.", "reference": None, "columns": {}}
    rollout = {"update": 1, "example": example, "completion": {"text": "Seven ships."}, "index": 0, "critique": None}
    source = written(tmp_path / "rollouts.jsonl", [rollout, rollout | {"update": 2}])
    assert main(["annotate", str(source), str(tmp_path / "tasks.json"), "--tasks", "label_studio"]) == 0
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [task["data"]["completion"] for task in tasks] == ["Seven ships."] * 2
    source = written(tmp_path / "made.jsonl", [{"id": 3, "prompt": "Count.", "completion": "Nine."}])
    assert main(["annotate", str(source), str(tmp_path / "records.json"), "--tasks", "argilla"]) == 0


def test_many_missed_quotes_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    critique = '"seven ships" is wrong. "a storm" is invented.'
    rows = [{"id": n, "completion": "Nine boats left.", "critique": critique} for n in range(3)]
    rows.append({"id": 3, "completion": "Nine boats left.", "critique": '"Nine" is right.'})
    source = written(tmp_path / "in.jsonl", rows)
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl")]) == 0
    said = capsys.readouterr().err
    assert "4 annotated" in said and "6 of 7 quotes (86%) were not found in their completions; 6 times because" in said
    source = written(tmp_path / "in.jsonl", rows[3:])
    assert main(["annotate", str(source), str(tmp_path / "right.jsonl")]) == 0
    assert "not found in their completions" not in capsys.readouterr().err


def test_a_quote_that_is_found_in_many_places_is_one_quote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One quote in five places, one that is nowhere: half of the quotes are missed, not a sixth."""
    row = {"id": 1, "completion": "no, no, no, no, no", "critique": '"no" is wrong. "a storm" is invented.'}
    source = written(tmp_path / "in.jsonl", [row])
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl"), "align.quotes.ambiguous=all"]) == 0
    assert "1 of 2 quotes (50%) were not found" in capsys.readouterr().err


def test_the_commonest_reason_stands_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": 1, "text": "x"}, {"id": 2, "text": "y"}, {"id": 3, "completion": "z"}]
    source = written(tmp_path / "in.jsonl", rows)
    assert main(["annotate", str(source), str(tmp_path / "out.jsonl")]) == 2
    said = capsys.readouterr().err
    assert "2 of 3 rejected because, as in line 1: completion: should be a text, nothing came; the columns are" in said
