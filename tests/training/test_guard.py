"""Guard rails on made-up runs: both failures that were measured are told, healthy runs are left in peace."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from text2grad.evaluation.metrics import text_stats
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.settings import Scoring
from text2grad.training.guard import Guard
from text2grad.training.settings import GuardSettings
from text2grad.types import Critique, Example

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
    guard = Guard(options or GuardSettings())
    return [words for update in range(updates) for words in guard.see(metrics(update, update / updates, **series))]


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
    guard = Guard(GuardSettings(window=5))
    told = [bool(guard.see({**metrics(n, 0), "score/mean": n / 10, "length/mean": 40 / (n + 1)})) for n in range(12)]
    assert told.index(True) == 9


@pytest.mark.parametrize("healthy", [1, 2, 3, 4])
def test_a_collapse_within_the_first_updates_is_told(healthy: int) -> None:
    """What lies in the first window spoils its means: then the first update is what the rest is compared with."""
    guard, told = Guard(GuardSettings()), []
    for update in range(1, 41):
        fallen = update > healthy
        text = {"length/truncated_frac": 0.0 if fallen else 0.9, "text/diversity": 1.0, "text/repetition": 0.0}
        seen = {"score/mean": 0.0 if fallen else -34 + 0.1 * update, "length/mean": 1.0 if fallen else 22.5}
        told += [(update, words) for words in guard.see({"update": update, **seen, **text})]
    ((update, words),) = told
    assert update == 10 and "completions shrank from" in words


@pytest.mark.parametrize("rise", [0.01, 0.05])
def test_a_collapse_within_the_first_updates_is_told_while_the_score_goes_on_rising(rise: float) -> None:
    """The score has risen since the first window, too, whose mean length the collapse has spoiled."""
    guard = Guard(GuardSettings())
    said = []
    for update in range(20):
        found = {"length/truncated_frac": 0.0, "text/diversity": 0.6, "text/repetition": 0.0}
        score, length = (0.4 + rise * update, 12.0) if update else (0.3, 40.0)
        said += guard.see(found | {"score/mean": score, "length/mean": length})
    (words,) = said
    assert "while completions shrank from 40 to 12 tokens" in words


def test_noise_in_the_first_update_is_not_taken_for_a_collapse() -> None:
    """Few completions an update: lengths and scores of a single one say little."""
    told = []
    for seed in range(100):
        draw, guard = np.random.default_rng(seed), Guard(GuardSettings())
        for _ in range(30):
            seen = {"score/mean": draw.normal(), "length/mean": float(draw.uniform(8, 40))}
            text = {"length/truncated_frac": 0.5, "text/diversity": 0.8, "text/repetition": 0.05}
            told += guard.see({**seen, **text})
    assert told == []


def test_off_says_nothing() -> None:
    series, _ = FAILURES["answers shrink to three words"]
    assert warnings(options=GuardSettings(action="off"), **series) == []


def test_updates_without_a_score_count_for_nothing() -> None:
    guard = Guard(GuardSettings(window=2))
    for _ in range(10):
        assert guard.see({"length/mean": 1.0, "text/diversity": 1.0, "critic/unscored_frac": 1.0}) == []
    assert guard.first == {}


def test_its_state_goes_through_json_and_comes_back() -> None:
    """Interrupted at any update, it says what it would have said."""
    series, _ = FAILURES["answers never end"]
    whole = warnings(**series)
    for cut in (3, 30, 60):
        first, told = Guard(GuardSettings()), []
        for update in range(80):
            if update == cut:
                again = Guard(GuardSettings())
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


# ------------------------------------------------------------------------------------- complaints about the critic


EXAMPLES = [Example("a", "Where?", "In the harbour."), Example("b", "When?")]


def critic(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:  # noqa: ARG001
    return [Critique("", score=0.5) for _ in completions]


@pytest.fixture
def rewards() -> RewardFunction:
    return RewardFunction(critic, AlignSettings(), Scoring())


def test_complaints_come_once_and_name_the_columns(rewards: RewardFunction) -> None:
    guard = Guard(GuardSettings(window=2))
    (words,) = guard.complaints({"critic/unscored_frac": 1.0}, rewards, EXAMPLES)
    assert "the critic critic scored no completion" in words and "`reference`" in words
    assert guard.complaints({"critic/unscored_frac": 1.0}, rewards, EXAMPLES) == []
    assert guard.complaints({"critic/unscored_frac": 0.9}, rewards, EXAMPLES) == []


def test_spans_that_add_variance_are_told_when_they_keep_doing_so(rewards: RewardFunction) -> None:
    guard, told = Guard(GuardSettings(window=2)), []
    for ratio in (1.2, 0.5, 0.9, 1.4, 1.4):
        seen = {"score/mean": 0.0, "critic/unscored_frac": 0.0, "reward/residual_ratio": ratio}
        guard.see(
            {"length/mean": 1.0, "text/diversity": 1.0, "text/repetition": 0.0, "length/truncated_frac": 0.0, **seen}
        )
        told.append(guard.complaints(seen, rewards, EXAMPLES))
    assert [bool(words) for words in told] == [False, False, False, True, False]
    assert "set scoring.scale lower" in told[3][0]


def test_a_critic_that_scores_nothing_is_quoted_with_its_reason(rewards: RewardFunction) -> None:
    rewards.reason = "only 0.41 sure"
    (words,) = Guard(GuardSettings()).complaints({"critic/unscored_frac": 1.0}, rewards, [])
    assert "the critic critic scored no completion" in words and "It says: only 0.41 sure." in words


def test_skipped_steps_are_told_once(rewards: RewardFunction) -> None:
    guard, seen = Guard(GuardSettings()), {"critic/unscored_frac": 0.0, "update/skipped": 2.0}
    (words,) = guard.complaints(seen, rewards, EXAMPLES)
    assert words.startswith("2 optimizer steps were skipped") and "lower update.learning_rate" in words
    assert guard.complaints(seen, rewards, EXAMPLES) == []
