"""The supervised update: completions that were given become more likely. One optimizer step; the same batches, head and
micro-batches as the other update, without rewards.

Enters: a policy, an optimizer, a batch of given completions. Leaves: changed weights, the mean loss a token.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from text2grad.optim.batch import Batch
from text2grad.optim.reduce import ALONE, Exchange
from text2grad.optim.update import Step, clipped_step, passes


@dataclass(frozen=True, slots=True)
class Likelihood:
    """−log p of each token, times what it counts."""

    weight: float

    def __call__(self, logprobs_n: Tensor, entropy_n: Tensor, piece: slice) -> Tensor:  # noqa: ARG002
        return -logprobs_n * self.weight


def supervised_update(
    policy: Step,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    micro_batch: int,
    max_grad_norm: float,
    among: Exchange = ALONE,
) -> dict[str, float]:
    """One step on the mean loss over the tokens of all processes, however they are cut up."""
    rows = batch.mask_BT.any(1).nonzero()[:, 0]
    tokens = float(among.total(batch.mask_BT.sum().to(torch.float32)))
    loss = torch.zeros(1, dtype=torch.float64, device=rows.device)
    for index, counts, gradients_exchanged in passes(policy, batch, rows, micro_batch, among):
        # Gradients are averaged over the processes, so each loss counts `processes` times.
        loss_of = Likelihood(counts * among.processes / tokens)
        with gradients_exchanged:
            out = policy(batch.rows(index), loss_of, None, False)
            out.loss.backward()
        loss += out.loss.detach()
    norm = clipped_step(optimizer, max_grad_norm)
    optimizer.zero_grad(set_to_none=True)
    mean = float(among.total(loss / among.processes))
    taken = math.isfinite(norm)
    numbers = {"update/tokens": tokens, "update/skipped": float(not taken)}
    return {"loss/mean": mean, **numbers, "update/grad_norm": norm if taken else 0.0}
