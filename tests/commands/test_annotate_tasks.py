"""`text2grad annotate` with a task of one's own: with a file or without, edited between two runs, or plainly wrong."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from text2grad.runs import read_jsonl

OWN = """
from pathlib import Path
from text2grad import Alignment, Critique, Message, Span, Task
from text2grad.tasks.annotated import Annotated

def rows():
    marked = Alignment([Span(0, 4, "poor")], omissions=("The port.",))
    yield Annotated("a", "Which ships?", "Nine ships left.", Critique("Too many."), marked)
    chat = (Message("user", "And then?"),)
    more = {"id": 99, "completion": "not this", "year": 1900}
    yield Annotated("b", chat, "They sank.", Critique("Fine.", score=1.0), Alignment([Span(0, 10, "good")]), more)

fixed = Task("fixed", {}, annotations={"train": rows})

def odd_rows():
    yield from list(rows())[:1]
    yield Annotated("c", "p", "Text.", Critique("Fine."), Alignment([]), {"x": object()})

odd = Task("odd", {}, annotations={"train": odd_rows})
wrong = Task("wrong", {}, annotations={"train": lambda: [{"id": 1}]})

def lines(data):
    def read():
        for number, line in enumerate(Path(data).read_text().split("\\n")):
            yield Annotated(str(number), "p", line, Critique("SAID"), Alignment([Span(0, 3, "poor")]))
    return Task("lines", {}, annotations={"train": read})

def no_data():
    return fixed

def judge(prompts, completions, **columns):
    if any("stop" in text for text in completions):
        raise ValueError("enough")
    return [Critique(said["feedback"]) for said in columns["critique"]]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "in.txt").write_text("One.\nTwo.")
    return tmp_path


def annotate(folder: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "text2grad", "annotate", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)


@pytest.mark.parametrize("name", ["fixed", "no_data"])
def test_a_task_that_is_complete_needs_no_input(own: Path, name: str) -> None:
    done = annotate(own, "out.jsonl", f"task=own:{name}")
    assert done.returncode == 0, done.stderr
    first, second = read_jsonl(own / "out.jsonl")
    assert (first["id"], first["prompt"], first["completion"]) == ("a", "Which ships?", "Nine ships left.")
    assert first["critique"]["feedback"] == "Too many." and first["critique"]["omissions"] == ["The port."]
    assert [(span["start"], span["end"], span["verdict"]) for span in first["spans"]] == [(0, 4, "poor")]
    assert (second["id"], second["completion"], second["year"]) == ("b", "They sank.", 1900)
    assert second["prompt"][0]["content"] == "And then?" and second["critique"]["score"] == 1.0
    again = annotate(own, "out.jsonl", f"task=own:{name}")
    assert again.returncode == 0 and "nothing to do" in again.stderr


@pytest.mark.parametrize("name", ["fixed", "no_data"])
def test_an_input_for_a_task_that_takes_none_is_refused(own: Path, name: str) -> None:
    done = annotate(own, "in.txt", "out.jsonl", f"task=own:{name}")
    assert done.returncode == 2 and f"task=own:{name} takes no data, and got in.txt; leave IN out" in done.stderr
    assert not (own / "out.jsonl").exists()


def test_a_task_reads_its_file_and_wants_one(own: Path) -> None:
    assert annotate(own, "in.txt", "out.jsonl", "task=own:lines").returncode == 0
    assert [row["completion"] for row in read_jsonl(own / "out.jsonl")] == ["One.", "Two."]
    missing = annotate(own, "other.jsonl", "task=own:lines")
    assert missing.returncode == 2 and "missing a required argument: 'data'" in missing.stderr


def test_what_a_task_should_not_give(own: Path) -> None:
    assert annotate(own, "out.jsonl", "task=own:odd").returncode == 1
    (rejected,) = read_jsonl(own / "out.rejected.jsonl")
    assert rejected["id"] == "c" and "plain values only" in rejected["reason"]
    done = annotate(own, "wrong.jsonl", "task=own:wrong")
    assert done.returncode == 2 and "item 1 should be Annotated or Rejected, got dict" in done.stderr


def test_an_edited_task_is_not_mixed_into_an_unfinished_file(own: Path) -> None:
    (own / "in.txt").write_text("One.\nstop")
    words = ["in.txt", "out.jsonl", "task=own:lines", "batch=1", "--critic", "own:judge"]
    assert "raised ValueError: enough" in annotate(own, *words).stderr
    (own / "own.py").write_text(OWN.replace("SAID", "After."))
    refused = annotate(own, *words)
    assert refused.returncode == 2 and "the rows of the task own:lines have changed" in refused.stderr
    assert list(read_jsonl(own / "out.jsonl.partial"))[1]["row"]["critique"]["feedback"] == "SAID"


def test_an_edited_task_without_a_file_is_another_input(own: Path) -> None:
    assert annotate(own, "out.jsonl", "task=own:fixed").returncode == 0
    (own / "own.py").write_text(OWN.replace("Too many.", "Too few."))
    refused = annotate(own, "out.jsonl", "task=own:fixed")
    assert refused.returncode == 2 and "the rows of the task own:fixed have changed" in refused.stderr


def test_another_critic_is_called_another_critic(own: Path) -> None:
    assert annotate(own, "out.jsonl", "task=own:fixed").returncode == 0
    refused = annotate(own, "out.jsonl", "task=own:fixed", "--critic", "own:judge")
    assert refused.returncode == 2 and "another critic: people then, own:judge now" in refused.stderr
    assert "has changed" not in refused.stderr
