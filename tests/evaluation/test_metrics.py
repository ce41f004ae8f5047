"""Numbers about rollouts, worked by hand; and every number says how it is to be read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import InvalidData
from text2grad.evaluation.metrics import (
    COPY,
    MEASURED,
    RUNNING,
    describe,
    measured,
    metric_infos,
    text_stats,
    word_stats,
)
from text2grad.tasks.task import Metric, mean_of
from text2grad.types import Alignment, Completion, Critique, Example, Missed, Rollout, Span

EXAMPLE, OTHER = Example("a", "Hi"), Example("b", "Hi there")


def rollout(text: str, ids: tuple[int, ...], score: float | None = None, truncated: bool = False) -> Rollout:
    completion = Completion(text, ids, tuple((0, len(text)) for _ in ids))
    if score is None:
        return Rollout(OTHER, completion, truncated=truncated)
    return Rollout(
        EXAMPLE,
        completion,
        truncated=truncated,
        critique=Critique("", score=score),
        alignment=Alignment((Span(0, 1, "good"),), (Missed("x", "not there"),)),
        token_rewards=(*[0.0] * (len(ids) - 1), 2 * score),
        verdicts=(1.0, *[0.0] * (len(ids) - 1)),
        score=score,
    )


ROLLOUTS = [rollout("ab", (1, 2), 1.0), rollout("cd", (1, 2, 3, 4), 3.0, truncated=True), rollout(" ", (5, 6))]


def test_numbers_about_rollouts() -> None:
    assert describe(ROLLOUTS) == {
        "critic/unscored_frac": pytest.approx(1 / 3),
        "align/missed_frac": 0.5,
        "align/labelled_frac": pytest.approx(2 / 6),
        "length/mean": pytest.approx(8 / 3),
        "length/truncated_frac": pytest.approx(1 / 3),
        "length/empty_frac": pytest.approx(1 / 3),
        "text/repetition": 0.0,
        "text/diversity": 0.8,
        "text/copied": 0.0,
        "text/linking": 0.0,
        "score/mean": 2.0,
        "score/std": 1.0,
        "reward/mean": 4.0,
        "reward/zero_frac": 0.0,
    }


def test_nothing_scored_has_no_score() -> None:
    numbers = describe([rollout("ab", (1,))])
    assert numbers["critic/unscored_frac"] == 1
    assert not {"score/mean", "score/std", "reward/mean"} & numbers.keys()
    assert describe([])["length/mean"] == 0


def test_what_is_measured_on_held_out_examples_and_by_the_task() -> None:
    length = Metric("characters", "Characters", "Of a text.", "neither", mean_of(lambda _, text: len(text)))
    nothing = Metric("nothing", "Nothing", "Never there.", "lower", lambda _: None)
    numbers = measured(ROLLOUTS, (length, nothing))
    assert numbers == {
        "held_out/score": 2.0,
        "held_out/std": 1.0,
        "held_out/n": 2.0,
        "held_out/length": pytest.approx(8 / 3),
        "held_out/truncated_frac": pytest.approx(1 / 3),
        "held_out/diversity": 0.8,
        "held_out/repetition": 0.0,
        "held_out/copied": 0.0,
        "held_out/linking": 0.0,
        "held_out/unscored_frac": pytest.approx(1 / 3),
        "held_out/characters": pytest.approx(5 / 3),
    }
    infos = metric_infos((length, nothing))
    assert numbers.keys() <= infos.keys()
    assert (infos["held_out/characters"].title, infos["held_out/characters"].better) == ("Characters", "neither")


def test_every_number_says_how_to_read_it() -> None:
    assert describe(ROLLOUTS).keys() == RUNNING.keys()
    assert all(info.title and info.help.endswith(".") for info in (*RUNNING.values(), *MEASURED.values()))


@pytest.mark.parametrize(
    ("completions", "repetition", "diversity"),
    [([], 0.0, 1.0), ([[1]], 0.0, 1.0), ([[1] * 8], 0.8, 1 / 7), ([[1, 2], [1, 2]], 0.0, 0.5)],
)
def test_repetition_and_diversity(completions: list[list[int]], repetition: float, diversity: float) -> None:
    assert text_stats(completions) == {"text/repetition": repetition, "text/diversity": pytest.approx(diversity)}


def own(key: str, measure: Any) -> Metric:
    return Metric(key, "Own", "", "higher", measure)


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ([own("score", len)], "the metric 'score' is built in"),
        ([own("critic_score", len)], "the metric 'critic_score' is built in"),
        ([own("words", len), own("words", len)], "the metric 'words' comes twice"),
    ],
)
def test_a_metric_may_not_replace_another(metrics: list[Metric], words: str) -> None:
    with pytest.raises(InvalidData, match=words):
        metric_infos(metrics)


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (lambda _: float("nan"), "the metric 'words' should give a finite number, .* got nan"),
        (lambda _: float("inf"), "the metric 'words' should give a finite number, .* got inf"),
        (lambda _: 1 / 0, "the metric 'words' raised ZeroDivisionError"),
        (lambda _: "many", "the metric 'words' raised ValueError"),
    ],
)
def test_a_metric_that_fails_is_named(measure: Any, words: str) -> None:
    with pytest.raises(InvalidData, match=words):
        measured([], [own("words", measure)])
    assert "held_out/words" not in measured([], [own("words", lambda _: None)])


@pytest.mark.parametrize(
    ("key", "better", "measure", "words"),
    [
        ("a", "sideways", len, "Metric.better: should be 'higher', 'lower' or 'neither', got 'sideways'"),
        (" ", "higher", len, "key: should be a non-empty text"),
        ("a", "higher", 3, "Metric.measure: should be callable"),
    ],
)
def test_a_metric_is_checked_when_it_is_made(key: str, better: Any, measure: Any, words: str) -> None:
    with pytest.raises(InvalidData, match=words):
        Metric(key, "Own", "", better, measure)


# -------------------------------------------------------------------------------------------- copying and lists

REPORT = "On Monday night a fire in Norwick damaged seven houses. Nobody was hurt, the mayor said."


def test_copied_words_lie_in_stretches_of_six() -> None:
    def copied(text: str) -> float:
        return word_stats([(REPORT, text)])["text/copied"]

    assert copied("A fire in Norwick damaged seven houses") == 1.0
    assert copied("A FIRE, in Norwick: damaged seven!") == 1.0  # six words, whatever their case and signs
    assert copied("fire in Norwick damaged seven") == 0.0  # five
    assert copied("We hear that a fire in Norwick damaged seven houses today") == pytest.approx(7 / 11)
    assert copied("seven houses damaged Norwick in fire a night") == 0.0
    assert word_stats([]) == {"text/copied": 0.0}


def test_scripts_without_spaces_are_compared_by_characters() -> None:
    prompt = "月曜日の夜、ノリッジで火事があり、家が七軒焼けた。"
    assert word_stats([(prompt, "火事があり、家が七軒")])["text/copied"] == 1.0
    assert word_stats([(prompt, "七軒の家が燃えた")])["text/copied"] == 0.0


def test_a_bare_list_has_fewer_linking_words_than_sentences() -> None:
    prompts = [REPORT, "In the harbour of Halden a ship sank on Friday, and the crew was saved by a boat."]
    sentences = ["A fire in Norwick damaged houses on Monday.", "On Friday a ship sank in Halden."]
    lists = ["fire Norwick Monday houses", "ship Halden Friday"]
    # "a", "on", "in" are in both; of 8 + 7 words, 3 + 3.
    assert word_stats(list(zip(prompts, sentences, strict=True)))["text/linking"] == pytest.approx(6 / 15)
    assert word_stats(list(zip(prompts, lists, strict=True)))["text/linking"] == 0.0


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "火", "é", ",", "\n"]), max_size=30).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5))
def test_laws_of_word_stats(pairs: list[tuple[str, str]]) -> None:
    numbers = word_stats(pairs)
    assert all(0 <= number <= 1 for number in numbers.values())
    assert ("text/linking" in numbers) == (len({prompt for prompt, _ in pairs}) > 1)
    assert word_stats(pairs[::-1]) == numbers


@given(WORDS, WORDS, WORDS)
def test_what_surrounds_a_copy_does_not_hide_it(prompt: str, before: str, after: str) -> None:
    """A copy of the whole prompt counts in full, wherever it stands."""
    count = len([word for word in prompt.split() if word != ","])
    if count < COPY:
        return
    text = f"{before} x {prompt} y {after}"
    words = len([word for word in text.split() if word != ","])
    assert word_stats([(prompt, text)])["text/copied"] >= count / words
