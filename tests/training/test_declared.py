"""Every trainer says in run.json how to read each number that it logs, so that the report draws it under its title."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.models.reward.made import FAST, FULL, TEMPLATE, rows
from tests.training.trainings import EXAMPLES, HELD_OUT, trainer, vowels
from text2grad import config
from text2grad.feedback.critics.protocol import Critic
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import read_jsonl
from text2grad.training.preference import DPOTrainer
from text2grad.training.reward_model import RewardModelTrainer
from text2grad.training.settings import DPOSettings, RewardModelSettings, SFTSettings
from text2grad.training.sft import SFTTrainer
from text2grad.types import Example

SHORT = ["updates=2", "evaluate_every=1", "device=cpu", "update.batch=2", "policy.lora.rank=2"]
GIVEN = [Example(f"e{n}", f"Say {n}", columns={"chosen": f"It is {n}.", "rejected": "No."}) for n in range(4)]


def tiny() -> dict[str, Any]:
    tokenizer = tiny_tokenizer()
    return {"model": tiny_model(tokenizer, hidden_size=16, layers=1), "tokenizer": tokenizer}


def train(folder: Path) -> None:
    settings = ("updates=2", "evaluation.every=1", "sampling.max_new_tokens=4", "kl.coefficient=0.1")
    trainer(folder, *settings, held_out=HELD_OUT).train()


def train_examined(folder: Path) -> None:
    settings = ("updates=1", "sampling.max_new_tokens=4", "advantage.estimator=rloo", "evaluation.critic=reference")
    held_out = [Example("h", "Say it.", reference="It.")]
    trainer(folder, *settings, held_out=held_out).train()


def sft(folder: Path) -> None:
    examples = [Example(f"e{n}", f"Say {n}", reference=f"It is {n}.") for n in range(4)]
    SFTTrainer(config.load(SFTSettings, None, SHORT), folder, examples=examples, held_out=examples, **tiny()).train()


def dpo_from_a_file(folder: Path) -> None:
    DPOTrainer(config.load(DPOSettings, None, SHORT), folder, examples=GIVEN, held_out=GIVEN, **tiny()).train()


def dpo_from_samples(folder: Path) -> None:
    words = [*SHORT, "pairs=samples", "completions=2", "sampling.max_new_tokens=4"]
    settings, critic = config.load(DPOSettings, None, words), cast(Critic, vowels)
    DPOTrainer(settings, folder, examples=EXAMPLES, held_out=HELD_OUT, critic=critic, **tiny()).train()


def reward_model(folder: Path) -> None:
    settings = RewardModelSettings(
        updates=2, evaluate_every=1, validation=0.25, device="cpu", policy=FULL, update=FAST, template=TEMPLATE
    )
    RewardModelTrainer(settings, folder, rows=rows(), **tiny()).train()


@pytest.mark.parametrize("stage", [train, train_examined, sft, dpo_from_a_file, dpo_from_samples, reward_model])
def test_every_number_is_declared(tmp_path: Path, stage: Callable[[Path], None]) -> None:
    stage(tmp_path / "run")
    declared = json.loads((tmp_path / "run" / "run.json").read_text())["metrics"]
    logged = {key for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") for key in row}
    plain = {key for key in logged if key.startswith(("time/", "data/")) or key in ("update", "warnings")}
    assert len(logged - plain) > 5
    assert logged - plain <= declared.keys()
    assert all(info["title"] and info["help"] for info in declared.values())
