"""Logits → drawn ids and their log-probs, by inverting the cumulative distribution: one uniform number, one id.

Enters: logits of a batch, a uniform number a row or None. Leaves: ids and log-probs of softmax(logits / temperature),
in float32. Shapes are static and nothing is read back from the device, so it runs inside a CUDA graph as it is.
"""

import torch
from torch import Tensor

CHUNK = 256
"""Ids whose probabilities are summed first: the cumulative sum then runs over V / CHUNK sums and one chunk, not over V
numbers a row, which costs as much as a layer of a small model."""


def pick(logits_BV: Tensor, uniform_B: Tensor | None, temperature: float) -> tuple[Tensor, Tensor]:
    """(ids_B, logprobs_B). The id is the first whose cumulative probability exceeds the uniform number; never one of
    probability 0, whatever rounding does near 1. None: the likeliest id, the first of them if several are."""
    scaled_BV = logits_BV.to(torch.float32, copy=True)
    if temperature != 1.0:
        scaled_BV.div_(temperature)
    weights_BV = scaled_BV.sub_(scaled_BV.amax(-1, keepdim=True)).exp_()
    sums_BC = _chunk_sums(weights_BV)
    # Greedy reads the logits themselves: two that differ in the last bit can have the same weight.
    ids_B = logits_BV.argmax(-1) if uniform_B is None else _invert(weights_BV, sums_BC, uniform_B)
    logprobs_B = weights_BV.gather(1, ids_B[:, None]).squeeze(1).div_(sums_BC.sum(-1)).log_()
    return ids_B, logprobs_B


def _chunk_sums(weights_BV: Tensor) -> Tensor:
    whole = weights_BV.shape[1] // CHUNK * CHUNK
    parts = []
    if whole:
        parts.append(weights_BV[:, :whole].view(len(weights_BV), -1, CHUNK).sum(-1))
    if whole < weights_BV.shape[1]:
        parts.append(weights_BV[:, whole:].sum(-1, keepdim=True))
    return torch.cat(parts, 1)


def _invert(weights_BV: Tensor, sums_BC: Tensor, uniform_B: Tensor) -> Tensor:
    last = weights_BV.shape[1] - 1
    chunk_B, rest_B = _first_beyond(sums_BC, uniform_B.float() * sums_BC.sum(-1))
    ids_BK = chunk_B[:, None] * CHUNK + torch.arange(CHUNK, device=weights_BV.device)
    inside_BK = weights_BV.gather(1, ids_BK.clamp(max=last)).masked_fill_(ids_BK > last, 0.0)
    place_B, _ = _first_beyond(inside_BK, rest_B)
    return chunk_B * CHUNK + place_B


def _first_beyond(weights_BK: Tensor, target_B: Tensor) -> tuple[Tensor, Tensor]:
    """The first place of weight > 0 whose cumulative sum exceeds the target, or the last of weight > 0 where rounding
    leaves none; and how far the target lies beyond the sum before it."""
    places_BK = torch.arange(weights_BK.shape[1], device=weights_BK.device).expand_as(weights_BK)
    cumulative_BK = weights_BK.cumsum(-1)
    possible_BK = weights_BK > 0
    beyond_BK = possible_BK & (cumulative_BK > target_B[:, None])
    first_B = places_BK.masked_fill(~beyond_BK, weights_BK.shape[1]).amin(-1)
    last_B = places_BK.masked_fill(~possible_BK, 0).amax(-1)
    place_B1 = torch.minimum(first_B, last_B)[:, None]
    before_B1 = cumulative_BK.gather(1, place_B1) - weights_BK.gather(1, place_B1)
    return place_B1.squeeze(1), (target_B[:, None] - before_B1).clamp_(min=0).squeeze(1)
