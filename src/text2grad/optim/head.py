"""Hidden states → log-probs of the taken tokens → loss → gradients, a chunk of tokens at a time.

The vocabulary projection is the widest thing in a small model: (B, T, V) in fp32 would be most of the memory, and
holding it or recomputing it in the backward pass most of the time. Since the loss is separable over tokens, each chunk
goes all the way: logits, log-probs, loss, and at once the gradients for the hidden states and the weight. Nothing of
size V outlives its chunk, and nothing is computed twice. Padding never gets here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LossOf = Callable[[Tensor, Tensor, slice], Tensor]
"""(logprobs_n, entropy_n, which tokens) → losses_n, differentiable in the first two."""
CHUNK = 2**23
"""Numbers in a chunk of logits: 32 MiB in fp32."""


@dataclass(frozen=True, slots=True)
class Head:
    """The vocabulary projection and what a model family does to its logits."""

    weight_VH: Tensor
    bias_V: Tensor | None = None
    scale: float = 1.0
    """Logits are multiplied by it (1 / temperature, and the family's own factor)."""
    softcap: float | None = None
    """cap · tanh(logits / cap), before the temperature (Gemma 2)."""
    temperature: float = 1.0

    def logits(self, hidden_nH: Tensor) -> Tensor:
        """fp32 logits of a few positions, ready for a softmax."""
        logits_nV = torch.nn.functional.linear(hidden_nH, self.weight_VH.to(hidden_nH.dtype)).float()
        if self.bias_V is not None:
            logits_nV += self.bias_V.float()
        if self.softcap is not None:
            logits_nV = torch.tanh(logits_nV * (self.scale / self.softcap)) * self.softcap
            return logits_nV.mul_(1 / self.temperature) if self.temperature != 1 else logits_nV
        factor = self.scale / self.temperature
        return logits_nV.mul_(factor) if factor != 1 else logits_nV

    def backward(self, grad_nV: Tensor, logits_nV: Tensor) -> Tensor:
        """Gradient of the plain projection from that of `logits`, in place."""
        grad_nV.mul_(self.scale / self.temperature)
        if self.softcap is not None:
            grad_nV.mul_(1 - (logits_nV * (self.temperature / self.softcap)).square_())
        return grad_nV


def chunk_of(vocabulary: int) -> int:
    """Tokens in a chunk."""
    return max(16, CHUNK // vocabulary)


@torch.no_grad()
def log_probs(hidden_NH: Tensor, head: Head, ids_N: Tensor) -> Tensor:
    """Log-probs of these tokens, without gradients."""
    found_N = torch.empty(len(ids_N), dtype=torch.float32, device=hidden_NH.device)
    size = chunk_of(len(head.weight_VH))
    for start in range(0, len(ids_N), size):
        piece = slice(start, start + size)
        logits_nV = head.logits(hidden_NH[piece])
        found_N[piece] = logits_nV.gather(1, ids_N[piece, None])[:, 0] - logits_nV.logsumexp(1)
    return found_N


def token_losses(
    hidden_NH: Tensor, head: Head, ids_N: Tensor, loss_of: LossOf, *, entropy: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """(sum of the losses, logprobs_N, entropy_N). The sum carries gradients to hidden states, weight and bias; the
    other two are for looking at. Without `entropy` it is not computed, and given as zeros."""
    bias_V = head.bias_V
    result: tuple[Tensor, Tensor, Tensor] = _TokenLosses.apply(  # type: ignore[no-untyped-call]
        hidden_NH, head.weight_VH, bias_V, head, ids_N, loss_of, entropy
    )
    return result


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        head: Head,
        ids_N: Tensor,
        loss_of: LossOf,
        entropy: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wants = ctx.needs_input_grad[:3]
        grad_hidden_NH = torch.empty_like(hidden_NH) if wants[0] else None
        grad_weight_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if wants[1] else None
        grad_bias_V = torch.zeros_like(bias_V, dtype=torch.float32) if bias_V is not None and wants[2] else None
        logprobs_N = torch.zeros(len(ids_N), dtype=torch.float32, device=hidden_NH.device)
        entropy_N = torch.zeros_like(logprobs_N)
        loss = torch.zeros((), dtype=torch.float32, device=hidden_NH.device)
        size = chunk_of(len(weight_VH))
        weight = weight_VH.to(hidden_NH.dtype)
        for start in range(0, len(ids_N), size):
            piece = slice(start, min(start + size, len(ids_N)))
            logits_nV = head.logits(hidden_NH[piece])
            normaliser_n = logits_nV.logsumexp(1)
            logprobs_N[piece] = logits_nV.gather(1, ids_N[piece, None])[:, 0] - normaliser_n
            probs_nV = (logits_nV - normaliser_n[:, None]).exp_()
            if entropy:
                entropy_N[piece] = normaliser_n - torch.einsum("nv,nv->n", probs_nV, logits_nV)
            piece_loss, by_logprob_n, by_entropy_n = _small(loss_of, logprobs_N[piece], entropy_N[piece], piece)
            loss += piece_loss
            if not any(wants):
                continue
            grad_nV = _by_logits(
                probs_nV, logits_nV, normaliser_n, ids_N[piece], by_logprob_n, by_entropy_n, entropy_N[piece]
            )
            grad_nV = head.backward(grad_nV, logits_nV).to(hidden_NH.dtype)
            if grad_hidden_NH is not None:
                torch.mm(grad_nV, weight, out=grad_hidden_NH[piece])
            if grad_weight_VH is not None:
                _add_product(grad_weight_VH, grad_nV.T, hidden_NH[piece])
            if grad_bias_V is not None:
                grad_bias_V += grad_nV.float().sum(0)
        ctx.grads = (grad_hidden_NH, grad_weight_VH, grad_bias_V)
        ctx.dtypes = (hidden_NH.dtype, weight_VH.dtype)
        ctx.mark_non_differentiable(logprobs_N, entropy_N)
        return loss, logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        # Used once: the buffers are scaled in place and handed over.
        hidden, weight, bias = ctx.grads
        ctx.grads = (None, None, None)
        return (
            None if hidden is None else hidden.mul_(grad.to(hidden.dtype)),
            None if weight is None else weight.mul_(grad).to(ctx.dtypes[1]),
            None if bias is None else bias.mul_(grad).to(ctx.dtypes[1]),
            None,
            None,
            None,
            None,
        )


def _small(
    loss_of: LossOf, logprobs_n: Tensor, entropy_n: Tensor, piece: slice
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss of a piece and its derivative by each log-prob and entropy: numbers per token, nothing of size V."""
    with torch.enable_grad():
        taken_n = logprobs_n.detach().clone().requires_grad_()
        spread_n = entropy_n.detach().clone().requires_grad_()
        loss = loss_of(taken_n, spread_n, piece).sum()
        by_logprob_n, by_entropy_n = torch.autograd.grad(loss, (taken_n, spread_n), allow_unused=True)
    return loss.detach(), torch.zeros_like(logprobs_n) if by_logprob_n is None else by_logprob_n, by_entropy_n


def _by_logits(
    probs_nV: Tensor,
    logits_nV: Tensor,
    normaliser_n: Tensor,
    ids_n: Tensor,
    by_logprob_n: Tensor,
    by_entropy_n: Tensor | None,
    entropy_n: Tensor,
) -> Tensor:
    """∂loss/∂logits, in the place of the probabilities. ∂log p_i/∂z_j = [i = j] − p_j; ∂H/∂z_j = −p_j (log p_j + H)."""
    factor_n1 = -by_logprob_n[:, None]
    if by_entropy_n is not None and bool(by_entropy_n.any()):
        log_nV = logits_nV - normaliser_n[:, None]
        probs_nV.mul_(log_nV.add_(entropy_n[:, None]).mul_(-by_entropy_n[:, None]).add_(factor_n1))
    else:
        probs_nV.mul_(factor_n1)
    return probs_nV.scatter_add_(1, ids_n[:, None], by_logprob_n[:, None])


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """into += left @ right, summed in fp32."""
    if left.dtype == into.dtype:
        into.addmm_(left, right)
    else:
        into += torch.mm(left, right)
