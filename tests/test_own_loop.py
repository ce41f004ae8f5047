"""docs/own-loop.md is true: its script trains a model from a file of critiques, by public names only."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import text2grad
from text2grad.cli import main
from text2grad.feedback.critics.protocol import ask_now
from text2grad.models.tiny import tiny_model, tiny_tokenizer

PAGE = (Path(__file__).parent.parent / "docs" / "own-loop.md").read_text(encoding="utf-8")
(SCRIPT,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_script_is_short_and_every_name_is_public() -> None:
    assert len([line for line in SCRIPT.splitlines() if line.strip()]) <= 20
    named = set(re.findall(r"text2grad\.(\w+)", SCRIPT)) | set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    assert {"read_people", "completion_of", "align", "token_rewards", "critic", "agreement"} <= named
    assert named <= set(text2grad.__all__) and "import text2grad\n" in SCRIPT


def test_the_script_makes_blamed_words_less_likely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    rows = ['"How many?","seven ships left","""seven"" is wrong."'] * 8
    rows[3:3] = ['"How many?","nine ships left",', '"How many?","nine ships left","Good.","too much"']
    (tmp_path / "critiques.csv").write_text("question,output,feedback\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    exec(compile(SCRIPT, "own-loop.md", "exec"), made)
    assert made["rewards"].min() < 0 and made["rewards"].shape == made["taken"].shape
    ids = torch.tensor([made["prompt"] + list(made["completion"].token_ids)])
    poor, start = made["rewards"] < 0, len(made["prompt"])

    def logprob(of: Any) -> float:
        with torch.no_grad():
            logprobs = of(ids).logits[0, start - 1 : -1].log_softmax(-1)
        return float(logprobs.gather(1, ids[0, start:, None]).squeeze(1)[poor].sum())

    assert logprob(made["model"]) < logprob(model)


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


TEXT = "Seven ships left at noon"  # five words


def row(identity: Any, *spans: tuple[int, int, str], score: float | None = None, text: str = TEXT) -> dict[str, Any]:
    marked = [{"start": start, "end": end, "verdict": verdict} for start, end, verdict in spans]
    return {"id": identity, "completion": text, "critique": {"feedback": "x", "score": score}, "spans": marked}


def test_agreement_by_hand() -> None:
    """Words of two texts: A marks `Seven` poor and nothing; B marks `Seven ships` poor and nothing. Of ten words both
    call one poor and eight neutral: observed 0.9, by chance 0.1 · 0.2 + 0.9 · 0.8 = 0.74, so kappa is 0.16 / 0.26."""
    first = [row(1, (0, 5, "poor"), score=0.1), row(2, (17, 19, "neutral"), score=0.4)]
    second = [row(1, (0, 11, "poor"), score=0.2), row("2", (17, 19, "neutral"), score=0.9), row(3, (0, 5, "good"))]
    found = text2grad.agreement(first, second)
    assert (found.items, found.unmatched) == (2, 1)
    poor = found.words["poor"]
    assert (poor.precision, poor.recall) == (0.5, 1.0)
    assert found.kappa == pytest.approx(0.16 / 0.26)
    assert found.spans["poor"].f1 == 0.0  # 5 of 11 characters are less than half
    assert found.scores is None  # two pairs say nothing


def test_rank_correlation_and_texts_that_differ() -> None:
    first = [row(n, (0, 5, "poor"), score=float(n)) for n in range(4)]
    second = [row(n, (0, 5, "poor"), score=score) for n, score in enumerate((1.0, 2.0, 2.0, 30.0))]
    second.append(row(4, (0, 5, "poor")))
    found = text2grad.agreement([*first, row(4, (0, 5, "poor"), text="Other words here, five")], second)
    # Ranks 1, 2, 3, 4 and 1, 2.5, 2.5, 4: covariance 1.125, deviations 1.118 and 1.0607.
    assert found.scores == pytest.approx(1.125 / (1.25 * 1.125) ** 0.5)
    assert (found.items, found.unmatched, found.differing) == (4, 1, 1)


def test_the_command_for_two_files_and_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(tmp_path / "a.jsonl", [row(1, (0, 5, "poor")), row(2, (0, 5, "good"))])
    second = written(tmp_path / "b.jsonl", [row(1, (0, 5, "poor")), row(2, (0, 5, "poor")), row(3)])
    assert main(["agree", first, second]) == 0
    said = capsys.readouterr().out
    assert "2 completions, 1 without a counterpart" in said and "Cohen's kappa over words" in said
    assert re.search(r"poor words\W+0\.50\W+1\.00\W+0\.67", said)
    people = [row(1, (0, 5, "poor")) | {"annotator": "ada"}, row(1, (0, 5, "poor")) | {"annotator": "bob"}]
    assert main(["agree", written(tmp_path / "one.jsonl", people)]) == 0
    assert "several people in" in capsys.readouterr().out
    assert main(["agree", first, written(tmp_path / "c.jsonl", [row(9)])]) == 2
    assert "no completion was annotated twice" in capsys.readouterr().err
    assert main(["agree"]) == 2


def test_a_share_of_nothing_is_a_dash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(tmp_path / "a.jsonl", [row(1, (0, 5, "poor"))])
    second = written(tmp_path / "b.jsonl", [row(1, (17, 19, "neutral"))])
    assert main(["agree", first, second]) == 0
    said = capsys.readouterr().out
    assert "1 completion, 0 without a counterpart" in said
    assert re.search(r"poor words\W+– \W+0\.00\W+0\.00", said)  # nothing called, one marked
    assert re.search(r"good words\W+– \W+– \W+– ", said)  # nobody praised anything


def test_other_texts_under_the_same_ids_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(tmp_path / "a.jsonl", [row(1, (0, 5, "poor")), row(2, (0, 5, "poor"))])
    other = row(1, (0, 5, "poor"), text="Other words, five here")
    assert main(["agree", first, written(tmp_path / "b.jsonl", [other, row(2, (0, 5, "poor"))])]) == 0
    assert "1 with the same id have different texts" in capsys.readouterr().out
    assert main(["agree", first, written(tmp_path / "b.jsonl", [other])]) == 2
    assert "1 with the same id, and all with different completions" in capsys.readouterr().err
    assert main(["agree", first, written(tmp_path / "b.jsonl", [{"id": 1, "completion": TEXT}])]) == 2
    assert "b.jsonl: no row has anything to compare" in capsys.readouterr().err


def test_a_critique_without_spans_is_located_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = {"nr": 1, "output": TEXT, "notes": '"Seven" is wrong.'}
    names = ["columns.id=nr", "columns.completion=output", "columns.critique=notes"]
    file = written(tmp_path / "a.jsonl", [plain])
    assert main(["agree", file, file, *names]) == 0
    assert re.search(r"poor words\W+1\.00\W+1\.00\W+1\.00", capsys.readouterr().out)


def test_a_critic_by_its_name() -> None:
    (critique,) = ask_now(text2grad.critic("reference"), ["Name it."], ["The crane."], {"reference": ["The crane."]})
    assert critique is not None and critique.score == 1.0
    with pytest.raises(text2grad.Text2GradError, match="did you mean `reference`"):
        text2grad.critic("refrence")
