"""The losses, token by token: clipped policy loss, clipped value loss. Who sums them divides by the number of tokens.

Everything here is separable over tokens, which is what lets `head.py` go from hidden states to gradients chunk by
chunk without ever holding a (B, T, V) tensor.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """What one token's loss depends on beside its log-prob; the streams are N long."""

    old_N: Tensor
    """Log-probs of the distribution that was sampled from."""
    advantages_N: Tensor
    weight_N: Tensor
    """What each token counts: 1 over the number of tokens of the update, 0 for tokens outside the loss."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    entropy: float = 0.0

    def __call__(self, logprobs_n: Tensor, entropy_n: Tensor, piece: slice) -> Tensor:
        """Losses of the tokens of a piece; differentiable in its first two arguments."""
        weight_n = self.weight_N[piece]
        # A token outside the loss may hold anything, nan included; 0 · nan is not 0, in the backward pass no more than
        # here, so it is replaced before it meets anything that carries a gradient.
        counts_n = weight_n > 0
        old_n = torch.where(counts_n, self.old_N[piece], logprobs_n.detach())
        advantages_n = torch.where(counts_n, self.advantages_N[piece], 0.0)
        loss_n = clipped(logprobs_n, old_n, advantages_n, self.clip_low, self.clip_high)
        if self.entropy:
            loss_n = loss_n - self.entropy * entropy_n
        return loss_n * weight_n


def clipped(logprobs_N: Tensor, old_N: Tensor, advantages_N: Tensor, low: float, high: float) -> Tensor:
    """−min(ratio · A, clip(ratio) · A).

    >>> clipped(torch.tensor([0.5]).log(), torch.tensor([0.25]).log(), torch.tensor([1.0]), 0.2, 0.2).tolist()
    [-1.2000000476837158]
    """
    ratio_N = (logprobs_N - old_N).exp()
    return -torch.min(ratio_N * advantages_N, ratio_N.clamp(1 - low, 1 + high) * advantages_N)


def value_loss(values_N: Tensor, old_N: Tensor, returns_N: Tensor, clip: float) -> Tensor:
    """½ max((V − R)², (V clipped to its old value ± clip − R)²); clip 0 means no clipping.

    >>> value_loss(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([2.0]), 0.5).tolist()
    [1.125]
    """
    plain_N = (values_N - returns_N).square()
    if not clip:
        return plain_N / 2
    near_N = old_N + (values_N - old_N).clamp(-clip, clip)
    return torch.max(plain_N, (near_N - returns_N).square()) / 2


def approximate_kl(logprobs_N: Tensor, old_N: Tensor) -> Tensor:
    """ratio − 1 − log ratio: never negative, unbiased for KL(old ‖ new) on tokens drawn from old."""
    log_ratio_N = logprobs_N - old_N
    # As written above it would be rounding where the two are near, and that can be below 0; nan stays nan.
    return (torch.expm1(log_ratio_N) - log_ratio_N).clamp(min=0.0)
