"""Attention in bf16 on a CPU: by matrix products (models/products.py), against PyTorch's own.

    python benchmarks/attention.py

Attention alone, with its gradients: prompts of 450 tokens, completions of 63 upon them, and a long row, which is left
to PyTorch. Then a whole pass forward and backward of a model of SmolLM2-135M's shape with LoRA. Both sides get the same
states and masks, in turns; one thread, processor time, the least of some turns. Checked first: neither is further from
attention in 64 bits than bf16 rounds scores of about ±1. Ends with the ratios.
"""

import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from text2grad.models import products
from text2grad.models.backbone import Backbone
from text2grad.models.settings import PolicySettings
from text2grad.optim.batch import collate_ids

SHAPES = {"prompts": (4, 450, 450), "completions": (16, 63, 513), "long": (1, 2048, 2048)}
"""(rows, queries, places)."""
HEADS, KEY_HEADS, WIDTH, SCALE = 9, 3, 64, 64**-0.5
TURNS = 5
LEAST = 1.2
"""Times faster, on a processor with bf16 instructions."""
ROUNDING = 0.02


def pytorch_s(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    query, *others = states
    key, value = (each.repeat_interleave(HEADS // KEY_HEADS, 1) for each in others)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=SCALE)


def ours(states: Sequence[Tensor], mask: Tensor) -> Tensor:
    query, key, value = states
    with torch.autocast("cpu", torch.bfloat16):
        if not products.fits(query, value, mask, {}):
            return pytorch_s(states, mask)
        return products.attend(query, key, value, mask, SCALE)


def in_turns(*sides: Callable[[], object]) -> list[float]:
    """The least seconds of each."""
    least = [float("inf")] * len(sides)
    for _ in range(TURNS):
        for place, side in enumerate(sides):
            began = time.process_time()
            side()
            least[place] = min(least[place], time.process_time() - began)
    return least


def attention(rows: int, queries: int, places: int) -> list[float]:
    sizes = [(rows, HEADS, queries, WIDTH), *[(rows, KEY_HEADS, places, WIDTH)] * 2]
    states = [torch.randn(size).bfloat16().requires_grad_() for size in sizes]
    mask = torch.ones(queries, places, dtype=torch.bool).tril_(places - queries)[None, None].expand(rows, -1, -1, -1)
    weight = torch.randn(sizes[0]).bfloat16()
    exact = pytorch_s([each.detach().double() for each in states], mask)
    for attend in (pytorch_s, ours):
        off = float((attend(states, mask).detach().double() - exact).norm() / exact.norm())
        assert off < ROUNDING, f"{attend.__name__} is off by {off:.2g}"
    return in_turns(
        *(
            lambda attend=attend: torch.autograd.grad(attend(states, mask), states, weight)
            for attend in (pytorch_s, ours)
        )
    )


def whole_pass() -> list[float]:
    """16 completions of 63 tokens after 4 prompts of 450, as the update reads them; the vocabulary is left out."""
    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": HEADS}
    model = LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=KEY_HEADS, vocab_size=512))
    backbone = Backbone(model, PolicySettings(precision="bfloat16", packing="never")).train()
    ids = torch.randint(3, 512, (20, 450)).tolist()
    prompts, texts = [ids[row // 4] for row in range(16)], [each[:63] for each in ids[4:]]
    batch = collate_ids(prompts, texts, groups=[row // 4 for row in range(16)])
    fits = products.fits

    def run(by: Callable[..., bool]) -> None:
        products.fits = by
        loss = backbone.completion_hidden(batch, share=True).float().square().mean()
        loss.backward()  # type: ignore[no-untyped-call]

    try:
        return in_turns(lambda: run(lambda *_: False), lambda: run(fits))
    finally:
        products.fits = fits


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ratios = {}
    for name, (rows, queries, places) in SHAPES.items():
        theirs, mine = attention(rows, queries, places)
        ratios[name] = theirs / mine
        print(f"{name}, {rows} × {queries} of {places}: PyTorch's {1000 * theirs:.0f} ms, ours {1000 * mine:.0f} ms")
    theirs, mine = whole_pass()
    ratios["pass"] = theirs / mine
    print(f"a whole pass: with PyTorch's {theirs:.1f} s, with ours {mine:.1f} s")
    fast = products.multiplies_bf16()
    print(" ".join(f"{name}={ratio:.2f}" for name, ratio in ratios.items()), f"bf16_instructions={fast}")
    if fast and min(ratios[name] for name in ("prompts", "completions", "pass")) < LEAST:
        sys.exit(f"should be {LEAST} times as fast as PyTorch's attention")


if __name__ == "__main__":
    main()
