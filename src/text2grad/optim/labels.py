"""Token labels as tensors: where the span head is read, its losses, and one update of a reward model.

Enters: the span head's five numbers per labelled position: three logits (poor, neutral, good) and two reward sizes (if
poor, if good). And the labels of these positions. Leaves: losses, or changed weights. N: all labelled positions of a
batch, row after row. The joint loss has three parts: span (verdicts), reward (sizes), language (the critique's tokens).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from text2grad.optim.batch import Batch, micro_batches
from text2grad.optim.reduce import ALONE, World
from text2grad.optim.update import measured_step, passes

NEUTRAL, GOOD = 1, 2


@dataclass(frozen=True, slots=True)
class LabelBatch:
    """Where in (B, S) the span head is read, and, in training, what it should predict there.

    >>> batch = LabelBatch(torch.tensor([0, 0, 1, 2]), torch.tensor([5, 6, 4, 9]))
    >>> some = batch.rows(torch.tensor([2, 0]))
    >>> some.row_N.tolist(), some.position_N.tolist()
    ([0, 1, 1], [9, 5, 6])
    """

    row_N: Tensor
    """Ascending."""
    position_N: Tensor
    verdict_N: Tensor | None = None
    """0 poor, 1 neutral, 2 good."""
    reward_N: Tensor | None = None
    """Signed, in units of the calibration's scale."""

    def rows(self, index: Tensor) -> "LabelBatch":
        """The labels of some rows, in the order of `index`."""
        row_N, chosen_N = (self.row_N == index.to(self.row_N.device)[:, None]).nonzero(as_tuple=True)
        verdict_N = None if self.verdict_N is None else self.verdict_N[chosen_N]
        reward_N = None if self.reward_N is None else self.reward_N[chosen_N]
        return LabelBatch(row_N, self.position_N[chosen_N], verdict_N, reward_N)


class LossWeights(NamedTuple):
    """What the summed parts of the joint loss are multiplied by."""

    span: float
    reward: float
    language: float

    def over(self, counts_3: Tensor, factor: float = 1.0) -> "LossWeights":
        """Makes a mean of each sum: divided by the number of its tokens, times `factor`."""
        return LossWeights(*(weight * factor / max(n, 1) for weight, n in zip(self, counts_3.tolist(), strict=True)))

    def metrics(self, sums_3: Tensor, counts_3: Tensor) -> dict[str, float]:
        """The parts of the loss as means, and their weighted sum."""
        means = (sums_3.cpu() / counts_3.clamp(min=1).cpu()).tolist()
        joint = sum(weight * mean for weight, mean in zip(self, means, strict=True))
        return {"loss/joint": joint} | {f"loss/{part}": mean for part, mean in zip(self._fields, means, strict=True)}


def class_weights(counts_3: Tensor, exponent: float) -> Tensor:
    """Loss weight of a token by its class: the rarity of the class to the power of `exponent`, 1 on average.

    >>> class_weights(torch.tensor([10.0, 80.0, 10.0]), 0.0).tolist()
    [1.0, 1.0, 1.0]
    >>> class_weights(torch.tensor([1.0, 4.0, 0.0]), 1.0).tolist()
    [2.5, 0.625, 1.0]
    """
    there_3 = counts_3 > 0
    raw_3 = torch.where(there_3, counts_3.clamp(min=1).pow(-exponent), 0.0)
    mean = (raw_3 * counts_3).sum() / counts_3.sum().clamp(min=1)
    return torch.where(there_3, raw_3 / mean.clamp(min=1e-30), 1.0)


def span_losses(out_N5: Tensor, verdict_N: Tensor, reward_N: Tensor, weights_3: Tensor) -> tuple[Tensor, Tensor]:
    """(cross entropy of the verdicts, weighted by class; error of the reward sizes of poor and good tokens), summed.

    >>> losses = span_losses(torch.zeros(1, 5), torch.tensor([2]), torch.tensor([1.0]), torch.ones(3))
    >>> [round(float(part), 4) for part in losses]
    [1.0986, 0.0471]
    """
    entropy_N = functional.cross_entropy(out_N5[:, :3].float(), verdict_N, reduction="none")
    size_N2 = functional.softplus(out_N5[:, 3:].float())
    size_N = torch.where(verdict_N == GOOD, size_N2[:, 1], size_N2[:, 0])
    error_N = functional.smooth_l1_loss(size_N, reward_N.abs(), reduction="none")
    return (entropy_N * weights_3[verdict_N]).sum(), torch.where(verdict_N != NEUTRAL, error_N, 0.0).sum()


def read_out(out_N5: Tensor, weights_3: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(probabilities (N, 3), reward sizes (N, 2)). A class that counts twice in the loss is predicted twice as likely;
    this is undone here."""
    logits_N3 = (out_N5[:, :3].float() - weights_3.log()) / temperature
    return logits_N3.softmax(-1), functional.softplus(out_N5[:, 3:].float())


def counts_of(batch: Batch, labels: LabelBatch) -> Tensor:
    """Tokens that each part of the loss is a mean over: labelled; labelled poor or good; of critiques."""
    assert labels.verdict_N is not None
    language = (batch.loss_weights_BT * batch.mask_BT).sum()
    return torch.stack([language.new_tensor(len(labels.row_N)), (labels.verdict_N != NEUTRAL).sum(), language]).float()


def reward_update(
    model: Any,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    labels: LabelBatch,
    weights: LossWeights,
    *,
    micro_batch: int,
    max_grad_norm: float,
    world: World = ALONE,
) -> dict[str, float]:
    """One step on the joint loss, each part one mean over all micro-batches and processes."""
    rows = (batch.number_B >= 0).nonzero()[:, 0]
    counts_3 = world.all_sum(counts_of(batch, labels) if len(rows) else torch.zeros(3))
    sums_3 = torch.zeros(3, dtype=torch.float64, device=batch.ids_BS.device)
    parts = list(micro_batches(batch, rows, micro_batch)) if len(rows) else []
    for index, counts, gradients_exchanged in passes(model, parts, world, rows.new_zeros(1)):
        # Gradients are averaged over the processes, so each loss counts `size` times.
        mean = weights.over(counts_3, float(counts) * world.size)
        with gradients_exchanged:
            out = model(batch.rows(index), labels.rows(index), mean)
            out.loss.backward()
        sums_3 += out.sums_3.double() * float(counts)
    step = measured_step(optimizer, max_grad_norm)
    return {**weights.metrics(world.all_sum(sums_3), counts_3), **step}
