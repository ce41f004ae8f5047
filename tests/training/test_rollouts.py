"""Metrics of the rewards of an update, worked by hand."""

import pytest

from text2grad.feedback.rewards import Prices
from text2grad.feedback.settings import Scoring
from text2grad.training.rollouts import price_metrics, residual_ratio
from text2grad.types import Alignment, Completion, Critique, Example, Rollout, Span


def rollout(prompt: str, good: int, score: float | None) -> Rollout:
    """So many words of ten are praised."""
    spans = tuple(Span(2 * place, 2 * place + 1, "good") for place in range(good))
    said = None if score is None else Critique("", score=score)
    return Rollout(
        Example(prompt, prompt),
        Completion("x " * 10, (1,), ((0, 20),)),
        critique=said,
        alignment=None if said is None else Alignment(spans),
        token_rewards=None if score is None else (score,),
        score=score,
    )


def test_the_residual_is_looked_at_among_the_completions_of_a_prompt() -> None:
    # Prompt a: praise 0 and 2, scores 0 and 1. Prompt b, an easy one: praise 4 and 4, scores 5 and 5.5. A praised word
    # earns 0.25. Differences of scores: 1 and 0.5; left are 1 − 0.5 and 0.5. (0.25 + 0.25) / (1 + 0.25).
    rollouts = [rollout("a", 0, 0.0), rollout("a", 2, 1.0), rollout("b", 4, 5.0), rollout("b", 4, 5.5)]
    assert residual_ratio([*rollouts, rollout("b", 1, None)], 0.25) == pytest.approx(0.5 / 1.25)
    # By length: the same, if all ten words, half of the characters, earn 2.5.
    assert residual_ratio(rollouts, Prices(0, 0, 5.0, 0)) == pytest.approx(0.5 / 1.25)


def test_where_every_prompt_has_one_completion_all_are_taken_together() -> None:
    # Scores 0, 1 and 5; of praise 0, 2 and 4, at 1 each, are left 0, −1 and 1. Variances 14/3 and 2/3.
    alone = [rollout("a", 0, 0.0), rollout("b", 2, 1.0), rollout("c", 4, 5.0)]
    assert residual_ratio(alone, 1.0) == pytest.approx(2 / 14)


def test_without_differences_there_is_no_ratio() -> None:
    assert residual_ratio([rollout("a", 1, 0.5)], 0.25) is None
    assert residual_ratio([rollout("a", praise, 0.1) for praise in (1, 2, 3)], 0.25) is None


def test_every_learned_price_is_logged() -> None:
    assert price_metrics(0.3, Scoring()) == {"reward/scale": 0.3}
    assert price_metrics((0.3, 0.1), Scoring(slopes="two")) == {"reward/scale": 0.3, "reward/scale_poor": 0.1}
    one = price_metrics(Prices(0.3, 0.3, 0.7, 0.7), Scoring(by_length=True))
    assert one == {"reward/scale": 0.3, "reward/scale_length": 0.7}
    two = price_metrics(Prices(0.3, 0.1, 0.7, 0.2), Scoring(slopes="two", by_length=True))
    assert two == {**one, "reward/scale_poor": 0.1, "reward/scale_poor_length": 0.2}
