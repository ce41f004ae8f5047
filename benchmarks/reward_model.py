"""Judging completions by the span head, in one pass, against writing the critique token by token: the same model, the
same completions, batch and device.

usage: reward_model.py [--device cpu|cuda] [--model NAME] [--critique-tokens N]

Three ways to judge: the span head (prompt, completion, completion again; tokenizing, calibration and the making of
critiques included), `model.generate`, and our own fast sampler; the last two read prompt and completion once and write
`--critique-tokens` tokens without an end, 500 by default, as the paper's reward model does, and what they write is not
even parsed. Equal work is asserted first: every completion has a verdict a token, alone as in the batch; every critique
has its length. How well both agree with people is the study's (studies/reward_model), and asserted to be no worse for
the head. On a GPU: at least 20 times `generate`.

The last line is `speed_generate=… speed_fast=…`: their time over the head's.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.rollout import generate, seconds

from text2grad.feedback.lessons import critique_of
from text2grad.models.load import load_model
from text2grad.models.reward.model import RewardModel
from text2grad.models.reward.template import Template
from text2grad.models.sampling import SamplingSettings, make_sampler
from text2grad.models.settings import LoraSettings, PolicySettings

WANTED = 20.0
STUDY = Path(__file__).parent.parent / "studies" / "reward_model"


def loaded(args: argparse.Namespace) -> tuple[Any, Any]:
    """The model and its tokenizer; `small` is built here, about 20 million parameters."""
    if args.model != "small":
        return load_model(args.model, device=args.device, dtype=args.dtype)
    from benchmarks.rollout import small_llama

    from text2grad.models.tiny import tiny_tokenizer

    return small_llama(args.device, getattr(torch, args.dtype)), tiny_tokenizer()


def texts(tokenizer: Any, count: int, prompt_tokens: int, completion_tokens: int) -> list[tuple[str, str]]:
    """Prompts and completions of invented words, of about so many tokens each."""
    draw = random.Random(0)

    def words(tokens: int) -> str:
        said: list[str] = []
        while len(tokenizer(" ".join(said), add_special_tokens=False).input_ids) < tokens:
            said += ["".join(draw.choices("aeioubcdfglmnprstw", k=draw.randint(2, 9))) for _ in range(8)]
        ids = tokenizer(" ".join(said), add_special_tokens=False).input_ids[:tokens]
        return str(tokenizer.decode(ids))

    pool = [words(prompt_tokens) for _ in range(8)]
    return [(pool[index % 8] + f" {index}", words(completion_tokens)) for index in range(count)]


def judging(model: RewardModel, tokenizer: Any, items: list[tuple[str, str]], batch_tokens: int) -> Callable[[], Any]:
    reader = model.reader(tokenizer)

    def judge() -> list[Any]:
        encoded = [reader.encode(prompt, completion) for prompt, completion in items]
        found = []
        for (_, text), one, out in zip(items, encoded, model.judge(encoded, batch_tokens), strict=True):
            probs, worths = (numbers.double().numpy() for numbers in model.read(out))
            found.append((one, probs, critique_of(text, one.offsets, probs, worths, model.calibration)))
        return found

    return judge


def agreement(folder: Path) -> str:
    """F1 of poor spans against people, of both ways, as the study measured it; the mean over its seeds."""
    found = {}
    for way in ("head", "written"):
        runs = [json.loads(path.read_text()) for path in sorted(folder.glob(f"defacto-{way}-*.json"))]
        if not runs:
            return ""
        for name in ("content", "spans", "touched"):
            found[way, name] = [run[name]["poor"]["f1"] for run in runs]
    for name in ("content", "spans", "touched"):
        one, two = (" ".join(f"{f1:.3f}" for f1 in found[way, name]) for way in ("head", "written"))
        print(f"F1 of poor on DeFacto, {name}: span head {one}; written critiques {two}")
    one, two = (sum(found[way, "spans"]) / len(found[way, "spans"]) for way in ("head", "written"))
    assert one >= two, f"the head's spans should agree no worse with people, got {one:.3f} against {two:.3f}"
    return f" f1_head={one:.3f} f1_written={two:.3f}"


def options() -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", help="`small` (built here), an alias, a folder, a file or a hub id")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", default="bfloat16" if cuda else "float32", choices=("float32", "bfloat16"))
    parser.add_argument("--completions", type=int, default=256 if cuda else 16)
    parser.add_argument("--prompt-tokens", type=int, default=400 if cuda else 128)
    parser.add_argument("--completion-tokens", type=int, default=64)
    parser.add_argument("--critique-tokens", type=int, default=500)
    parser.add_argument("--batch-tokens", type=int, default=65536 if cuda else 16384)
    parser.add_argument("--repeats", type=int, default=3 if cuda else 1)
    parser.add_argument("--study", type=Path, default=STUDY, help="where learn.py wrote what it measured")
    return parser.parse_args()


@torch.no_grad()
def main() -> None:
    args = options()
    base, tokenizer = loaded(args)
    base.generation_config.eos_token_id = None
    template = Template(max_tokens=4096, critique_tokens=args.critique_tokens)
    model = RewardModel(base, PolicySettings(lora=LoraSettings(rank=0)), template).requires_grad_(False).eval()
    items = texts(tokenizer, args.completions, args.prompt_tokens, args.completion_tokens)
    judge = judging(model, tokenizer, items, args.batch_tokens)
    found, alone = judge(), judging(model, tokenizer, items[:1], args.batch_tokens)()[0]
    assert all(len(probs) == len(one.offsets) + 1 for one, probs, _ in found), "a verdict a token"
    gap = abs(found[0][1] - alone[1]).max()
    assert gap < (1e-3 if args.dtype == "float32" else 0.05), f"the same alone as in the batch, got {gap:.2g} apart"
    # What writing has to read: prompt and completion, once.
    prompts = [[*one.ids[: one.first]] for one, _, _ in found]
    settings = SamplingSettings(sampler="fast", max_new_tokens=args.critique_tokens, batch=args.completions)
    sampler = make_sampler(base, settings, end_ids=(), pad_id=0)
    assert all(len(one.token_ids) == args.critique_tokens for one in sampler(prompts, None)), "whole critiques"
    began = time.perf_counter()
    took = {
        "span head": seconds(judge, args.device, args.repeats),
        "fast sampler": seconds(lambda: sampler(prompts, None), args.device, args.repeats),
        "model.generate": seconds(lambda: generate(base, prompts, args.critique_tokens, greedy=True), args.device, 1),
    }
    read = sum(len(one.ids) for one, _, _ in found) / len(found)
    size = sum(weight.numel() for weight in base.parameters()) / 1e6
    print(
        f"{args.model} ({size:.0f}M, {args.dtype}) on {args.device}, torch {torch.__version__}: {len(items)} "
        f"completions; prompts of {args.prompt_tokens} tokens, completions of {args.completion_tokens}, critiques of "
        f"{args.critique_tokens}; the head reads {read:.0f} tokens a completion ({time.perf_counter() - began:.0f} s)"
    )
    for name, elapsed in took.items():
        print(f"{name:<16}{elapsed:9.3f} s {len(items) / elapsed:>12,.1f} completions/s")
    more = agreement(args.study)
    slow, fast = took["model.generate"] / took["span head"], took["fast sampler"] / took["span head"]
    if args.device.startswith("cuda"):
        assert slow >= WANTED, f"wanted {WANTED:.0f} times the speed of generate, got {slow:.1f}"
    print(f"speed_generate={slow:.1f} speed_fast={fast:.1f}{more}")


if __name__ == "__main__":
    main()
