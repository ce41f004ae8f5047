"""Hidden states → log-probs of the taken tokens → loss → gradients, a chunk of tokens at a time.

The vocabulary projection is the widest thing in a small model: (B, T, V) in fp32 would be most of the memory, and
holding it or recomputing it in the backward pass most of the time. Since the loss is separable over tokens, each chunk
goes all the way: logits, log-probs, loss, and at once the gradients for the hidden states and the weight. Nothing of
size V outlives its chunk, and nothing is computed twice. Padding never gets here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from text2grad.optim.losses import SequenceLoss, TokenLoss

CHUNK = 2**23
"""Numbers in a chunk of logits, 32 MiB in fp32; four times as many on an accelerator, to keep it busy."""
NEAR = 2**18
"""Chunk size on a CPU: about twice its cache."""


@dataclass(frozen=True, slots=True)
class Head:
    """The vocabulary projection and what a model family does to its logits."""

    weight_VH: Tensor
    bias_V: Tensor | None = None
    scale: float = 1.0
    """Logits are multiplied by it: the family's own factor."""
    softcap: float | None = None
    """cap · tanh(logits / cap), before the temperature (Gemma 2)."""
    temperature: float = 1.0

    def logits(self, hidden_nH: Tensor) -> Tensor:
        """fp32 logits of a few positions, ready for a softmax."""
        weight_VH = self.weight_VH.to(hidden_nH.dtype)
        bias_V = None if self.bias_V is None else self.bias_V.to(hidden_nH.dtype)
        logits_nV = torch.nn.functional.linear(hidden_nH, weight_VH, bias_V).float()
        if self.softcap is not None:
            return logits_nV.mul_(self.scale / self.softcap).tanh_().mul_(self.softcap / self.temperature)
        factor = self.scale / self.temperature
        return logits_nV.mul_(factor) if factor != 1 else logits_nV

    def slope(self, logits_nV: Tensor) -> Tensor | None:
        """1 − tanh²: how fast capped logits follow the plain ones, `scale` and `temperature` apart."""
        if self.softcap is None:
            return None
        return (logits_nV * (self.temperature / self.softcap)).square_().neg_().add_(1)


