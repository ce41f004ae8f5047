"""Batches → changed weights: the RL update, the supervised update, the preference update.

Enters: a policy that gives the loss of a micro-batch, an optimizer, a batch. Leaves: changed weights, and numbers about
the change. The loss of a minibatch is one mean over its tokens, or over its pairs, however it is cut into micro-batches
or over processes. Deterministic: the order of the rows comes from `seed`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from text2grad.optim.batch import Batch, micro_batches, sent
from text2grad.optim.estimators import Advantages
from text2grad.optim.losses import (
    Likelihood,
    PolicyLoss,
    PreferenceFunction,
    SequenceLoss,
    TokenLoss,
    approximate_kl,
    find_policy_loss,
    value_loss,
)
from text2grad.optim.reduce import ALONE, World
from text2grad.optim.settings import OptimizerSettings, UpdateSettings
from text2grad.types import MetricInfo

METRICS = {
    "loss/policy": MetricInfo("Policy loss", "Mean policy loss per token."),
    "loss/value": MetricInfo("Value loss", "Squared error of the value head, per token.", "lower"),
    "loss/entropy": MetricInfo("Entropy", "Mean entropy of the next-token distribution, in nats."),
    "loss/mean": MetricInfo("Training loss", "Mean loss per trained token, or per pair.", "lower"),
    "update/clip_frac": MetricInfo("Clipped tokens", "Share of tokens whose probability ratio was clipped."),
    "update/grad_norm": MetricInfo("Gradient norm", "Mean norm of the gradients before clipping."),
    "update/tokens": MetricInfo("Tokens", "Trained tokens per update."),
    "update/pairs": MetricInfo("Pairs", "Pairs of completions per update."),
    "update/steps": MetricInfo("Optimizer steps", "Optimizer steps taken in this update."),
    "update/skipped": MetricInfo("Skipped steps", "Steps not taken because gradients were not finite.", "lower"),
    "update/stopped_early": MetricInfo("Stopped early", "1 if update.stop_kl ended this update early."),
    "update/learning_rate": MetricInfo("Learning rate", "Learning rate of this update."),
    "kl/sampling": MetricInfo("KL to the sampling policy", "Mean KL per token, over the minibatches of this update."),
    "preference/margin": MetricInfo(
        "Preference margin", "How much more the policy prefers the chosen completion than the reference does.", "higher"
    ),
    "preference/accuracy": MetricInfo("Preference accuracy", "Share of pairs with a positive margin.", "higher"),
}


class Step(Protocol):
    """What the policy offers: the loss of a micro-batch."""

    def __call__(
        self,
        batch: Batch,
        loss_of: TokenLoss | SequenceLoss,
        value_loss_of: Callable[[Tensor], Tensor] | None,
        entropy: bool,
    ) -> Any: ...


@dataclass(slots=True)
class Stats:
    """Sums over the tokens of an update; `means` are what is logged."""

    tokens: float = 0.0
    policy: float = 0.0
    value: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    grad_norm: float = 0.0
    steps: int = 0
    stopped: bool = False
    skipped: int = 0
    """Steps that were not taken, because their gradients were not finite."""

    def means(self) -> dict[str, float]:
        tokens = max(self.tokens, 1.0)
        return {
            "loss/policy": self.policy / tokens,
            "loss/value": self.value / tokens,
            "loss/entropy": self.entropy / tokens,
            "update/clip_frac": self.clipped / tokens,
            "kl/sampling": self.kl / tokens,
            "update/grad_norm": self.grad_norm / max(self.steps, 1),
            "update/steps": float(self.steps),
            "update/stopped_early": float(self.stopped),
            "update/skipped": float(self.skipped),
        }


class PendingUpdate:
    """An update that a GPU may still be at work on."""

    def __init__(self) -> None:
        self.minibatches: list[tuple[float, Tensor, Tensor]] = []
        """Of each minibatch: its number of tokens, its sums, the norm of its gradients."""
        self.stopped = False
        """The KL of the last minibatch was too large, so its step was not taken."""
        self.found: Tensor | None = None
        self.event: torch.cuda.Event | None = None

    def launched(self) -> "PendingUpdate":
        """Nothing more comes: let a GPU bring the numbers as soon as it has them, before it begins what is next."""
        found = torch.stack([torch.cat([sums_5, norm_1.double()]) for _, sums_5, norm_1 in self.minibatches])
        if found.is_cuda:
            self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            found = torch.empty(found.shape, dtype=found.dtype, pin_memory=True).copy_(found, non_blocking=True)
            self.event.record()
        self.found = found
        return self

    def wait(self) -> Stats:
        """The numbers of the whole update. A minibatch whose gradients are not finite changed nothing, and its other
        numbers are no better: it is counted as skipped."""
        assert self.found is not None
        if self.event is not None:
            self.event.synchronize()
        stats, found = Stats(stopped=self.stopped), self.found
        for (counted, *_), numbers in zip(self.minibatches, found.tolist(), strict=True):
            policy, value, entropy, clipped, kl, norm = numbers
            if not math.isfinite(norm):
                stats.skipped += 1
                continue
            stats.tokens += counted
            # The losses are means over the minibatch's tokens.
            stats.policy += policy * counted
            stats.value += value * counted
            stats.entropy += entropy
            stats.clipped += clipped
            stats.kl += kl
            stats.grad_norm += norm
            stats.steps += bool(counted)
        stats.steps -= self.stopped
        return stats


def update(
    policy: Step,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    found: Advantages,
    options: UpdateSettings,
    **more: Any,
) -> Stats:
    """`begin_update`, and its end."""
    return begin_update(policy, optimizer, batch, found, options, **more).wait()


def begin_update(
    policy: Step,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    found: Advantages,
    options: UpdateSettings,
    *,
    seed: int,
    groups: int | None = None,
    micro_batch: int | None = None,
    halve: Callable[[], int | None] = lambda: None,
    world: World = ALONE,
) -> PendingUpdate:
    """Epochs × minibatches optimizer steps, fewer if the KL runs away. The completions of a prompt stay together, so
    the policy reads each prompt once. A GPU is not waited for, unless `stop_kl` has to look at each step.

    `groups`: how many prompts the update has over all processes, if these are not all. `micro_batch`: if not the
    setting's. `halve`: asked for a smaller one when memory runs out; None: there is none, and the error is raised.
    """
    size = micro_batch or (16 if options.micro_batch == "auto" else options.micro_batch)
    order = torch.Generator().manual_seed(seed)
    groups = int(batch.group_B.max()) + 1 if groups is None else groups
    pending = PendingUpdate()
    for _ in range(options.epochs):
        for numbers in torch.randperm(groups, generator=order).tensor_split(options.minibatches):
            index = torch.isin(batch.group_B, numbers.to(batch.group_B.device)).nonzero()[:, 0]
            while True:
                try:
                    counted, sums_5 = _minibatch(policy, batch, found, index, options, world, _device(optimizer), size)
                    break
                except torch.OutOfMemoryError:
                    if (smaller := halve()) is None:
                        raise
                # Outside of `except`: what the exception holds on to is free again here.
                size = smaller
                optimizer.zero_grad(set_to_none=True)
            norm_1 = sums_5.new_zeros(1)
            if options.stop_kl and not float(sums_5[4]) / max(counted, 1.0) <= options.stop_kl:
                pending.stopped = True
            elif counted:
                norm_1 = clipped_step(optimizer, options.max_grad_norm)
            pending.minibatches.append((counted, sums_5, norm_1))
            optimizer.zero_grad(set_to_none=True)
            if pending.stopped:
                return pending.launched()
    return pending.launched()


def clipped_step(optimizer: torch.optim.Optimizer, max_grad_norm: float) -> Tensor:
    """Clips gradients and steps. Skips the step if the norm is not finite. Returns the norm, over all processes, where
    the gradients are, with one element."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    norm: Any = nn.utils.clip_grad_norm_(weights, max_grad_norm)
    # Asked of each group: the state of a run that began on a CPU brings its own.
    if all(group.get("fused") for group in optimizer.param_groups) and not hasattr(norm, "full_tensor"):
        # A fused optimizer skips the step by itself, where this is 1: nobody waits for the norm.
        optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
        try:
            optimizer.step()
        finally:
            del optimizer.found_inf  # type: ignore[attr-defined]
    else:
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if math.isfinite(norm):
            optimizer.step()
    norm_1: Tensor = norm.detach().reshape(1)
    return norm_1


