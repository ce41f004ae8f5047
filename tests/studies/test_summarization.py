"""The comparisons on summaries: their configs can be planned, settings are chosen by a rule, and pages are written."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies.summarization import choose, collect, critics, tables, worth

from text2grad import config
from text2grad.training.compare import CompareSettings, plan
from text2grad.types import Alignment, Completion, Critique, Example, Rollout, Span

STUDY = Path(__file__).parents[2] / "studies" / "summarization"
ROW = {
    "scitldr": {"source": ["We train a model."], "target": ["A model."]},
    "defacto": {
        "doc_id": 1,
        "article": "The Mura is long.",
        "abstract": "A river.",
        "candidate": "The Mura is short.",
        "has_error": True,
        "feedback": {"explanation": "It is long.", "summary": "The Mura is long."},
    },
}
RIVALS = {
    "base",
    "sft",
    "scalar",
    "text2grad",
    "text2grad_paper",
    "dpo",
    "grpo",
    "sdpo",
    "sdpo_mixed",
    "best_of_4",
    "reflection",
}


@pytest.mark.parametrize(
    ("file", "task", "more"),
    [
        ("scitldr", "scitldr", set()),
        ("defacto", "defacto", {"ilf", "critic", "text2grad_rm"}),
        ("choose", "scitldr", None),
    ],
)
def test_every_arm_can_be_planned(file: str, task: str, more: set[str] | None, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(ROW[task]) + "\n")
    words = [f"settings.data={data}", f"settings.held_out={data}"]
    jobs = plan(config.load(CompareSettings, STUDY / f"{file}.yaml", words), tmp_path)
    seeds = {arm: [job.seed for job in jobs if job.arm == arm] for arm in {job.arm for job in jobs}}
    if more is None:
        assert {seed for some in seeds.values() for seed in some} == {100, 101}, "none of those that are reported"
        return
    assert set(seeds) == RIVALS | more
    assert seeds["scalar"] == seeds["text2grad"] == [0, 1, 2, 3, 4]
    assert all(len(seeds[arm]) == 3 for arm in ("text2grad_paper", "dpo", "grpo", "sdpo", "sdpo_mixed"))
    # Equal work: the same number of completions, each judged once, and of evaluations.
    sampled = [job for job in jobs if job.kind.samples]
    assert len({job.completions * job.settings.updates for job in sampled}) == 1
    assert all(job.settings.updates // job.settings.evaluation.every >= 15 for job in sampled if job.arm != "dpo")


def row(arm: str, rouge_l: float, length: float = 10, copied: float = 0.1, **more: int) -> dict[str, Any]:
    metrics = {"rouge_l": rouge_l, "length": length, "copied": copied}
    return {"arm": arm, "seed": 0, "update": 9, "metrics": metrics} | more


def test_settings_are_chosen_by_a_rule() -> None:
    rows = [row("sft", 0.2), row("scalar_a", 0.3), row("scalar_b", 0.4, length=12.5), row("text2grad_a", 0.2)]
    rows += [row("text2grad_b", 0.4, copied=0.13), row("text2grad_c", 0.9, update=3), row("text2grad_c", 0.1)]
    assert choose.chosen(rows, {}) == {"scalar": "scalar_a", "text2grad": "text2grad_a"}, "the others grow, or copy"
    # The mean over seeds counts; where every arm of a family has grown, the best of them.
    rows = [row("sft", 0.2), row("scalar_a", 0.3), row("scalar_a", 0.6, seed=1), row("scalar_b", 0.4)]
    rows += [row("text2grad_a", 0.3, length=7.9), row("text2grad_b", 0.4, length=12.1)]
    assert choose.chosen(rows, {}) == {"scalar": "scalar_a", "text2grad": "text2grad_b"}
    left_out = {"text2grad_b": "its run of seed 0 did not finish"}
    assert choose.chosen(rows, left_out)["text2grad"] == "text2grad_a"
    with pytest.raises(SystemExit, match=r"no arm `text2grad_\*` can be taken: text2grad_b: its run of seed 0 did not"):
        choose.chosen([each for each in rows if each["arm"] != "text2grad_a"], left_out)
    with pytest.raises(SystemExit, match=r"no arm `scalar_\*` can be taken: there is none"):
        choose.chosen([row("sft", 0.2)], {})
    with pytest.raises(SystemExit, match=r"`sft`, the start that lengths are compared with: results.json has no"):
        choose.chosen([], {})


def study(name: str, words: Sequence[str] = ()) -> CompareSettings:
    return config.load(CompareSettings, STUDY / f"{name}.yaml", words)


@pytest.mark.parametrize(("file", "target"), [("choose", "scitldr"), ("choose", "defacto"), ("choose-cpu", "main")])
def test_the_words_of_a_choice_make_the_arm_that_was_picked(file: str, target: str) -> None:
    """Whatever stands where: common settings, the arm's own, or nowhere."""
    options, wanted = study(file), study(target)
    families = {name: name.partition("_")[0] for name in options.arms if name != "sft"}
    assert any(choose.differences(options, name, wanted, family) for name, family in families.items())
    for name, family in families.items():
        words = choose.words(options, wanted, {family: name})
        assert not any("start" in word or "evaluation" in word for word in words)
        again = study(target, words)
        assert choose.resolved(again, family) == choose.resolved(options, name), (name, words)


