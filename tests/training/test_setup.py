"""What a run keeps to on another machine: the precision of sampling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.trainings import EXAMPLES, trainer, vowels
from text2grad import config
from text2grad.models import products
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.training.preference import DPOTrainer
from text2grad.training.settings import DPOSettings, SFTSettings
from text2grad.training.sft import SFTTrainer
from text2grad.types import Example

COMMON = ["policy.lora.rank=2", "sampling.max_new_tokens=8", "device=cpu"]


def preferring(folder: Path, *words: str) -> DPOTrainer:
    options = config.load(DPOSettings, None, ["pairs=samples", "updates=2", *COMMON, *words])
    return DPOTrainer(options, folder, examples=EXAMPLES, critic=vowels, **tiny())


def supervised(folder: Path, *words: str) -> SFTTrainer:
    answered = [Example(one.id, one.prompt, "The Mura.") for one in EXAMPLES]
    options = config.load(
        SFTSettings, None, ["updates=2", "evaluate_examples=1", "evaluate_critic=reference", *COMMON, *words]
    )
    return SFTTrainer(options, folder, examples=answered, held_out=answered[:1], **tiny())


def tiny() -> dict[str, Any]:
    tokenizer = tiny_tokenizer()
    return {"tokenizer": tokenizer, "model": tiny_model(tokenizer, hidden_size=16, layers=1)}


@pytest.mark.parametrize("begin", [trainer, preferring, supervised])
def test_a_run_samples_in_the_precision_that_it_began_with(
    begin: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sampled_in(name: str, multiplies: bool, *words: str) -> tuple[torch.dtype, str | None]:
        monkeypatch.setattr(products, "multiplies_bf16", lambda: multiplies)
        one = begin(tmp_path / name, "policy.precision=bfloat16", *words)
        one.close()
        return one.writer.sampler.decoder.weights.dtype, one.run.recorded("sampling_dtype")

    for name, first, found in ("slow", False, torch.float32), ("fast", True, torch.bfloat16):
        known = (found, str(found).removeprefix("torch."))
        assert sampled_in(name, first) == sampled_in(name, not first) == known, "and again on another processor"
    assert sampled_in("given", True, "sampling.dtype=float32") == (torch.float32, None), "the settings say so"


def test_what_no_processor_decides_is_not_looked_up(tmp_path: Path) -> None:
    """A sampler of somebody else's, or a server, has a precision of its own."""
    one = trainer(tmp_path / "run", "policy.precision=bfloat16", f"sampling.sampler={__name__}:Own")
    one.close()
    assert one.writer.settings.dtype == "auto" and one.run.recorded("sampling_dtype") is None


class Own:
    def __init__(self, *_: Any, **named: Any) -> None: ...
