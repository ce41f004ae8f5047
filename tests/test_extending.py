"""docs/extending.md is true: each block, a file of under 25 lines, works as the page says."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import text2grad
from tests.training.trainings import metrics_of
from text2grad.cli import main
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.types import Completion, Example

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
SMALL = ["device=cpu", "model=model", "policy.lora.rank=2", "sampling.max_new_tokens=6", "--quiet"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files of the page, as the working folder."""
    for name, code in FILES.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name, None)


@pytest.fixture
def model(here: Path) -> Path:
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(here / "model")
    tokenizer.save_pretrained(here / "model")
    return here / "model"


def made(name: str) -> Any:
    return importlib.import_module(name)


def test_every_block_is_a_short_file() -> None:
    assert PAGE.count("```python") == len(FILES) == 8
    for name, code in FILES.items():
        lines = len(code.splitlines())
        assert lines < 25, f"{name}.py has {lines} lines"


@pytest.mark.usefixtures("here")
def test_the_critic() -> None:
    completion = Completion("Hello ADA.", (11, 42, 7, 0), ((0, 5), (5, 9), (9, 10), (10, 10)))
    (rollout,) = text2grad.judge([Example("a", "Greet Ada.")], [completion], made("calm").calm)
    assert rollout.verdicts == (1.0, -1.0, 0.0, 0.0) and rollout.score == 0


@pytest.mark.usefixtures("here")
def test_the_labelling_format(capsys: pytest.CaptureFixture[str]) -> None:
    export = {
        "items": [
            {
                "key": "a",
                "input": "Name a bird.",
                "output": "🦩 and a dog",
                "note": "A dog is not a bird.",
                "marks": [
                    {"from": 9, "to": 12, "label": "-", "note": "not a bird"},
                    {"from": 0, "to": 2, "label": "+"},
                ],
            }
        ]
    }
    rows = list(made("from_tool").rows(export))
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["annotate", "rows.jsonl", "annotated.jsonl", "--critic", "people"]) == 0, capsys.readouterr().err
    (row,) = map(json.loads, Path("annotated.jsonl").read_text().splitlines())
    given = [span for span in row["spans"] if span["provenance"] == "given"]
    marked = {(row["completion"][span["start"] : span["end"]], span["verdict"]) for span in given}
    assert marked == {("dog", "poor"), ("🦩", "good")}


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_task_metric_estimator_loss_and_sampler_in_one_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "task=greetings:greetings",
        "task_options.formal=true",
        "advantage.estimator=centred:centred",
        "update.loss=losses:cispo",
        "sampling.sampler=generating:Generating",
        "updates=1",
        "prompts=2",
        "completions=2",
    ]
    assert main(["train", "run", *words, *SMALL]) == 0, capsys.readouterr().err
    row = metrics_of(here / "run")[-1]
    assert row["update"] == 1 and row["held_out/polite"] == 0
    declared = json.loads((here / "run" / "run.json").read_text())["metrics"]["held_out/polite"]
    assert declared["title"] == "Polite completions" and declared["better"] == "higher"
    assert main(["report", "run"]) == 0
    assert "Polite completions" in (here / "run" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("model", "here")
def test_the_preference_loss(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [{"prompt": f"Greet {name}.", "chosen": "Hello.", "rejected": "NO."} for name in ("Ada", "Bo")]
    Path("pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    words = ["data=pairs.jsonl", "loss=losses:hinge", "updates=1", *SMALL]
    assert main(["dpo", "run", *(word for word in words if not word.startswith("sampling."))]) == 0, capsys.readouterr()


@pytest.mark.slow
@pytest.mark.usefixtures("model", "here")
def test_the_task_with_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    def row(name: str) -> dict[str, object]:
        span = {"start": 0, "end": 2, "verdict": "poor"}
        return {"id": name, "prompt": f"Greet {name}.", "completion": "NO.", "critique": "Rude.", "spans": [span]}

    Path("judged.jsonl").write_text("".join(json.dumps(row(name)) + "\n" for name in ("Ada", "Bo", "Cy", "Di")))
    people = ["task=judged:judged", "--critic", "people"]
    assert main(["annotate", "spans.jsonl", *people]) == 0, capsys.readouterr().err
    assert len(Path("spans.jsonl").read_text().splitlines()) == 4
    words = ["task=judged:judged", "updates=1", "loss.language=0", "template.critique_tokens=8", *SMALL]
    words = [word for word in words if not word.startswith("sampling.")]
    assert main(["reward-model", "runs/judge", *words]) == 0, capsys.readouterr().err
    assert Path("runs/judge/model/reward_model.json").is_file()