def chunk_of(vocabulary: int, device: torch.device) -> int:
    """Tokens in a chunk."""
    return max(16, CHUNK * (1 if device.type == "cpu" else 4) // vocabulary)


@torch.no_grad()
def log_probs(hidden_NH: Tensor, head: Head, ids_N: Tensor) -> Tensor:
    """Log-probs of these tokens, without gradients."""
    found_N = torch.empty(len(ids_N), dtype=torch.float32, device=hidden_NH.device)
    head = replace(head, weight_VH=head.weight_VH.to(hidden_NH.dtype))
    size = chunk_of(len(head.weight_VH), hidden_NH.device)
    for start in range(0, len(ids_N), size):
        piece = slice(start, min(start + size, len(ids_N)))
        found_N[piece], _ = _softmax(head.logits(hidden_NH[piece]), ids_N[piece], entropy=False)
    return found_N


def token_losses(
    hidden_NH: Tensor, head: Head, ids_N: Tensor, loss_of: TokenLoss, *, entropy: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """(sum of the losses, logprobs_N, entropy_N). The sum carries gradients to hidden states, weight and bias; the
    other two are for looking at. Without `entropy` it is not computed, and given as zeros."""
    result: tuple[Tensor, Tensor, Tensor] = _TokenLosses.apply(  # type: ignore[no-untyped-call]
        hidden_NH, head.weight_VH, head.bias_V, head, ids_N, loss_of, entropy
    )
    return result


def sequence_losses(
    hidden_NH: Tensor, head: Head, ids_N: Tensor, loss: SequenceLoss, row_N: Tensor, weight_N: Tensor, rows: int
) -> tuple[Tensor, Tensor]:
    """(the loss, logprobs_N) of a loss of whole completions. `row_N`: which completion each token belongs to;
    `weight_N`: what it counts in that completion's sum. Log-probs are computed once without gradients, for the sums;
    the derivative of the loss by each of them then makes it a loss of tokens."""
    logprobs_N = log_probs(hidden_NH, head, ids_N)
    sums_B = logprobs_N.new_zeros(rows).index_add_(0, row_N, logprobs_N * weight_N)
    with torch.enable_grad():
        sums_B = sums_B.requires_grad_()
        value = loss.of_sums(sums_B)
        (by_sum_B,) = torch.autograd.grad(value, sums_B)
    by_logprob_N = by_sum_B[row_N] * weight_N
    surrogate, _, _ = token_losses(
        hidden_NH, head, ids_N, lambda logprobs_n, _, piece: logprobs_n * by_logprob_N[piece], entropy=False
    )
    # The surrogate has the gradients, `value` the number.
    return surrogate + (value - surrogate).detach(), logprobs_N


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        head: Head,
        ids_N: Tensor,
        loss_of: TokenLoss,
        entropy: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wants = ctx.needs_input_grad[:3]
        grad_hidden_NH = torch.empty_like(hidden_NH) if wants[0] else None
        grad_weight_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if wants[1] else None
        grad_bias_V = torch.zeros_like(bias_V, dtype=torch.float32) if bias_V is not None and wants[2] else None
        logprobs_N = torch.zeros(len(ids_N), dtype=torch.float32, device=hidden_NH.device)
        entropy_N = torch.zeros_like(logprobs_N)
        loss = torch.zeros((), dtype=torch.float32, device=hidden_NH.device)
        head = replace(head, weight_VH=weight_VH.to(hidden_NH.dtype))
        size = chunk_of(len(weight_VH), hidden_NH.device)
        for start in range(0, len(ids_N), size):
            piece = slice(start, min(start + size, len(ids_N)))
            buffer_nV = head.logits(hidden_NH[piece])
            slope_nV = head.slope(buffer_nV)
            logprobs_N[piece], entropy_n = _softmax(buffer_nV, ids_N[piece], entropy)
            entropy_N[piece] = entropy_n
            piece_loss, by_logprob_n, by_entropy_n = _small(loss_of, logprobs_N[piece], entropy_n, piece)
            loss += piece_loss
            if not any(wants):
                continue
            factor = head.scale / head.temperature
            _by_logits(
                buffer_nV,
                ids_N[piece],
                by_logprob_n * factor,
                None if by_entropy_n is None else by_entropy_n * factor,
                entropy_n,
            )
            grad_nV = (buffer_nV if slope_nV is None else buffer_nV.mul_(slope_nV)).to(hidden_NH.dtype)
            if grad_hidden_NH is not None:
                torch.mm(grad_nV, head.weight_VH, out=grad_hidden_NH[piece])
            if grad_weight_VH is not None:
                _add_product(grad_weight_VH, grad_nV.T, hidden_NH[piece])
            if grad_bias_V is not None:
                grad_bias_V += grad_nV.sum(0, dtype=torch.float32)
        ctx.grads = (grad_hidden_NH, grad_weight_VH, grad_bias_V)
        ctx.dtypes = (weight_VH.dtype, None if bias_V is None else bias_V.dtype)
        ctx.mark_non_differentiable(logprobs_N, entropy_N)
        return loss, logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        # Used once: the buffers are scaled in place and handed over.
        hidden, weight, bias = ctx.grads
        ctx.grads = (None, None, None)
        return (
            None if hidden is None else hidden.mul_(grad.to(hidden.dtype)),
            None if weight is None else weight.mul_(grad).to(ctx.dtypes[0]),
            None if bias is None else bias.mul_(grad).to(ctx.dtypes[1]),
            None,
            None,
            None,
            None,
        )


def _near(buffer_nV: Tensor) -> Iterator[slice]:
    """Rows that are worked on together: on a processor what its cache holds, elsewhere all of them."""
    rows, width = buffer_nV.shape
    step = max(1, NEAR // width) if buffer_nV.device.type == "cpu" else rows
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _softmax(buffer_nV: Tensor, ids_n: Tensor, entropy: bool) -> tuple[Tensor, Tensor]:
    """Logits become probabilities, in place; gives (logprobs_n, entropy_n)."""
    logprobs_n = torch.empty(len(ids_n), dtype=torch.float32, device=ids_n.device)
    entropy_n = torch.zeros_like(logprobs_n)
    for rows in _near(buffer_nV):
        log_kV = torch.log_softmax(buffer_nV[rows], 1)
        logprobs_n[rows] = log_kV.gather(1, ids_n[rows, None])[:, 0]
        probs_kV = torch.exp(log_kV, out=buffer_nV[rows])
        if entropy:
            # A log-prob of −inf has no part in the entropy, but 0 · inf would be nan.
            entropy_n[rows] = -torch.linalg.vecdot(probs_kV, log_kV.clamp_(min=-1e30))
    return logprobs_n, entropy_n


def _small(
    loss_of: TokenLoss, logprobs_n: Tensor, entropy_n: Tensor, piece: slice
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss of a piece and its derivative by each log-prob and entropy: numbers per token, nothing of size V."""
    with torch.enable_grad():
        taken_n = logprobs_n.detach().clone().requires_grad_()
        spread_n = entropy_n.detach().clone().requires_grad_()
        loss = loss_of(taken_n, spread_n, piece).sum()
        by_logprob_n, by_entropy_n = torch.autograd.grad(loss, (taken_n, spread_n), allow_unused=True)
    return loss.detach(), torch.zeros_like(logprobs_n) if by_logprob_n is None else by_logprob_n, by_entropy_n


def _by_logits(
    probs_nV: Tensor, ids_n: Tensor, by_logprob_n: Tensor, by_entropy_n: Tensor | None, entropy_n: Tensor
) -> None:
    """∂loss/∂logits, in the place of the probabilities. ∂log p_i/∂z_j = [i = j] − p_j; ∂H/∂z_j = −p_j (log p_j + H)."""
    for rows in _near(probs_nV):
        factor_k1 = -by_logprob_n[rows, None]
        if by_entropy_n is None:
            probs_nV[rows] *= factor_k1
            continue
        by_entropy_k1 = by_entropy_n[rows, None]
        spread_kV = torch.special.entr(probs_nV[rows]).mul_(by_entropy_k1)
        probs_nV[rows] *= factor_k1 - by_entropy_k1 * entropy_n[rows, None]
        probs_nV[rows] += spread_kV
    probs_nV.scatter_add_(1, ids_n[:, None], by_logprob_n[:, None])


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into += left @ right, never rounded to less than fp32: rounding each chunk would bias the sum."""
    if left.dtype == into.dtype:
        into.addmm_(left, right)
    elif left.device.type == "cuda" and hasattr(torch.ops.aten.addmm, "dtype"):
        torch.addmm(into, left, right, out_dtype=torch.float32, out=into)
    else:
        into.addmm_(left.float(), right.float())
