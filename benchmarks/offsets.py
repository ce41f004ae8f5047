"""Offsets of sampled ids against the tokenizer's own decoding, which gives the text alone: one core, one run.

Asserts equal work first (the same text from both), then times both on the same ids; ends with
`tokens_per_second=… against_decode=… growth=…`. `growth` is the time for ten times the ids over ten times the time:
1 is linear. Asserted: at least 200,000 tokens/s and linear growth, on real text and on random ids.
"""

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
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
    """The best of a few runs, in the processor's time: the rest measures the machine's other business."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def measure(name: str, tokenizer: Any, ids: list[int]) -> tuple[float, float, float]:
    many = ids * 10
    text, _ = decode(tokenizer, many)
    assert text == tokenizer.decode(many, skip_special_tokens=True, clean_up_tokenization_spaces=False), "unequal work"
    ours = seconds(lambda: decode(tokenizer, many))
    theirs = seconds(lambda: tokenizer.decode(many, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    nouns = seconds(lambda: completion_of(tokenizer, many))
    growth = ours / (10 * seconds(lambda: decode(tokenizer, ids), repeats=20))
    rate = len(many) / nouns
    print(
        f"{name:<28} {len(many):>9,} ids   offsets {len(many) / ours:>12,.0f}/s   as Completion {rate:>11,.0f}/s   "
        f"decode alone {len(many) / theirs:>11,.0f}/s   growth {growth:.2f}"
    )
    return rate, theirs / ours, growth


def sentencepiece_tokenizer() -> Any:
    """Llama's kind, with bytes for what its small vocabulary lacks: tabs, emoji, most of CJK."""
    from transformers import LlamaTokenizer

    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "tokenizer.model").open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(TEXT.splitlines() * 50),
                model_writer=file,
                model_type="bpe",
                vocab_size=400,
                hard_vocab_limit=False,
                byte_fallback=True,
                minloglevel=2,
            )
        return LlamaTokenizer.from_pretrained(folder)


def main() -> None:
    torch.set_num_threads(1)
    tokenizers = {"tiny byte-level BPE": tiny_tokenizer(), "SentencePiece": sentencepiece_tokenizer()}
    try:
        tokenizers["SmolLM2"] = load_tokenizer("smollm2-135m")
    except DownloadFailed as problem:
        print(f"without SmolLM2: {problem}")
    results = []
    for name, tokenizer in tokenizers.items():
        results.append(measure(f"{name}, text", tokenizer, tokenizer(TEXT * 400)["input_ids"]))
        results.append(measure(f"{name}, tabs, emoji", tokenizer, tokenizer("a\tb\t🙂漢\tc\t" * 4000)["input_ids"]))
        draw = random.Random(0)
        results.append(measure(f"{name}, random", tokenizer, [draw.randrange(len(tokenizer)) for _ in range(50_000)]))
    rate, ratio, growth = min(r[0] for r in results), min(r[1] for r in results), max(r[2] for r in results)
    assert rate > 200_000, f"wanted over 200,000 tokens/s, got {rate:,.0f}"
    # Ten times the ids no longer fit into the processor's cache; quadratic growth would show as 10.
    assert growth < 2.5, f"wanted linear growth, got {growth:.2f} times that"
    print(f"tokens_per_second={rate:.0f} against_decode={ratio:.2f} growth={growth:.2f}")


if __name__ == "__main__":
    main()
