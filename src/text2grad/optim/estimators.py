"""Token rewards → advantages. Pure functions on (B, T) tensors; no loop over tokens.

An estimator is a function in a registry, with what it needs declared beside it:

anchored    ρ of what rloo gives, 1 − ρ of the span's own reward, each scaled to unit size. Spans teach within a
            completion even where all scores of a prompt are equal. The end earns what others earn from spans by
            going on, so length is left to the score. The penalty for leaving the reference counts in full at every ρ.
            With scalar rewards it is rloo. The default.
gae         value head: generalised advantage estimation.
rloo        the completion's return minus the mean return of the other completions of its prompt, the same on every
            token. The scalar baseline that practitioners use.
grpo        the completion's return minus its group's mean, divided by the group's spread, the same on every token.
span_rloo   return-to-go minus the mean return-to-go of the other completions at the same token index. It depends on
            the index and on the others alone, so it is unbiased for causal rewards, and span structure stays.
local       credit stays on the tokens a verdict is about. Unlabelled tokens get exactly 0, except for the penalty for
            leaving the reference. The residual of the score is left out, so it is not return-equivalent.

Return-to-go never credits a token for a reward that was paid before it, and critics judge in hindsight: they blame an
early phrase because of what follows. So gae and span_rloo keep a share ρ (`advantage.anchor`) of every reward back and
pay it with the last token: each token keeps a share of the whole return. ρ = 1 is scalar RL.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from text2grad.optim.batch import Batch
from text2grad.optim.reduce import ALONE, LEAST, World, root_mean_square, whiten
from text2grad.optim.settings import AdvantageSettings
from text2grad.plugins import find_plugin

BLOCK = 128
"""Tokens that one matrix product of the recurrence covers; memory stays linear in the length."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What the update needs beside the batch."""

    advantages_BT: Tensor
    mask_BT: Tensor
    """Tokens in the policy loss: those of the batch, without completions that have no baseline."""
    returns_BT: Tensor | None = None
    """Targets of the value head, where there is one."""


Estimate = Callable[[Batch, Tensor, AdvantageSettings, World], Advantages]
"""(batch, rewards_BT, settings, world) → advantages. `rewards_BT`: token rewards minus the penalty for leaving the
reference; 0 outside the mask."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """An advantage estimator and what it needs; called with a batch and the penalty of each token."""

    estimate: Estimate
    needs_values: bool = False
    """A value head."""
    needs_groups: bool = False
    """At least two completions per prompt."""
    labelled_only: bool = False
    """It learns only from rewards on tokens with a verdict, so it needs span rewards."""

    def __call__(
        self, batch: Batch, penalty_BT: Tensor | float, options: AdvantageSettings, world: World = ALONE
    ) -> Advantages:
        earned_BT = batch.rewards_BT
        if self.labelled_only:
            earned_BT = torch.where(batch.verdicts_BT != 0, earned_BT, 0.0)
        rewards_BT = torch.where(batch.mask_BT, earned_BT - penalty_BT, 0.0)
        estimated = self.estimate(batch, rewards_BT, options, world)
        advantages_BT = torch.where(estimated.mask_BT, estimated.advantages_BT, 0.0)
        return Advantages(advantages_BT, estimated.mask_BT, estimated.returns_BT)


ESTIMATORS: dict[str, Estimator] = {}


def estimator(
    name: str, *, needs_values: bool = False, needs_groups: bool = False, labelled_only: bool = False
) -> Callable[[Estimate], Estimator]:
    """Register a function as the estimator `name`, with what it needs."""

    def register(estimate: Estimate) -> Estimator:
        ESTIMATORS[name] = made = Estimator(estimate, needs_values, needs_groups, labelled_only)
        return made

    return register


def find_estimator(name: str) -> Estimator:
    """A registered one, or a user's own as `package.module:object`."""
    found: Any = find_plugin(name, ESTIMATORS, "advantage.estimator")
    return found if isinstance(found, Estimator) else Estimator(found)


@estimator("gae", needs_values=True)
def gae(batch: Batch, rewards_BT: Tensor, options: AdvantageSettings, world: World) -> Advantages:
    if batch.values_BT is None:
        raise ValueError("gae needs values: sample with a value head, or choose advantage.estimator=span_rloo")
    rewards_BT = keep_back(rewards_BT, batch, options.anchor)
    raw_BT = gae_sums(rewards_BT, batch.values_BT, batch.mask_BT, options.gamma, options.lam)
    returns_BT = raw_BT + batch.values_BT
    if options.whiten:
        raw_BT = whiten(raw_BT, batch.mask_BT, world, of_BT=returns_BT)
    return Advantages(raw_BT, batch.mask_BT, returns_BT)


@estimator("rloo", needs_groups=True)
def rloo(batch: Batch, rewards_BT: Tensor, options: AdvantageSettings, world: World) -> Advantages:
    total_B1 = rewards_BT.sum(1, keepdim=True)
    raw_BT, mask_BT = _against_others(total_B1.expand_as(rewards_BT), batch)
    if options.whiten:
        raw_BT = whiten(raw_BT, mask_BT, world, shift=False, of_BT=total_B1.expand_as(raw_BT))
    return Advantages(raw_BT, mask_BT)


