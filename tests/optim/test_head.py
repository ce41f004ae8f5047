"""From hidden states to gradients in chunks, against the plain way: full logits, log_softmax, autograd."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from text2grad.optim import head as module
from text2grad.optim.head import Head, log_probs, token_losses
from text2grad.optim.losses import PolicyLoss

TOKENS, HIDDEN, VOCABULARY = 83, 12, 50


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20 tokens, worked on 3 at a time; 83 is a multiple of neither."""
    monkeypatch.setattr(module, "CHUNK", 20 * VOCABULARY)
    monkeypatch.setattr(module, "NEAR", 3 * VOCABULARY)


def made(
    *, bias: bool = False, dtype: torch.dtype = torch.float32, tokens: int = TOKENS, vocabulary: int = VOCABULARY
) -> tuple[Tensor, Head, Tensor, PolicyLoss]:
    draw = torch.Generator().manual_seed(0)
    hidden_NH = torch.randn(tokens, HIDDEN, generator=draw).to(dtype).requires_grad_()
    weight_VH = torch.randn(vocabulary, HIDDEN, generator=draw).mul_(0.5).requires_grad_()
    bias_V = torch.randn(vocabulary, generator=draw).requires_grad_() if bias else None
    ids_N = torch.randint(0, vocabulary, (tokens,), generator=draw)
    plain_N = torch.log_softmax(hidden_NH.detach().float() @ weight_VH.detach().T, 1).gather(1, ids_N[:, None])[:, 0]
    loss_of = PolicyLoss(
        old_N=plain_N + 0.3 * torch.randn(tokens, generator=draw),
        advantages_N=torch.randn(tokens, generator=draw),
        weight_N=(torch.rand(tokens, generator=draw) > 0.2) / tokens,
    )
    return hidden_NH, Head(weight_VH, bias_V), ids_N, loss_of


def plainly(hidden_NH: Tensor, head: Head, ids_N: Tensor, loss_of: PolicyLoss) -> tuple[Tensor, Tensor, Tensor]:
    logits_NV = hidden_NH.float() @ head.weight_VH.float().T
    if head.bias_V is not None:
        logits_NV = logits_NV + head.bias_V
    logits_NV = logits_NV * head.scale
    if head.softcap is not None:
        logits_NV = head.softcap * torch.tanh(logits_NV / head.softcap)
    log_NV = torch.log_softmax(logits_NV / head.temperature, 1)
    logprobs_N = log_NV.gather(1, ids_N[:, None])[:, 0]
    entropy_N = -(log_NV.exp() * log_NV).sum(1)
    return loss_of(logprobs_N, entropy_N, slice(0, len(ids_N))).sum(), logprobs_N, entropy_N


CASES: dict[str, Callable[[Head], Head]] = {
    "plain": lambda head: head,
    "temperature": lambda head: replace(head, temperature=0.7),
    "scale": lambda head: replace(head, scale=0.25),
    "softcap": lambda head: replace(head, softcap=1.5),
    "all": lambda head: replace(head, softcap=2.0, scale=1.5, temperature=1.3),
}


@pytest.mark.parametrize("bonus", [0.0, 0.05])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_plain_way(case: str, bias: bool, bonus: float) -> None:
    hidden_NH, head, ids_N, loss_of = made(bias=bias)
    head, loss_of = CASES[case](head), replace(loss_of, entropy=bonus)
    inputs = [hidden_NH, head.weight_VH, *([head.bias_V] if head.bias_V is not None else [])]
    wanted = plainly(hidden_NH, head, ids_N, loss_of)
    wanted_grads = torch.autograd.grad(wanted[0] * 3, inputs)
    came = token_losses(hidden_NH, head, ids_N, loss_of)
    came_grads = torch.autograd.grad(came[0] * 3, inputs)
    for wants, comes in zip((*wanted, *wanted_grads), (*came, *came_grads), strict=True):
        torch.testing.assert_close(comes, wants, rtol=1e-5, atol=1e-5)
    assert float(wanted_grads[1].abs().max()) > 1e-2
    torch.testing.assert_close(log_probs(hidden_NH, head, ids_N), wanted[1].detach(), rtol=1e-5, atol=1e-5)


def test_a_frozen_weight_gets_no_gradient_and_the_hidden_states_the_same() -> None:
    hidden_NH, head, ids_N, loss_of = made()
    wanted, _ = torch.autograd.grad(token_losses(hidden_NH, head, ids_N, loss_of)[0], [hidden_NH, head.weight_VH])
    frozen = replace(head, weight_VH=head.weight_VH.detach())
    token_losses(hidden_NH, frozen, ids_N, loss_of)[0].backward()  # type: ignore[no-untyped-call]
    assert hidden_NH.grad is not None and torch.equal(hidden_NH.grad, wanted)
    assert frozen.weight_VH.grad is None


