"""`evaluate` and the training loop's own evaluation are the same code: the same numbers for the same weights."""

from pathlib import Path
from typing import Any

import pytest

from tests.training.trainings import HELD_OUT, metrics_of, trainer, vowels
from text2grad.evaluation.evaluate import SCORE_ERROR, evaluate
from text2grad.evaluation.settings import EvaluateSettings
from text2grad.models.sampling import SamplingSettings
from text2grad.tasks.task import Metric, Task, mean_of
from text2grad.types import Completion, Example, Rollout

LETTERS = Metric("letters", "Letters", "Letters per completion.", "neither", mean_of(lambda _, text: len(text)))
CRITIC: Any = vowels
TASK = Task("harbours", {"validation": HELD_OUT}, critic=CRITIC, metrics=(LETTERS,))


def test_a_run_is_measured_as_it_measured_itself(tmp_path: Path) -> None:
    trainer(tmp_path / "run", "updates=2", "policy.lora.rank=0", held_out=HELD_OUT, metrics=[LETTERS]).train()
    by_itself = {key: value for key, value in metrics_of(tmp_path / "run")[-1].items() if key.startswith("held_out/")}
    settings = EvaluateSettings(
        task="tests.evaluation.test_evaluate:TASK", device="cpu", sampling=SamplingSettings(max_new_tokens=8)
    )
    results = evaluate(str(tmp_path / "run"), settings)
    measured = {key.replace("greedy/", "held_out/"): value for key, value in results.metrics.items()}
    measured.pop("held_out/score_error")
    assert measured == pytest.approx(by_itself, rel=1e-6)
    assert "held_out/letters" in measured


def test_the_standard_error_is_over_examples() -> None:
    def scored(group: int, score: float) -> Rollout:
        completion = Completion("x", (1,), ((0, 1),))
        return Rollout(Example("a", "Hi"), completion, group=group, score=score)

    rollouts = [scored(0, 1.0), scored(0, 3.0), scored(1, 4.0), scored(1, 4.0)]
    # Means 2 and 4: standard deviation √2, over √2 examples.
    assert SCORE_ERROR.measure(rollouts) == pytest.approx(1.0)
    assert SCORE_ERROR.measure(rollouts[:2]) is None
    assert SCORE_ERROR.measure([]) is None
