"""Runs become arms, and arms are compared in words that the numbers carry."""

from pathlib import Path
from typing import Any

import pytest

from tests.report.made_runs import METRICS
from text2grad.report.arms import Point, arms_of
from text2grad.report.folders import LoggedRun
from text2grad.report.panels import locality_gaps, time_by_part
from text2grad.report.words import compare
from text2grad.types import MetricInfo


def run(name: str, scores: dict[int, float], key: str = "held_out/score", **config: Any) -> LoggedRun:
    return LoggedRun(
        Path(name), name, {update: {key: score} for update, score in scores.items()}, config, declared=METRICS
    )


def test_runs_that_differ_in_the_seed_alone_are_one_arm() -> None:
    arms = arms_of(
        [
            run("span-1", {0: 0.0}, seed=1, credit="span", out="a"),
            run("scalar-1", {0: 0.0}, seed=1, credit="scalar", out="b"),
            run("span-2", {0: 0.0}, seed=2, credit="span", out="c"),
        ]
    )
    assert [(arm.name, len(arm.runs), arm.differs) for arm in arms] == [
        ("span", 2, {"credit": "span"}),
        ("scalar-1", 1, {"credit": "scalar"}),
    ]


def test_runs_without_settings_are_grouped_by_name() -> None:
    arms = arms_of([run("span-seed-1", {0: 0}), run("span-seed-2", {0: 0}), run("other", {0: 0})])
    assert [(arm.name, len(arm.runs)) for arm in arms] == [("span", 2), ("other", 1)]


def test_arms_of_one_name_are_told_apart_by_what_differs() -> None:
    runs = [run(f"try-{n}", {0: 0}, seed=n, lr=rate) for n, rate in enumerate((1, 1, 2, 2))]
    assert [arm.name for arm in arms_of(runs)] == ["try (lr=1)", "try (lr=2)"]


def test_the_mean_and_the_spread_are_over_the_updates_that_every_seed_has() -> None:
    (arm,) = arms_of([run("a-1", {0: 0.0, 5: 0.5, 9: 9.0}, seed=1), run("a-2", {0: 0.2, 5: 0.25}, seed=2)])
    assert arm.series("held_out/score") == [Point(0, 0.1, 0.0, 0.2), Point(5, 0.375, 0.25, 0.5)]
    assert arm.series("nothing") == []


SPAN = {0: 0.10, 10: 0.45, 20: 0.60, 40: 0.70}
SCALAR = {0: 0.12, 10: 0.20, 20: 0.30, 40: 0.45}


def test_the_comparison_names_the_update_that_reached_the_other_arm() -> None:
    said = compare(arms_of([run("scalar", SCALAR, credit="b"), run("span", SPAN, credit="a")]))
    assert said.headline == "span reaches scalar’s final score in 10 of 40 updates"
    assert said.sentences == (
        "scalar: held-out score rose from 0.120 to 0.450 in 40 updates.",
        "span: held-out score rose from 0.100 to 0.700 in 40 updates.",
        "span reached the final score of scalar, 0.450, by update 10, 25 % of the 40 updates that scalar had.",
    )


def test_seeds_are_said_with_their_spread() -> None:
    said = compare(arms_of([run("a-1", {0: 0.0, 4: 0.5}, seed=1), run("a-2", {0: 0.0, 4: 0.7}, seed=2)]))
    assert said.sentences == ("a: held-out score rose from 0 to 0.600 in 4 updates (2 seeds, 0.500 to 0.700).",)
    assert said.headline == "a: held-out score 0 → 0.600 in 4 updates"


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ({0: 0.5, 9: 0.25}, "a: held-out score fell from 0.500 to 0.250 in 9 updates."),
        ({0: 0.5, 9: 0.5}, "a: held-out score stayed at 0.500 over 9 updates."),
        ({0: 0.5}, "a: held-out score 0.500 at update 0."),
    ],
)
def test_nothing_is_called_a_rise_that_is_none(scores: dict[int, float], sentence: str) -> None:
    assert compare(arms_of([run("a", scores)])).sentences[0] == sentence


def test_means_that_are_equal_when_rounded_have_their_n_interval_and_critic_too() -> None:
    """Two standard errors of 0.1 / 5 each: 1.96 times the root of their squares' sum is 0.055."""
    rows = {at: {"held_out/score": 0.5, "held_out/std": 0.1, "held_out/n": 25.0} for at in (0, 9)}
    (sentence,) = compare(arms_of([LoggedRun(Path("a"), "a", rows)])).sentences
    assert sentence.endswith("over 9 updates: 0 ± 0.055 (95 %, n = 25, critic reference), within noise.")
    assert "stayed at 0.500" in sentence


