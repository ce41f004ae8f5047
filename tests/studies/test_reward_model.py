"""The study of the reward model: its tables are those of its files."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
from studies.reward_model import demo, run
from studies.reward_model.tables import MEASURES, tables

HERE = Path(__file__).parent.parent.parent / "studies" / "reward_model"
ARTICLE = "Nine ships left the quay of Marl at noon on Monday, the harbour master Ada Low said to the paper."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    val = [
        news(3, "At noon seventy ships left.", "At noon nine ships left."),
        news(4, "Ships left.", "Ships left now."),
    ]
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


def arm(scores: dict[int, float]) -> list[dict[str, float]]:
    return [{"update": float(update), "score": score} for update, score in scores.items()]


def test_shares_are_of_the_mean_of_three_looks_and_of_arms_that_got_so_far() -> None:
    true = arm({0: 0.1, 32: 0.2, 40: 0.3, 48: 0.4})
    learned = arm({0: 0.1, 32: 0.1, 40: 0.3, 48: 0.35})  # 0.25 − 0.1, against 0.3 − 0.1
    seeds = {
        "0": {"curves": {"demo-true": true, "demo-learned": learned}},
        "1": {"curves": {"demo-true": true, "demo-learned": learned[:2]}},
        "2": {"curves": {"demo-true": true}},
    }
    found = demo.shares(seeds, "demo-learned", "demo-true", 48)
    assert (found["seeds"], found["shares"]) == (["0"], [pytest.approx(0.75)])
    assert found["at_the_last"] == [pytest.approx(0.25 / 0.3)]
    assert demo.shares(seeds, "long-learned", "long-true", 192) == {}


def test_collecting_takes_the_arms_that_are_there(tmp_path: Path) -> None:
    rows = [{"update": at, "held_out/score": 0.1 + at / 100} for at in range(0, 56, 8)]
    for name, drop in (("demo-true", 0.0), ("demo-learned", 0.05)):
        folder = tmp_path / "work" / "seed-3" / name
        folder.mkdir(parents=True)
        changed = [row | {"held_out/score": row["held_out/score"] - drop * (row["update"] > 0)} for row in rows]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
    (tmp_path / "work" / "seed-9").mkdir()
    demo.collect(argparse.Namespace(work=tmp_path / "work", out=tmp_path))
    found = json.loads((tmp_path / "demo.json").read_text())
    assert list(found["seeds"]) == ["3"] and list(found["seeds"]["3"]["curves"]) == ["demo-true", "demo-learned"]
    (share,) = found["summary"]
    assert share["least"] == pytest.approx(0.35 / 0.40)


def test_what_the_docs_say_is_what_the_files_hold() -> None:
    page = (HERE.parent.parent / "docs" / "reward-model.md").read_text(encoding="utf-8")
    heads, written = (
        [json.loads((HERE / f"defacto-{way}-{seed}.json").read_text(encoding="utf-8")) for seed in (0, 1, 2)]
        for way in ("head", "written")
    )
    for key, title in MEASURES.items():
        if key == "tokens":
            continue
        found = [run["as_support"][key] for run in heads]
        support = f"{found[0]['support_precision']:.2f} | {found[0]['support_recall']:.0%}".replace("%", " %")
        ours = ", ".join(f"{100 * one['read_off_recall']:.0f}" for one in found)
        chosen = ", ".join(f"{one['chosen_precision']:.2f} → {100 * one['chosen_recall']:.0f} %" for one in found)
        assert f"| {title} | {support} | **{ours} %** | {chosen} |" in page
    rows = {"content": "characters of content words", "spans": "spans by IoU", "covered": "spans by the share covered"}
    qa_heads, qa_written = (
        [json.loads((HERE / f"qa-both-{way}-{seed}.json").read_text(encoding="utf-8")) for seed in (0, 1, 2)]
        for way in ("head", "written")
    )
    for data, sides in (("DeFacto", (heads, written)), ("QA-Feedback", (qa_heads, qa_written))):
        for key in ("content", "spans"):
            f1s = [[run[key]["poor"]["f1"] for run in runs] for runs in sides]
            head, other = (f"{min(f1):.2f} to {max(f1):.2f}" for f1 in f1s)
            assert f"| {data}, poor, {rows[key]} | **{head}** | {other} |" in page
    for key in ("spans", "covered"):
        head, other = (f"{sum(run[key]['good']['f1'] for run in runs) / 3:.2f}" for runs in (heads, written))
        head, other = (head, f"**{other}**") if key == "spans" else (f"**{head}**", other)
        assert f"| DeFacto, good, {rows[key]} | {head} | {other} |" in page
    rl = json.loads((HERE / "demo.json").read_text(encoding="utf-8"))["summary"]
    assert all(share["least"] >= 0.8 for share in rl[:4]), "RL with the learned critic and a penalty"
    for share, mark in zip(rl[:6], ("**",) * 4 + ("", ""), strict=True):
        by_seed, at_the_last = (
            ", ".join(f"{100 * one:.0f}" for one in share[key]) for key in ("shares", "at_the_last")
        )
        assert f"| {mark}{by_seed} %{mark} | {at_the_last} % |" in page, share["what"]


def test_the_speeds_in_the_docs_are_those_of_the_file() -> None:
    page = (HERE.parent.parent / "docs" / "reward-model.md").read_text(encoding="utf-8")
    said = (HERE.parent / "h200" / "reward_model.txt").read_text(encoding="utf-8")
    rates = re.findall(r"([\d.]+) completions/s", said)
    slow, fast = (float(re.search(rf"{name}=([\d.]+)", said)[1]) for name in ("speed_generate", "speed_fast"))  # type: ignore[index]
    assert slow >= 20, "the issue's bar, on the H200"
    head, sampler, generate = rates
    row = f"(`studies/h200`) | {head} | {generate} ({slow} times fewer) | {sampler} ({fast}) |"
    assert row in page
