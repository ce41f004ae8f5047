"""Rollouts by the fast sampler against `model.generate`: the same prompts, numbers and device, as many new tokens each.

No end token on either side, so both draw `--new-tokens` for each row. Asserts equal work first: greedy tokens of a
small batch in float32 are the same, but for ties. Then both draw at temperature 1, after a warm-up each; the best of
`--repeats` counts. Prints tokens per second, and ends with `speed=…`, the ratio. On a CPU the default ends within a
minute; on a GPU `--model smollm2-135m --batch 256 --new-tokens 64` in bfloat16 is the one to look at.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from text2grad.models.sampling import ModelSampler, SamplingSettings, uniforms

GAP = 1e-4
"""Two logits closer than this are a tie: either may win."""


def small_llama(device: str, dtype: torch.dtype) -> Any:
    """About 20 million parameters, 32,000 ids, random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=5,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(device, dtype).eval()


def some_prompts(count: int, longest: int, vocabulary: int) -> list[list[int]]:
    """Random ids, lengths from half of the longest up."""
    draw = np.random.default_rng(0)
    return [
        draw.integers(1, vocabulary, draw.integers(max(1, longest // 2), longest + 1)).tolist() for _ in range(count)
    ]


def generate(model: Any, prompts: Sequence[Sequence[int]], new_tokens: int, greedy: bool) -> torch.Tensor:
    """(B, new_tokens) by transformers, padded on the left."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    # An end id that is no id: neither side stops before the limit. top_k and top_p off: the same distribution.
    made: torch.Tensor = model.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=not greedy,
        **({} if greedy else {"temperature": 1.0, "top_k": 0, "top_p": 1.0}),
        max_new_tokens=new_tokens,
        min_new_tokens=new_tokens,
        eos_token_id=None,
        pad_token_id=0,
    )
    return made[:, width:]


def assert_equal_work(model: Any, prompts: Sequence[Sequence[int]], new_tokens: int) -> int:
    """Greedy tokens agree up to the first tie of each row; how many were compared."""
    settings = SamplingSettings(sampler="fast", max_new_tokens=new_tokens)
    ours = ModelSampler(model, settings, end_ids=(), pad_id=0)(prompts, None)
    theirs = generate(model, prompts, new_tokens, greedy=True).tolist()
    compared = 0
    for prompt, mine, other in zip(prompts, ours, theirs, strict=True):
        with torch.no_grad():
            logits_TV = model(torch.tensor([[*prompt, *other]], device=model.device)).logits[0, len(prompt) - 1 : -1]
        top = logits_TV.float().topk(2).values
        ties = ((top[:, 0] - top[:, 1]) <= GAP).nonzero()
        decided = int(ties[0]) if len(ties) else new_tokens
        parted = [place for place in range(decided) if mine.token_ids[place] != other[place]]
        assert not parted, f"unequal work: place {parted[0]}, where the likeliest two are {top[parted[0]].tolist()}"
        compared += decided
    assert compared >= len(prompts), "nothing but ties: nothing was compared"
    return compared


def seconds(work: Callable[[], object], device: str, repeats: int) -> float:
    work()
    best = float("inf")
    for _ in range(repeats):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def options() -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", help="`small` (built here), an alias, a folder or a hub id")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", default="bfloat16" if cuda else "float32", choices=("float32", "bfloat16"))
    parser.add_argument("--batch", type=int, default=256 if cuda else 32)
    parser.add_argument("--new-tokens", type=int, default=64 if cuda else 32)
    parser.add_argument("--prompt-tokens", type=int, default=96 if cuda else 32, help="of the longest prompt")
    parser.add_argument("--repeats", type=int, default=3 if cuda else 2)
    return parser.parse_args()


def model_of(name: str, device: str, dtype: str) -> Any:
    if name == "small":
        return small_llama(device, getattr(torch, dtype))
    from text2grad.models.load import load_model

    return load_model(name, device=device, dtype=dtype)[0]


def main() -> None:
    asked = options()
    model = model_of(asked.model, asked.device, "float32")
    model.generation_config.eos_token_id = None
    prompts = some_prompts(asked.batch, asked.prompt_tokens, model.config.vocab_size)
    compared = assert_equal_work(model, prompts[:8], min(asked.new_tokens, 32))
    print(f"equal work: {compared} greedy tokens of 8 prompts are those of generate, in float32")
    model = model.to(getattr(torch, asked.dtype))
    settings = SamplingSettings(sampler="fast", max_new_tokens=asked.new_tokens, batch=asked.batch)
    sampler = ModelSampler(model, settings, end_ids=(), pad_id=0)
    numbers = uniforms(0, 0, range(asked.batch), asked.new_tokens)
    tokens = asked.batch * asked.new_tokens
    assert sum(len(completion.token_ids) for completion in sampler(prompts, numbers)) == tokens
    assert generate(model, prompts, asked.new_tokens, greedy=False).numel() == tokens
    ours = seconds(lambda: sampler(prompts, numbers), asked.device, asked.repeats)
    theirs = seconds(lambda: generate(model, prompts, asked.new_tokens, False), asked.device, asked.repeats)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{asked.model} ({size / 1e6:.0f}M, {asked.dtype}) on {asked.device}, torch {torch.__version__}: "
        f"{asked.batch} prompts, {asked.new_tokens} new tokens each, prompts and the copying of weights included\n"
        f"fast sampler    {ours:8.3f} s {tokens / ours:>12,.0f} tokens/s\n"
        f"model.generate  {theirs:8.3f} s {tokens / theirs:>12,.0f} tokens/s"
    )
    print(f"tokens_per_second={tokens / ours:.0f} generate_tokens_per_second={tokens / theirs:.0f}")
    print(f"speed={theirs / ours:.2f}")


if __name__ == "__main__":
    main()
