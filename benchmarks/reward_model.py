"""Judging completions by the span head, in one pass, against writing the critique token by token: the same model, the
same completions, batch and device.

usage: reward_model.py [--device cpu|cuda] [--model NAME] [--critique-tokens N]

Three ways to judge: the span head (prompt, completion, completion again), `model.generate` and our own fast sampler.
The last two read prompt and completion once and write `--critique-tokens` tokens, 500 by default, as the paper's reward
model does: all completions in one batch, greedy, with a cache, padded on the left, without an end token.

Counted is, for the head, what `RewardCritic` does when it is called: tokenizing, the pass, calibration and the making
of critiques with their quotes and Q; for writing, the writing, decoding, and the parsing of one JSON object a
completion. Nothing here was trained, so the head's weights are random, and its thresholds are such that a third of the
words is called poor or good, in more and shorter quotes than a trained head makes; and the object that is parsed is not
what was written, but what should have been, quotes and all. Not counted: for writing, the tokenizing; for all, loading,
and aligning the critiques. The batch of the head is `--batch-tokens`.

Equal work is asserted first: probabilities differ from token to token and are those of a completion judged alone; nine
of ten critiques or more have quotes, 1 to 16 on average, the same ones by the head and parsed; every critique that is
written has its length. Each way has a warm-up (a short one for `generate`), then all take turns; the best of
`--repeats` counts. How well both agree with people is the study's (studies/reward_model), and asserted to be no worse
for the head. On a GPU: at least 20 times the completions per second of `generate`.

The last line is `speed_generate=… speed_fast=…`: their time over the head's.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.rollout import generate

from text2grad.feedback.critics.protocol import Prompt
from text2grad.feedback.labels import Calibration, Numbers, Words, verdicts_of
from text2grad.feedback.replies import read_reply
from text2grad.feedback.settings import LearnedSettings
from text2grad.models.load import load_model
from text2grad.models.reward.critic import RewardCritic
from text2grad.models.reward.model import RewardModel
from text2grad.models.reward.template import FilledTemplate, written
from text2grad.models.sampling import ModelSampler, SamplingSettings
from text2grad.models.settings import LoraSettings, PolicySettings, Template
from text2grad.types import Alignment, Critique, Span

WANTED = 20.0
CALLED = 1 / 3
"""The share of words that is called poor or good."""
STUDY = Path(__file__).parent.parent / "studies" / "reward_model"
Items = Sequence[tuple[str, str]]


class Judgement(NamedTuple):
    encoded: FilledTemplate
    probs: Any
    """(T + 1, 3)"""
    critique: Critique


def loaded(args: argparse.Namespace) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer; `small` is built here, about 20 million parameters."""
    if args.model != "small":
        return load_model(args.model, device=args.device, dtype="float32")
    from benchmarks.rollout import small_llama

    from text2grad.models.tiny import tiny_tokenizer

    return small_llama(args.device, torch.float32), tiny_tokenizer()