def _minibatch(
    policy: Step,
    batch: Batch,
    found: Advantages,
    index: Tensor,
    options: UpdateSettings,
    world: World,
    device: torch.device,
    micro_batch: int,
) -> tuple[float, Tensor]:
    """Gradients of one minibatch; gives its number of tokens and what `_sums` says, over all processes."""
    # Completions without a baseline are not run: nothing of them counts.
    index = index[found.mask_BT[index].any(1)]
    counted = float(world.all_sum((found.mask_BT * batch.loss_weights_BT)[index].sum()))
    # Gradients are averaged over the processes, so each loss counts `processes` times.
    weight = world.size / max(counted, 1.0)
    sums_5 = torch.zeros(5, dtype=torch.float64, device=device)
    # Cut out before the first pass, so that a GPU never waits for it.
    parts = []
    micro = list(micro_batches(batch, index, micro_batch, together=True)) if len(index) else []
    for rows, counts, gradients_exchanged in passes(policy, micro, world, index.new_zeros(1)):
        part = batch.rows(rows)
        parts.append((part, _losses(part, found, rows, weight * counts, options, device), gradients_exchanged))
    for part, (loss_of, value_loss_of), gradients_exchanged in parts:
        with gradients_exchanged:
            out = policy(part, loss_of, value_loss_of, True)
            out.loss.backward()
        sums_5 += _sums(out, loss_of, value_loss_of, options)
    sums_5[:2] /= world.size
    total_5: Tensor = world.all_sum(sums_5)
    return counted, total_5


