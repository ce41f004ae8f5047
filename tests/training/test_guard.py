"""Guard rails on made-up runs: both failures that were measured are told, healthy runs are left in peace."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from text2grad.evaluation.metrics import describe, text_stats
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.settings import Scoring
from text2grad.tasks.bulletin import bulletins
from text2grad.training.guard import Guard
from text2grad.training.settings import GuardSettings
from text2grad.types import Alignment, Completion, Critique, Example, Rollout

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
    copied: Series = lambda _: 0.05,
    linking: Series = lambda _: 0.35,
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
        "text/copied": float(np.clip(copied(share) + 0.05 * noise[3], 0, 1)),
        "text/linking": float(np.clip(linking(share) + 0.03 * noise[2], 0, 1)),
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
    "answers copy their prompts": (
        {"score": rising, "copied": lambda s: 0.05 + 0.6 * s},
        "began to copy their prompts",
    ),
    "what was copied by half is copied whole": ({"score": rising, "copied": lambda s: 0.7 + 0.3 * s}, "copy their"),
    "answers become lists": ({"score": rising, "linking": lambda s: 0.35 - 0.3 * s}, "became lists of words"),
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
    "code repeats its prompt from the first": {"score": rising, "copied": lambda _: 0.73, "linking": lambda _: 0.05},
    "somewhat more copied, somewhat terser": {
        "score": rising,
        "copied": lambda s: 0.05 + 0.15 * s,
        "linking": lambda s: 0.35 - 0.07 * s,
    },
    "copied while the score falls": {"score": lambda s: 0.4 - 0.3 * s, "copied": lambda s: 0.05 + 0.9 * s},
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


BULLETINS = bulletins(3, 12 * 8)
"""Eight prompts for each of twelve updates."""


def run_of(texts: Callable[[int, Example], str]) -> list[str]:
    """What is said about a run whose score rises; `texts`: the completion of an example in an update."""
    guard, told = Guard(GuardSettings()), []
    for update in range(12):
        examples = BULLETINS[update * 8 : update * 8 + 8]
        rollouts: list[Rollout] = []
        for example in examples:
            text = texts(update, example)
            ids = tuple(sum(map(ord, word)) for word in text.split())
            completion = Completion(text, ids, ((0, len(text)),) * len(ids))
            score = 0.1 * update + 0.01 * len(rollouts)
            said = Critique("", score=score)
            rewards = (*[0.0] * (len(ids) - 1), score)
            rollouts.append(
                Rollout(example, completion, critique=said, alignment=Alignment(), token_rewards=rewards, score=score)
            )
        told += guard.see(describe(rollouts))
    return told


def bare(example: Example) -> str:
    facts: Any = example.columns["facts"]
    return " ".join(values[0] for values in facts.values())


def sentence_of(example: Example) -> str:
    assert example.reference is not None
    return example.reference


def test_an_honest_run_of_bulletins_is_left_in_peace() -> None:
    assert run_of(lambda _, example: sentence_of(example)) == []


def test_a_run_whose_bulletins_become_lists_of_values_is_told() -> None:
    (words,) = run_of(lambda update, example: bare(example) if update > 5 else sentence_of(example))
    assert "while completions became lists of words (linking words " in words


def test_a_run_whose_bulletins_become_copies_of_the_report_is_told() -> None:
    def copies(update: int, example: Example) -> str:
        return str(example.prompt)[:120] if update > 5 else sentence_of(example)

    assert any("began to copy their prompts" in words for words in run_of(copies))


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


UPDATE: dict[str, Any] = {
    "critic/unscored_frac": 0.0,
    "align/missed_frac": 0.1,
    "align/labelled_frac": 0.3,
    "reward/zero_frac": 0.2,
    "score/std": 0.4,
    "advantage/size": 0.8,
}
NOTHING: dict[str, tuple[dict[str, float], str]] = {
    "missed": ({"align/missed_frac": 1.0, "align/labelled_frac": 0.0}, "none of the critic's quotes was located"),
    "zero": ({"reward/zero_frac": 1.0, "align/labelled_frac": 0.0}, "every token reward was 0"),
    "same": ({"score/std": 0.0, "align/labelled_frac": 0.0}, "every completion the same score"),
    "advantages": ({"advantage/size": 0.0}, "every advantage was 0"),
}


def ends(guard: Guard, rewards: RewardFunction, updates: Sequence[dict[str, Any]]) -> list[str | None]:
    found = []
    for update in updates:
        guard.complaints({**UPDATE, **update}, rewards, EXAMPLES)
        found.append(guard.hopeless())
    return found


@pytest.mark.parametrize("kind", NOTHING)
def test_a_run_that_cannot_learn_ends_after_three_updates(rewards: RewardFunction, kind: str) -> None:
    seen, words = NOTHING[kind]
    *before, reason = ends(Guard(GuardSettings()), rewards, [seen] * 3)
    assert before == [None, None] and reason is not None
    of = "the words of the first 3 updates" if kind == "missed" else "the first 3 updates"
    assert reason.startswith(f"nothing could be learned from {of}: ") and words in reason
    # A run that is over before that says so, too.
    (said,) = Guard(GuardSettings()).complaints(UPDATE | seen, rewards, EXAMPLES, over=True)
    assert words in said
    assert "guard.nothing_learned=warn" in reason
    assert ends(Guard(GuardSettings(nothing_learned="warn")), rewards, [seen] * 9) == [None] * 9


@pytest.mark.parametrize("kind", NOTHING)
def test_what_to_do_is_said_once(rewards: RewardFunction, kind: str) -> None:
    guard = Guard(GuardSettings(nothing_learned="warn", patience=2))
    told = [guard.complaints(UPDATE | NOTHING[kind][0], rewards, EXAMPLES) for _ in range(4)]
    assert [len(words) for words in told] == [0, 1, 0, 0]
    assert NOTHING[kind][1] in told[1][0]


def test_a_critic_that_scores_nothing_of_the_first_update_ends_the_run_at_once(rewards: RewardFunction) -> None:
    (reason,) = ends(Guard(GuardSettings()), rewards, [{"critic/unscored_frac": 1.0}])
    assert reason is not None and "from the first update: the critic scored no completion" in reason


def test_a_run_that_has_learned_is_not_ended(rewards: RewardFunction) -> None:
    """All rewards alike may mean that it is done; a critic without an answer may come back."""
    for seen in ({"critic/unscored_frac": 1.0}, *(seen for seen, _ in NOTHING.values())):
        assert ends(Guard(GuardSettings()), rewards, [{}] + [seen] * 9) == [None] * 10
        assert ends(Guard(GuardSettings()), rewards, [{"reward/zero_frac": 1.0}] * 2 + [{}] + [seen] * 9) == [None] * 12


def test_scalar_rewards_need_no_spans(rewards: RewardFunction) -> None:
    rewards.scalar = True
    assert ends(Guard(GuardSettings()), rewards, [NOTHING["missed"][0]] * 5) == [None] * 5


def test_an_interrupted_run_ends_where_it_would_have_ended(rewards: RewardFunction) -> None:
    guard = Guard(GuardSettings())
    assert ends(guard, rewards, [NOTHING["zero"][0]] * 2) == [None, None]
    again = Guard(GuardSettings())
    again.restore(json.loads(json.dumps(guard.state())))
    assert ends(again, rewards, [NOTHING["zero"][0]]) != [None]


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
    assert "set advantage.anchor higher, or scoring.scale lower if you set it" in told[3][0]


def test_a_critic_that_scores_nothing_is_quoted_with_its_reason(rewards: RewardFunction) -> None:
    rewards.reason = "only 0.41 sure"
    (words,) = Guard(GuardSettings()).complaints({"critic/unscored_frac": 1.0}, rewards, [])
    assert "the critic critic scored no completion" in words and "It says: only 0.41 sure." in words


def test_skipped_steps_are_told_once(rewards: RewardFunction) -> None:
    guard, seen = Guard(GuardSettings()), {"critic/unscored_frac": 0.0, "update/skipped": 2.0}
    (words,) = guard.complaints(seen, rewards, EXAMPLES)
    assert words.startswith("2 optimizer steps were skipped") and "lower update.learning_rate" in words
    assert guard.complaints(seen, rewards, EXAMPLES) == []


def test_many_missed_quotes_are_told_once_and_few_are_not(rewards: RewardFunction) -> None:
    for share, told in ((0.3, 0), (0.4, 1)):
        guard = Guard(GuardSettings(window=2))
        complaints = []
        for _ in range(4):
            seen = {"score/mean": 0.5, "critic/unscored_frac": 0.0, "align/missed_frac": share, "advantage/size": 1.0}
            guard.see(seen)
            complaints += guard.complaints(seen, rewards, [])
        assert len(complaints) == told
        assert all("40% of the critic's quotes were not found in their completions" in words for words in complaints)


def test_missed_quotes_are_told_with_the_guard_off(rewards: RewardFunction) -> None:
    guard, said = Guard(GuardSettings(action="off")), []
    for _ in range(6):
        seen = {"score/mean": 0.5, "critic/unscored_frac": 0.0, "align/missed_frac": 0.5, "advantage/size": 1.0}
        assert guard.see(seen) == []
        said += guard.complaints(seen, rewards, [])
    assert len(said) == 1 and said[0].startswith("50% of the critic's quotes were not found")
