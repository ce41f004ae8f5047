"""Two engines, the same weights, slightly different log-probs: how far apart, and what that means for each token.

Enters: a batch with the log-probs of the engine that sampled it, and the policy's own of the same ids. Leaves: the
batch with the policy's own in their place, and an importance weight per token; and numbers about the difference.
"""

from dataclasses import replace

import torch

from text2grad.optim.batch import Batch
from text2grad.optim.reduce import ALONE, World, masked_mean
from text2grad.types import MetricInfo

METRICS = {
    "engine/mismatch": MetricInfo(
        "Engine mismatch",
        "Mean |Δ log-prob| per token between the engine that sampled and the trainer, with the same weights. With bf16 "
        "about 0.01.",
        "lower",
    ),
    "engine/mismatch_max": MetricInfo(
        "Largest engine mismatch",
        "Largest |Δ log-prob| of a token between the engine that sampled and the trainer.",
        "lower",
    ),
    "engine/capped_frac": MetricInfo(
        "Capped importance weights",
        "Share of tokens whose importance weight was cut off at sampling.served.cap.",
        "lower",
    ),
    "engine/faults": MetricInfo(
        "Repeated requests", "Requests to rollout servers that failed and were asked again in this update.", "lower"
    ),
}


def corrected(batch: Batch, cap: float, world: World = ALONE) -> tuple[Batch, dict[str, float]]:
    """(the batch as the update takes it, how far the two engines are apart).

    A token that the engine drew with probability q, and the policy gives p, counts min(p / q, cap) times: on average as
    if the policy had drawn it, but for what is cut off. Ratios of the update are then taken against p, so they begin
    at 1. No completion is left out. `cap` 0: nothing is corrected.
    """
    assert batch.own_BT is not None
    apart_BT = torch.where(batch.mask_BT, batch.own_BT - batch.logprobs_BT, 0.0)
    largest = max(world.all_gather(float(apart_BT.abs().max()) if apart_BT.numel() else 0.0))
    metrics = {
        "engine/mismatch": float(masked_mean(apart_BT.abs(), batch.mask_BT, world)),
        "engine/mismatch_max": largest,
    }
    if not cap:
        return batch, metrics
    weight_BT = apart_BT.exp()
    metrics["engine/capped_frac"] = float(masked_mean((weight_BT > cap).float(), batch.mask_BT, world))
    return replace(batch, logprobs_BT=batch.own_BT, importance_BT=weight_BT.clamp(max=cap)), metrics
