"""Attention in bf16 on a CPU: by matrix products (models/products.py), against PyTorch's own.

    python benchmarks/attention.py

Both get the same states and masks, and both are off by bf16's rounding from attention in 64 bits: that is checked
first. Shapes are those of SmolLM2-135M in an update: prompts of 450 tokens, and completions of 63 upon them. One
thread; processor time, the least of some turns.
"""

import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from text2grad.models import products

SHAPES = {"prompts": (4, 450, 450), "completions": (16, 63, 513)}
"""(rows, queries, places)."""
HEADS, KEY_HEADS, WIDTH, SCALE = 9, 3, 64, 64**-0.5
TURNS = 7
LEAST = 1.2
"""Times faster with its gradients, on a processor with bf16 instructions."""
ROUNDING = 0.02


def pytorch_s(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    query, *others = states
    key, value = (each.repeat_interleave(HEADS // KEY_HEADS, 1) for each in others)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=SCALE)


def ours(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    query, key, value = states
    with torch.autocast("cpu", torch.bfloat16):
        return products.attend(query, key, value, mask, SCALE)


def seconds(attend: Callable[..., Tensor], states: Sequence[Tensor], mask: Tensor, weight: Tensor) -> float:
    """Of one pass, forward and backward."""
    least = float("inf")
    for _ in range(TURNS):
        began = time.process_time()
        torch.autograd.grad(attend(states, mask), states, weight)
        least = min(least, time.process_time() - began)
    return least


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ratios = {}
    for name, (rows, queries, places) in SHAPES.items():
        sizes = [(rows, HEADS, queries, WIDTH), *[(rows, KEY_HEADS, places, WIDTH)] * 2]
        states = [torch.randn(size).bfloat16().requires_grad_() for size in sizes]
        mask = (
            torch.ones(queries, places, dtype=torch.bool).tril_(places - queries)[None, None].expand(rows, -1, -1, -1)
        )
        weight = torch.randn(sizes[0]).bfloat16()
        exact = pytorch_s([each.detach().double() for each in states], mask)
        for attend in (pytorch_s, ours):
            off = float((attend(states, mask).detach().double() - exact).norm() / exact.norm())
            assert off < ROUNDING, f"{attend.__name__} is off by {off:.2g} on {name}"
        theirs, mine = (seconds(attend, states, mask, weight) for attend in (pytorch_s, ours))
        ratios[name] = theirs / mine
        shape = f"{rows} × {queries} of {places} places"
        print(f"{name}, {shape}: PyTorch's {1000 * theirs:.0f} ms, products {1000 * mine:.0f} ms")
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    print(" ".join(f"{name}={ratio:.2f}" for name, ratio in ratios.items()), f"bf16_instructions={fast}")
    if fast and min(ratios.values()) < LEAST:
        sys.exit(f"products should be {LEAST} times as fast as PyTorch's attention")


if __name__ == "__main__":
    main()
