"""Guard rails on made-up runs: both failures that were measured are told, healthy runs are left in peace."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from text2grad.training.guard import GuardSettings, Watch, text_stats

Series = Callable[[float], float]
NOISE = np.random.default_rng(0).normal(size=(200, 5))


def metrics(
    update: int,
    share: float,
    *,
    score: Series = lambda _: 0.2,
    length: Series = lambda _: 24.0,
    truncated: Series = lambda _: 0.05,
    diversity: Series = lambda _: 0.6,
    repetition: Series = lambda _: 0.02,
    held_out: Series | None = None,
) -> dict[str, Any]:
    """One update of a run; each number a function of how far the run is, with noise."""
    noise = NOISE[update]
    found = {
        "score/mean": score(share) + 0.02 * noise[0],
        "length/mean": max(1.0, length(share) + 0.8 * noise[1]),
        "length/truncated_frac": float(np.clip(truncated(share) + 0.03 * noise[2], 0, 1)),
        "text/diversity": float(np.clip(diversity(share) + 0.02 * noise[3], 0, 1)),
        "text/repetition": float(np.clip(repetition(share) + 0.01 * noise[4], 0, 1)),
    }
    if held_out is not None and update % 10 == 0:
        found |= {"held_out/score": held_out(share) + 0.01 * noise[1], "held_out/std": 0.2}
    return found


def warnings(updates: Any = 80, options: Any = None, **series: Any) -> list[str]:
    watch = Watch(options or GuardSettings())
    return [words for update in range(updates) for words in watch.see(metrics(update, update / updates, **series))]


def rising(share: float) -> float:
    return 0.1 + 0.3 * share


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "answers shrink to three words": ({"score": rising, "length": lambda s: 26 - 20 * s}, "shrank from 2"),
    "answers never end": (
        {"score": rising, "length": lambda s: 24 + 36 * s, "truncated": lambda s: 0.05 + 0.9 * s},
        "stopped ending",
    ),
    "half of them did not end from the first": (
        {"score": rising, "truncated": lambda s: 0.6 + 0.4 * s},
        "stopped ending",
    ),
    "answers are padded": ({"score": rising, "length": lambda s: 20 + 70 * s}, "grew from 2"),
    "answers become alike": ({"score": rising, "diversity": lambda s: 0.6 - 0.45 * s}, "became alike"),
    "answers repeat": ({"score": rising, "repetition": lambda s: 0.02 + 0.5 * s}, "repeat themselves"),
    "held-out falls": ({"score": rising, "held_out": lambda s: 0.3 - 0.2 * s}, "the held-out score fell from"),
    "silence is safer than being wrong": (
        {"score": lambda s: -1 + s, "length": lambda s: 20 - 19 * s},
        "the score rose from -0.9",
    ),
    "held-out falls below zero": (
        {"score": lambda s: -2 + s, "held_out": lambda s: -1 - 0.5 * s},
        "the held-out score fell from -",
    ),
}
HEALTHY: dict[str, dict[str, Any]] = {
    "score rises, text stays": {"score": rising, "held_out": rising},
    "flat": {"held_out": lambda _: 0.2},
    "score falls": {"score": lambda s: 0.4 - 0.3 * s},
    "score falls while answers shrink": {"score": lambda s: 0.4 - 0.3 * s, "length": lambda s: 26 - 20 * s},
    "negative scores rise": {"score": lambda s: -2 + s, "held_out": lambda s: -2 + s},
    "somewhat shorter": {"score": rising, "length": lambda s: 26 - 8 * s},
    "longer, and so with fewer new pairs": {
        "score": rising,
        "length": lambda s: 16 + 24 * s,
        "diversity": lambda s: 0.6 / (1 + 1.5 * s) ** 0.5 * (1 - 0.3 * s),
    },
    "all cut off from the first": {"score": rising, "truncated": lambda _: 0.97},
    "held-out does not move": {"score": rising, "held_out": lambda _: 0.2},
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_told_once(name: str) -> None:
    series, words = FAILURES[name]
    told = [text for text in warnings(**series) if words in text]
    assert len(told) == 1
    assert "the critic may be gamed" in told[0]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_in_peace(name: str) -> None:
    assert warnings(**HEALTHY[name]) == []


def test_nothing_is_said_before_the_windows_are_apart() -> None:
    """A collapse within the first updates is told as soon as five of them lie behind five others."""
    watch = Watch(GuardSettings(window=5))
    told = [bool(watch.see({**metrics(n, 0), "score/mean": n / 10, "length/mean": 40 / (n + 1)})) for n in range(12)]
    assert told.index(True) == 9


@pytest.mark.parametrize("healthy", [1, 2, 3, 4])
def test_a_collapse_within_the_first_updates_is_told(healthy: int) -> None:
    """What lies in the first window spoils its means: then the first update is what the rest is compared with."""
    watch, told = Watch(GuardSettings()), []
    for update in range(1, 41):
        fallen = update > healthy
        text = {"length/truncated_frac": 0.0 if fallen else 0.9, "text/diversity": 1.0, "text/repetition": 0.0}
        seen = {"score/mean": 0.0 if fallen else -34 + 0.1 * update, "length/mean": 1.0 if fallen else 22.5}
        told += [(update, words) for words in watch.see({"update": update, **seen, **text})]
    ((update, words),) = told
    assert update == 10 and "completions shrank from" in words


@pytest.mark.parametrize("rise", [0.01, 0.05])
def test_a_collapse_within_the_first_updates_is_told_while_the_score_goes_on_rising(rise: float) -> None:
    """The score has risen since the first window, too, whose mean length the collapse has spoiled."""
    watch = Watch(GuardSettings())
    said = []
    for update in range(20):
        found = {"length/truncated_frac": 0.0, "text/diversity": 0.6, "text/repetition": 0.0}
        score, length = (0.4 + rise * update, 12.0) if update else (0.3, 40.0)
        said += watch.see(found | {"score/mean": score, "length/mean": length})
    (words,) = said
    assert "while completions shrank from 40 to 12 tokens" in words


def test_noise_in_the_first_update_is_not_taken_for_a_collapse() -> None:
    """Few completions an update: lengths and scores of a single one say little."""
    told = []
    for seed in range(100):
        draw, watch = np.random.default_rng(seed), Watch(GuardSettings())
        for _ in range(30):
            seen = {"score/mean": draw.normal(), "length/mean": float(draw.uniform(8, 40))}
            text = {"length/truncated_frac": 0.5, "text/diversity": 0.8, "text/repetition": 0.05}
            told += watch.see({**seen, **text})
    assert told == []


def test_off_says_nothing() -> None:
    series, _ = FAILURES["answers shrink to three words"]
    assert warnings(options=GuardSettings(action="off"), **series) == []


def test_updates_without_a_score_count_for_nothing() -> None:
    watch = Watch(GuardSettings(window=2))
    for _ in range(10):
        assert watch.see({"length/mean": 1.0, "text/diversity": 1.0, "critic/unscored_frac": 1.0}) == []
    assert watch.first == {}


def test_its_state_goes_through_json_and_comes_back() -> None:
    """Interrupted at any update, it says what it would have said."""
    series, _ = FAILURES["answers never end"]
    whole = warnings(**series)
    for cut in (3, 30, 60):
        first, told = Watch(GuardSettings()), []
        for update in range(80):
            if update == cut:
                again = Watch(GuardSettings())
                again.restore(json.loads(json.dumps(first.state())))
                first = again
            told += first.see(metrics(update, update / 80, **series))
        assert told == whole


def test_repetition_and_diversity() -> None:
    assert text_stats([]) == {"text/repetition": 0.0, "text/diversity": 1.0}
    assert text_stats([[1], [2]]) == {"text/repetition": 0.0, "text/diversity": 1.0}
    # Seven tokens, four stretches of four, all the same; six pairs, one kind.
    assert text_stats([[7] * 7]) == {"text/repetition": 0.75, "text/diversity": pytest.approx(1 / 6)}
    # The same in two completions is no repetition within one, but there is little variety.
    assert text_stats([[1, 2, 3, 4, 5]] * 2) == {"text/repetition": 0.0, "text/diversity": 0.5}