def _losses(
    part: Batch, found: Advantages, rows: Tensor, weight: float, options: UpdateSettings, device: torch.device
) -> tuple[PolicyLoss, "_ValueLoss | None"]:
    width = part.mask_BT.shape[1]

    def taken(stream_BT: Tensor) -> Tensor:
        return sent(stream_BT[part.mask_BT], device)

    weight_N = taken(found.mask_BT[rows, :width] * part.loss_weights_BT * weight)
    advantages_BT = found.advantages_BT[rows, :width]
    loss_of = PolicyLoss(
        taken(part.logprobs_BT),
        taken(advantages_BT if part.importance_BT is None else advantages_BT * part.importance_BT),
        weight_N,
        options.clip,
        options.clip_high or options.clip,
        options.entropy,
        find_policy_loss(options.loss),
    )
    if found.returns_BT is None or part.values_BT is None:
        return loss_of, None
    returns_N, old_N = taken(found.returns_BT[rows, :width]), taken(part.values_BT)
    return loss_of, _ValueLoss(old_N, returns_N, weight_N * options.value_coefficient, options.value_clip)


def _device(optimizer: torch.optim.Optimizer) -> torch.device:
    """Where the weights are; batches may lie elsewhere."""
    weight: Tensor = optimizer.param_groups[0]["params"][0]
    return weight.device


def passes(
    policy: Any, parts: Sequence[Tensor], world: World, spare: Tensor
) -> Iterator[tuple[Tensor, bool, AbstractContextManager[Any]]]:
    """Go through micro-batches: (their rows, whether they count, what to run forward and backward in).

    All processes go through the model equally often: a process that has no rows left takes `spare`, which counts
    nothing. Gradients are exchanged once, in the last pass."""
    number = world.all_max(len(parts))
    for place in range(number):
        counts = place < len(parts)
        waits = place < number - 1 and hasattr(policy, "no_sync")
        yield parts[place] if counts else spare, counts, policy.no_sync() if waits else nullcontext()


@dataclass(frozen=True, slots=True)
class _ValueLoss:
    old_N: Tensor
    returns_N: Tensor
    weight_N: Tensor
    clip: float

    def __call__(self, values_N: Tensor) -> Tensor:
        # As in `PolicyLoss`: what does not count is replaced by what gives no gradient.
        counts_N, own_N = self.weight_N > 0, values_N.detach()
        old_N = torch.where(counts_N, self.old_N, own_N)
        returns_N = torch.where(counts_N, self.returns_N, own_N)
        return (value_loss(values_N, old_N, returns_N, self.clip) * self.weight_N).sum()


@torch.no_grad()
def _sums(out: Any, loss_of: PolicyLoss, value_loss_of: _ValueLoss | None, options: UpdateSettings) -> Tensor:
    """Policy loss, value loss; entropy, clipped tokens and KL summed over the tokens that count."""
    counts_N = loss_of.weight_N > 0
    ratio_N = (out.logprobs_N - loss_of.old_N).exp()
    too_high_N = (ratio_N > 1 + loss_of.clip_high) & (loss_of.advantages_N > 0)
    too_low_N = (ratio_N < 1 - loss_of.clip_low) & (loss_of.advantages_N < 0)
    value = out.loss.new_zeros(()) if value_loss_of is None else value_loss_of(out.values_N)
    return torch.stack(
        [
            (out.loss - value).double(),
            (value / (options.value_coefficient or 1.0)).double(),
            torch.where(counts_N, out.entropy_N, 0.0).double().sum(),
            ((too_high_N | too_low_N) & counts_N).double().sum(),
            torch.where(counts_N, approximate_kl(out.logprobs_N, loss_of.old_N), 0.0).double().sum(),
        ]
    )


