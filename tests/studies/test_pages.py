"""The pages of results: what they say follows from the files, and marked words stand where the text has them."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from studies.pages import Mark, Sheet
from studies.summarization import page

from studies import pages
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.settings import CriticSettings, ReferenceSettings, Scoring
from text2grad.types import Completion, Example

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
        ([0.35, 0.351, 0.352], [0.01, 0.01, 0.011], "The bar is met here."),
        (
            [0.35, 0.351, 0.352],
            None,
            "The bar is not met: with words ROUGE-L is better than with the score alone, but the other shows no sure "
            "difference.",
        ),
        (
            [0.35, 0.351, 0.352],
            [0.03, 0.03, 0.031],
            "Mixed: with words ROUGE-L is better than with the score alone, and unsupported share is worse.",
        ),
        (
            [0.25, 0.251, 0.252],
            [0.01, 0.01, 0.011],
            "Mixed: with words unsupported share is better than with the score alone, and ROUGE-L is worse.",
        ),
        (
            [0.25, 0.251, 0.252],
            None,
            "The bar is not met: with words ROUGE-L is worse than with the score alone.",
        ),
        (
            [0.25, 0.251, 0.252],
            [0.03, 0.03, 0.031],
            "The bar is not met: with words both are worse than with the score alone.",
        ),
        ([0.25, 0.30, 0.36], None, "No difference that is sure."),
    ],
)
def test_the_bar_of_summaries(ours: list[float], shares: list[float] | None, outcome: str, tmp_path: Path) -> None:
    said = " ".join(page.verdict(comparison(tmp_path, ours, shares)).split())
    assert said.startswith(f"**{outcome}**") and "22.0 tokens, +10%" in said and "0.400, -0.100" in said


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ({"length": 25.0}, "the length is out of bounds"),
        ({"length": 15.0}, "the length is out of bounds"),
        ({"copied": 0.51}, "more is copied than at the start"),
        ({"length": 25.0, "copied": 0.51}, "the length is out of bounds and more is copied than at the start"),
        ({"length": 24.0, "copied": 0.5}, ""),
    ],
)
def test_the_bar_holds_length_and_copying_too(ends: dict[str, float], why: str, tmp_path: Path) -> None:
    found = comparison(tmp_path, [0.35, 0.351, 0.352], [0.01, 0.01, 0.011])
    for key, value in ends.items():
        found["comparison"]["arms"]["text2grad"]["final"][key]["mean"] = value
    said = " ".join(page.verdict(found).split()).partition("**")[2].partition("**")[0]
    assert said == (
        f"The bar is not met: with words both are better than with the score alone, but {why}."
        if why
        else "The bar is met here."
    )


def test_the_page_is_made_of_the_comparison(tmp_path: Path) -> None:
    found = comparison(tmp_path, [0.34, 0.36])
    text = page.page(found, ["What did not work."])
    assert "| supervised start | | 0.300 |" in text
    assert "| `text2grad` | 2 | 0.350 (0.340–0.360) |" in text
    assert (
        "| ROUGE-L | +0.0500 |" in text
        and "seeds alone" not in text
        and "| `scalar` | 512 | 9,000 | 512 | 60 |" in text
    )
    found["between"]["copied"] = {"mean": -0.1, "low": -0.2, "high": 0.0, "seeds": 2, "examples": 0}
    rows = [line for line in page.tables(found) if "to" in line]
    assert "| copied | -0.1000 | -0.2000 to +0.0000 | seeds alone |" in rows
    assert sum(line.endswith("| seeds and examples |") for line in rows) == 2, "of what has a value for each example"
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
    """A remark about copying that costs 0.1 of the score, among summaries that are all of their reference."""
    pytest.importorskip("rouge_score")
    found = comparison(tmp_path, [0.3])
    for arm, late in (("scalar", 2), ("text2grad", 0)):
        rows: list[dict[str, Any]] = []
        for update, copied in ((1, 1), (1, 0), (2, 2), (8, late), (8, 0)):
            spans = [{"comment": "“a b” is copied from the source.", "severity": 0.5}] * copied
            row: dict[str, Any] = {
                "update": update,
                "example": {"id": f"{len(rows)}", "reference": "a b"},
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
    assert kept["completions"] == 10 and kept["prompts"] == 5
    copied_of = kept["worth"]["copied from the source"]
    assert copied_of["remarks"] == 8, "remarks are counted, not their severities"
    assert copied_of["score"] == pytest.approx([-0.1, -0.1, -0.1]) and copied_of["rouge_l"] == pytest.approx([0, 0, 0])
    counts = {name: each["counts"]["copied from the source"] for name, each in kept["seen"].items()}
    assert counts == {"scalar, first": 0.5, "scalar, last": 1, "text2grad, first": 0.5, "text2grad, last": 0}
    moved = {arm: page.kl(tmp_path / arm) for arm in ("scalar", "text2grad")}
    text = page.page(found | {"remarks": kept, "kl": moved}, [])
    slopes = "-0.100 (-0.100 to -0.100) | +0.000 (+0.000 to +0.000)"
    assert f"| copied from the source | 8 | {slopes} | 0.50 | 1.00 | 0.50 | 0.00 |" in text
    assert "| in the reference | 0 | – | – | 0.00 |" in text, "nothing is known of a remark that was never made"
    assert "(22.0–22.0) | 0.20 |" in text, "the KL at the end"


def test_every_remark_of_the_critic_has_one_row() -> None:
    """What the critic of the study says, with all that it knows of a summary: each remark is of exactly one kind."""
    source = "The new model reads long reports and finds every error in the numbers of the tables."
    reference = "A model that finds errors in tables."
    text = "Finds errors in tables. The new model reads long reports and finds every error. Uses 7 owls. "
    text += "Owls bring letters at night. Owls bring letters at night. Errors, owls, numbers, model."
    settings = CriticSettings(reference=ReferenceSettings(beside=0.2, thin=5))
    critic = critic_named("weighted(0.7*reference,0.3*support)", settings)
    example, completion = Example("a", source, reference, {"source": source}), Completion(text, (1,), ((0, len(text)),))
    with RewardFunction(critic, AlignSettings(), Scoring()) as judge:
        (judged,) = judge([example], [completion])
    assert judged.alignment is not None
    spans = [span.to_json() for span in judged.alignment.spans]
    found = {name: page._count(spans, how) for name, how in page.REMARKS.items()}
    assert sum(found.values()) == len(spans) and min(found.values()) > 0, found
    severities = {
        name: {round(span["severity"] or 1.0, 4) for span in spans if page._count([span], how)}
        for name, how in page.REMARKS.items()
    }
    converted = json.loads((page.HERE / "main.json").read_text())["remarks"]
    by = dict(zip(converted["worth"], (1.0, 0.4286, 0.2, 1.0, 0.2143), strict=True))
    assert {name: severities[name] for name in by} == {name: {severity} for name, severity in by.items()}
    assert "1, 0.4286, 0.2, 1 and 0.2143" in " ".join(converted["note"].split())


def test_the_interval_of_a_remark_knows_that_completions_of_a_prompt_are_alike() -> None:
    """The same completion four times says no more than once."""
    random = np.random.default_rng(0)
    counts = random.integers(0, 3, (60, len(page.REMARKS))).astype(float)
    targets = counts[:, :2] * [0.1, -0.2] + random.normal(0, 0.3, (60, 2))
    prompts = [f"{number}" for number in range(60)]
    once = page.worth(counts, targets, prompts)
    again = page.worth(np.tile(counts, (4, 1)), np.tile(targets, (4, 1)), prompts * 4)
    for name, key in (("in the reference", "score"), ("in the reference and in the source", "rouge_l")):
        mean, low, high = once[name][key]
        assert again[name][key] == pytest.approx([mean, low, high], abs=2e-4) and 0.05 < high - low < 0.5
        assert again[name]["remarks"] == 4 * once[name]["remarks"]
    # With one prompt there is no interval; a remark of a single prompt is not sure of its slope.
    assert page.worth(counts[:2], targets[:2], ["a", "a"])["in the reference"]["score"][1:] == [None, None]
    counts[:, -1] = np.arange(60) == 7
    mean, low, high = page.worth(counts, targets, prompts)["said before"]["score"]
    assert low < 0 < high


def test_the_arms_are_compared_where_they_copy_as_much() -> None:
    def row(arm: str, update: int, copied: float, rouge_l: float, seed: int = 0) -> dict[str, Any]:
        return {
            "arm": arm,
            "seed": seed,
            "update": update,
            "metrics": {"copied": copied, "rouge_l": rouge_l, "length": 20.0},
        }

    rows = [row("scalar", 0, 0.6, 0.3), row("scalar", 4, 0.8, 0.2), row("scalar", 8, 0.5, 0.35)]
    rows += [row("text2grad", 0, 0.5, 0.3), row("text2grad", 4, 0.52, 0.33), row("text2grad", 8, 0.2, 0.30)]
    rows += [row("scalar", 8, 0.5, 0.34, seed=1), row("text2grad", 8, 0.4, 0.33, seed=1), row("scalar", 8, 0.5, 0.4, 2)]
    rows += [{"arm": "text2grad", "seed": 1, "update": 4, "metrics": {"copied": 0.5}}]
    pairs = page.at_equal_copying(rows)
    assert [(pair.seed, pair.rival["update"], pair.ours["update"]) for pair in pairs] == [(0, 8, 4), (1, 8, 8)]
    text = "\n".join(page.equal_copying(pairs, {"rouge_l": {"mean": -0.03}}))
    assert "| 0 | 8 | 0.500 | 20.0 | 0.350 | 4 | 0.520 | 20.0 | 0.330 | -0.020 |" in text
    said = " ".join(text.split())
    assert "ROUGE-L is -0.0150 (95 % over seeds:" in said and "At the end it is -0.0300." in said
    assert page.at_equal_copying([row("scalar", 8, 0.5, 0.3)]) == []


def test_a_new_comparison_takes_nothing_over_from_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rouge_score")
    kept, out, folder = tmp_path / "study", tmp_path / "out", tmp_path / "runs"
    kept.mkdir()
    old = {"machine": "an old machine", "note": "An old note.", "remarks": {"old": 1}}
    (kept / "main.json").write_text(json.dumps(old))
    (kept / "notes.md").write_text("<!-- rows: 0123456789ab -->\n\nOld conclusions.\n")
    monkeypatch.setattr(page, "HERE", kept)
    monkeypatch.setattr(page, "OUT", out)
    comparison(folder, [0.34, 0.36])
    page.main([str(folder)])
    text, printed = (out / "summarization.md").read_text(), capsys.readouterr().out
    assert "Old" not in text and "old" not in text and "Measured on" not in text
    assert "notes.md is left out" in printed
    # Notes that name the rows go in, and the machine is what the runs say.
    wanted = printed.partition("begin the file with ")[2].splitlines()[0]
    (kept / "notes.md").write_text(f"{wanted}\n\nNew conclusions.\n")
    (folder / "text2grad" / "seed-0").mkdir()
    facts = {"device": "cuda", "torch": "2.11", "transformers": "5.17", "started": "2026-11-19T10:00:00+00:00"}
    (folder / "text2grad" / "seed-0" / "run.json").write_text(json.dumps(facts))
    page.main([str(folder)])
    text, printed = (out / "summarization.md").read_text(), capsys.readouterr().out
    assert "New conclusions." in text and "rows:" not in text and "left out" not in printed
    assert "Measured on cuda, torch 2.11, transformers 5.17; started 2026-11-19." in text


def test_a_folder_without_the_two_arms_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"comparison\.json: cannot be read"):
        page.collected(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    for made in ('{"arms": {}}', "{}", '{"arms": {"scalar": {"seeds": []}}}'):
        (tmp_path / "comparison.json").write_text(made)
        with pytest.raises(SystemExit, match="no finished run of `scalar`"):
            page.collected(tmp_path)
    arms = {"scalar": {"seeds": [0]}, "text2grad": {"seeds": [0]}}
    (tmp_path / "comparison.json").write_text(json.dumps({"arms": arms}))
    with pytest.raises(SystemExit, match="no evaluation of `scalar` at update 0"):
        page.collected(tmp_path)


def test_a_seed_is_compared_with_itself_or_with_a_run_that_stands_for_all(tmp_path: Path) -> None:
    comparison(tmp_path, [0.3, 0.5])
    (tmp_path / "scalar" / "seed-0.done").rename(tmp_path / "scalar" / "seed-7.done")
    found = pages.apart(tmp_path, "text2grad", "scalar", "rouge_l")
    assert found is not None and found.mean == pytest.approx(0.2), "seed 0 has nothing to be compared with"
    (tmp_path / "scalar" / "seed-7.done").unlink()
    found = pages.apart(tmp_path, "text2grad", "scalar", "rouge_l")
    assert found is not None and found.mean == pytest.approx(0.1)


def test_the_published_page_is_made_of_the_numbers_beside_it() -> None:
    found = json.loads((page.HERE / "main.json").read_text())
    notes = page.notes(page.HERE / "notes.md", found["rows"])
    assert notes, "they are about these numbers"
    assert (page.OUT / "summarization.md").read_text() == page.page(found, notes)
    for key, title in page.PICTURES.items():
        assert (page.OUT / f"summarization-{key}.svg").read_text() == pages.curves(found["rows"], key, title)


def test_the_numbers_of_the_notes_are_those_of_the_page() -> None:
    """What the notes and the summaries elsewhere say of copying."""
    found = json.loads((page.HERE / "main.json").read_text())
    apart = [pair.difference for pair in page.at_equal_copying(found["rows"])]
    mean = sum(apart) / len(apart)
    assert round(mean, 3) == -0.016 and (round(min(apart), 3), round(max(apart), 3)) == (-0.023, -0.013)
    assert 0.4 < mean / found["between"]["rouge_l"]["mean"] < 0.6, "about half"
    final = {arm: found["comparison"]["arms"][arm]["final"] for arm in ("scalar", "text2grad")}
    repetition = [round(final[arm]["repetition"]["mean"], 3) for arm in ("text2grad", "scalar")]
    assert repetition == [0.022, 0.005] and found["between"]["repetition"]["low"] < 0
    for arm, peak in (("scalar", 6), ("text2grad", 10)):
        sums: dict[int, float] = {}
        for row in found["rows"]:
            if row["arm"] == arm:
                sums[row["update"]] = sums.get(row["update"], 0.0) + row["metrics"]["copied"]
        assert max(sums, key=lambda update: sums[update]) == peak
    copied = found["remarks"]["worth"]["copied from the source"]
    assert (copied["score"][0], copied["rouge_l"][0]) == (-0.0236, 0.0504)
    spans = [span for one in found["shown"] for side in one["sides"] for span in side["spans"]]
    assert {round(span[3], 4) for span in spans if span[3]} == {0.2, 0.2143, 0.4286}, "by which it was converted"
    pages_that_say_so = ("README.md", "CHANGELOG.md", "docs/results/README.md", "studies/summarization/README.md")
    for name in pages_that_say_so:
        text = " ".join((page.HERE.parents[1] / name).read_text(encoding="utf-8").split())
        assert "0.016" in text or "1.6 points" in text, name


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
