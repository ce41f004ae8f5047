"""Attention by matrix products, for bf16 on a CPU.

Enters: queries, keys, values and a mask, as transformers gives them to an attention function. Leaves: what was
attended. PyTorch's own kernel for a CPU computes in 32 bits inside; a processor with bf16 instructions multiplies whole
matrices several times as fast. Scores are made again in the backward pass, a few at a time, so they take no memory in
between. They are rounded to bf16 before the softmax, as in the eager attention of transformers: gradients are off by
half a percent where scores lie within ±1, and by a few percent where they lie within ±30.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

SCORES = 1 << 20
"""Scores that are made at once, or those of one key head of a row, if they are more: they stay in the processor's
cache."""
LONGEST = 768
"""Places that a query may see. From about a thousand on PyTorch's kernel is faster, which leaves out what a causal mask
hides."""
UNKNOWN = ("softcap", "position_bias", "s_aux")
"""Options of an attention that are not known here; nor is dropout."""


def fits(query: Tensor, value: Tensor, mask: Tensor | None, options: dict[str, Any]) -> bool:
    """Whether `attend` computes what is asked for, and sooner than PyTorch: bf16 (autocast) on a CPU that multiplies
    it; not too long; each token sees all before it, or what a mask of yes and no allows."""
    if value.device.type != "cpu" or not _in_bf16() or torch.compiler.is_compiling() or not query.numel():
        return False
    seen = query.shape[2], value.shape[2]
    alike = query.shape[3] == value.shape[3] and seen[1] <= LONGEST and options.get("is_causal") is not False
    if not alike or options.get("dropout") or any(options.get(name) is not None for name in UNKNOWN):
        return False
    if mask is None:
        return seen[0] == seen[1]
    return mask.dtype == torch.bool and mask.shape[1:] == (1, *seen)


def _in_bf16() -> bool:
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16 and multiplies_bf16()


@cache
def multiplies_bf16() -> bool:
    """Whether the processor has instructions for products in bf16."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def attend(query_BHQD: Tensor, key_BKSD: Tensor, value_BKSD: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """(B, H, Q, D). H query heads share K key heads, neighbours the same one. `mask`: (B or 1, 1, Q, S), True where a
    query sees a key; None: each sees itself and all before."""
    if mask is None:
        length = query_BHQD.shape[2]
        mask = torch.ones(1, 1, length, length, dtype=torch.bool).tril_()
    # A cache of keys keeps values in the precision of keys, which were turned in 32 bits.
    states = (given.to(torch.bfloat16) for given in (query_BHQD, key_BKSD, value_BKSD))
    attended: Tensor = _Attended.apply(*states, mask, scale)  # type: ignore[no-untyped-call]
    return attended


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.scale = scale
        attended = query.new_empty(_by_key_head(query, key).shape)
        for part, q, k, v, aside in _parts(query, key, value, mask):
            attended[part] = torch.bmm(_weights(q, k, aside, scale), v).view(attended[part].shape)
        return attended.view(query.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask = ctx.saved_tensors
        grads = _by_key_head(grad.to(value.dtype), key)
        by_query, by_key, by_value = (torch.empty_like(states) for states in (grads, key, value))
        for part, q, k, v, aside in _parts(query, key, value, mask):
            g = grads[part].flatten(0, 1)
            weights = _weights(q, k, aside, ctx.scale)
            by_value[part] = torch.bmm(weights.transpose(1, 2), g).view(by_value[part].shape)
            by_weights = torch.bmm(g, v.transpose(1, 2))
            by_scores = torch._softmax_backward_data(by_weights, weights, -1, weights.dtype)
            by_query[part] = torch.bmm(by_scores, k).mul_(ctx.scale).view(by_query[part].shape)
            by_key[part] = torch.bmm(by_scores.transpose(1, 2), q).mul_(ctx.scale).view(by_key[part].shape)
        return by_query.view(query.shape), by_key, by_value, None, None


def _by_key_head(states: Tensor, key: Tensor) -> Tensor:
    """(B, H, Q, D) → (B, K, G·Q, D): the G query heads of a key head one after the other."""
    return states.reshape(len(states), key.shape[1], -1, states.shape[-1])


def _parts(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor
) -> Iterator[tuple[Any, Tensor, Tensor, Tensor, Tensor]]:
    """A few rows, or key heads of one row, at a time: where they stand, their queries (N, G·Q, D), keys and values
    (N, S, D), and what is added to their scores, (N or 1, G·Q, S)."""
    rows, key_heads, places, _ = key.shape
    queries = _by_key_head(query, key)
    each = queries.shape[2] * places
    heads = min(key_heads, max(1, SCORES // each))
    at_once = max(1, SCORES // (each * key_heads)) if heads == key_heads else 1
    apart = torch.zeros(mask.shape, dtype=query.dtype).masked_fill_(~mask, torch.finfo(query.dtype).min)
    for row in range(0, rows, at_once):
        some = apart if len(mask) == 1 else apart[row : row + at_once]
        aside = some.expand(-1, query.shape[1] // key_heads, -1, -1).reshape(len(some), -1, places)
        for head in range(0, key_heads, heads):
            part = slice(row, row + at_once), slice(head, head + heads)
            q, k, v = (states[part].flatten(0, 1) for states in (queries, key, value))
            yield part, q, k, v, aside if len(aside) == 1 else aside.repeat_interleave(len(q) // len(aside), 0)


def _weights(q: Tensor, k: Tensor, aside: Tensor, scale: float) -> Tensor:
    """The share of each value that each query takes, (N, G·Q, S); equal shares where it sees nothing (padding)."""
    scores = torch.baddbmm(aside, q, k.transpose(1, 2), alpha=scale)
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype)