@estimator("grpo", needs_groups=True)
def grpo(batch: Batch, rewards_BT: Tensor, options: AdvantageSettings, world: World) -> Advantages:  # noqa: ARG001
    total_B1 = rewards_BT.sum(1, keepdim=True)
    mean_B1, others_B = leave_one_out_mean(total_B1, batch.group_B)
    number_B1 = others_B[:, None] + 1
    # R − mean of all is (others / number) · (R − mean of the others).
    apart_B1 = (total_B1 - mean_B1) * (others_B[:, None] / number_B1)
    squares_B1, _ = leave_one_out_mean(apart_B1.square(), batch.group_B)
    # The mean over the others times their number, plus its own: the sum over the group; over number − 1: the variance.
    spread_B1 = ((squares_B1 * others_B[:, None] + apart_B1.square()) / others_B[:, None].clamp(min=1)).sqrt()
    mask_BT = batch.mask_BT & (others_B > 0)[:, None]
    size_B1 = LEAST * (1 + total_B1.abs())
    raw_B1 = torch.where(spread_B1 > size_B1, apart_B1 / (spread_B1 + GRPO_EPSILON), 0.0)
    return Advantages(raw_B1.expand_as(rewards_BT), mask_BT)


GRPO_EPSILON = 1e-4
"""Added to the spread, as in TRL."""


@estimator("span_rloo", needs_groups=True)
def span_rloo(batch: Batch, rewards_BT: Tensor, options: AdvantageSettings, world: World) -> Advantages:
    togo_BT = discounted_sums(keep_back(rewards_BT, batch, options.anchor), options.gamma)
    # Past its end a completion stays at what its last token got: else whoever is longer than the others has nothing to
    # be compared with there, and is pushed up.
    togo_BT = torch.where(batch.mask_BT, togo_BT, togo_BT.gather(1, batch.last_B1))
    raw_BT, mask_BT = _against_others(togo_BT, batch)
    if options.whiten:
        raw_BT = whiten(raw_BT, mask_BT, world, shift=False, of_BT=togo_BT)
    return Advantages(raw_BT, mask_BT)


@estimator("anchored", needs_groups=True)
def anchored(batch: Batch, rewards_BT: Tensor, options: AdvantageSettings, world: World) -> Advantages:
    earned_BT = torch.where(batch.mask_BT, batch.rewards_BT, 0.0)
    total_BT = earned_BT.sum(1, keepdim=True).expand_as(earned_BT)
    whole_BT, mask_BT = _against_others(total_BT, batch)
    span_BT = _of_spans(earned_BT, batch, options.gamma * options.lam, world)
    size = root_mean_square(whole_BT, mask_BT, world, of_BT=total_BT)
    spans = root_mean_square(span_BT, mask_BT, world) > 0
    whole_BT = whiten(whole_BT, mask_BT, world, shift=False, of_BT=total_BT)
    span_BT = whiten(span_BT, mask_BT, world, shift=False)
    both_BT = options.anchor * whole_BT + (1 - options.anchor) * span_BT
    # ρ decides on the direction alone. Its size is that of the whole, or, as far as spans take part, one unit of
    # rewards: so the penalty weighs as much as it does in rloo, and spans teach also where scores hardly differ.
    share = options.anchor**2 * (size > 0)
    other = (1 - options.anchor) ** 2 * spans
    size = ((share * size.square() + other) / (share + other).clamp(min=LEAST)).sqrt()
    both_BT = size * whiten(both_BT, mask_BT, world, shift=False)
    penalty_BT = (earned_BT - rewards_BT).sum(1, keepdim=True).expand_as(earned_BT)
    away_BT, _ = _against_others(penalty_BT, batch)
    # The penalty is a difference of rewards: beside large ones, all of it may be rounding.
    away_BT = torch.where(root_mean_square(away_BT, mask_BT, world, of_BT=total_BT) > 0, away_BT, 0.0)
    return Advantages(whiten(both_BT - away_BT, mask_BT, world, shift=False), mask_BT)


@estimator("local", labelled_only=True)
def local(batch: Batch, rewards_BT: Tensor, options: AdvantageSettings, world: World) -> Advantages:
    raw_BT = whiten(rewards_BT, batch.mask_BT, world, shift=False) if options.whiten else rewards_BT
    return Advantages(raw_BT, batch.mask_BT)


def keep_back(rewards_BT: Tensor, batch: Batch, share: float) -> Tensor:
    """The same sum, with this share of every reward on the last token.

    >>> from text2grad.optim.batch import collate_ids
    >>> keep_back(torch.tensor([[1.0, 0.0, 2.0]]), collate_ids([(5,)], [(6, 7, 0)]), 0.5).tolist()
    [[0.5, 0.0, 2.5]]
    """
    if not share:
        return rewards_BT
    kept_B1 = share * rewards_BT.sum(1, keepdim=True)
    return ((1 - share) * rewards_BT).scatter_add(1, batch.last_B1, kept_B1)


