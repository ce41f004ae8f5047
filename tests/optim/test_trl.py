"""The loss and its gradients are those of TRL's GRPOTrainer, given the same advantages for each token."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import unavailable
from tests.optim.made import ONE_STEP, gradients, made_batch, policy
from text2grad.models.policy import Policy
from text2grad.models.tiny import tiny_tokenizer
from text2grad.optim.batch import Batch
from text2grad.optim.estimators import Advantages

CLIP_LOW, CLIP_HIGH, TEMPERATURE = 0.1, 0.15, 0.8


@pytest.fixture
def trl() -> Any:
    try:
        import trl
    except ImportError:
        unavailable("needs trl: pip install text2grad[trl]")
    return trl


def trainer(trl: Any, folder: Path, loss_type: str) -> Any:
    """Theirs, on a copy of our model; no reference, no reward, one process."""
    from datasets import Dataset

    options = trl.GRPOConfig(
        output_dir=str(folder / "out"),
        loss_type=loss_type,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        temperature=TEMPERATURE,
        beta=0.0,
        per_device_train_batch_size=8,
        num_generations=8,
        gradient_accumulation_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    made = trl.GRPOTrainer(
        model=str(folder),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=options,
        train_dataset=Dataset.from_list([{"prompt": "Hi"}] * 8),
        processing_class=tiny_tokenizer(),
    )
    made.model.train()
    made.current_gradient_accumulation_steps = 1
    return made


def as_trl(batch: Batch, found: Advantages) -> dict[str, Tensor]:
    """Prompts padded on the left, completions on the right."""
    width = int(batch.prompt_B.max())
    prompt_ids = torch.zeros(len(batch), width, dtype=torch.long)
    completion_ids = torch.zeros(batch.mask_BT.shape, dtype=torch.long)
    for row, (prompt, length) in enumerate(zip(batch.prompt_B.tolist(), batch.lengths_B.tolist(), strict=True)):
        prompt_ids[row, width - prompt :] = batch.ids_BS[row, :prompt]
        completion_ids[row, :length] = batch.ids_BS[row, prompt : prompt + length]
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": (torch.arange(width) >= width - batch.prompt_B[:, None]).long(),
        "completion_ids": completion_ids,
        "completion_mask": batch.mask_BT.long(),
        "advantages": found.advantages_BT,
        "old_per_token_logps": batch.logprobs_BT,
        "num_items_in_batch": batch.mask_BT.sum(),
    }


@pytest.mark.parametrize("loss_type", ["dapo", "bnpo"])
def test_loss_and_gradients_equal_those_of_trl(trl: Any, loss_type: str, tmp_path: Path) -> None:
    ours: Policy = policy(temperature=TEMPERATURE)
    ours.save_pretrained(tmp_path, tiny_tokenizer())
    batch = made_batch(ours)
    found = Advantages(torch.where(batch.mask_BT, batch.rewards_BT, 0.0), batch.mask_BT)
    options = replace(ONE_STEP, clip=CLIP_LOW, clip_high=CLIP_HIGH, micro_batch=3)
    seen, stats = gradients(ours, batch, found, options)
    assert 0.05 < stats.means()["update/clip_frac"] < 0.95, "clipping is at work on some tokens"

    theirs = trainer(trl, tmp_path, loss_type)
    loss = theirs._compute_loss(theirs.model, as_trl(batch, found))
    loss.backward()
    assert stats.means()["loss/policy"] == pytest.approx(loss.item(), abs=1e-5)
    metrics = theirs._metrics["train"]
    assert stats.means()["loss/entropy"] == pytest.approx(metrics["entropy"][0], abs=1e-4)
    assert stats.means()["update/clip_frac"] == pytest.approx(metrics["clip_ratio/region_mean"][0], abs=1e-5)
    compared = 0
    for name, weight in theirs.model.named_parameters():
        torch.testing.assert_close(seen[f"backbone.model.{name}"], weight.grad, rtol=1e-5, atol=1e-5, msg=name)
        compared += 1
    assert compared == len(seen)
    assert max(float(gradient.abs().max()) for gradient in seen.values()) > 1e-2