def supervised_update(
    policy: Step,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    micro_batch: int,
    max_grad_norm: float,
    world: World = ALONE,
) -> dict[str, float]:
    """Make given completions likelier: one step on the mean loss per token, over all processes."""
    rows = batch.mask_BT.any(1).nonzero()[:, 0]
    tokens = float(world.all_sum(batch.loss_weights_BT.sum()))
    parts = list(micro_batches(batch, rows, micro_batch)) if len(rows) else []
    device = _device(optimizer)
    loss = torch.zeros(1, dtype=torch.float64, device=device)
    for index, counts, gradients_exchanged in passes(policy, parts, world, rows.new_zeros(1)):
        part = batch.rows(index)
        # Gradients are averaged over the processes, so each loss counts `size` times.
        weight_N = sent(part.loss_weights_BT[part.mask_BT] * (counts * world.size / tokens), device)
        with gradients_exchanged:
            out = policy(part, Likelihood(weight_N), None, False)
            out.loss.backward()
        loss += out.loss.detach()
    mean = float(world.all_sum(loss / world.size))
    return {"loss/mean": mean, "update/tokens": tokens, **measured_step(optimizer, max_grad_norm)}


def preference_update(
    policy: Step,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    loss_of_margins: PreferenceFunction,
    *,
    beta: float,
    micro_batch: int,
    max_grad_norm: float,
    world: World = ALONE,
) -> dict[str, float]:
    """Prefer the chosen of each pair: one step on the mean loss per pair, over all processes. Rows 2p and 2p + 1 are
    the chosen and the rejected completion of pair p; `reference_BT` holds the log-probs of the reference."""
    assert batch.reference_BT is not None
    # A blank batch, of a process that has no pair, has one row.
    count = len(batch) // 2
    pairs = batch.mask_BT.any(1)[: 2 * count].view(count, 2).all(1).nonzero()[:, 0]
    number = float(world.all_sum(torch.tensor(float(len(pairs)))))
    reference_B = (batch.reference_BT * batch.loss_weights_BT).sum(1)
    longest_P = (batch.prompt_B + batch.lengths_B)[: 2 * count].view(count, 2).amax(1)
    ordered = pairs[torch.argsort(longest_P[pairs], stable=True)]
    split = torch.split(ordered, max(micro_batch // 2, 1))
    parts = [torch.stack([2 * some, 2 * some + 1], 1).flatten() for some in split]
    margins: list[Tensor] = []
    device = _device(optimizer)
    loss = torch.zeros(1, dtype=torch.float64, device=device)
    spare = torch.zeros(2, dtype=torch.long, device=batch.ids_BS.device)
    for index, counts, gradients_exchanged in passes(policy, parts if len(pairs) else [], world, spare):
        before_B = sent(reference_B[index], device)

        def of_sums(
            sums_B: Tensor, before_B: Tensor = before_B, weight: float = counts * world.size / max(number, 1)
        ) -> Tensor:
            moved_P2 = (sums_B - before_B).view(-1, 2)
            margin_P = moved_P2[:, 0] - moved_P2[:, 1]
            margins.extend(margin_P.detach() if weight else ())
            return loss_of_margins(margin_P, beta).sum() * weight

        with gradients_exchanged:
            out = policy(batch.rows(index), SequenceLoss(of_sums), None, False)
            out.loss.backward()
        loss += out.loss.detach()
    margin_P = torch.stack(margins).cpu() if margins else torch.zeros(0)
    sums_2 = world.all_sum(torch.stack([margin_P.sum(), (margin_P > 0).sum().float()]))
    return {
        "loss/mean": float(world.all_sum(loss / world.size)),
        "preference/margin": float(sums_2[0]) / max(number, 1),
        "preference/accuracy": float(sums_2[1]) / max(number, 1),
        "update/pairs": number,
        **measured_step(optimizer, max_grad_norm),
    }


def measured_step(optimizer: torch.optim.Optimizer, max_grad_norm: float) -> dict[str, float]:
    """`clipped_step` as metrics; the gradients are gone afterwards."""
    norm = float(clipped_step(optimizer, max_grad_norm))
    optimizer.zero_grad(set_to_none=True)
    taken = math.isfinite(norm)
    return {"update/skipped": float(not taken), "update/grad_norm": norm if taken else 0.0}


def learning_rate_factor(update_number: int, updates: int, options: OptimizerSettings) -> float:
    """What the peak learning rate is multiplied by in update 1, 2, …

    >>> [learning_rate_factor(n, 4, UpdateSettings(schedule="linear", warmup=2)) for n in (1, 2, 3, 4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if update_number <= options.warmup:
        return update_number / options.warmup
    left = (updates - update_number + 1) / max(updates - options.warmup, 1)
    if options.schedule == "linear":
        return left
    if options.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (1 - left)))
    return 1.0