def texts(tokenizer: Any, count: int, prompt_tokens: int, completion_tokens: int) -> list[tuple[str, str]]:
    """Prompts and completions of invented words, of about so many tokens each; the completions differ by a quarter, so
    that there is something to pad."""
    draw = random.Random(0)
    lengths = [draw.randint(completion_tokens * 3 // 4, completion_tokens * 5 // 4) for _ in range(count)]
    sizes = [*[prompt_tokens] * 8, *lengths]
    # A word has at least one token.
    drawn = [
        " ".join("".join(draw.choices("aeioubcdfglmnprstw", k=draw.randint(2, 9))) for _ in range(size))
        for size in sizes
    ]
    ids = tokenizer(drawn, add_special_tokens=False).input_ids
    made = tokenizer.batch_decode([one[:size] for one, size in zip(ids, sizes, strict=True)])
    return [(f"{made[index % 8]} {index}", text) for index, text in enumerate(made[8:])]


def give_opinions(model: RewardModel, tokenizer: Any, items: Items, batch_tokens: int) -> None:
    """A random span head whose numbers have mean 0 and spread 1 over the tokens."""
    linear, reader = model.span_head.linear, model.reader(tokenizer)
    encoded = [reader.encode(prompt, completion) for prompt, completion in items]
    draw = torch.Generator().manual_seed(0)
    linear.weight.copy_(torch.randn(linear.weight.shape, generator=draw))
    out_N5 = torch.cat(model.predict(encoded, batch_tokens))
    spread_5, mean_5 = (numbers.to(linear.weight.device) for numbers in torch.std_mean(out_N5, 0))
    linear.weight.div_(spread_5[:, None])
    linear.bias.copy_(-mean_5 / spread_5)


def of_words(items: Items, found: Sequence[Judgement]) -> Numbers:
    """The probabilities of all words: what thresholds are held against."""
    pairs = zip(items, found, strict=True)
    return np.concatenate([Words.of(text, one.encoded.offsets).mean(one.probs[:-1]) for (_, text), one in pairs])


def call_a_third(judge: "HeadJudge") -> None:
    """Thresholds by which a third of the words is called poor or good."""
    poor, _, good = np.quantile(of_words(judge.items, judge()), 1 - CALLED / 2, axis=0).tolist()
    judge.critic.model.calibration = Calibration(kind="score", poor=poor, good=good)


class TimedCritic(RewardCritic):
    """The critic, which remembers the last call: the seconds of its parts, and what they gave."""

    def encode(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> Any:
        self.clock = [time.perf_counter()]
        self.encoded = super().encode(prompts, completions)
        self.clock.append(time.perf_counter())
        return self.encoded

    def predict(self, encoded: Sequence[FilledTemplate | None]) -> Any:
        self.predictions = super().predict(encoded)
        self.clock.append(time.perf_counter())
        return self.predictions


class HeadJudge:
    """The span head's way: a call of the critic, and the seconds of its parts in the last one."""

    def __init__(self, model: RewardModel, tokenizer: Any, items: Items, batch_tokens: int) -> None:
        self.items, options = items, LearnedSettings(batch_tokens=batch_tokens)
        self.critic = TimedCritic("random", options, (model, tokenizer))
        self.parts: dict[str, float] = {}

    def __call__(self) -> list[Judgement]:
        prompts, completions = zip(*self.items, strict=True)
        critiques = self.critic(prompts, completions)
        clock = [*self.critic.clock, time.perf_counter()]
        self.parts = dict(zip(("tokenizing", "the pass", "critiques"), np.diff(clock).tolist(), strict=True))
        assert not critiques.reasons, f"every completion is judged, got {critiques.reasons}"
        return [
            Judgement(one, prediction[0], critique)
            for one, prediction, critique in zip(
                self.critic.encoded[0], self.critic.predictions, critiques, strict=True
            )
            if one is not None and prediction is not None and critique is not None
        ]


def assert_opinions(judge: HeadJudge, found: Sequence[Judgement]) -> tuple[float, float]:
    """A verdict a token, opinions that differ, and quotes; (the share of words that is called something, quotes)."""
    assert all(len(one.probs) == len(one.encoded.offsets) + 1 for one in found), "a verdict a token"
    probs = np.concatenate([one.probs for one in found])
    assert probs.std(0).min() > 0.05, f"probabilities differ between tokens, got a spread of {probs.std(0).tolist()}"
    counts = np.array([len(one.critique.quotes) for one in found])
    assert (counts > 0).mean() >= 0.9, f"nine of ten critiques quote something, got {(counts > 0).mean():.0%}"
    assert 1 <= counts.mean() <= 16, f"as many quotes as a judge gives, got {counts.mean():.1f} a critique"
    called = float((verdicts_of(of_words(judge.items, found), judge.critic.model.calibration) != 1).mean())
    assert CALLED / 2 < called < CALLED * 1.5, f"about a third of the words is called poor or good, got {called:.2f}"
    return called, float(counts.mean())


def assert_alone(judge: HeadJudge, found: Sequence[Judgement], most: float) -> float:
    """Judged alone, as in the batch; the widest gap of the first few."""
    gap = 0.0
    for (prompt, text), one in list(zip(judge.items, found, strict=True))[:8]:
        (alone,) = judge.critic.predict(judge.critic.encode([prompt], [text])[0])
        assert alone is not None
        gap = max(gap, float(abs(one.probs - alone[0]).max()))
    assert gap < most, f"the same alone as in the batch, got {gap:.2g} apart"
    return gap


def objects(items: Items, found: Sequence[Judgement]) -> list[str]:
    """What the paper's way should write of each: the critique and the quotes of the head, as one JSON object."""
    said = []
    for (_, text), one in zip(items, found, strict=True):
        spans = tuple(Span(q.start or 0, (q.start or 0) + len(q.text), q.verdict) for q in one.critique.quotes)
        said.append(written(one.critique, Alignment(spans), text, quotes=True))
    return said


def writing(write: Callable[[], Sequence[Sequence[int]]], tokenizer: Any, items: Items, said: Sequence[str]) -> Any:
    """Ids, decoded; and an object parsed for each."""

    def judge() -> list[tuple[Sequence[int], str, Critique | None]]:
        return [
            (ids, tokenizer.decode(ids, skip_special_tokens=True), read_reply(reply, shown=text).critique)
            for ids, reply, (_, text) in zip(write(), said, items, strict=True)
        ]

    return judge


def assert_written(made: Sequence[Any], found: Sequence[Judgement], tokens: int) -> None:
    """Whole critiques, and the quotes that the head gave."""
    assert [len(ids) for ids, _, _ in made] == [tokens] * len(found), "whole critiques"
    for (_, _, critique), one in zip(made, found, strict=True):
        mine = [(quote.text, quote.verdict) for quote in one.critique.quotes]
        assert critique is not None and [(quote.text, quote.verdict) for quote in critique.quotes] == mine


def in_turns(
    ways: dict[str, Callable[[], Any]], device: str, repeats: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Seconds of each way, and what it last gave. One after the other, so often: what else the machine does meets all
    alike."""

    def clock() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    took: dict[str, list[float]] = {name: [] for name in ways}
    made: dict[str, Any] = {}
    for _ in range(repeats):
        for name, way in ways.items():
            start = clock()
            made[name] = way()
            took[name].append(clock() - start)
    return took, made


def heading(args: argparse.Namespace, base: Any, found: Sequence[Judgement], prompts: Sequence[Sequence[int]]) -> str:
    """Model, machine and lengths; no folders."""

    def mean(lengths: Sequence[int]) -> str:
        return f"{sum(lengths) / len(lengths):.0f}"

    completions = mean([len(one.encoded.offsets) for one in found])
    read, reads = mean([len(one.encoded.ids) for one in found]), mean([len(ids) for ids in prompts])
    size = sum(weight.numel() for weight in base.parameters()) / 1e6
    where = args.device if args.device.startswith("cuda") else f"{args.device} ({torch.get_num_threads()} thread(s))"
    return (
        f"{Path(args.model).name} ({size:.0f}M, {args.dtype}) on {where}, torch {torch.__version__}: {len(found)} "
        f"completions; prompts of {args.prompt_tokens} tokens, completions of {completions}, critiques of "
        f"{args.critique_tokens}; with the template's words the head reads {read} tokens a completion, "
        f"writing {reads}; best of {args.repeats}"
    )


def agreement(folder: Path) -> str:
    """F1 of poor spans against people, of both ways, as the study measured it, by seed and on average."""
    means: dict[tuple[str, str], float] = {}
    for name in ("content", "tokens", "spans", "covered", "touched"):
        said = []
        for way, words in (("head", "span head"), ("written", "written critiques")):
            runs = [
                json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(f"defacto-{way}-*.json"))
            ]
            f1s = [run[name]["poor"]["f1"] for run in runs if name in run]
            if f1s:
                means[way, name] = sum(f1s) / len(f1s)
                said.append(f"{words} {' '.join(f'{f1:.3f}' for f1 in f1s)}, mean {means[way, name]:.3f}")
            else:
                said.append(f"{words} not measured")
        print(f"F1 of poor on DeFacto, {name}: {'; '.join(said)}")
    head, writes = means.get(("head", "spans")), means.get(("written", "spans"))
    if head is not None and writes is not None:
        assert head >= writes, f"the head's spans should agree no worse with people, got {head:.3f} and {writes:.3f}"
    pairs = (("f1_head", head), ("f1_written", writes))
    return "".join(f" {name}={'not measured' if f1 is None else f'{f1:.3f}'}" for name, f1 in pairs)


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", help="`small` (built here), an alias, a folder, a file or a hub id")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", default="bfloat16" if cuda else "float32", choices=("float32", "bfloat16"))
    parser.add_argument("--completions", type=int, default=256 if cuda else 8)
    parser.add_argument("--prompt-tokens", type=int, default=400 if cuda else 128)
    parser.add_argument("--completion-tokens", type=int, default=64)
    parser.add_argument("--critique-tokens", type=int, default=500)
    parser.add_argument("--batch-tokens", type=int, default=65536 if cuda else 16384)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--study", type=Path, default=STUDY, help="where learn.py wrote what it measured")
    return parser.parse_args(argv)


def prepared(args: argparse.Namespace) -> tuple[HeadJudge, Any, list[Judgement]]:
    """The head's judge, the tokenizer, and what it says of every completion; equal work asserted."""
    base, tokenizer = loaded(args)
    base.generation_config.eos_token_id = None
    template = Template(max_tokens=4096, critique_tokens=args.critique_tokens)
    model = RewardModel(base, PolicySettings(lora=LoraSettings(rank=0)), template).requires_grad_(False).eval()
    items = texts(tokenizer, args.completions, args.prompt_tokens, args.completion_tokens)
    some = items[:16]
    give_opinions(model, tokenizer, some, args.batch_tokens)
    judge = HeadJudge(model, tokenizer, some, args.batch_tokens)
    exact = assert_alone(judge, judge(), 1e-3)
    for weight in base.parameters():
        # Weights only, as loading does it: the frequencies of the positions stay float32.
        weight.data = weight.data.to(getattr(torch, args.dtype))
    judge = HeadJudge(model, tokenizer, items, args.batch_tokens)
    call_a_third(judge)
    found = judge()
    called, quotes = assert_opinions(judge, found)
    gap = assert_alone(judge, found, 1e-3 if args.dtype == "float32" else 0.15)
    print(
        f"equal work: alone as in the batch within {exact:.1g} in float32 and {gap:.1g} in {args.dtype}; {called:.0%} "
        f"of the words called poor or good, {quotes:.1f} quotes a critique, the same by the head and parsed"
    )
    return judge, tokenizer, found


@torch.no_grad()
def main(argv: Sequence[str] | None = None) -> None:
    began, args = time.perf_counter(), options(argv)
    judge, tokenizer, found = prepared(args)
    base, items, tokens = judge.critic.model.base, judge.items, args.critique_tokens
    # What writing has to read: prompt and completion, once.
    prompts = [[*one.encoded.ids[: one.encoded.first]] for one in found]
    settings = SamplingSettings(sampler="fast", max_new_tokens=tokens, batch=args.completions)
    sampler, said = ModelSampler(base, settings, end_ids=(), pad_id=0), objects(items, found)
    ways = {
        "span head": judge,
        "fast sampler": writing(lambda: [one.token_ids for one in sampler(prompts, None)], tokenizer, items, said),
        "model.generate": writing(
            lambda: generate(base, prompts, tokens, greedy=True).tolist(), tokenizer, items, said
        ),
    }
    # The warm-ups; the head had its own. All but the length of the cache of `generate` is then as it will be.
    assert_written(ways["fast sampler"](), found, tokens)
    generate(base, prompts, min(tokens, 16), greedy=True)
    took, made = in_turns(ways, args.device, args.repeats)
    for name in ("fast sampler", "model.generate"):
        assert_written(made[name], found, tokens)
    print(heading(args, base, found, prompts))
    for name, times in took.items():
        best, runs = min(times), " ".join(f"{one:.3f}" for one in times)
        print(
            f"{name:<16}{best:9.3f} s {len(items) / best:>10,.2f} completions/s {best / len(items) * 1e3:>10,.2f} ms "
            f"each; {best / min(took['span head']):.1f} times the head's time; all runs: {runs} s"
        )
    whole = sum(judge.parts.values())
    parts = ", ".join(f"{name} {part:.3f} s ({part / whole:.1%})" for name, part in judge.parts.items())
    print(f"of the head's last run: {parts}")
    more = agreement(args.study)
    slow, fast = (min(took[name]) / min(took["span head"]) for name in ("model.generate", "fast sampler"))
    if args.device.startswith("cuda"):
        assert slow >= WANTED, f"wanted {WANTED:.0f} times the speed of generate, got {slow:.1f}"
    print(f"whole run: {time.perf_counter() - began:.0f} s")
    print(f"speed_generate={slow:.1f} speed_fast={fast:.1f}{more}")


if __name__ == "__main__":
    main()
