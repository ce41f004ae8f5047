"""The study of the reward model: its tables are those of its files, and it counts as benchmarks/critics.py does."""

import json
from pathlib import Path
from typing import Any

import pytest
from studies.reward_model import run
from studies.reward_model.tables import tables

HERE = Path(__file__).parent.parent.parent / "studies" / "reward_model"
ARTICLE = "Nine ships left the quay of Marl at noon on Monday, the harbour master Ada Low said to the paper."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    val = [news(3, "Seventy ships left Marl.", "Nine ships left Marl."), news(4, "Ships left.", "Ships left now.")]
    train = [news(1, "Nine ships left the quay.", "", ARTICLE), news(2, "Nine ships.", "", "Another article.")]
    for name, rows in (("train", train), ("val", val)):
        path = tmp_path / "summarization" / f"defacto_{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "qa").mkdir()
    (tmp_path / "qa" / "qa_feedback_dev.json").write_text(json.dumps([question("Ada Low"), question("Bea High")]))
    return tmp_path


def news(number: int, candidate: str, summary: str, article: str = ARTICLE) -> dict[str, Any]:
    feedback = {"summary": summary, "explanation": "So it is."}
    return {
        "doc_id": number,
        "article": article,
        "abstract": "Ships leave.",
        "candidate": candidate,
        "has_error": bool(summary),
        "feedback": feedback,
    }


def question(name: str) -> dict[str, Any]:
    mark = {"error type": "Unverifiable", "start": 0, "end": len(name), "explanation": ""}
    feedback = {"errors": [mark], "missing-info": [], "corrected-prediction": ""}
    passages = [["Marl", ARTICLE, f"Number {len(name)}."]]
    return {
        "question": "Who?",
        "passages": passages,
        "gold": "",
        "prediction 1": f"{name} said it.",
        "feedback": feedback,
    }


def test_baselines_by_hand(folder: Path) -> None:
    found = run.by_baselines(folder)
    news, qa = found["defacto"], found["qa"]
    assert (news["rows"], news["left_out"], news["shared"]) == (1, 1, 1)  # the article of the first row is held out
    poor = {name: critic["content"]["poor"] for name, critic in news["critics"].items()}
    assert poor["supported"]["precision"] == poor["supported"]["recall"] == poor["absent"]["recall"] == 1
    majority = news["critics"]["majority"]["content"]
    assert (majority["poor"]["called"], majority["good"]["called"]) == (0, 20)  # what is left to learn from is all good
    assert qa["critics"]["supported"]["spans"]["poor"]["found"] == 1


def test_it_writes_its_file_and_its_tables(folder: Path) -> None:
    (folder / "README.md").write_text(f"By hand.\n\n{run.MARK}\nold")
    run.main(["baselines", "--data", str(folder), "--out", str(folder)])
    page = (folder / "README.md").read_text()
    assert page.startswith("By hand.") and "old" not in page
    assert "| `support`, aligned | 1.00 / 1.00 / 1.00 |" in page
    assert set(json.loads((folder / "baselines.json").read_text())) == {"defacto", "qa"}


def test_without_data_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEXT2GRAD_DATA", raising=False)
    with pytest.raises(SystemExit, match="--data or TEXT2GRAD_DATA"):
        run.main(["baselines", "--out", str(tmp_path)])


def test_the_tables_are_those_of_the_files() -> None:
    page = (HERE / "README.md").read_text(encoding="utf-8")
    assert page.split(run.MARK)[1].strip() == tables(HERE).strip()


def test_it_counts_as_the_benchmark_of_critics_does() -> None:
    """0.63 / 0.43 and 0.59 / 0.08 stand in docs/critics.md; both count characters of content words."""
    found = json.loads((HERE / "baselines.json").read_text(encoding="utf-8"))
    for name, precision, recall in (("defacto", 0.63, 0.43), ("qa", 0.59, 0.08)):
        poor = found[name]["critics"]["supported"]["content"]["poor"]
        assert (round(poor["precision"], 2), round(poor["recall"], 2)) == (precision, recall)
