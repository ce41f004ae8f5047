"""Log-probs of given continuations: those of a pass over each pair alone, whatever stands beside it in the batch."""

from typing import Any

import pytest
import torch

from text2grad.models import writer as writers
from text2grad.models.sampling import SamplingSettings
from text2grad.models.writer import Loaded, Writer, continuation_logprobs
from text2grad.types import Example

PAIRS = [([5, 6, 7], [8, 9]), ([5], [6, 7, 8, 9, 10]), ([4, 4], []), ([9, 8, 7, 6], [5])]


def alone(model: Any, prompt: list[int], continuation: list[int]) -> float:
    ids = torch.tensor([prompt + continuation])
    with torch.no_grad():
        logprobs = model(input_ids=ids).logits.log_softmax(-1)
    return float(sum(logprobs[0, len(prompt) - 1 + i, token] for i, token in enumerate(continuation)))


@pytest.mark.parametrize("tokens", [8192, 6, 1])
def test_each_pair_as_if_alone(model: Any, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "BATCH_TOKENS", tokens)
    model.eval()
    found = continuation_logprobs(model, PAIRS, pad_id=0)
    assert found == pytest.approx([alone(model, *pair) for pair in PAIRS], abs=1e-4)
    assert found[2] == 0.0, "an empty continuation is certain"


def test_a_writer_puts_a_space_before_a_continuation_of_plain_text(model: Any, tokenizer: Any) -> None:
    writer = Writer(Loaded(model, model), tokenizer, SamplingSettings(max_new_tokens=2), "plain")
    example = Example("a", "How many?")
    (total, count), (spaced, same) = writer.likelihoods([(example, "ships"), (example, " ships")])
    assert total == pytest.approx(spaced) and count == same
    ids = tokenizer.encode(" ships", add_special_tokens=False)
    assert count == len(ids) and total == pytest.approx(alone(model, writer.prompt(example), ids), abs=1e-4)
