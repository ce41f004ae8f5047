"""Metrics by name: known values, several references, what the source does not say; and both orders of the judge."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import BudgetSpent, ConfigError, CriticError
from text2grad.evaluation import named
from text2grad.evaluation.judge import _read, _read_grade, grade, judge_pairs
from text2grad.evaluation.metrics import each_of
from text2grad.evaluation.named import metrics_named, references_of
from text2grad.feedback.critics.budget import Budget
from text2grad.feedback.settings import BudgetSettings, OpenAISettings
from text2grad.tasks.task import Metric
from text2grad.types import Completion, Example, Rollout


def rollout(text: str, reference: Any = None, prompt: str = "Summarise.", **columns: Any) -> Rollout:
    if isinstance(reference, list):
        columns["references"], reference = reference, None
    return Rollout(Example("a", prompt, reference, columns), Completion(text, (1,), ((0, len(text)),)))


def measure(name: str, *rollouts: Rollout) -> dict[str, float | None]:
    return {metric.key: metric.measure(rollouts) for metric in metrics_named([name])}


def test_rouge_by_hand() -> None:
    pytest.importorskip("rouge_score")
    # Three words of three and of four: P = 1, R = 3/4; pairs 1/2 and 1/3; longest common subsequence 3.
    found = measure("rouge", rollout("cat sat mat", "cat sat the mat"))
    assert found["rouge_1"] == pytest.approx(6 / 7) and found["rouge_l"] == pytest.approx(6 / 7)
    assert found["rouge_2"] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert measure("rouge", rollout("cat sat mat"))["rouge_1"] is None


def test_of_several_references_the_nearest_counts() -> None:
    pytest.importorskip("rouge_score")
    several = rollout("cat sat mat", ["a dog", "cat sat mat", "fish"])
    assert measure("rouge", several)["rouge_l"] == pytest.approx(1.0)
    assert references_of(several.example) == ("a dog", "cat sat mat", "fish")
    (metric,) = [one for one in metrics_named(["rouge"]) if one.key == "rouge_1"]
    assert each_of([several, rollout("fish", "dog")], [metric])["rouge_1"] == [1.0, 0.0]


def test_bleu_is_sacrebleus() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    texts = ["the cat sat on the mat today", "a ship sank in the bay at noon"]
    references = [["the cat sat on a mat today", "the cat is on the mat"], ["a ship sank in the bay at dawn"]]
    found = measure("bleu", *(rollout(text, list(some)) for text, some in zip(texts, references, strict=True)))
    streams = [[references[0][0], references[1][0]], [references[0][1], None]]
    assert found["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, streams).score / 100)
    same = rollout("the cat sat on the mat", ["nothing like it at all", "the cat sat on the mat"])
    assert measure("bleu", same)["bleu"] == pytest.approx(1.0)


def test_what_the_source_does_not_support() -> None:
    source = ["The crane fell in Norwick on Monday. Nobody was hurt, said Ada Low. It weighed 40 tonnes."]
    made = measure(
        "support",
        rollout("The crane in Norwick weighed 40 tonnes.", passages=source),
        rollout("The crane in Lisbon weighed 90 tonnes.", passages=source),
    )
    assert made == {"unsupported": 1.0, "unsupported_share": 0.5}
    assert measure("support", rollout("it fell", passages=source))["unsupported_share"] == 0.0


def test_similarity_takes_the_nearest_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from text2grad.models import embed

    places = {"cat": (1.0, 0.0), "dog": (0.6, 0.8), "fish": (0.0, 1.0)}

    class Known:
        def __init__(self, name: str, **_: Any) -> None:
            assert name == "models/tiny-one"

        def __call__(self, texts: list[str]) -> Any:
            return np.array([places[text] for text in texts])

    monkeypatch.setattr(embed, "Embedder", Known)
    (metric,) = metrics_named(["similarity:models/tiny-one"])
    assert metric.title == "Embedding similarity" and "tiny-one" in metric.help
    assert metric.measure([rollout("cat", ["fish", "dog"]), rollout("dog", "dog")]) == pytest.approx((0.6 + 1.0) / 2)


MINE = Metric("mine", "Mine", "Mine.", "higher", len)


def test_names() -> None:
    assert metrics_named([f"{__name__}:MINE"])[0].key == "mine"
    with pytest.raises(ConfigError, match="there is no 'ruge'; did you mean `rouge`"):
        metrics_named(["ruge"])
    with pytest.raises(ConfigError, match="similarity should name a sentence-embedding model"):
        metrics_named(["similarity"])
    assert set(named.METRICS) == {"rouge", "bleu", "f1", "support", "grounded", "code"}


def test_f1_counts_content_words_of_the_nearest_reference() -> None:
    # red, ship, sank and red, boat, sank: two of three on both sides; "the" counts on neither.
    assert measure("f1", rollout("The red ship sank.", ["A dog.", "Red boats sank."]))["f1"] == pytest.approx(2 / 3)
    assert measure("f1", rollout("Anything."))["f1"] is None


def test_supported_sentences_are_those_without_doubt() -> None:
    passage = "The Mura\nThe Mura is a river of Austria. It is 480 km long and joins the Drava near Legrad."
    half = rollout("The Mura is a river of Austria. Dragons guard its golden source.", passages=[passage])
    assert measure("grounded", half)["supported_sentences"] == 0.5
    assert measure("grounded", rollout("", passages=[passage]))["supported_sentences"] == 0.0
    assert measure("grounded", rollout("The Mura is long."))["supported_sentences"] is None, "there is no source"


# ------------------------------------------------------------------------------------------------------------ the judge

OURS = ["good one", "good two", "good three", "good four"]
THEIRS = ["bad one", "bad two", "bad three", "bad four"]
Start = Callable[..., str]


def said(ours: list[str], theirs: list[str]) -> dict[str, Any]:
    return judge_pairs("openai:m", OpenAISettings(), ["Which?"] * len(ours), ours, theirs).to_json()


def test_a_model_that_always_wins_scores_100_percent(fault_server: Start) -> None:
    fault_server("prefers-good")
    found = said(OURS, THEIRS)
    assert (found["win_rate"], found["wins"], found["ties"], found["losses"]) == (1.0, 4, 0, 0)
    assert found["high"] == pytest.approx(1.0) and found["low"] == pytest.approx(0.510, abs=1e-3)
    assert said(THEIRS, OURS)["win_rate"] == 0.0


def test_one_that_wins_half_scores_50_percent(fault_server: Start) -> None:
    fault_server("prefers-good")
    found = said(OURS[:2] + THEIRS[2:], THEIRS[:2] + OURS[2:])
    assert (found["win_rate"], found["wins"], found["losses"]) == (0.5, 2, 2)


def test_a_judge_that_prefers_the_first_place_ties(fault_server: Start) -> None:
    fault_server("prefers-first")
    found = said(OURS, THEIRS)
    assert (found["win_rate"], found["ties"]) == (0.5, 4)


def test_equal_texts_are_not_asked_about_and_unreadable_replies_do_not_count(
    fault_server: Start, tmp_path: Path
) -> None:
    fault_server("prefers-nothing")
    found = said(["same", "good"], ["same ", "bad"])
    assert (found["ties"], found["unreadable"], found["win_rate"]) == (1, 1, 0.5)
    asked = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(asked) == 2


def test_a_judge_is_a_model_behind_a_server() -> None:
    with pytest.raises(CriticError, match="judge should be openai:MODEL, got 'reference'"):
        judge_pairs("reference", OpenAISettings(), [], [], [])


def test_the_questions_of_several_rounds_share_one_budget(fault_server: Start) -> None:
    fault_server("prefers-good")
    budget = Budget(BudgetSettings(requests=6))
    for ours, theirs in zip(OURS[:3], THEIRS[:3], strict=True):
        judge_pairs("openai:m", OpenAISettings(), ["Which?"], [ours], [theirs], budget)
    with pytest.raises(BudgetSpent):
        judge_pairs("openai:m", OpenAISettings(), ["Which?"], [OURS[3]], [THEIRS[3]], budget)


def test_grades_by_turn_and_category(fault_server: Start) -> None:
    fault_server("grades-good")
    turns = {
        "greedy": [rollout("good good", category="maths"), rollout("bad", category="writing")],
        "turn_2": [rollout("good " * 20, category="maths")],
    }
    found = grade("openai:m", OpenAISettings(), turns).to_json()
    # 3, 1, and 21, which is no grade from 1 to 10.
    assert (found["grade"], found["graded"], found["unreadable"]) == (2.0, 2, 1)
    assert found["error"] == pytest.approx(1.0), "standard deviation √2, over √2"
    assert found["turns"] == {"greedy": 2.0, "turn_2": None}
    assert found["categories"] == {"maths": 3.0, "writing": 1.0}


def test_what_a_judge_thinks_aloud_is_no_answer() -> None:
    assert _read_grade('<think>Perhaps {"grade": 2}.</think>{"grade": 9}') == 9.0
    assert _read('<think>{"better": "B"}, no:</think>\n{"better": "A"}') == 1.0
    assert _read('{"better": "A"} after all</think>') is None


def test_a_judge_without_a_grade_gives_none(fault_server: Start) -> None:
    fault_server("grades-nothing")
    found = grade("openai:m", OpenAISettings(), {"greedy": [rollout("good")]}).to_json()
    assert (found["grade"], found["unreadable"]) == (None, 1)
