"""Reward models that have learned something, one of each kind for all tests of a session."""

from pathlib import Path

import pytest
import torch

from tests.models.reward.made import FULL, TEMPLATE, rows
from text2grad.models.settings import Template
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.tasks.annotated import Annotated
from text2grad.training.reward_model import RewardModelTrainer
from text2grad.training.settings import LossSettings, RewardModelSettings, SupervisedSettings
from text2grad.types import Alignment, Critique, Span


def trained(folder: Path, made: list[Annotated], template: Template, loss: LossSettings, updates: int) -> Path:
    tokenizer, before = tiny_tokenizer(), torch.get_num_threads()
    options = RewardModelSettings(
        updates=updates,
        evaluate_every=updates,
        device="cpu",
        policy=FULL,
        template=template,
        loss=loss,
        head_learning_rate=2e-2,
        update=SupervisedSettings(batch=8, micro_batch=8, learning_rate=1e-2),
    )
    torch.set_num_threads(1)
    RewardModelTrainer(options, folder, model=tiny_model(tokenizer), tokenizer=tokenizer, rows=made).train()
    torch.set_num_threads(before)
    return folder / "model"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows `Drava` from `Mura`; scored."""
    return trained(tmp_path_factory.mktemp("learned") / "run", rows(40, score=True), TEMPLATE, LossSettings(), 40)


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's way: writes one critique with its quote, always the same, and has no span head."""
    said, where = Critique("Wrong river."), Alignment((Span(0, 5, "poor"),))
    made = [Annotated(str(n), f"Which river runs through {n}?", f"Drava {n}", said, where) for n in range(12)]
    loss, template = (
        LossSettings(span=0.0, reward=0.0, language=1.0),
        Template(max_tokens=400, critique_tokens=120, writes="quotes"),
    )
    return trained(tmp_path_factory.mktemp("written") / "run", made, template, loss, 80)
