"""`text2grad evaluate`: metrics of a tiny model as a table and as JSON; what it refuses, and how it says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from text2grad.cli import main
from text2grad.commands import evaluate
from text2grad.errors import RunError
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import read_jsonl

CRITIC = """
from text2grad.tasks.task import Metric, Task, mean_of
from text2grad.types import Critique, Example


def short(prompts, completions, **columns):
    return [Critique("Long.", score=-len(text)) for text in completions]


def long(prompts, completions, **columns):
    return [Critique("Short.", score=len(text)) for text in completions]


def silent(prompts, completions, **columns):
    return [None for _ in completions]


LETTERS = Metric("letters", "Letters", "Letters per completion.", "neither", mean_of(lambda example, text: len(text)))
harbours = Task(
    "harbours",
    {"validation": [Example(f"h{n}", f"Name the crane of harbour {n}.") for n in range(3)]},
    critic=short,
    metrics=(LETTERS,),
)
"""
SMALL = ["task=my_own:harbours", "sampling.max_new_tokens=8", "device=cpu"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own.py").write_text(CRITIC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_own", raising=False)


def results(*words: str) -> dict[str, Any]:
    assert main(["evaluate", *words, *SMALL, "--out", "results.json", "--quiet"]) == 0
    read: dict[str, Any] = json.loads(Path("results.json").read_text())
    return read


def test_a_users_own_task_is_measured_greedily(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    read = results(model)
    metrics = read["metrics"]
    assert (read["task"], read["split"], read["examples"], read["critic"]) == (
        "my_own:harbours",
        "validation",
        3,
        "short",
    )
    assert metrics["greedy/letters"] == pytest.approx(-metrics["greedy/score"])
    assert metrics["greedy/length"] <= 8 and metrics["greedy/unscored_frac"] == 0
    assert read["info"]["greedy/letters"] == {
        "title": "Letters",
        "help": "Letters per completion.",
        "better": "neither",
    }
    assert read["info"].keys() == metrics.keys()
    table = capsys.readouterr().out
    assert "Letters" in table and f"{metrics['greedy/score']:.4g}" in table and "3 validation examples" in table


def test_the_best_of_n_is_better_and_the_same_seed_gives_the_same_numbers(model: str) -> None:
    first = results(model, "samples=4", "best_of=4", "--rollouts", "rollouts.jsonl")
    rows = list(read_jsonl("rollouts.jsonl"))
    sampled = [[row["score"] for row in rows if row["part"] == "samples" and row["group"] == n] for n in range(3)]
    assert [len(scores) for scores in sampled] == [4, 4, 4]
    assert first["metrics"]["samples/score"] == pytest.approx(sum(map(sum, sampled)) / 12)
    assert first["metrics"]["best_of/score"] == pytest.approx(sum(map(max, sampled)) / 3)
    assert results(model, "samples=4", "best_of=4")["metrics"] == first["metrics"]
    assert results(model, "samples=4", "seed=1")["metrics"] != first["metrics"]
    # The other critic wants the opposite: what it picks is the worst.
    other = results(model, "best_of=4", "best_of_critic=my_own:long")
    assert other["metrics"]["best_of/score"] == pytest.approx(sum(map(min, sampled)) / 3)
    assert "samples/score" not in other["metrics"]


def test_files_and_other_critics(model: str) -> None:
    Path("data.jsonl").write_text('{"prompt": "Hi", "reference": "Ho"}\n{"prompt": "Yo", "reference": "Yes"}\n')
    words = [model, "data=data.jsonl", "sampling.max_new_tokens=4", "device=cpu", "--quiet", "--out", "a.json"]
    assert main(["evaluate", *words]) == 0
    read = json.loads(Path("a.json").read_text())
    assert (read["split"], read["examples"], read["critic"]) == ("train", 2, "reference")
    assert main(["evaluate", *words, "critic=my_own:long", "examples=1"]) == 0
    read = json.loads(Path("a.json").read_text())
    assert (read["examples"], read["critic"], read["settings"]["examples"]) == (1, "long", 1)


def test_a_critic_that_scores_nothing_is_told(model: str, caplog: pytest.LogCaptureFixture) -> None:
    metrics = results(model, "critic=my_own:silent")["metrics"]
    assert metrics["greedy/unscored_frac"] == 1 and "greedy/score" not in metrics
    assert "the critic silent scored no completion" in caplog.text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "wants one model, got 0"),
        (["a", "b"], "wants one model, got 2"),
        (["a", "task=bulletn"], "task: there is no 'bulletn'; did you mean `bulletin`?"),
        (["a"], "task jsonl: there is no split 'train' with examples"),
        (["a", "task=bulletin", "split=dev"], "no split 'dev' with examples; it has train, validation, test"),
        (["a", "task=bulletin", "best_of_critic=reference"], "set best_of to their number"),
        (["a", "sample=3"], "did you mean `samples`?"),
        (["no/such/folder", "task=bulletin"], "no/such/folder"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--out", "--rollouts"])
def test_files_that_cannot_be_written_are_refused_before_the_work(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for target, words in ((tmp_path / "file" / "a.json", "is not a folder"), (tmp_path, "but it is a folder")):
        assert main(["evaluate", "no-such-model", *SMALL, flag, str(target)]) == 2
        assert words in capsys.readouterr().err


def test_the_table_comes_before_the_files(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(evaluate, "write_atomic", full)
    assert main(["evaluate", model, *SMALL, "--out", "results.json", "--quiet"]) != 0
    out, err = capsys.readouterr()
    assert "Score" in out and "the disk is full" in err


def test_the_model_writes_again_in_sight_of_the_critique(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", model, *SMALL, "reflect=true", "--rollouts", "again.jsonl", "--out", "r.json"]) == 0
    assert "written again" in capsys.readouterr().out
    rows = [row for row in read_jsonl("again.jsonl") if row["part"] == "reflection"]
    first = [row for row in read_jsonl("again.jsonl") if row["part"] == "greedy"]
    assert [row["example"] for row in rows] == [row["example"] for row in first], (
        "judged as answers to the first prompt"
    )
    # It has read its prompt, its own completion and the critique.
    assert all(len(row["prompt_ids"]) > len(other["prompt_ids"]) for row, other in zip(rows, first, strict=True))
    read = json.loads(Path("r.json").read_text())
    assert read["metrics"]["reflection/score"] == pytest.approx(sum(read["each"]["reflection"]["score"]) / 3)


def test_a_judge_compares_with_another_models_texts(
    model: str, fault_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", model, *SMALL, "--rollouts", "other.jsonl", "--quiet"]) == 0
    changed = [json.loads(line) for line in Path("other.jsonl").read_text().splitlines()]
    for row in changed:
        row["completion"]["text"] = "clearly better"
    Path("other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    fault_server("prefers-better")
    read = results(model, "against=other.jsonl", "--judge", "openai:m")
    assert (read["judge"]["win_rate"], read["judge"]["losses"]) == (0.0, 3)
    assert "openai:m, against other.jsonl: wins 0.0%" in capsys.readouterr().out
    assert main(["evaluate", "no-such-model", *SMALL, "--judge", "openai:m", "--quiet"]) == 2
    assert "there is nothing to compare example" in capsys.readouterr().err, "told before the work"


JUDGE, GRADER = ["--judge", "openai:m", "against=other.jsonl"], ["--grader", "openai:m"]


@pytest.mark.parametrize("asked", [JUDGE, GRADER, JUDGE + GRADER])
def test_where_the_judge_fails_everything_else_is_written(
    model: str, asked: list[str], fault_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [{"example": {"id": f"h{n}"}, "completion": {"text": "another"}} for n in range(3)]
    Path("other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    fault_server("always-500")
    words = [*SMALL, *asked, "critics.openai.retries=0", "--out", "r.json", "--rollouts", "r.jsonl", "--quiet"]
    assert main(["evaluate", model, *words]) != 0
    out, err = capsys.readouterr()
    assert "Score" in out and "everything else was measured; openai:m: gave up after 1 tr" in err
    read = json.loads(Path("r.json").read_text())
    assert "greedy/score" in read["metrics"] and read["judge"] is read["grades"] is None
    assert read["failed"].count("gave up") == asked.count("openai:m"), "who failed keeps nobody else from being asked"
    assert len(list(read_jsonl("r.jsonl"))) == 3


def test_a_judge_grades_both_turns_of_a_conversation(
    model: str, fault_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = [["Describe a ship.", "Now a longship."], ["Describe a bridge.", "Now a drawbridge."]]
    rows = [{"question_id": n, "category": "writing", "turns": asked} for n, asked in enumerate(turns, 1)]
    Path("mt.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fault_server("grades-ship")
    words = ["task=mt_bench", "data=mt.jsonl", "sampling.max_new_tokens=4", "device=cpu", "--grader", "openai:m"]
    assert main(["evaluate", model, *words, "--out", "r.json", "--rollouts", "r.jsonl", "--quiet"]) == 0
    read = json.loads(Path("r.json").read_text())
    # The judge counts "ship" in all that it reads: one in the first turn, one more in the second.
    assert read["grades"]["turns"] == {"greedy": (2 + 1) / 2, "turn_2": (3 + 1) / 2}
    assert "of 10" in capsys.readouterr().out
    rollouts = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    first = {row["example"]["id"]: row["completion"]["text"] for row in rollouts if row["part"] == "greedy"}
    for row in (row for row in rollouts if row["part"] == "turn_2"):
        said = [message["content"] for message in row["example"]["prompt"]]
        assert said == [*turns[int(row["example"]["id"]) - 1][:1], first[row["example"]["id"]], *said[2:]]
        assert said[2].startswith("Now a ")


def test_choices_are_measured_by_their_likelihood(model: str) -> None:
    rows = [{"id": "a", "query": "Question: How many?", "choices": ["x", "the ships"], "gold": 0}]
    Path("arc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["task=arc", "data=arc.jsonl", "sampling.max_new_tokens=2", "device=cpu", "--out", "r.json", "--quiet"]
    assert main(["evaluate", model, *words]) == 0
    read = json.loads(Path("r.json").read_text())
    assert read["metrics"]["greedy/choice_accuracy"] in (0.0, 1.0)
    assert read["metrics"]["greedy/gold_logprob"] < 0
    Path("arc.jsonl").write_text(json.dumps(rows[0] | {"gold": 7}) + "\n")
    assert main(["evaluate", model, *words]) == 2