def test_without_entropy_it_is_zeros_and_the_rest_the_same() -> None:
    hidden_NH, head, ids_N, loss_of = made()
    loss, logprobs_N, entropy_N = token_losses(hidden_NH, head, ids_N, loss_of, entropy=False)
    wanted = token_losses(hidden_NH, head, ids_N, loss_of)
    assert not entropy_N.any() and bool(wanted[2].all())
    assert torch.equal(loss, wanted[0]) and torch.equal(logprobs_N, wanted[1])


def test_in_bf16_near_the_plain_way() -> None:
    hidden_NH, head, ids_N, loss_of = made(dtype=torch.bfloat16)
    loss_of = replace(loss_of, entropy=0.05)
    wanted = plainly(hidden_NH, head, ids_N, loss_of)
    wanted_grads = torch.autograd.grad(wanted[0], [hidden_NH, head.weight_VH])
    came = token_losses(hidden_NH, head, ids_N, loss_of)
    came_grads = torch.autograd.grad(came[0], [hidden_NH, head.weight_VH])
    assert came_grads[0].dtype == torch.bfloat16 and came_grads[1].dtype == torch.float32
    torch.testing.assert_close(came[1], wanted[1], rtol=0.02, atol=0.05)
    torch.testing.assert_close(came[2], wanted[2], rtol=0.02, atol=0.05)
    for wants, comes in zip(wanted_grads, came_grads, strict=True):
        error = (comes.float() - wants.float()).norm() / wants.float().norm()
        assert float(error) < 0.03


def test_tokens_that_cannot_be_said_leave_the_entropy_finite() -> None:
    # Logits 1000 apart: probabilities of exactly 0, whose logarithm is not to be met.
    hidden_NH = torch.tensor([[1000.0, 0.0]], requires_grad=True)
    head = Head(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]))
    loss_of = PolicyLoss(torch.zeros(1), torch.ones(1), torch.ones(1), entropy=1.0)
    loss, _, entropy_N = token_losses(hidden_NH, head, torch.tensor([0]), loss_of)
    loss.backward()  # type: ignore[no-untyped-call]
    # Two tokens at ½ each: entropy ln 2.
    assert float(entropy_N) == pytest.approx(0.693147)
    assert hidden_NH.grad is not None and bool(torch.isfinite(hidden_NH.grad).all())


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The largest tensor that any operation makes, in numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {leaf.data_ptr() for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.data_ptr() not in given:
                self.largest = max(self.largest, leaf.numel())
        return result


def watched(tokens: int, vocabulary: int, bonus: float) -> Largest:
    hidden_NH, head, ids_N, loss_of = made(tokens=tokens, vocabulary=vocabulary)
    seen = Largest()
    with seen:
        token_losses(hidden_NH, head, ids_N, replace(loss_of, entropy=bonus))[0].backward()  # type: ignore[no-untyped-call]
    return seen


@pytest.mark.parametrize("bonus", [0.0, 0.05])
def test_nothing_is_ever_larger_than_a_chunk_or_the_weight(bonus: float, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = 400
    monkeypatch.setattr(module, "CHUNK", 20 * vocabulary)
    monkeypatch.setattr(module, "NEAR", 3 * vocabulary)
    chunk = 20 * vocabulary
    sizes = {tokens: watched(tokens, vocabulary, bonus).largest for tokens in (20, 200, 2000)}
    assert sizes[20] == chunk, "one chunk of logits"
    # Past that, it is the gradient of the hidden states that grows: H numbers a token, not V.
    assert sizes[200] == chunk
    assert sizes[2000] == 2000 * HIDDEN < 2000 * vocabulary / 20


def test_only_one_buffer_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is made for each token of a chunk, over all operations: its logits once, and what the cache-sized pieces hold
    # in between, which is freed before the next. Nothing else of the width of the vocabulary.
    vocabulary = 400
    monkeypatch.setattr(module, "CHUNK", 200 * vocabulary)
    monkeypatch.setattr(module, "NEAR", 2 * vocabulary)

    class Wide(Largest):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before, self.largest = self.largest, 0
            result = super().__torch_dispatch__(func, types, args, kwargs)
            wide.append(self.largest >= 100 * vocabulary)
            self.largest = max(before, self.largest)
            return result

    wide: list[bool] = []
    hidden_NH, head, ids_N, loss_of = made(tokens=200, vocabulary=vocabulary)
    with Wide():
        token_losses(hidden_NH, head, ids_N, loss_of)[0].backward()  # type: ignore[no-untyped-call]
    assert sum(wide) == 1
