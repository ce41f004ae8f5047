"""The comparison on programs: its configs can be planned, and its page says what the files say."""

import json
from pathlib import Path
from typing import Any

import pytest
from studies.code import page

from text2grad import config
from text2grad.report.differences import Interval
from text2grad.training.compare import CompareSettings, plan
from text2grad.types import Example

STUDY = Path(__file__).parents[2] / "studies" / "code"
ROW: dict[str, Any] = {
    "text": "Write a function that doubles a number.",
    "code": "def double(x): return 2 * x",
    "test_setup_code": "",
    "test_list": ["assert double(1) == 2", "assert double(3) == 6", "assert double(0) == 0"],
    "challenge_test_list": [],
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
}


@pytest.mark.parametrize("file", ["code", "choose"])
def test_every_arm_can_be_planned(file: str, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    data, other = tmp_path / "mbpp.jsonl", tmp_path / "humaneval.jsonl"
    data.write_text("".join(json.dumps(ROW | {"task_id": number}) + "\n" for number in (11, 511, 601)))
    other.write_text(json.dumps(HUMANEVAL) + "\n")
    words = [f"settings.data={data}", *([f"settings.task_options.humaneval={other}"] if file == "code" else [])]
    jobs = plan(config.load(CompareSettings, STUDY / f"{file}.yaml", words), tmp_path)
    seeds = {arm: sorted(job.seed for job in jobs if job.arm == arm) for arm in {job.arm for job in jobs}}
    sampled = [job for job in jobs if job.kind.samples]
    # Equal work: the same number of completions, each judged once, and of evaluations.
    assert len({job.completions * job.settings.updates for job in sampled}) == 1
    assert all(job.settings.updates // job.settings.evaluation.every >= 15 for job in sampled)
    if file == "choose":
        assert {seed for some in seeds.values() for seed in some} == {100, 101}, "none of those that are reported"
        return
    trained = {"scalar", "grpo", "text2grad", "text2grad_rho_0", "text2grad_rho_1"}
    assert {job.arm for job in sampled} == trained
    assert all(seeds[arm] == [0, 1, 2] for arm in trained)
    anchors = {job.arm: job.settings.advantage.anchor for job in jobs if "text2grad" in job.arm and job.kind.samples}
    assert anchors == {"text2grad": 0.5, "text2grad_rho_0": 0.0, "text2grad_rho_1": 1.0}


def comparison(
    folder: Path, programs: dict[str, dict[int, list[str]]], passes: dict[str, dict[int, list[float]]]
) -> None:
    """As `text2grad compare` leaves it, with these programs for tasks a and b."""
    arms = {}
    for arm, seeds in programs.items():
        (folder / arm).mkdir(parents=True)
        for seed, texts in seeds.items():
            numbers = passes[arm][seed]
            each = {"id": ["mbpp-11", "mbpp-12"], "text": texts, "pass_1": numbers, "score": numbers}
            (folder / arm / f"seed-{seed}.done").write_bytes(b"digest\n" + json.dumps({"each": each}).encode())
        mean = sum(sum(some) for some in passes[arm].values()) / (2 * len(seeds))
        moved = {"mean": mean - 0.5, "low": None, "high": None}
        cost = {"completions": 1536, "tokens": 9000, "critic_calls": 1536, "seconds": 60.4}
        arms[arm] = {
            "seeds": list(seeds),
            "final": {"pass_1": {"mean": mean}, "length": {"mean": 41.6}},
            "difference": {"pass_1": moved} if arm != "base" else {},
            "cost": cost,
        }
    made = {"baseline": "base", "primary": "pass_1", "arms": arms, "failed": {"grpo, seed 1": "no memory"}}
    (folder / "comparison.json").write_text(json.dumps(made))


@pytest.mark.system("bwrap")
def test_the_page_is_made_of_the_comparison(tmp_path: Path) -> None:
    wrong, right = "def double(x):\n    y = 3\n    return y * x < 1\n", "def double(x):\n    return 2 * x\n"
    programs = {
        "base": {0: [wrong, right]},
        "scalar": {0: [wrong, right]},
        "text2grad": {0: [right, right], 1: [right] * 2},
    }
    passes = {"base": {0: [0.0, 1.0]}, "scalar": {0: [0.0, 1.0]}, "text2grad": {0: [1.0, 1.0], 1: [1.0, 1.0]}}
    comparison(tmp_path, programs, passes)
    columns: dict[str, Any] = {"tests": ["assert double(1) == 2"], "hidden_tests": ["assert double(3) == 6"]}
    examples = [Example(f"mbpp-{number}", "Double it.", columns=columns) for number in (11, 12)]
    text, drawn = page.page(tmp_path, examples)
    assert "`text2grad` ends +50.0 points above `base`" in text
    assert "Too few seeds for a claim: 2" in text
    assert "| `text2grad` | 2 | 1.000 | 42 | +0.500 |" in text
    assert "| `scalar` | 1,536 | 9,000 | 1,536 | 60 |" in text
    assert "Failed: grpo, seed 1: no memory" in text
    assert "## mbpp-11" in text and "fails before training and passes after it" in text
    assert drawn is not None
    assert (
        drawn.count("<rect") >= 2 and "before training: score 0.00" in drawn and "after training: score 1.00" in drawn
    )
    assert "return y * x &lt; 1" in drawn, "a program is text, not mark-up"


@pytest.mark.system("bwrap")
def test_what_is_missing_is_said(tmp_path: Path) -> None:
    right = "def double(x):\n    return 2 * x\n"
    comparison(tmp_path, {"base": {0: [right] * 2}}, {"base": {0: [1.0, 1.0]}})
    text, drawn = page.page(tmp_path, [])
    assert "**Not decided:**" in text and drawn is None and "none is shown" in text


@pytest.mark.parametrize(
    ("base", "rival", "met"),
    [
        ((0.05, 0.01), 0.01, True),
        ((0.05, -0.01), 0.01, False),
        ((0.02, 0.01), 0.01, False),
        ((0.05, 0.01), -0.01, False),
    ],
)
def test_the_bar(base: tuple[float, float], rival: float, met: bool) -> None:
    said = page.verdict(Interval(base[0], base[1], 0.1), Interval(rival, -0.1, 0.1), 3)
    assert said.startswith("**The bar is met.**" if met else "**The bar is not met.**")


def test_the_quoted_words_are_red_where_they_stand() -> None:
    from text2grad.types import Critique, Quote

    critique = Critique("`b = 2` is wrong.", (Quote("b = 2", "poor", start=6, severity=0.5),), score=0.0)
    assert list(page._marked(critique)) == [(6, 11, page.RED, 0.5)]
    drawn = page.picture(page.Shown(Example("1", "Count."), ("a = 1\nb = 2\n", "b = 2\n"), (critique, None)))
    boxes = [part for part in drawn.splitlines() if "fill-opacity" in part]
    assert len(boxes) == 1 and "x='14.0'" in boxes[0] and "width='39.0'" in boxes[0], "the second line, five characters"