def test_no_speed_is_claimed_where_the_better_arm_began_better_or_was_slower() -> None:
    ahead = compare(arms_of([run("a", {0: 0.6, 9: 0.7}, x=1), run("b", {0: 0.1, 9: 0.5}, x=2)]))
    assert ahead.headline == "a ends at 0.700, b at 0.500"
    assert ahead.sentences[-1] == "a was at the final score of b, 0.500, from the start."
    slow = compare(arms_of([run("a", {0: 0.1, 9: 0.2, 20: 0.7}, x=1), run("b", {0: 0.1, 9: 0.5}, x=2)]))
    assert slow.headline == "a ends at 0.700, b at 0.500"
    assert slow.sentences[-1] == "a reached the final score of b, 0.500, by update 20."


def test_without_held_out_scores_it_says_what_it_compares_instead() -> None:
    said = compare(arms_of([run("a", {1: 0.1, 9: 0.3}, "score/mean", x=1), run("b", {}, x=2)]))
    assert said.key == "score/mean"
    assert "no held-out scores" in said.sentences[-2] and said.sentences[-1].endswith("in b.")
    undeclared = LoggedRun(Path("a"), "a", {0: {"held_out/loss": 2.0}, 1: {"held_out/loss": 1.0}})
    assert compare(arms_of([undeclared])).headline == "a: held_out/loss 2.00 → 1.00 in 1 update"
    assert "No scores yet" in compare(arms_of([run("a", {})])).sentences[0]


def test_a_curve_that_begins_at_the_first_update_names_both_ends() -> None:
    """Four updates, of which no difference of theirs is said to be all."""
    said = compare(arms_of([run("a", {1: 0.4, 2: 0.3, 3: 0.3, 4: 0.1}, "score/mean")]))
    assert said.sentences[0] == "a: score fell from 0.400 to 0.100 between updates 1 and 4."
    assert said.headline == "a: score 0.400 → 0.100 between updates 1 and 4"


def test_of_losses_the_lower_one_is_better() -> None:
    key = "held_out/loss"
    said = compare(
        arms_of([run("a", {0: 3.0, 5: 2.0, 9: 1.5}, key, x=1), run("b", {0: 3.0, 5: 2.5, 9: 2.0}, key, x=2)])
    )
    assert said.headline == "a reaches b’s final loss in 5 of 9 updates"
    assert said.sentences == (
        "a: held-out loss fell from 3.00 to 1.50 in 9 updates.",
        "b: held-out loss fell from 3.00 to 2.00 in 9 updates.",
        "a reached the final loss of b, 2.00, by update 5, 56 % of the 9 updates that b had.",
    )


def test_runs_of_the_same_seed_are_not_called_seeds() -> None:
    (arm,) = arms_of([run("a-1", {0: 0.0, 4: 0.5}, seed=1), run("a-2", {0: 0.0, 4: 0.5}, seed=1)])
    assert compare([arm]).sentences == ("a: held-out score rose from 0 to 0.500 in 4 updates (2 runs).",)


def test_nobody_wins_where_the_ends_are_equal() -> None:
    said = compare(arms_of([run("a", {0: 0.0, 4: 0.5}, x=1), run("b", {0: 0.1, 4: 0.5}, x=2)]))
    assert said.headline == "a ends at 0.500, b at 0.500"
    assert said.sentences[-1] == "a reached the final score of b, 0.500, by update 4."


def test_locality_is_compared_between_the_arms() -> None:
    # good − poor: 0.3, 0.1 for the spans; 0.1, 0.1 for the scalar arm. Differences 0.2 and 0: mean 0.1, s.d. √0.02.
    span = {1: {"locality/good": 0.1, "locality/poor": -0.2}, 2: {"locality/good": 0.1, "locality/poor": 0.0}}
    scalar = {1: {"locality/good": 0.0, "locality/poor": -0.1}, 2: {"locality/good": 0.2, "locality/poor": 0.1}}
    scalar[3] = {"locality/good": 5.0}
    arms = arms_of([LoggedRun(Path("a"), "span", span, {"x": 1}), LoggedRun(Path("b"), "scalar", scalar, {"x": 2})])
    assert locality_gaps(arms) == (
        ["good − poor", "mean", "spread over updates", "above 0"],
        [
            ["span", "+0.200", "0.141", "100% of 2 updates"],
            ["scalar", "+0.100", "0", "100% of 2 updates"],
            ["span minus scalar", "+0.100", "0.141", "50% of 2 updates"],
        ],
    )
    assert locality_gaps(arms_of([run("b", {0: 0.0})])) is None


def test_time_is_of_every_part_that_was_measured_over_all_updates() -> None:
    rows = {1: {"time/sample": 2.0, "time/other": 1.0}, 2: {"time/sample": 4.0, "time/evaluate": 3.0, "time/new": 0.5}}
    assert time_by_part(arms_of([LoggedRun(Path("a"), "a", rows)])) == (
        ["seconds per update", "a"],
        [
            ["sample", "3.00 (57%)"],
            ["evaluate", "1.50 (29%)"],
            ["new", "0.250 (5%)"],
            ["other", "0.500 (10%)"],
            ["total", "5.25"],
        ],
    )
    assert time_by_part(arms_of([run("b", {0: 0.0})])) is None


