"""One update of a reward model: the joint loss over micro-batches and processes, each of its parts one mean.

Enters: a model that gives the loss of a micro-batch, an optimizer, a batch with its marks. Leaves: changed weights, and
the parts of the loss.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from text2grad.optim.batch import Batch, micro_batches
from text2grad.optim.reduce import ALONE, World
from text2grad.optim.spans import NEUTRAL, Marks
from text2grad.optim.update import clipped_step, passes


@dataclass(frozen=True, slots=True)
class Weighing:
    """What the summed losses of a micro-batch are multiplied by."""

    span: float
    worth: float
    language: float

    def over(self, counts_3: Tensor, factor: float = 1.0) -> "Weighing":
        """Of sums over so many tokens each, as means."""
        span, worth, language = counts_3.clamp(min=1).tolist()
        return Weighing(self.span * factor / span, self.worth * factor / worth, self.language * factor / language)


@dataclass(frozen=True, slots=True)
class TokenLikelihood:
    """−log p of each token, times what that token counts."""

    weight_N: Tensor

    def __call__(self, logprobs_n: Tensor, entropy_n: Tensor, piece: slice) -> Tensor:  # noqa: ARG002
        return -logprobs_n * self.weight_N[piece]


def counts_of(batch: Batch, marks: Marks) -> Tensor:
    """Tokens that the parts of the loss are means over: labelled, labelled good or poor, of critiques."""
    labelled = marks.mask_BL & (marks.verdict_BL != NEUTRAL)
    return torch.stack([marks.mask_BL.sum(), labelled.sum(), (batch.rewards_BT * batch.mask_BT).sum()]).float()


def reward_update(
    model: Any,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    marks: Marks,
    weighing: Weighing,
    *,
    micro_batch: int,
    max_grad_norm: float,
    world: World = ALONE,
) -> dict[str, float]:
    """One step; the same however the batch is cut up."""
    rows = torch.arange(len(batch), device=batch.ids_BS.device)
    rows = rows[batch.number_B >= 0]
    counts_3 = world.all_sum(counts_of(batch.rows(rows), marks.rows(rows)) if len(rows) else torch.zeros(3))
    sums_3 = torch.zeros(3, dtype=torch.float64, device=batch.ids_BS.device)
    parts = list(micro_batches(batch, rows, micro_batch)) if len(rows) else []
    for index, counts, gradients_exchanged in passes(model, parts, world, rows.new_zeros(1)):
        # Gradients are averaged over the processes, so each loss counts `processes` times.
        weighed = weighing.over(counts_3, float(counts) * world.size)
        with gradients_exchanged:
            out = model(batch.rows(index), marks.rows(index), weighed)
            out.loss.backward()
        sums_3 += out.sums_3.double() * float(counts)
    norm = clipped_step(optimizer, max_grad_norm)
    optimizer.zero_grad(set_to_none=True)
    taken = math.isfinite(norm)
    found = losses_of(world.all_sum(sums_3), counts_3, weighing)
    return {**found, "update/skipped": float(not taken), "update/grad_norm": norm if taken else 0.0}


def losses_of(sums_3: Tensor, counts_3: Tensor, weighing: Weighing) -> dict[str, float]:
    """The parts of the loss, and their weighed sum."""
    span, worth, language = (sums_3.cpu() / counts_3.clamp(min=1).cpu()).tolist()
    joint = weighing.span * span + weighing.worth * worth + weighing.language * language
    return {"loss/joint": joint, "loss/span": span, "loss/worth": worth, "loss/language": language}
