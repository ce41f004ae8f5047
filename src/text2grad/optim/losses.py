"""The losses: of tokens, and of sequences.

A loss of tokens is separable: each token's loss depends on its own log-prob. `head.py` then goes from hidden states to
gradients chunk by chunk without ever holding a (B, T, V) tensor. A loss of sequences depends on the summed log-probs of
whole completions; its derivative by each token's log-prob is a number, so it becomes a loss of tokens once the sums are
known. Both are plain callables: a user's own is named by a setting as `package.module:object`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from text2grad.plugins import find_plugin

TokenLoss = Callable[[Tensor, Tensor, slice], Tensor]
"""(logprobs_n, entropy_n, which tokens) → losses_n, differentiable in the first two."""


@dataclass(frozen=True, slots=True)
class SequenceLoss:
    """A loss of whole completions: their summed log-probs (B,) → one number, differentiable."""

    of_sums: Callable[[Tensor], Tensor]


# ------------------------------------------------------------------------------------------------------ policy losses

PolicyFunction = Callable[[Tensor, Tensor, Tensor, float, float], Tensor]
"""(logprobs_N, old_N, advantages_N, clip_low, clip_high) → losses_N."""


def clipped(logprobs_N: Tensor, old_N: Tensor, advantages_N: Tensor, low: float, high: float) -> Tensor:
    """PPO: −min(ratio · A, clip(ratio) · A).

    >>> clipped(torch.tensor([0.5]).log(), torch.tensor([0.25]).log(), torch.tensor([1.0]), 0.2, 0.2).tolist()
    [-1.2000000476837158]
    """
    ratio_N = (logprobs_N - old_N).exp()
    return -torch.min(ratio_N * advantages_N, ratio_N.clamp(1 - low, 1 + high) * advantages_N)


def reinforce(logprobs_N: Tensor, old_N: Tensor, advantages_N: Tensor, low: float, high: float) -> Tensor:  # noqa: ARG001
    """The importance-weighted policy gradient, without clipping: −ratio · A.

    >>> reinforce(torch.tensor([0.5]).log(), torch.tensor([0.25]).log(), torch.tensor([1.0]), 0.2, 0.2).tolist()
    [-2.0]
    """
    return -(logprobs_N - old_N).exp() * advantages_N


POLICY_LOSSES: dict[str, PolicyFunction] = {"ppo": clipped, "reinforce": reinforce}


def find_policy_loss(name: str) -> PolicyFunction:
    """A registered one, or a user's own as `package.module:object`."""
    function: PolicyFunction = find_plugin(name, POLICY_LOSSES, "update.loss")
    return function


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The loss of tokens in an RL update; what it depends on beside the log-probs. The streams are N long."""

    old_N: Tensor
    """Log-probs of the distribution that was sampled from."""
    advantages_N: Tensor
    weight_N: Tensor
    """What each token counts: its weight over the sum of the weights of the update; 0 outside the loss."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    entropy: float = 0.0
    function: PolicyFunction = clipped

    def __call__(self, logprobs_n: Tensor, entropy_n: Tensor, piece: slice) -> Tensor:
        weight_n = self.weight_N[piece]
        # A token outside the loss may hold nan, and 0 · nan is nan, in the backward pass too. So it is replaced before
        # it meets anything that carries a gradient.
        counts_n = weight_n > 0
        old_n = torch.where(counts_n, self.old_N[piece], logprobs_n.detach())
        advantages_n = torch.where(counts_n, self.advantages_N[piece], 0.0)
        loss_n = self.function(logprobs_n, old_n, advantages_n, self.clip_low, self.clip_high)
        if self.entropy:
            loss_n = loss_n - self.entropy * entropy_n
        return loss_n * weight_n


@dataclass(frozen=True, slots=True)
class Likelihood:
    """−log p of each token, times its weight: supervised learning."""

    weight_N: Tensor

    def __call__(self, logprobs_n: Tensor, entropy_n: Tensor, piece: slice) -> Tensor:  # noqa: ARG002
        return -logprobs_n * self.weight_N[piece]


# -------------------------------------------------------------------------------------------------- preference losses

PreferenceFunction = Callable[[Tensor, float], Tensor]
"""(margin_P, beta) → losses_P. The margin of a pair is how much more the policy prefers the chosen completion than the
reference does: Δ log π − Δ log π_reference."""


def dpo(margin_P: Tensor, beta: float) -> Tensor:
    """−log σ(β · margin).

    >>> dpo(torch.zeros(1), 0.1).tolist()  # log 2
    [0.6931471824645996]
    """
    return -functional.logsigmoid(beta * margin_P)


def ipo(margin_P: Tensor, beta: float) -> Tensor:
    """(margin − 1 / 2β)².

    >>> ipo(torch.tensor([5.0]), 0.1).tolist()
    [0.0]
    """
    return (margin_P - 1 / (2 * beta)).square()


PREFERENCE_LOSSES: dict[str, PreferenceFunction] = {"dpo": dpo, "ipo": ipo}


def find_preference_loss(name: str) -> PreferenceFunction:
    """A registered one, or a user's own as `package.module:object`."""
    function: PreferenceFunction = find_plugin(name, PREFERENCE_LOSSES, "loss")
    return function


# --------------------------------------------------------------------------------------------------------- value loss


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
