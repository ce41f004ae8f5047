"""Questions with known answers: splits by published ids, decisions, choices, turns."""

import json
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import ConfigError, InvalidData
from text2grad.tasks.questions import DECISIONS, decision_of
from text2grad.tasks.task import Task, open_task
from text2grad.types import Completion, Example, Rollout

PUBMED = {
    str(number): {
        "QUESTION": f"Does {number} help?",
        "CONTEXTS": ["It was tried.", "It helped."],
        "LONG_ANSWER": "It helps.",
        "final_decision": "yes" if number % 3 else "no",
    }
    for number in range(100, 160)
}


def written(path: Path, data: Any) -> str:
    lines = [json.dumps(row) for row in data] if isinstance(data, list) else [json.dumps(data)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def arc(tmp_path: Path, **row: Any) -> Task:
    return open_task("arc", data=written(tmp_path / "arc.jsonl", [row]))


def test_the_published_test_ids_are_the_test_split(tmp_path: Path) -> None:
    ids = written(tmp_path / "ids.json", {"100": "yes", "101": "no"})
    task = open_task("pubmedqa", data=written(tmp_path / "q.json", PUBMED), options={"test_ids": ids})
    splits = {name: {example.id for example in task.examples(name)} for name in task.splits}
    assert splits["test"] == {"100", "101"} and task.critic == "grounded"
    assert set.union(*splits.values()) == set(PUBMED) and sum(map(len, splits.values())) == len(PUBMED)
    assert 4 <= len(splits["validation"]) <= 20, "about a fifth"
    assert task.metrics == () and "yes, no or maybe" not in str(task.examples("test")[0].prompt)


def test_a_decision_is_asked_for_and_measured_beside_the_most_frequent(tmp_path: Path) -> None:
    task = open_task("pubmedqa", data=written(tmp_path / "q.json", PUBMED), options={"decide": True})
    example = task.examples("train")[0]
    assert str(example.prompt).endswith("Begin with yes, no or maybe.") and example.reference == "Yes. It helps."
    accuracy, majority = task.metrics
    texts = ["Yes, it does.", "no", "It may.", "Maybe"]
    golds = ["yes", "yes", "yes", "maybe"]
    rollouts = [
        Rollout(Example("a", "?", columns={"decision": gold}), Completion(text, (1,), ((0, len(text)),)))
        for text, gold in zip(texts, golds, strict=True)
    ]
    assert (accuracy.measure(rollouts), majority.measure(rollouts)) == (0.5, 0.75)
    assert task.metrics == DECISIONS and decision_of("Nothing, nobody: yes") == "yes"


def test_ids_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    data = written(tmp_path / "q.json", PUBMED)
    for content in ("[]", "7", "{"):
        (tmp_path / "ids.json").write_text(content)
        with pytest.raises(ConfigError, match=r"task_options\.test_ids: .*ids\.json should"):
            open_task("pubmedqa", data=data, options={"test_ids": str(tmp_path / "ids.json")})


def test_ids_of_another_file_are_refused(tmp_path: Path) -> None:
    data, ids = written(tmp_path / "q.json", PUBMED), written(tmp_path / "ids.json", {"7": "yes"})
    with pytest.raises(ConfigError, match=r"test_ids: .*ids\.json should hold ids of .*q\.json, and names none"):
        open_task("pubmedqa", data=data, options={"test_ids": ids})


def test_both_shapes_of_arc(tmp_path: Path) -> None:
    plain = arc(tmp_path, query="Question: How many?", choices=["Two.", "Three."], gold=1)
    hub = arc(tmp_path, question="How many?", choices={"text": ["Two.", "Three."], "label": ["A", "B"]}, answerKey="B")
    for task in (plain, hub):
        (example,) = task.examples("train")
        assert (example.prompt, example.reference) == ("Question: How many?\nAnswer:", "Three.")
        assert example.columns["choices"] == ["Two.", "Three."] and example.columns["gold"] == 1
    with pytest.raises(InvalidData, match="index of one of 2 choices, got 5"):
        arc(tmp_path, query="How many?", choices=["Two.", "Three."], gold=5).examples("train")


def test_benchmarks_for_judges(tmp_path: Path) -> None:
    alpaca = [{"instruction": "Greet.", "output": "Hello.", "generator": "other", "dataset": "helpful"}]
    (example,) = open_task("alpaca_eval", data=written(tmp_path / "a.json", alpaca)).examples("train")
    assert (example.prompt, example.reference, example.columns["category"]) == ("Greet.", "Hello.", "helpful")
    asked = {"question_id": 81, "category": "maths", "turns": ["1 + 1?", "Twice that?"], "reference": ["2", "4"]}
    (example,) = open_task("mt_bench", data=written(tmp_path / "m.jsonl", [asked])).examples("train")
    assert (example.id, example.prompt, example.reference) == ("81", "1 + 1?", "2")
    assert example.columns["turns"] == ["Twice that?"] and example.columns["turn_references"] == ["4"]
    with pytest.raises(InvalidData, match="reference should be a list of texts that are not empty, got '2'"):
        open_task("mt_bench", data=written(tmp_path / "m.jsonl", [asked | {"reference": "2"}])).examples("train")
