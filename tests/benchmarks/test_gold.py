"""Gold from corrections, worked by hand; and what the aligner reaches on it where the data is at hand."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from benchmarks.gold import Item, Score, defacto, ilf, measure, programs, score, squality

from text2grad import align


def written(folder: Path, *rows: dict[str, object]) -> Path:
    (folder / "summarization").mkdir()
    lines = "\n".join(json.dumps(row) for row in rows)
    (folder / "summarization" / "defacto_train.jsonl").write_text(lines, encoding="utf-8")
    return folder


def row(candidate: str, summary: str, has_error: bool = True) -> dict[str, object]:
    feedback = {"summary": summary, "explanation": "wrong", "instruction": "mend it"}
    return {"article": "source", "candidate": candidate, "has_error": has_error, "feedback": feedback}


def marked(item: Item) -> str:
    return "".join(c if k in item.gold else "_" for k, c in enumerate(item.completion))


def test_gold_is_what_the_correction_removed_or_replaced(tmp_path: Path) -> None:
    items = defacto(
        written(
            tmp_path,
            row("Seven ships left the old quay at noon.", "Nine ships left the quay at noon."),
            row("A ship left the quay at noon.", "The ship left the quay at noon."),  # function words only
            row("The ship left.", "The ship left at noon."),  # nothing removed
            row("Seven ships left.", "Nobody saw anything whatever."),  # over 80 % of the text
            row("Seven ships left.", "", has_error=False),
        ),
        "train",
    )
    assert [marked(item) for item in items] == ["Seven________________old______________"]


def test_gold_of_code_is_whole_lines_without_the_docstring(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    prompt = "def f(n):\n"
    program = '    """Say."""\n    a = 1\n    b = 2\n    return a\n'
    fix = '    """Said."""\r\n    a = 1\r\n    b = 2\r\n    return b\r\n'
    fields = {"prompt": prompt, "original_model_completion": prompt + program, "completion": fix, "Feedback": "wrong"}
    (tmp_path / "code" / "ilf_feedback_dev.jsonl").write_text(json.dumps(fields), encoding="utf-8")
    (item,) = ilf(tmp_path)
    assert marked(item).replace("_", "").strip() == "returna"


def test_scores_by_hand() -> None:
    item = Item("", "x", "ab cd", "", "", None, frozenset({0, 1}), frozenset({0, 1, 3, 4}))
    assert score(item, {0, 1}) == (1.0, True, False)
    assert score(item, {0, 1, 2, 3}) == (0.8, True, False)
    assert score(item, {0, 1, 3, 4}) == (2 * 2 / 6, True, False)
    assert score(item, {1, 3, 4}) == (2 * 1 / 5, False, False)
    assert score(item, set()) == (0.0, False, True)


def test_precision_recall_and_length_by_hand() -> None:
    item = Item("", "x", "ab cd", "", "", None, frozenset({0, 1}), frozenset({0, 1, 3, 4}))
    assert measure(item, {1, 2, 3, 4}) == Score(2 / 5, False, 1 / 3, 1 / 2, 3 / 2, False)
    assert measure(item, set()) == Score(0.0, False, 0.0, 0.0, 0.0, True)


def test_marked_spans_become_gold_and_gold_becomes_spans(tmp_path: Path) -> None:
    (tmp_path / "align").mkdir()
    row = {"id": "s", "completion": "He ran. She sat down.", "critique": "No.", "spans": [{"start": 8, "end": 15}]}
    (tmp_path / "align" / "squality_reviews_dev.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (item,) = squality(tmp_path)
    assert marked(item) == "________She_sat______"
    assert item.spans == [(8, 15)]


def test_a_broken_program_differs_from_its_solution_in_the_gold_line_alone(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    code = "def f(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total"
    rows = [json.dumps({"task_id": k, "text": "Sum.", "code": code}) for k in range(40)]
    (tmp_path / "code" / "mbpp.jsonl").write_text("\n".join(rows), encoding="utf-8")
    made = [*programs(tmp_path, "develop"), *programs(tmp_path, "held out")]
    assert len(made) == 40
    for item in made:
        ours, theirs = item.completion.split("\n"), code.split("\n")
        ((start, end),) = item.spans
        assert [a.strip() for a, b in zip(ours, theirs, strict=True) if a != b] == [item.completion[start:end]]
    assert [*programs(tmp_path, "develop"), *programs(tmp_path, "held out")] == made


@pytest.mark.skipif("TEXT2GRAD_DATA" not in os.environ, reason="needs the data folder, named by TEXT2GRAD_DATA")
def test_people_are_understood() -> None:
    folder = Path(os.environ["TEXT2GRAD_DATA"])
    for items, least in ((list(defacto(folder, "val")), (0.62, 0.52)), (list(ilf(folder)), (0.68, 0.60))):
        scores = []
        for item in items:
            spans = align(item.completion, item.critique, source=item.source).spans
            found = {place for span in spans if span.verdict != "good" for place in range(span.start, span.end)}
            scores.append(score(item, found)[:2])
        f1, hit = np.array(scores, dtype=float).mean(axis=0)
        assert (f1 >= least[0], hit >= least[1]) == (True, True), (f1, hit)
