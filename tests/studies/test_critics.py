"""The study of agreement with people: its tables are those of its file, and the default critic keeps its promise."""

import json
import re
from pathlib import Path

import pytest
from studies.critics import explained, run

from text2grad.types import Alignment, Completion, Critique, Example, Rollout, Span

ARTICLE = (
    "Nine ships left the quay of Brindlemoor at noon on Monday, the harbour master said. The storm came on Tuesday."
)


def test_the_page_shows_the_numbers_of_the_file() -> None:
    shown = run.PAGE.read_text(encoding="utf-8").split(run.BEGIN)[1].split(run.END)[0]
    assert shown.strip() == run.tables(json.loads((run.HERE / "agreement.json").read_text(encoding="utf-8")))


def test_the_default_critic_of_summaries_agrees_with_people_and_pays_no_copies() -> None:
    found = json.loads((run.HERE / "agreement.json").read_text(encoding="utf-8"))["defacto"]["held_out"]
    for critic in ("support", "support+reference"):
        counts, means = run.counts(found[critic]), found[critic]["means"]
        assert counts["above"] / counts["pairs"] >= 0.7
        cheats = ("first", "middle", "three", "nearly", "names", "keywords", "things", "empty")
        assert max(means[kind] for kind in cheats) < 0.02
        # One article is a row of buttons for sharing, and people's summary of it lists them.
        assert means["wrong"] < means["corrected"] and found[critic]["above_correction"]["first"] <= 1


def test_it_measures_a_folder_and_writes_no_text(tmp_path: Path) -> None:
    for name in ("qa", "summarization"):
        (tmp_path / name).mkdir()
    feedback = {"summary": "At noon nine ships left the quay.", "explanation": "It is nine."}
    row = {
        "article": ARTICLE,
        "abstract": "Ships leave.",
        "candidate": "At noon seven ships left the quay.",
        "doc_id": 1,
    }
    lines = [
        row | {"has_error": True, "feedback": feedback},
        row | {"doc_id": 2, "has_error": False, "feedback": feedback},
    ]
    for split in ("train", "val"):
        path = tmp_path / "summarization" / f"defacto_{split}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = {
        "question": "How many ships left?",
        "passages": [["Ships", ARTICLE]],
        "gold": "Nine ships left.",
        "prediction 1": "Seven ships left.",
        "feedback": {
            "errors": [{"error type": "Wrong-Grounding", "explanation": "", "start": 0, "end": 5}],
            "missing-info": [],
            "corrected-prediction": "Nine ships left.",
        },
    }
    (tmp_path / "qa" / "qa_feedback_dev.json").write_text(json.dumps([answer, answer]))
    page = tmp_path / "page.md"
    page.write_text(f"Above.\n{run.BEGIN}\nold\n{run.END}\nBelow.\n")
    run.main(["measure", "--data", str(tmp_path), "--out", str(tmp_path), "--page", str(page)])
    written = (tmp_path / "agreement.json").read_text()
    found = json.loads(written)["defacto"]["held_out"]["support"]
    assert run.counts(found) == {"pairs": 1, "above": 1, "ties": 0, "unscored": 0}
    # Seven is invented: 4 of 4 + 4 precise, and the other four words are enough: 2 · ½ / 1½.
    assert found["wrong"] == [pytest.approx(2 / 3, abs=1e-4)]
    assert found["poor"] == {"precision": 1.0, "recall": 1.0}
    assert "ships" not in written and "Brindlemoor" not in written
    text = page.read_text()
    assert (
        text.startswith("Above.")
        and text.endswith("Below.\n")
        and "old" not in text
        and "| `support` | 100.0% |" in text
    )


def test_without_data_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEXT2GRAD_DATA", raising=False)
    with pytest.raises(SystemExit, match="--data or TEXT2GRAD_DATA"):
        run.main(["measure", "--out", str(tmp_path)])


def praised(prompt: str, words: int, level: float) -> Rollout:
    """A text of 40 characters, of which the first so many words of four are praised in one remark; the score is the
    prompt's own level and 0.8 for the whole text."""
    spans = (Span(0, 4 * words, "good"),) if words else ()
    return Rollout(
        Example(prompt, prompt),
        Completion("abc " * 10, (1,), ((0, 40),)),
        critique=Critique("", score=level + 0.08 * words),
        alignment=Alignment(spans),
        token_rewards=(0.0,),
        score=level + 0.08 * words,
    )


def test_a_score_that_is_a_share_of_words_is_explained_by_length_alone() -> None:
    samples = [praised(f"{n}", words, (n % 7) / 7) for n in range(200) for words in (1, 2, 6, 9)]
    found = explained.explained(samples)
    assert (found["completions"], found["prompts"]) == (800, 200)
    # Every text has one remark, so the number of remarks says nothing; how much they cover says it all.
    assert abs(found["share"]["one"]) < 0.05
    assert found["share"]["one, by length"] > 0.95 and found["share"]["two, by length"] > 0.95


def test_what_verdicts_explain_is_added_to_the_file_and_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explained, "HERE", tmp_path)
    page = tmp_path / "README.md"
    page.write_text(f"Above.\n{explained.BEGIN}\n{explained.END}\nBelow.\n")
    rows = [praised(prompt, words, 0.1).to_json() | {"part": "samples"} for prompt in "abcd" for words in (1, 9)]
    (tmp_path / "samples.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [rows[0] | {"part": "greedy"}, *rows])
    )
    explained.main([f"calm={tmp_path / 'samples.jsonl'}"])
    explained.main([f"late={tmp_path / 'samples.jsonl'}"])
    kept = json.loads((tmp_path / "explained.json").read_text())
    assert list(kept) == ["calm", "late"] and kept["calm"]["completions"] == 8
    assert page.read_text().startswith("Above.\n") and page.read_text().endswith("\nBelow.\n")
    assert "| late | 4 × 2 |" in page.read_text()


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("justname", "wants NAME=SAMPLES.jsonl, got 'justname'"),
        ("a=missing.jsonl", "missing.jsonl: "),
        ("a=/dev/null", "/dev/null: wants two prompts or more"),
    ],
)
def test_samples_that_cannot_be_explained_are_said_in_a_sentence(word: str, why: str) -> None:
    with pytest.raises(SystemExit, match=re.escape(why)):
        explained.main([word])


def test_the_page_shows_what_the_file_says_verdicts_explain() -> None:
    shown = (explained.HERE / "README.md").read_text(encoding="utf-8").split(explained.BEGIN)[1].split(explained.END)[0]
    assert shown.strip() == explained.table(json.loads((explained.HERE / "explained.json").read_text()))


def test_without_samples_and_without_a_file_it_says_what_it_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explained, "HERE", tmp_path)
    with pytest.raises(SystemExit, match=re.escape("explained: wants NAME=SAMPLES.jsonl")):
        explained.main([])
