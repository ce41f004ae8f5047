"""Offsets of sampled ids against the tokenizer's own decoding, which gives the text alone: one core, one run.

Asserts equal work first (the same text from both), then times both on the same ids; ends with
`tokens_per_second=… against_decode=… growth=…`. `growth` is the time for ten times the ids over ten times the time:
1 is linear. Asserted: at least 200,000 tokens/s and linear growth, on real text and on random ids.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import torch

from text2grad.errors import DownloadFailed
from text2grad.models.load import load_tokenizer
from text2grad.models.offsets import completion_of, decode
from text2grad.models.tiny import tiny_tokenizer

TEXT = (
    "The harbour was closed at noon after a crane fell; nobody was hurt. 漢字 🙂 naïve café.\n"
    "\tdef add(a, b):\n\t\treturn a + b\n"
)


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The best of a few runs: the others measure the machine's other business."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def measure(name: str, tokenizer: Any, ids: list[int]) -> tuple[float, float, float]:
    many = ids * 10
    text, _ = decode(tokenizer, many)
    assert text == tokenizer.decode(many, skip_special_tokens=True, clean_up_tokenization_spaces=False), "unequal work"
    ours = seconds(lambda: decode(tokenizer, many))
    theirs = seconds(lambda: tokenizer.decode(many, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    nouns = seconds(lambda: completion_of(tokenizer, many))
    growth = ours / (10 * seconds(lambda: decode(tokenizer, ids)))
    rate = len(many) / nouns
    print(
        f"{name:<28} {len(many):>9,} ids   offsets {len(many) / ours:>12,.0f}/s   as Completion {rate:>11,.0f}/s   "
        f"decode alone {len(many) / theirs:>11,.0f}/s   growth {growth:.2f}"
    )
    return rate, theirs / ours, growth


def main() -> None:
    torch.set_num_threads(1)
    tokenizers = {"tiny byte-level BPE": tiny_tokenizer()}
    try:
        tokenizers["SmolLM2"] = load_tokenizer("smollm2-135m")
    except DownloadFailed as problem:
        print(f"without SmolLM2: {problem}")
    results = []
    for name, tokenizer in tokenizers.items():
        results.append(measure(f"{name}, text", tokenizer, tokenizer(TEXT * 400)["input_ids"]))
        draw = random.Random(0)
        results.append(measure(f"{name}, random", tokenizer, [draw.randrange(len(tokenizer)) for _ in range(20_000)]))
    rate, ratio, growth = min(r[0] for r in results), min(r[1] for r in results), max(r[2] for r in results)
    assert rate > 200_000, f"wanted over 200,000 tokens/s, got {rate:,.0f}"
    assert growth < 1.5, f"wanted linear growth, got {growth:.2f} times that"
    print(f"tokens_per_second={rate:.0f} against_decode={ratio:.2f} growth={growth:.2f}")


if __name__ == "__main__":
    main()
