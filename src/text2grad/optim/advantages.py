"""Token rewards → advantages. Pure functions on (B, T) tensors; no loop over tokens.

gae      value head: generalised advantage estimation. Later rewards move earlier tokens.
group    no value head: return-to-go minus the mean return-to-go of the *other* completions of the same prompt at the
         same token index. It depends on the index and on the others alone, so it is unbiased, and span structure stays.
local    credit stays on the tokens that a verdict is about: the advantage is the reward there. Unlabelled tokens get
         exactly 0, but for the penalty for leaving the reference; what the rewards put there (the residual of a score,
         what unlabelled stretches gained) is left out, so local credit is not return-equivalent.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from text2grad.optim.batch import Batch
from text2grad.optim.reduce import ALONE, Exchange, whiten
from text2grad.optim.settings import CreditSettings

BLOCK = 128
"""Tokens that one matrix product of the recurrence covers; memory stays linear in the length."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What the update needs beside the batch."""

    advantages_BT: Tensor
    mask_BT: Tensor
    """Tokens in the policy loss: those of the batch, less completions without a baseline."""
    returns_BT: Tensor | None = None
    """Targets of the value head, where there is one."""


def advantages(batch: Batch, rewards_BT: Tensor, options: CreditSettings, among: Exchange = ALONE) -> Advantages:
    """`rewards_BT`: what the tokens earned, the penalty for leaving the reference taken off."""
    mask_BT = batch.mask_BT
    rewards_BT = torch.where(mask_BT, rewards_BT, 0.0)
    returns_BT = of_BT = None
    if options.kind == "gae":
        if batch.values_BT is None:
            raise ValueError("gae wants values: sample with a value head, or choose credit.kind=group")
        raw_BT = gae(rewards_BT, batch.values_BT, mask_BT, options.gamma, options.lam)
        of_BT = returns_BT = raw_BT + batch.values_BT
    elif options.kind == "group":
        raw_BT, paired_B = leave_one_out(rewards_BT, mask_BT, batch.group_B, options.gamma)
        mask_BT = mask_BT & paired_B[:, None]
        of_BT = discounted_sums(rewards_BT, options.gamma)
    else:
        raw_BT = rewards_BT
    if options.whiten:
        raw_BT = whiten(raw_BT, mask_BT, among, shift=options.kind == "gae", of_BT=of_BT)
    return Advantages(torch.where(mask_BT, raw_BT, 0.0), mask_BT, returns_BT)


def credited(batch: Batch, options: CreditSettings) -> Tensor:
    """The token rewards that this kind of credit learns from: all, or in local credit those of labelled tokens."""
    if options.kind != "local":
        return batch.rewards_BT
    return torch.where(batch.verdicts_BT != 0, batch.rewards_BT, 0.0)


def gae(rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, gamma: float, lam: float) -> Tensor:
    """A_t = Σ_k (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} − V_t; nothing is worth anything after the last token.

    A completion that was cut off is treated alike: its last sampled token is where its rewards end.

    >>> gae(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), torch.ones(1, 2, dtype=bool), 1.0, 0.5).tolist()
    [[0.125, 0.75]]
    """
    values_BT = torch.where(mask_BT, values_BT, 0.0)
    after_BT = torch.nn.functional.pad(values_BT[:, 1:], (0, 1))
    deltas_BT = torch.where(mask_BT, rewards_BT + gamma * after_BT - values_BT, 0.0)
    return torch.where(mask_BT, discounted_sums(deltas_BT, gamma * lam), 0.0)


def discounted_sums(values_BT: Tensor, rate: float) -> Tensor:
    """y_t = x_t + rate · y_{t+1}, by matrix products over blocks of tokens from the end.

    >>> discounted_sums(torch.tensor([[1.0, 2.0, 4.0]]), 0.5).tolist()
    [[3.0, 4.0, 4.0]]
    """
    if rate == 0:
        return values_BT.clone()
    width = values_BT.shape[1]
    sums_BT = torch.empty_like(values_BT)
    carry_B1 = values_BT.new_zeros(len(values_BT), 1)
    step_K = torch.arange(min(BLOCK, width), device=values_BT.device)
    # weight_KK[k, t]: what x_k adds to y_t, for k ≥ t. Powers of 1 − ε are taken in double precision.
    weight_KK = (float(rate) ** (step_K[:, None] - step_K).clamp(min=0).double()).tril().to(values_BT.dtype)
    for end in range(width, 0, -BLOCK):
        start = max(0, end - BLOCK)
        size = end - start
        block = values_BT[:, start:end] @ weight_KK[:size, :size]
        decay_K = (float(rate) ** (size - step_K[:size]).double()).to(values_BT.dtype)
        sums_BT[:, start:end] = block + carry_B1 * decay_K
        carry_B1 = sums_BT[:, start : start + 1]
    return sums_BT


def leave_one_out(rewards_BT: Tensor, mask_BT: Tensor, group_B: Tensor, gamma: float = 1.0) -> tuple[Tensor, Tensor]:
    """(return-to-go minus the others' mean at the same index, whether there were others).

    Past its end a completion's return-to-go is 0 and counts so. A completion alone in its group has no baseline.

    >>> leave_one_out(torch.tensor([[0.0, 1.0], [0.5, 0.0]]), torch.tensor([[True, True], [True, False]]),
    ...               torch.tensor([3, 3]))[0].tolist()
    [[0.5, 1.0], [-0.5, 0.0]]
    """
    togo_BT = discounted_sums(torch.where(mask_BT, rewards_BT, 0.0), gamma)
    _, group_B = torch.unique(group_B, return_inverse=True)
    groups = int(group_B.max()) + 1
    sums_GT = togo_BT.new_zeros(groups, togo_BT.shape[1]).index_add_(0, group_B, togo_BT)
    count_G = togo_BT.new_zeros(groups).index_add_(0, group_B, torch.ones_like(togo_BT[:, 0]))
    others_B1 = (count_G[group_B] - 1)[:, None]
    mean_BT = (sums_GT[group_B] - togo_BT) / others_B1.clamp(min=1)
    paired_B = others_B1[:, 0] > 0
    return torch.where(mask_BT & paired_B[:, None], togo_BT - mean_BT, 0.0), paired_B