def _against_others(values_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """(values minus the mean of the other completions of the prompt at the same place, tokens that have a baseline)."""
    mean_BT, others_B = leave_one_out_mean(values_BT, batch.group_B)
    mask_BT = batch.mask_BT & (others_B > 0)[:, None]
    return torch.where(mask_BT, values_BT - mean_BT, 0.0), mask_BT


CLOSING = 2
"""At most this many tokens before the end token belong to the end, such as a full stop and a quotation mark."""
PASSES = 8
"""Rounds until the means agree with each other. Eight are enough for any rate up to 1."""


def _of_spans(earned_BT: Tensor, batch: Batch, rate: float, world: World) -> Tensor:
    """What spans earn from each token on, discounted by this rate per token.

    The end is the end token, and the unlabelled tokens right before it, at most two (a full stop). Each gets the mean
    of what the prompt's other completions earn from its place on. Where none of them writes there, the mean is taken
    over all prompts. With 0 instead, ending would avoid blame and miss praise, so spans would teach length.

    For the tokens before the end token, the mean is over completions that write on for more than two tokens. This
    choice must not depend on labels: else a blamed word and another one would earn the same near the end. The words
    before the end earn what the end gets, discounted, as if the text went on. The residual of the score, on the last
    token, is left out."""
    place_T = torch.arange(batch.mask_BT.shape[1], device=batch.mask_BT.device)
    words_BT = batch.mask_BT & (place_T < batch.last_B1)
    labelled_BT = words_BT & (batch.verdicts_BT != 0)
    rewards_BT = torch.where(labelled_BT, earned_BT, 0.0)
    said_B1 = torch.where(labelled_BT, place_T + 1, 0).amax(1, keepdim=True)
    end_B1 = torch.maximum(said_B1, batch.last_B1 - CLOSING).clamp(min=0)
    inner_BT, far_BT = words_BT & (place_T < end_B1), words_BT & (place_T < batch.last_B1 - CLOSING)
    width = world.all_max(batch.mask_BT.shape[1])
    found_BT = torch.zeros_like(rewards_BT)
    for _ in range(PASSES):
        # What others earn contains what their ends get, which is such a mean, too.
        own_BT = discounted_sums(rewards_BT.scatter_add(1, end_B1, found_BT.gather(1, end_B1)), rate)
        before_BT = _mean_there(own_BT, far_BT, batch.group_B, width, world)
        found_BT = torch.where(inner_BT, own_BT, before_BT)
        last_BT = _mean_there(found_BT, words_BT, batch.group_B, width, world)
        found_BT = torch.where(words_BT, found_BT, last_BT)
    return found_BT


def _mean_there(values_BT: Tensor, there_BT: Tensor, group_B: Tensor, width: int, world: World) -> Tensor:
    """The mean over the prompt's other completions that are there at the same place; over all prompts, in all
    processes, where none is; 0 where none is anywhere. `width`: of the longest completion of all processes."""
    values_BT, counts_BT = torch.where(there_BT, values_BT, 0.0), there_BT.to(values_BT.dtype)
    sum_BT, _ = leave_one_out_mean(values_BT, group_B)
    share_BT, _ = leave_one_out_mean(counts_BT, group_B)
    all_2T = torch.stack([values_BT.sum(0), counts_BT.sum(0)])
    own_width = all_2T.shape[1]
    all_2T = world.all_sum(torch.nn.functional.pad(all_2T, (0, width - own_width)))[:, :own_width]
    return torch.where(share_BT > LEAST, sum_BT / share_BT.clamp(min=LEAST), all_2T[0] / all_2T[1].clamp(min=1))


def gae_sums(rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, gamma: float, lam: float) -> Tensor:
    """A_t = Σ_k (γλ)^k δ_{t+k}, δ_t = r_t + γ V_{t+1} − V_t; the value after the last token is 0.

    A completion that was cut off is treated the same way: its rewards end at its last sampled token.

    >>> mask_BT = torch.ones(1, 2, dtype=bool)
    >>> gae_sums(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]]), mask_BT, 1.0, 0.5).tolist()
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


def leave_one_out_mean(values_BT: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor]:
    """(mean of the other rows of the same group at the same place, number of the others).

    >>> mean_BT, others_B = leave_one_out_mean(torch.tensor([[1.0, 1.0], [0.5, 0.0]]), torch.tensor([3, 3]))
    >>> mean_BT.tolist(), others_B.tolist()
    ([[0.5, 0.0], [1.0, 1.0]], [1.0, 1.0])
    """
    _, group_B = torch.unique(group_B, return_inverse=True)
    groups = int(group_B.max()) + 1
    sums_GT = values_BT.new_zeros(groups, values_BT.shape[1]).index_add_(0, group_B, values_BT)
    count_G = values_BT.new_zeros(groups).index_add_(0, group_B, torch.ones_like(values_BT[:, 0]))
    others_B = count_G[group_B] - 1
    return (sums_GT[group_B] - values_BT) / others_B[:, None].clamp(min=1), others_B