def test_the_rate_of_the_common_settings_counts() -> None:
    """In choose.yaml `scalar_2e-4` has its rate from the common settings; the study's is another one."""
    words = choose.words(study("choose"), study("scitldr"), {"scalar": "scalar_2e-4", "text2grad": "text2grad_1e-4"})
    assert words == ["arms.scalar.update.learning_rate=0.0002"]
    # A setting that the study has and the picked arm has not is taken back.
    anchored = study("scitldr", ["arms.text2grad.advantage.anchor=0.9"])
    found = choose.words(study("choose"), anchored, {"text2grad": "text2grad_1e-4"})
    assert found == ["arms.text2grad.advantage.anchor=0.5"]


def test_arms_that_did_not_finish_or_have_another_critic_are_not_taken() -> None:
    options, wanted = study("choose-cpu"), study("main")
    finished = {name: [100] for name in options.arms if name != "scalar_1e-4"}
    found = choose.refused(options, wanted, finished)
    assert found == {
        "scalar_2e-4": "its critic is not the study's: critics.reference.beside differs",
        "text2grad_one_2e-4": "its critic is not the study's: critics.reference.beside differs",
        "scalar_copying": "its critic is not the study's: critics.support.copied differs",
        "scalar_reference": "its critic is not the study's: critic differs",
        "text2grad_reference": "its critic is not the study's: critic differs",
        "scalar_1e-4": "its run of seed 100 did not finish",
    }
    found = choose.refused(study("choose"), study("scitldr"), {"sft": [100], "scalar_2e-4": [101]})
    assert found["scalar_2e-4"] == "its run of seed 100 did not finish" and "sft" not in found, "shared: one run"
    with pytest.raises(SystemExit, match="the study has no arm `scalar`; it has sft"):
        choose.differences(options, "scalar_1e-4", CompareSettings(arms={"sft": {}}), "scalar")


def test_a_choice_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(tmp_path), "seeds=[100]"]
    with pytest.raises(SystemExit, match=r"results\.json: cannot be read .*choose wants the folder of a comparison"):
        choose.main(words)
    arms = {name: {"seeds": [100]} for name in study("choose").arms if name != "text2grad_two"}
    (tmp_path / "comparison.json").write_text(json.dumps({"arms": {}}))
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(SystemExit, match=r"`sft`, the start .*: its run of seed 100 did not finish"):
        choose.main(words)
    rows = [row(name, 0.3 if name in ("scalar_2e-4", "text2grad_quarter") else 0.2) for name in arms]
    rows.append(row("text2grad_two", 0.9))
    (tmp_path / "comparison.json").write_text(json.dumps({"arms": arms}))
    (tmp_path / "results.json").write_text(json.dumps(rows))
    choose.main(words)
    printed = capsys.readouterr()
    assert printed.out.split() == [
        "arms.scalar.update.learning_rate=0.0002",
        "arms.text2grad.advantage.anchor=0.25",
    ]
    assert printed.err.splitlines() == [
        "left out: text2grad_two: its run of seed 100 did not finish",
        "left out: scalar_copying: its critic is not the study's: critics.support.copied differs",
        "left out: text2grad_copying: its critic is not the study's: critics.support.copied differs",
        "taken: scalar_2e-4, text2grad_quarter",
    ]
    with pytest.raises(SystemExit, match="choose: overrides should look like"):
        choose.main([*words, "nonsense"])


def test_the_page_has_the_tables_of_the_numbers() -> None:
    page = (STUDY / "README.md").read_text()
    assert tables.written(page, json.loads((STUDY / "first.json").read_text())) == page


def judged(group: int, good: int, poor: int, score: float | None, **more: Any) -> dict[str, Any]:
    """A row of rollouts.jsonl: so many good and poor characters."""
    spans = [Span(i, i + 1, "good" if i < good else "poor") for i in range(good + poor)]
    rollout = Rollout(
        Example(str(group), "p"),
        Completion("abcdef", (1,), ((0, 6),)),
        group=group,
        critique=Critique("", score=score, **more),
        alignment=Alignment(tuple(spans)),
        token_rewards=(score or 0.0,),
    )
    return rollout.to_json() | {"update": 1}


def test_what_words_are_worth_is_fitted_among_the_samples_of_a_prompt() -> None:
    """score = a prompt's own level + 0.3 × good − 0.1 × poor: two slopes find it, one does not."""
    samples = [
        judged(group, good, poor, level + 0.3 * good - 0.1 * poor)
        for group, level in enumerate((0.1, 0.9))
        for good, poor in ((0, 1), (1, 1), (2, 3), (1, 0))
    ]
    # What says nothing about verdicts and scores is left out, wherever it stands.
    others = [
        judged(0, 1, 0, None),
        judged(1, 1, 0, 0.5, quality=((0, 0.0), (6, 0.5))),
        samples[0] | {"held_out": True},
    ]
    found = worth.fits([others[0], *samples[:3], others[1], *samples[3:], others[2]])
    assert found["completions"] == 8 and (found["good"], found["poor"]) == (1.0, 1.25)
    assert found["of_a_prompt"]["two"] == {"slopes": [0.3, 0.1], "explained": 1.0}
    assert found["all"]["two"]["explained"] < 1, "the level of a prompt is not what its words say"
    assert found["of_a_prompt"]["one"]["explained"] < 0.9


