"""The pages of results: what they say follows from the files, and marked words stand where the text has them."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from studies.pages import Mark, Sheet
from studies.summarization import page

from studies import pages

START = {"rouge_l": 0.30, "unsupported_share": 0.02, "copied": 0.5, "length": 20.0}


def comparison(folder: Path, ours: list[float], shares: list[float] | None = None) -> dict[str, Any]:
    """Two arms, a seed per number, two examples: `scalar` ends at 0.3, `text2grad` at these."""
    arms, rows = {}, []
    for arm, ends in (("scalar", [0.3] * len(ours)), ("text2grad", ours)):
        (folder / arm).mkdir(parents=True)
        unsupported = shares if shares and arm == "text2grad" else [0.02] * len(ends)
        for seed, (end, share) in enumerate(zip(ends, unsupported, strict=True)):
            each = {"id": ["a", "b"], "rouge_l": [end - 0.01, end + 0.01], "unsupported_share": [share, share]}
            (folder / arm / f"seed-{seed}.done").write_bytes(b"digest\n" + json.dumps({"each": each}).encode())
            last = START | {"rouge_l": end, "unsupported_share": share, "length": 22.0, "other": 1.0}
            rows += [{"arm": arm, "seed": seed, "update": at, "metrics": each} for at, each in ((0, START), (8, last))]
        finals = {"rouge_l": ends, "unsupported_share": unsupported, "copied": [0.4], "length": [22.0]}
        arms[arm] = {
            "seeds": list(range(len(ends))),
            "final": {
                key: {"mean": sum(some) / len(some), "seeds": dict(enumerate(some))} for key, some in finals.items()
            },
            "cost": {"completions": 512, "tokens": 9000, "critic_calls": 512, "seconds": 60.4},
        }
    made = {"baseline": "scalar", "primary": "rouge_l", "arms": arms, "failed": {"scalar, seed 4": "no memory"}}
    (folder / "comparison.json").write_text(json.dumps(made))
    (folder / "results.json").write_text(json.dumps(rows))
    return page.collected(folder)


@pytest.mark.parametrize(
    ("ours", "shares", "outcome"),
    [
        ([0.35, 0.351, 0.352], [0.01, 0.01, 0.011], "**The bar is met here.**"),
        ([0.35, 0.351, 0.352], None, "**No difference.**"),
        ([0.35, 0.351, 0.352], [0.03, 0.03, 0.031], "**Words end below the score alone.**"),
        ([0.25, 0.251, 0.252], [0.01, 0.01, 0.011], "**Words end below the score alone.**"),
        ([0.25, 0.30, 0.36], None, "**No difference.**"),
    ],
)
def test_the_bar_of_summaries(ours: list[float], shares: list[float] | None, outcome: str, tmp_path: Path) -> None:
    said = page.verdict(comparison(tmp_path, ours, shares))
    assert said.startswith(outcome) and "22.0 tokens, +10%" in " ".join(said.split()) and "0.400, -0.100" in said


def test_the_page_is_made_of_the_comparison(tmp_path: Path) -> None:
    found = comparison(tmp_path, [0.34, 0.36])
    text = page.page(found, ["What did not work."])
    assert "| supervised start | | 0.300 |" in text
    assert "| `text2grad` | 2 | 0.350 (0.340–0.360) |" in text
    assert "| ROUGE-L | +0.0500 |" in text and "| `scalar` | 512 | 9,000 | 512 | 60 |" in text
    assert "Failed: scalar, seed 4: no memory" in text and "What did not work." in text
    assert "other" not in found["rows"][1]["metrics"] and "Three summaries" not in text, "no rollouts, no pictures"
    drawn = pages.curves(found["rows"], "rouge_l", "ROUGE-L <held out>")
    assert "ROUGE-L &lt;held out&gt;" in drawn and ElementTree.fromstring(drawn).tag.endswith("svg")
    assert drawn.count('class="line') == 2 and drawn.count('class="band') == 1, "one arm's seeds differ"


def test_the_summaries_that_rose_most_and_the_one_that_fell_most_are_shown(tmp_path: Path) -> None:
    found = comparison(tmp_path, [0.3])
    rows = []
    for name, before, after in (("a", 0.2, 0.3), ("b", 0.2, 0.1), ("c", 0.2, 0.9), ("d", 0.2, 0.5), ("e", 0.2, None)):
        for update, score in ((0, before), (4, 0.0), (8, after)):
            span = {"start": 0, "end": 3, "verdict": "good" if update else "poor", "severity": None}
            critique, texts = {"feedback": "“Not”\nis < fine."}, {"text": "Not bad."}
            rows.append({"update": update, "example": {"id": name}, "completion": texts, "critique": critique})
            rows[-1] |= {"score": score, "alignment": {"spans": [span]}, "held_out": True}
        rows.append(rows[-1] | {"held_out": False, "update": 9, "score": 1.0})
    (tmp_path / "text2grad" / "seed-0").mkdir()
    (tmp_path / "text2grad" / "seed-0" / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = page.shown(tmp_path / "text2grad")
    assert [one["id"] for one in chosen] == ["c", "d", "b"]
    assert "![c](summarization-1.svg)" in page.page(found | {"shown": chosen}, [])
    drawn = page.picture(chosen[0])
    assert ElementTree.fromstring(drawn).tag.endswith("svg") and "is &lt; fine." in drawn
    assert "before training: score 0.20" in drawn and "after training: score 0.90" in drawn
    assert drawn.index(page.COLOUR["poor"]) < drawn.index("after training") < drawn.index(page.COLOUR["good"])


def test_what_remarks_are_worth_and_how_far_an_arm_has_moved(tmp_path: Path) -> None:
    """A remark about copying that costs 0.2 of the score, among summaries that are all of their reference."""
    pytest.importorskip("rouge_score")
    found = comparison(tmp_path, [0.3])
    for arm, late in (("scalar", 2), ("text2grad", 0)):
        rows: list[dict[str, Any]] = []
        for update, copied in ((1, 1), (1, 0), (2, 2), (8, late), (8, 0)):
            spans = [{"comment": "“a b” is copied from the source.", "severity": 0.5}] * copied
            row: dict[str, Any] = {
                "update": update,
                "example": {"id": "a", "reference": "a b"},
                "completion": {"text": "a b"},
            }
            rows.append(
                row | {"score": 0.9 - 0.1 * copied, "alignment": {"spans": spans}, "critique": {"feedback": ""}}
            )
        (tmp_path / arm / "seed-0").mkdir()
        (tmp_path / arm / "seed-0" / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        metrics = "".join(json.dumps({"update": at, "kl/reference": at / 10}) + "\n" for at in (1, 2))
        (tmp_path / arm / "seed-0" / "metrics.jsonl").write_text(metrics)
    kept = page.remarks(tmp_path)
    assert kept["completions"] == 10
    assert kept["worth"]["copied from the source"] == pytest.approx([-0.2, 0.0], abs=1e-6)
    assert kept["seen"]["text2grad, first"]["counts"][-1] == 0.25 and kept["seen"]["text2grad, last"]["counts"][-1] == 0
    assert kept["seen"]["scalar, last"] == {"update": 8, "completions": 2, "counts": [0, 0, 0, 0, 0.5]}
    moved = {arm: page.kl(tmp_path / arm) for arm in ("scalar", "text2grad")}
    text = page.page(found | {"remarks": kept, "kl": moved}, [])
    assert "| copied from the source | -0.200 | +0.000 | 0.25 | 0.50 | 0.25 | 0.00 |" in text
    assert "(22.0–22.0) | 0.20 |" in text, "the KL at the end"


def test_the_published_page_is_made_of_the_numbers_beside_it() -> None:
    found = json.loads((page.HERE / "main.json").read_text())
    notes = (page.HERE / "notes.md").read_text().splitlines()
    assert (page.OUT / "summarization.md").read_text() == page.page(found, notes)
    for key, title in page.PICTURES.items():
        assert (page.OUT / f"summarization-{key}.svg").read_text() == pages.curves(found["rows"], key, title)


def test_marked_words_keep_their_place_where_a_line_is_broken() -> None:
    text = "word " * 30 + "marked words\nnext"
    start = text.index("marked")
    sheet = Sheet()
    sheet.text(text, [Mark(start, start + 6, "#123456"), Mark(start - 4, start + 6, "#654321")], wrap=True)
    lines = [part for part in sheet.parts if part.startswith("<text")]
    assert len(lines) == 3, "30 words of five characters do not fit in one line"
    first = lines[1].partition(">")[2].index("marked")
    (box,) = (part for part in sheet.parts if "#123456" in part)
    assert f"x='{14 + first * pages.STEP:.1f}'" in box and f"width='{6 * pages.STEP:.1f}'" in box
    sheet = Sheet()
    sheet.text("x" * 200, [Mark(190, 200, "#123456"), Mark(90, 200, "#654321")])
    boxes = [part for part in sheet.parts if "<rect" in part]
    assert len(boxes) == 1 and f"width='{6 * pages.STEP:.1f}'" in boxes[0], "what is cut at the margin has no mark"


@pytest.mark.parametrize("wrap", [False, True])
def test_what_xml_does_not_allow_is_replaced(wrap: bool) -> None:
    sheet = Sheet()
    sheet.heading("a\x00b")
    sheet.text("one\x07 two\x0bthree \ud800 \ufffe <ok>", [Mark(0, 3, "#123456")], wrap=wrap)
    sheet.remark("said \x01 so")
    texts = [element.text or "" for element in ElementTree.fromstring(sheet.svg().encode()) if element.text]
    assert texts[0] == "a\ufffdb" and "said \ufffd so" in texts and "one\ufffd two" in "".join(texts)
    assert "<ok>" in "".join(texts) and sheet.svg().encode()


@pytest.mark.parametrize("count", [5, 13])
def test_a_chart_has_room_for_many_arms(count: int) -> None:
    rows = [
        {"arm": f"arm {arm}", "seed": 0, "update": at, "metrics": {"score": at * arm}}
        for arm in range(count)
        for at in (0, 4, 8)
    ]
    drawn = ElementTree.fromstring(pages.curves(rows, "score", "Score"))
    names = [element for element in drawn if (element.text or "").startswith("arm ")]
    assert [name.text for name in names] == [f"arm {arm}" for arm in range(count)]
    left, top, width, height = map(float, drawn.attrib["viewBox"].split())
    places = {(float(name.attrib["x"]), float(name.attrib["y"])) for name in names}
    assert len(places) == count, "no name on another"
    assert all(left <= x <= width - 60 and top < y < top + height for x, y in places), "all in the picture"
    style = drawn.findtext("{*}style") or ""
    looks = [tuple(style.partition(f".{kind}{arm}{{")[2].partition("}")[0] for kind in "cd") for arm in range(count)]
    assert len(set(looks)) == count, "lines differ in colour or dash"


def test_a_chart_leaves_out_rows_that_do_not_have_its_metric() -> None:
    rows: list[dict[str, Any]] = [
        {"arm": "a", "seed": seed, "update": at, "metrics": {"score": 0.5} if (seed, at) != (1, 8) else {}}
        for seed in (0, 1, 2)
        for at in (0, 8)
    ]
    rows += [{"arm": "b", "seed": 0, "update": 0, "metrics": {}}]
    rows += [{"arm": "a", "seed": 3, "update": 0, "metrics": {}}]
    drawn = pages.curves(rows, "score", "Score")
    assert drawn.count('class="mark') == 1, "update 8 was not measured by every seed that has the metric"
    assert ">b<" not in drawn and ElementTree.fromstring(drawn).tag.endswith("svg")
    assert ElementTree.fromstring(pages.curves([], "score", "Score")).tag.endswith("svg")


def test_a_file_that_cannot_be_read_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    for name in ("missing.json", "broken.json", "."):
        with pytest.raises(SystemExit, match=f"{tmp_path.name}.*wants a table"):
            pages.loaded(tmp_path / name, "the page wants a table")
