"""The task registry: built-in tasks and a user's own through the same function, and errors that say what there is."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.people import Rejected
from text2grad.feedback.settings import CriticSettings
from text2grad.tasks.annotated import Annotated
from text2grad.tasks.bulletin import bulletins
from text2grad.tasks.bulletin_critic import bulletin
from text2grad.tasks.task import TASKS, Metric, Task, open_task
from text2grad.types import Completion, Example, Rollout

OWN = """
from text2grad.tasks.task import Metric, Task, mean_of
from text2grad.types import Critique, Example

EXAMPLES = [Example("a", "Greet Ada."), Example("b", "Greet Bo.")]
LENGTH = Metric("words", "Words", "Words per completion.", "neither", mean_of(lambda e, text: len(text.split())))


def short(prompts, completions, **columns):
    return [Critique("Good." if len(text) < 9 else "Too long.", score=-len(text)) for text in completions]


complete = Task("greetings", {"train": EXAMPLES, "validation": lambda: EXAMPLES[:1]}, critic=short, metrics=(LENGTH,))


def made(data="", *, name="Ada"):
    return Task("greetings", {"train": [Example("a", f"Greet {name} from {data}.")]})


number = 7


def wrong():
    return "no task"
"""


def wrote(example: Example, text: str) -> Rollout:
    return Rollout(example, Completion(text, (1,), ((0, len(text)),)))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_tasks.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_tasks", None)


@pytest.mark.usefixtures("own")
def test_a_users_own_task_is_named_by_module_and_object() -> None:
    task = open_task("my_tasks:complete")
    assert [example.id for example in task.examples("train")] == ["a", "b"]
    assert [example.id for example in task.held_out()] == ["a"]
    critic: Any = task.critic
    assert [critique.score for critique in critic([""], ["Hi Ada."])] == [-7]
    (words,) = task.metrics
    rollouts = [wrote(task.examples()[0], text) for text in ("Hi Ada.", "Hi")]
    assert (words.key, words.better, words.measure(rollouts), words.measure([])) == ("words", "neither", 1.5, None)


@pytest.mark.usefixtures("own")
def test_a_users_own_function_reads_the_settings_that_it_declares() -> None:
    task = open_task("my_tasks:made", data="Bern", options={"name": "Bo"})
    assert task.examples("train")[0].prompt == "Greet Bo from Bern."
    assert task.held_out() == []
    with pytest.raises(ConfigError, match=r"does not read task_options.seed; it reads data, task_options.name"):
        open_task("my_tasks:made", options={"seed": 1})


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("bulletn", {}, "task: there is no 'bulletn'; did you mean `bulletin`"),
        ("what", {}, "there are jsonl, bulletin, defacto, .*, and package.module:object"),
        ("my_tasks:complete", {"data": "x"}, "complete as it is and reads no settings; leave out data"),
        ("my_tasks:number", {}, "should be a Task, or a function that makes one, got int"),
        ("my_tasks:wrong", {}, "should make a Task, got str"),
        ("my_tasks:nothing", {}, "has no attribute 'nothing'"),
        ("no_such_module:task", {}, "No module named 'no_such_module'; is it installed"),
        ("bulletin", {"data": "x.jsonl"}, "does not read data; it reads task_options.seed"),
        ("mbpp", {"data": "x.jsonl", "columns": {"prompt": "text"}}, "does not read columns; it reads data, held_out"),
        ("bulletin", {"options": {"count": 0}}, "task_options.count: should be a whole number above 0, got 0"),
        ("bulletin", {"options": {"seed": "x"}}, "task_options.seed: should be a whole number"),
    ],
)
def test_a_task_that_cannot_be_opened_says_why(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_task(name, **settings)


def test_splits_are_checked() -> None:
    task = Task("t", {"train": [Example("a", "x"), Example("a", "y")], "test": []})
    with pytest.raises(InvalidData, match="task t: the id 'a' comes twice in its train split"):
        task.examples("train")
    with pytest.raises(InvalidData, match="its test split should have at least one example"):
        task.examples("test")
    with pytest.raises(InvalidData, match=r"no split 'validation' with examples; it has train, test. .*held_out=FILE"):
        task.examples("validation")
    with pytest.raises(InvalidData, match="'train' with annotated completions; it has no annotated completions at all"):
        list(task.annotated("train"))


def test_annotations_are_rows_or_a_function_that_loads_them() -> None:
    rows = [Rejected(1, "a", "too long")]
    assert list(Task("t", {}, annotations={"train": rows}).annotated()) == rows
    assert list(Task("t", {}, annotations={"train": lambda: rows}).annotated()) == rows


def test_every_built_in_task_opens_without_torch_being_asked_for() -> None:
    for name in TASKS:
        assert open_task(name).name == name


def test_bulletins_are_the_demos() -> None:
    task = open_task("bulletin", options={"seed": 3, "count": 4, "held_out_count": 2})
    assert task.examples("train") == bulletins(103, 4)
    assert task.held_out() == bulletins(8, 2, "held_out")
    assert {example.id for example in task.examples("test")}.isdisjoint(example.id for example in task.held_out())
    assert isinstance(task.critic, str) and critic_named(task.critic, CriticSettings()) is bulletin
    (right,) = task.metrics
    examples = task.held_out()
    said = [wrote(examples[0], str(examples[0].reference)), wrote(examples[1], ".")]
    assert right.measure(said) == 0.5


def test_plain_files_are_the_default(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": name, "prompt": "Hi", "reference": "Ho"}) + "\n")
    task = open_task(data=str(tmp_path / "a.jsonl"), held_out=str(tmp_path / "b.jsonl"))
    assert task.examples("train") == [Example("a", "Hi", "Ho")]
    assert task.held_out() == [Example("b", "Hi", "Ho")]
    assert (task.critic, task.metrics) == ("reference", ())
    assert open_task(data=str(tmp_path / "a.jsonl")).held_out() == []


def test_annotated_files_keep_their_columns(tmp_path: Path) -> None:
    row = {"id": "a", "prompt": "Hi", "completion": "Ho", "critique": "Good.", "spans": [], "source": "x"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (annotated,) = open_task(data=str(tmp_path / "a.jsonl")).annotated("train")
    assert isinstance(annotated, Annotated)
    assert (annotated.completion, annotated.row["source"]) == ("Ho", "x")


def defacto_row(number: int, **more: Any) -> dict[str, Any]:
    feedback = {"summary": "Nine ships left.", "explanation": "It is nine.", "instruction": "", "evidence": ""}
    row = {"article": f"Nine ships left quay {number}.", "abstract": "Ships leave.", "candidate": "Ten ships left."}
    return row | {"doc_id": number, "has_error": True, "feedback": feedback} | more


def test_defactos_reference_is_what_people_made_right(tmp_path: Path) -> None:
    rows = [defacto_row(1), defacto_row(2, has_error=False, candidate="Ships left quay 2.")]
    rows.append(defacto_row(3, feedback={"summary": "Another text altogether.", "explanation": "No."}))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = open_task("defacto", data=str(tmp_path / "a.jsonl"))
    examples = task.examples("train")
    assert [example.reference for example in examples[:2]] == ["Nine ships left.", "Ships left quay 2."]
    assert examples[0].columns["passages"] == ["Nine ships left quay 1."]
    assert examples[0].columns["abstract"] == "Ships leave."
    rows_of_people = list(task.annotated("train"))
    assert [isinstance(row, Rejected) for row in rows_of_people] == [False, False, True]
    assert [row.id for row in rows_of_people] == [example.id for example in examples]


def test_qa_feedback_is_split_by_index_unless_there_are_two_files(tmp_path: Path) -> None:
    feedback = {"errors": [], "missing-info": [], "corrected-prediction": ""}
    row = {"question": "When?", "passages": [["Fjord", "In 2016."]], "gold": "2016", "prediction 1": "In 2016."}
    path = tmp_path / "qa.json"
    path.write_text(json.dumps([row | {"feedback": feedback}] * 3))
    task = open_task("qa_feedback", data=str(path))
    assert [example.id for example in task.examples("train")] == ["qa-0", "qa-2"]
    (held,) = task.held_out()
    assert (held.id, held.reference, held.columns["passages"]) == ("qa-1", "2016", ["Fjord\nIn 2016."])
    assert [row.id for row in task.annotated("validation")] == ["qa-1"]
    both = open_task("qa_feedback", data=str(path), held_out=str(path))
    assert len(both.examples("train")) == len(both.held_out()) == 3


@pytest.mark.parametrize("name", ["defacto", "qa_feedback"])
def test_a_file_of_another_data_set_says_which_columns_it_has(tmp_path: Path, name: str) -> None:
    path = tmp_path / "other"
    text = json.dumps({"prompt": "Hi", "tests": []})
    path.write_text(f"[{text}]" if name == "qa_feedback" else f"{text}\n")
    with pytest.raises(InvalidData, match="should be there as str, the row has prompt, tests"):
        open_task(name, data=str(path)).examples("train")


def test_a_metric_may_look_at_all_rollouts() -> None:
    distinct = Metric("distinct", "Distinct", "Different texts.", "higher", lambda rollouts: len(rollouts))
    assert distinct.measure([]) == 0
