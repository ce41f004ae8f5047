"""Proof of locality: where an update moved the policy. Log-probs are taken again after it, and compared with those that
the tokens were sampled with, on poor spans, good spans and unlabelled tokens."""

from collections.abc import Callable

import torch
from torch import Tensor

from text2grad.models.policy import Policy
from text2grad.optim.batch import Batch
from text2grad.optim.estimators import Advantages
from text2grad.optim.reduce import World, masked_mean
from text2grad.types import MetricInfo

_HELP = "Mean change of log-prob per update, on these tokens of the rollouts that are scored again after it."
METRICS = {
    "locality/poor": MetricInfo("Log-prob change on poor spans", _HELP, "lower"),
    "locality/good": MetricInfo("Log-prob change on good spans", _HELP, "higher"),
    "locality/unlabelled": MetricInfo("Log-prob change on unlabelled tokens", _HELP),
}

After = dict[int, tuple[list[float], list[float]]]
"""Index of a rollout → its advantages, and its log-probs after the update."""


def look_back(
    policy: Policy, batch: Batch, advantages: Advantages, wanted: set[int], size: int, world: World
) -> Callable[[], tuple[After, dict[str, float]]]:
    """Start a pass over the wanted rollouts of this process. What is given waits for it, and then says (these rollouts
    after the update, mean changes over those of all processes)."""
    places = [place for place, index in enumerate(batch.number_B.tolist()) if index in wanted]
    # Where weights are gathered from other processes, nobody may stay away: one row is read, and not counted.
    rows = torch.tensor(places or [0], device=batch.ids_BS.device)
    part = batch.rows(rows)
    reading = policy.read(part, size, world)
    return lambda: _looked(part, reading.wait()[0], advantages.advantages_BT[rows], places, world)


def _looked(
    part: Batch, after_BT: Tensor, advantages_BT: Tensor, places: list[int], world: World
) -> tuple[After, dict[str, float]]:
    change_BT = after_BT - part.logprobs_BT
    means = {}
    for name, verdict in (("poor", -1), ("good", 1), ("unlabelled", 0)):
        mask_BT = part.mask_BT & (part.verdicts_BT == verdict) & bool(places)
        if float(world.all_sum(mask_BT.sum().float())):
            means[f"locality/{name}"] = float(masked_mean(change_BT, mask_BT, world))
    after: After = {}
    for row in range(len(places)):
        length = int(part.mask_BT[row].sum())
        after[int(part.number_B[row])] = (advantages_BT[row, :length].tolist(), after_BT[row, :length].tolist())
    return after, means