def test_equal_scores_explain_nothing() -> None:
    found = worth.fits([judged(0, good, 1, 0.3) for good in (0, 1, 2)])
    fitted = [found[name][slopes] for name in ("all", "of_a_prompt") for slopes in ("one", "two")]
    assert all(each["explained"] is None for each in fitted) and tables.share(None) == "–"
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("justname", "wants NAME=rollouts.jsonl, got 'justname'"),
        ("a=", "wants NAME=rollouts.jsonl"),
        ("a=/dev/null", "/dev/null: no sampled completion has a score and verdicts"),
        ("a=missing.jsonl", "missing.jsonl: "),
        ("a=broken.jsonl", "broken.jsonl"),
    ],
)
def test_what_cannot_be_fitted_is_said_in_a_sentence(
    word: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(worth, "HERE", tmp_path)
    (tmp_path / "broken.jsonl").write_text("[]\n")
    with pytest.raises(SystemExit, match=re.escape(why)):
        worth.main([word])
    assert not (tmp_path / "worth.json").exists()


def test_agreement_is_taken_within_a_prompt_and_within_a_sample() -> None:
    """Two prompts at very different levels: what counts is which of a prompt's samples is better."""
    samples = [Rollout(Example(name, "p"), Completion("", (), ())) for name in ("a", "a", "b", "b")]
    scores = np.array([0.1, 0.3, 0.9, 0.5])
    assert critics.within(scores, samples) == pytest.approx([-0.1, 0.1, 0.2, -0.2])
    completion = Completion("one two three", (1, 2, 3), ((0, 3), (3, 7), (7, 13)))
    judged = Rollout(Example("a", "p"), completion, verdicts=(1.0, -1.0, 0.0))
    ((said, costs),) = critics.centred([judged], [[(0, 3), (4, 7), (8, 13)]], [np.array([0.3, 0.0, 0.0])])
    assert said == pytest.approx([1, -1, 0]) and costs == pytest.approx([0.2, -0.1, -0.1])


def test_the_small_comparison_has_equal_work(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(ROW["scitldr"]) + "\n")
    words = [f"settings.data={data}", f"settings.held_out={data}"]
    jobs = plan(config.load(CompareSettings, STUDY / "small.yaml", words), tmp_path)
    runs = {arm: [job for job in jobs if job.arm == arm] for arm in ("scalar", "text2grad")}
    assert [job.seed for job in runs["scalar"]] == [job.seed for job in runs["text2grad"]] == [0, 1, 2, 3, 4]
    assert len({job.completions * job.settings.updates for some in runs.values() for job in some}) == 1


@pytest.mark.parametrize("file", ["choose-cpu", "main"])
def test_the_comparisons_that_were_run_can_be_planned(file: str, tmp_path: Path) -> None:
    """With equal work in all arms with RL; a start that is a folder is given."""
    data, start = tmp_path / "data.jsonl", tmp_path / "start"
    data.write_text(json.dumps(ROW["scitldr"]) + "\n")
    start.mkdir()
    words = [f"settings.data={data}", f"settings.held_out={data}", f"settings.model={start}"]
    jobs = plan(config.load(CompareSettings, STUDY / f"{file}.yaml", words), tmp_path)
    rl = [job for job in jobs if job.arm != "sft"]
    assert len({job.completions * job.settings.updates for job in rl}) == 1
    assert {job.seed for job in jobs} == ({0, 1, 2, 3, 4} if file == "main" else {100})


def test_the_first_and_the_last_evaluation_of_a_run_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "HERE", tmp_path)
    held_out = {f"held_out/{key}": 0.1 for key in collect.HELD_OUT}
    lines: list[dict[str, Any]] = [{"update": 0, **held_out}]
    lines += [{"update": n, "score/mean": n / 10, "kl/reference": n / 100} for n in range(1, 9)]
    lines[4] |= held_out
    lines[8] |= dict.fromkeys(held_out, 0.45678)
    run = tmp_path / "runs" / "words" / "seed-3"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "found.json").write_text(json.dumps({"machine": "mine", "rows": ["old"]}))
    collect.main(["found.json", str(tmp_path / "runs")])
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"] == "mine"
    first, last = found["rows"]
    assert (first["arm"], first["seed"], first["update"], first["sampled"]) == ("words", 3, 0, {})
    # The last five updates: 4 to 8.
    assert (last["update"], last["metrics"]["rouge_l"], last["sampled"]) == (8, 0.4568, {"score": 0.6, "kl": 0.06})
    for wrong in (["found.json"], ["found.json", str(tmp_path / "nowhere")]):
        with pytest.raises(SystemExit, match="collect: "):
            collect.main(wrong)
