"""Passes as CUDA graphs give what passes launch by launch give. On a GPU only; the rounded rows are tested on a CPU in
test_packed.py."""

from typing import Any

import pytest
import torch

from tests.models.test_packed import long_batch, on_gpu
from text2grad.models.policy import Policy
from text2grad.models.settings import LoraSettings
from text2grad.optim.batch import Batch
from text2grad.optim.losses import Likelihood

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]  # of torch's compiler


def gradients(made: Policy, rows: Batch) -> dict[str, torch.Tensor]:
    made.zero_grad()
    weight_N = torch.linspace(-1, 2, int(rows.mask_BT.sum()), device="cuda")
    made.train()(rows, Likelihood(weight_N)).loss.backward()
    made.eval()
    return {name: weight.grad.clone() for name, weight in made.trainable().items() if weight.grad is not None}


def graphs(made: Policy) -> int:
    recorder = made.backbone._recorder
    return 0 if recorder is None else len(recorder._graphs)


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name in found:
        assert torch.equal(found[name], wanted[name]), name


@pytest.mark.parametrize("options", [{}, {"compile": True}, {"lora": LoraSettings(rank=4)}])
def test_replayed_passes_give_the_same_bits(tokenizer: Any, options: dict[str, Any]) -> None:
    rows, others = long_batch(), long_batch().rows(torch.arange(24).flip(0))
    made, plain = on_gpu(tokenizer, **options), on_gpu(tokenizer, cuda_graphs="never", **options)
    with torch.no_grad():
        for weight, other in zip(made.trainable().values(), plain.trainable().values(), strict=True):
            other.copy_(weight.add_(0.02 * torch.randn_like(weight)))
    assert made.backbone.packs() and made.backbone.records()
    before = graphs(made)
    first = gradients(made, rows)
    assert graphs(made) == before
    recorded, replayed = gradients(made, rows), gradients(made, rows)
    assert graphs(made) == before + 1
    assert_same(recorded, first)
    assert_same(replayed, first)
    # Other rows of the same shape: what was recorded is the launches, not the numbers.
    found, wanted = gradients(made, others), gradients(plain, others)
    assert graphs(made) == before + 1 and not graphs(plain)
    for name in found:
        assert float((found[name] - wanted[name]).norm() / wanted[name].norm()) < 0.05, name


def test_log_probs_after_a_step_are_those_of_the_new_weights(tokenizer: Any) -> None:
    rows, made, plain = long_batch(), on_gpu(tokenizer), on_gpu(tokenizer, cuda_graphs="never")
    for _ in range(3):
        made.logprobs_and_values(rows, 100)
    before = graphs(made)
    assert before
    with torch.no_grad():
        for one, other in zip(made.parameters(), plain.parameters(), strict=True):
            one.mul_(1.1)
            other.mul_(1.1)
    found, _ = made.logprobs_and_values(rows, 100)
    wanted, _ = plain.logprobs_and_values(rows, 100)
    assert graphs(made) == before
    assert float((found - wanted).abs().mean()) < 0.02


def test_the_reference_is_the_policy_without_its_adapter(tokenizer: Any) -> None:
    rows, made = long_batch(), on_gpu(tokenizer, lora=LoraSettings(rank=4))
    for name, weight in made.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    reference = made.reference()
    own = [made.logprobs_and_values(rows, 100)[0] for _ in range(3)]
    other = [reference.logprobs(rows, 100) for _ in range(3)]
    assert all(torch.equal(one, own[0]) for one in own) and all(torch.equal(one, other[0]) for one in other)
    assert float((own[0] - other[0]).abs().mean()) > 0.01


def test_a_pass_between_forward_and_backward_does_no_harm(tokenizer: Any) -> None:
    """Graphs share their memory: the second pass runs launch by launch."""
    rows, made = long_batch(), on_gpu(tokenizer)
    wanted = [gradients(made, rows) for _ in range(3)][-1]
    weight_N = torch.linspace(-1, 2, int(rows.mask_BT.sum()), device="cuda")
    made.zero_grad()
    loss = made.train()(rows, Likelihood(weight_N)).loss
    made.train()(rows, Likelihood(weight_N * 3)).loss.backward()
    made.zero_grad()
    loss.backward()
    assert_same({name: one.grad for name, one in made.trainable().items() if one.grad is not None}, wanted)
    del loss
    # A loss that is dropped keeps nobody waiting.
    made.train()(rows, Likelihood(weight_N))
    assert made.backbone._recorder is not None and made.backbone._recorder._waiting() is None


def test_memory_is_shared_and_let_go(tokenizer: Any) -> None:
    made, rows = on_gpu(tokenizer), long_batch()
    for size in (24, 20, 16, 12, 8):
        for _ in range(3):
            gradients(made, rows.rows(torch.arange(size)))
    assert graphs(made) >= 3
    held = torch.cuda.memory_reserved()
    made.zero_grad()
    made.backbone.release()
    torch.cuda.empty_cache()
    assert graphs(made) == 0 and torch.cuda.memory_reserved() < held


def test_a_reference_that_is_read_first_does_not_stop_learning(tokenizer: Any) -> None:
    """With a given micro-batch the reference is the first to be read, and peft takes the mark off the adapter then."""
    rows, made = long_batch(), on_gpu(tokenizer, lora=LoraSettings(rank=4))
    for _ in range(2):
        made.reference().logprobs(rows, 64)
    first, recorded, replayed = (gradients(made, rows) for _ in range(3))
    assert first and any(bool(gradient.any()) for gradient in first.values())
    assert_same(recorded, first)
    assert_same(replayed, first)
