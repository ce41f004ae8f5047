"""The same with the Trainer: words about the first token, a score that the last one decides."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.training.trainings import metrics_of, trainer
from text2grad.types import Critique, Quote

LEARNING = ["updates=40", "prompts=8", "completions=8", "sampling.max_new_tokens=2", "policy.lora.rank=0"]
LEARNING += [
    "update.learning_rate=5e-3",
    "update.micro_batch=64",
    "kl.coefficient=0",
    "log.locality=0",
    "scoring.scale=0.5",
]


def in_hindsight(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    """The last letter decides, and the first one is blamed for it."""
    critiques: list[Critique | None] = []
    for text in completions:
        visible = bool(text[:1].strip())
        score = float(visible and ord(text[-1]) % 4 == 2)
        quotes = (Quote(text[:1], "good" if score else "poor", start=0),) if visible else ()
        critiques.append(Critique("", quotes=quotes, score=score))
    return critiques


def last_score(folder: Path, *settings: str) -> float:
    trainer(folder, *LEARNING, *settings, critic=in_hindsight).train()
    rows = metrics_of(folder)
    assert rows[0]["score/mean"] < 0.6
    return float(sum(row["score/mean"] for row in rows[-4:]) / 4)


@pytest.mark.parametrize("estimator", ["gae", "rloo", "grpo", "span_rloo"])
def test_the_trainer_learns_in_hindsight(tmp_path: Path, estimator: str) -> None:
    assert last_score(tmp_path / "run", f"advantage.estimator={estimator}") > 0.9


def test_anchored_learns_in_hindsight_within_60_updates(tmp_path: Path) -> None:
    """Seeds 0 to 7 reach 0.9 at update 39, 41, 29, 30, 33, 32, 30, 33. Before the end token had a share in what spans
    earn: 35, 30, 29, 29, 31, 34, 32, 31. Why two of them take longer is not known."""
    assert last_score(tmp_path / "run", "advantage.estimator=anchored", "updates=60") > 0.9


def test_without_an_anchor_it_learns_less(tmp_path: Path) -> None:
    assert last_score(tmp_path / "run", "advantage.estimator=span_rloo", "advantage.anchor=0") < 0.6