def test_without_a_known_measure_a_metric_with_a_direction_is_compared() -> None:
    rows = {1: {"train/noise": 5.0, "held_out/error": 0.4}, 2: {"train/noise": 5.0, "held_out/error": 0.1}}
    declared = {"held_out/error": MetricInfo("Error rate", "", "lower"), "train/noise": MetricInfo("N", "", "higher")}
    runs = [
        LoggedRun(Path("a"), "a", rows, {"x": 1}, declared=declared),
        run("b", {1: 0.4, 2: 0.3}, "held_out/error", x=2),
    ]
    said = compare(arms_of(runs))
    assert (said.key, said.headline) == ("held_out/error", "a ends at 0.100, b at 0.300")
    assert said.sentences[0] == "a: error rate fell from 0.400 to 0.100 between updates 1 and 2."
    assert said.sentences[-1] == "a reached the final value of b, 0.300, by update 2."


def evaluated(name: str, scores: dict[int, float], std: float, **config: Any) -> LoggedRun:
    rows = {at: {"held_out/score": score, "held_out/std": std, "held_out/n": 100.0} for at, score in scores.items()}
    return LoggedRun(Path(name), name, rows, config, declared=METRICS)


def test_a_change_within_noise_is_not_called_a_rise() -> None:
    """Two means of 100 scores with a standard deviation of 0.5: 1.96 · 0.5 · √(2/100) = 0.1386."""
    said = compare(arms_of([evaluated("a", {0: 0.1, 4: 0.2}, 0.5, critic="support")]))
    margin = "+0.100 ± 0.139 (95 %, n = 100, critic support), within noise"
    assert said.sentences == (f"a: held-out score went from 0.100 to 0.200 in 4 updates: {margin}.",)
    assert said.headline == "a: held-out score 0.100 → 0.200 in 4 updates: +0.100 ± 0.139, within noise"
    said = compare(arms_of([evaluated("a", {0: 0.1, 4: 0.3}, 0.5, task="bulletin")]))
    clear = "+0.200 ± 0.139 (95 %, n = 100, critic of the task bulletin)"
    assert said.sentences == (f"a: held-out score rose from 0.100 to 0.300 in 4 updates: {clear}.",)


def test_an_arm_that_ends_within_noise_of_another_is_not_said_to_reach_it() -> None:
    slow, fast = evaluated("slow", {0: 0.1, 4: 0.2}, 0.5, x=1), evaluated("fast", {0: 0.1, 2: 0.2, 4: 0.3}, 0.5, x=2)
    said = compare(arms_of([slow, fast]))
    assert said.headline == "fast ends at 0.300, slow at 0.200: +0.100 ± 0.139, within noise"
    whole = "+0.100 ± 0.139 (95 %, n = 100, critic reference), within noise"
    assert said.sentences[-1] == f"fast minus slow, at the end: {whole}."
    slow, fast = evaluated("slow", {0: 0.1, 4: 0.2}, 0.1, x=1), evaluated("fast", {0: 0.1, 2: 0.2, 4: 0.3}, 0.1, x=2)
    assert compare(arms_of([slow, fast])).headline.startswith(
        "fast reaches slow’s final score in 2 of 4 updates: +0.100 ±"
    )


def test_seeds_make_a_mean_surer() -> None:
    """Three runs: √(3 · 0.5²/100) / 3 = 0.0289 for each end, so 1.96 · √2 · 0.0289 = 0.0800."""
    runs = [evaluated(f"a-{seed}", {0: 0.1, 4: 0.2}, 0.5, seed=seed) for seed in (1, 2, 3)]
    said = compare(arms_of(runs))
    assert said.headline.endswith("+0.100 ± 0.080") and "+0.100 ± 0.080 (95 %" in said.sentences[0]


@pytest.mark.parametrize(
    ("critic", "name"),
    [
        ("package.module:polite", "polite"),
        ("openai:gpt-4o-mini", "openai:gpt-4o-mini"),
        ("merge(reference, my.critics:tone)", "merge(reference, my.critics:tone)"),
    ],
)
def test_a_critic_of_one_s_own_is_named_without_its_module(critic: str, name: str) -> None:
    (sentence,) = compare(arms_of([evaluated("a", {0: 0.1, 4: 0.2}, 0.5, critic=critic)])).sentences
    assert f"critic {name})" in sentence


def test_scores_of_different_critics_are_not_subtracted() -> None:
    said = compare(
        arms_of([evaluated("a", {0: 0.1, 4: 0.2}, 0.1, critic="support"), evaluated("b", {0: 0.3, 4: 0.6}, 0.1)])
    )
    assert said.headline == "b ends at 0.600, a at 0.200"
    assert said.sentences[-1] == (
        "b and a were scored by different critics (reference and support), so their scores cannot be compared."
    )
