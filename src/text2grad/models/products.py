"""Attention by matrix products, for 16-bit numbers on a CPU.

Enters: queries, keys, values and a mask, as transformers gives them to an attention function. Leaves: what was
attended. PyTorch's own kernel for a CPU works in 32 bits inside; a processor with bf16 instructions multiplies whole
matrices several times as fast. Scores are made again in the backward pass, a few rows at a time, so they take no
memory in between.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

SCORES = 1 << 22
"""Scores that are made at once, at most, where a single row does not have more: they stay in the processor's cache."""


def fits(query: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]) -> bool:
    """Whether `attend` computes what is asked for: products in bf16 on a CPU (autocast), each token seeing all before
    it or what a mask of yes and no allows, and no dropout."""
    if value.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or options.get("dropout"):
        return False
    seen = query.shape[2], value.shape[2]
    if mask is None:
        return seen[0] == seen[1]
    return mask.dtype == torch.bool and mask.shape[1:] == (1, *seen)


def attend(query_BHQD: Tensor, key_BKSD: Tensor, value_BKSD: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """(B, H, Q, D). H query heads share K key heads, neighbours the same one. `mask`: (B or 1, 1, Q, S), True where a
    query sees a key; None: each sees itself and all before."""
    dtype = torch.get_autocast_dtype("cpu")
    if mask is None:
        length = query_BHQD.shape[2]
        mask = torch.ones(1, 1, length, length, dtype=torch.bool).tril_()
    # A cache of keys keeps values in the precision of keys, which were turned in 32 bits.
    states = (given.to(dtype) for given in (query_BHQD, key_BKSD, value_BKSD))
    attended: Tensor = _Attended.apply(*states, mask, scale)  # type: ignore[no-untyped-call]
    return attended


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.scale = scale
        parts = [torch.bmm(_weights(q, k, seen, scale), v) for q, k, v, seen in _parts(query, key, value, mask)]
        return torch.cat(parts).view(query.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask = ctx.saved_tensors
        found_q, found_k, found_v = [], [], []
        grads = _parts(grad.to(value.dtype), key, value, mask)
        for (q, k, v, seen), (g, *_) in zip(_parts(query, key, value, mask), grads, strict=True):
            weights = _weights(q, k, seen, ctx.scale)
            found_v.append(torch.bmm(weights.transpose(1, 2), g))
            taken, by_weights = weights.float(), torch.bmm(g, v.transpose(1, 2)).float()
            # Softmax: a score that grows takes from all others what it gains.
            by_scores = taken * (by_weights - (by_weights * taken).sum(-1, keepdim=True))
            by_scores = by_scores.mul_(ctx.scale).to(q.dtype)
            found_q.append(torch.bmm(by_scores, k))
            found_k.append(torch.bmm(by_scores.transpose(1, 2), q))
        by_q, by_k, by_v = map(torch.cat, (found_q, found_k, found_v))
        return by_q.view(query.shape), by_k.view(key.shape), by_v.view(value.shape), None, None


def _parts(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Some rows at a time: queries (R·K, G·Q, D) with the G heads of a key head one after the other, keys, values
    (R·K, S, D), and what each query sees, (R or 1, 1, 1, Q, S)."""
    rows, heads, length, width = query.shape
    key_heads, places = key.shape[1:3]
    at_once = max(1, SCORES // (heads * length * places))
    for start in range(0, rows, at_once):
        part = slice(start, start + at_once)
        count = len(query[part])
        q = query[part].reshape(count * key_heads, heads // key_heads * length, width)
        k, v = (states[part].reshape(count * key_heads, places, -1) for states in (key, value))
        yield q, k, v, (mask if len(mask) == 1 else mask[part])[:, :, None]


def _weights(q: Tensor, k: Tensor, seen: Tensor, scale: float) -> Tensor:
    """The share of each value that each query takes, (R·K, G·Q, S); equal shares where it sees nothing (padding)."""
    scores = torch.bmm(q, k.transpose(1, 2)).float().mul_(scale)
    length, places = seen.shape[-2:]
    by_row = scores.view(len(seen), -1, scores.shape[1] // length, length, places)
    by_row.masked_fill_(~seen, torch.finfo(torch.float32).min)
    return scores.softmax(-1).to(q.dtype)
