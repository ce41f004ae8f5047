"""Proof of locality: where an update moved the policy. Log-probs are taken again after it, and compared with those that
the tokens were sampled with, on poor spans, good spans and unlabelled tokens."""

import torch

from text2grad.models.policy import Policy
from text2grad.optim.advantages import Advantages
from text2grad.optim.batch import Batch
from text2grad.optim.reduce import Exchange, masked_mean

Seen = dict[int, tuple[list[float], list[float]]]
"""Number of a completion → its advantages and its log-probs after the update."""


def look_back(
    policy: Policy, batch: Batch, found: Advantages, wanted: set[int], size: int, among: Exchange
) -> tuple[Seen, dict[str, float]]:
    """(what the wanted completions of this process look like now, mean changes over those of all processes)."""
    places = [place for place, number in enumerate(batch.number_B.tolist()) if number in wanted]
    # Where weights are gathered from other processes, nobody may stay away: a row is read, and not counted.
    index = torch.tensor(places or [0], device=batch.ids_BS.device)
    part = batch.rows(index)
    after_BT, _ = policy.logprobs_and_values(part, size, among)
    change_BT = after_BT - part.logprobs_BT
    means = {}
    for name, verdict in (("poor", -1), ("good", 1), ("unlabelled", 0)):
        mask_BT = part.mask_BT & (part.verdicts_BT == verdict) & bool(places)
        if float(among.total(mask_BT.sum().float())):
            means[f"locality/{name}"] = float(masked_mean(change_BT, mask_BT, among))
    advantages_BT = found.advantages_BT[index]
    seen: Seen = {}
    for row in range(len(places)):
        length = int(part.mask_BT[row].sum())
        seen[int(part.number_B[row])] = (advantages_BT[row, :length].tolist(), after_BT[row, :length].tolist())
    return seen, means
