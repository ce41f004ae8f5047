"""Seconds of a whole training step by part: sample, critic, align, forward (reference, look-back), update, everything
else; on a GPU also memory, padding and utilisation, and the same step in TRL's GRPOTrainer.

    python benchmarks/step.py [--updates 6] [--hidden 256] [--layers 4] [--sentences 14]
    python benchmarks/step.py --device cuda --model smollm2-135m --rival trl --json step.json
    python benchmarks/step.py --device cuda --model smollm2-135m --shape smollm2-1.7b

Settings of the run may follow as key=value; they come after the defaults below, so they win.

**Without --model**, a small Llama built in code, the critic `reference`, the settings' defaults (16 prompts of 4
completions, 64 new tokens, 2 epochs of 2 minibatches, KL penalty, LoRA, log-probs of some completions taken again).
The reference reads each prompt once and each completion once, the update reads both six times (two epochs, forward and
backward): so the share of what is neither sampling nor update falls with the length of the prompts. The default is that
of short news; with --sentences 3, prompts of 74 tokens, it is 0.11 to 0.12: 7 % for the reference, 3 % for the
look-back, most of it matrix products.

**With --model**, a real tokenizer and invented news of mixed length: 64 prompts of about 330 tokens, 4 completions of
about 32 tokens each, one epoch of 4 minibatches, all weights, bf16. Each step has prompts of its own. --shape keeps the
tokenizer and takes random weights of another shape; these hardly ever end before the limit of 32 tokens.

How things are measured. The time of a step is by the clock, from one step's end to the next with the device idle at
both, so what is written to the disk between them is in it, under "other". The first steps (--cold) stand apart. No
evaluation, no checkpoint. Parts are host times of the run's own metrics (`time/…`). GPU-busy: one more step under
torch.profiler; the time in which at least one kernel or copy ran, over the mean of the steps that were not profiled.
Memory: what torch allocated (and reserved) at most in the timed steps. Padding: tokens that went through the embedding
in the update of the first step, less those of completions and of each prompt once, over all that went through (for
the rival: the tokens that its masks leave out; reading a prompt four times is not counted as padding).

Model FLOPs are those that a step without padding needs that reads each prompt once per pass: N weights without the
vocabulary's, P tokens of prompts (each counted once), C tokens of completions, and the vocabulary projection of V·H
weights on completion tokens alone: a pass forward takes 2N(P + C) + 2VH·C, and a pass that is trained on three times as
much. A step is one pass to sample, one for the reference, one for the policy's own log-probs (bf16 only), and an update
of `epochs` trained passes. Attention is not counted. MFU is that over 989e12 a second, an H200's dense bf16. The
numbers called `rows` count the prompt again for each completion, as an implementation that shares no prompt runs it.

The rival gets the same weights, the same prompts in the same order, the same limits, optimizer steps, critic calls and
KL penalty, no gradient checkpointing, SDPA attention and a minibatch in one piece; each of its variants runs in a
process of its own: `fp32` (fp32 weights under autocast, as ours), `bf16` (bf16 weights), `paged` (bf16 weights,
continuous batching), `static` (bf16 weights, a static cache with compiled decoding). With bf16 weights most updates at
this learning rate round to nothing: faster, and not the same training. So `fp32` is the one that counts; the ratios of
the others are printed above it.

Last are `speed_vs_trl=` (its seconds over ours), `seconds=` and `gib=` (ours).
"""

import argparse
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.waiting import StackSampler, busy_spans, kernel_seconds, waiting

from text2grad import config
from text2grad.errors import Text2GradError
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.critics.protocol import ask_now
from text2grad.models.chat import prompt_ids
from text2grad.models.load import load_model, load_tokenizer, locate
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.tasks.examples import Stream
from text2grad.training.rl import Trainer
from text2grad.training.settings import TrainSettings
from text2grad.types import Example

PEAK = 989e12
PARTS = ("sample", "critic", "align", "forward", "update", "other")
VARIANTS = ("fp32", "bf16", "paged", "static")
EQUAL = "fp32"
"""The variant whose weights are kept as precisely as ours."""
SHAPE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SHAPES = {
    "smollm2-135m": (576, 1536, 30, 9, 3),
    "smollm2-360m": (960, 2560, 32, 15, 5),
    "smollm2-1.7b": (2048, 8192, 24, 32, 32),
}
# Never evaluated, never saved: the loop is left when enough steps are measured.
ENDLESS = ["updates=100000", "evaluation.every=100000", "checkpoint_every=100000", "guard.nothing_learned=warn"]
OWN = ("updates", "device", "evaluation.every")
REAL = [
    *("prompts=64", "completions=4", "policy.lora.rank=0", "policy.precision=bfloat16", "sampling.dtype=bfloat16"),
    *("sampling.max_new_tokens=32", "update.epochs=1", "update.minibatches=4", "update.learning_rate=1e-6"),
    "guard.action='off'",
]
# For versions that do not find the sizes by themselves.
SIZES = ["sampling.batch=256", "update.micro_batch=64"]

# ------------------------------------------------------------------------------------------------------ invented news

PLACES = ("harbour", "valley", "bridge", "quay", "market", "station", "tower", "mill")
THINGS = ("crane", "ferry", "tram", "lorry", "dam", "gate", "kiln", "boiler")
NAMES = ("Mara Lindqvist", "Joss Ferrant", "Ada Okoro", "Piet van Holm", "Irena Sokol", "Tomas Brandt")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
LINES = (
    "Work on the {thing} began in May and was to end before the {place} opened again in September.",
    "The town had asked for a second {place} twice, and twice the council put the matter off.",
    "{name}, who keeps a shop beside the {place}, said that she had heard a noise like thunder.",
    "Repairs will take {number} days and cost {cost} thousand crowns, by the first estimate.",
    "Until then a {thing} from the next {place} is lent, said a clerk who did not give her name.",
    "It was accident number {number} at the {place} since the {thing} was built.",
    "Nobody answered at the office of the owners on {day}.",
    "A report on the state of the {thing} had been due in the spring; {name} called it “late, and too short”.",
    "Buses run every {number} minutes in the meantime.",
    "“We knew that the {thing} was old, but not that it was this old,” said {name} on {day}.",
)


def fixed_examples(sentences: int) -> list[Example]:
    """64 texts of the same number of sentences, of 15 to 20 tokens each, after the one that matters."""
    found = []
    for number, (place, thing) in enumerate((place, thing) for place in PLACES for thing in THINGS):
        more = [
            f"Work on the {thing} began in May.",
            f"The town had asked for a second {place} twice, and twice the council put the matter off.",
            f"Repairs will take {number + 3} days.",
            f"Until then a {thing} from the next {place} is lent, said a clerk who did not give her name.",
            f"It was the {number + 2}th accident at the {place} since the {thing} was built.",
        ]
        source = " ".join(
            [f"The {place} was closed at noon after a {thing} fell; nobody was hurt, said the port's master on Monday."]
            + [more[turn % len(more)] for turn in range(sentences)]
        )
        summary = f"A {thing} fell at noon and closed the {place}; nobody was hurt."
        found.append(Example(str(number), f"Summarise: {source}", summary))
    return found


def mixed_examples(count: int, sentences: int) -> list[Example]:
    """Texts of a third to five thirds of so many sentences, all different, always the same for the same numbers."""
    draw, found = random.Random(0), []
    for number in range(count):
        place, thing, day = draw.choice(PLACES), draw.choice(THINGS), draw.choice(DAYS)

        def line(words: str, place: str = place, thing: str = thing) -> str:
            numbers = {"number": draw.randint(3, 90), "cost": draw.randint(20, 900)}
            return words.format(place=place, thing=thing, name=draw.choice(NAMES), day=draw.choice(DAYS), **numbers)

        length = draw.randint(sentences // 3, sentences * 5 // 3)
        first = (
            f"The {place} was closed at noon on {day} after a {thing} fell; nobody was hurt, said {draw.choice(NAMES)}."
        )
        source = " ".join([first, *(line(draw.choice(LINES)) for _ in range(length))])
        summary = f"A {thing} fell at noon on {day} and closed the {place}; nobody was hurt."
        found.append(Example(str(number), f"Summarise this in one short sentence.\n\n{source}", summary))
    return found


# ----------------------------------------------------------------------------------------------------------- the work


@dataclass(frozen=True, slots=True)
class Work:
    """What each side is given."""

    settings: TrainSettings
    folder: str
    """Of the weights and the tokenizer."""
    examples: list[Example]
    cold: int
    updates: int
    profiled: bool
    waiting: bool = False
    """Whether stacks are sampled in the profiled step."""
    trace: str = ""
    """Where that step goes as a Chrome trace; empty: nowhere."""

    @property
    def device(self) -> str:
        return self.settings.device

    @property
    def steps(self) -> int:
        """Of each kind together."""
        return self.cold + self.updates + self.profiled

    @property
    def optimizer_steps(self) -> int:
        return self.settings.update.epochs * self.settings.update.minibatches

    def prompts(self, step: int) -> list[Example]:
        """Those of a step, counted from 0, in the order in which the trainer takes them."""
        stream, first = Stream(self.examples, self.settings.seed), step * self.settings.prompts
        return [stream.at(first + place) for place in range(self.settings.prompts)]


def work_of(args: argparse.Namespace, cold: int, updates: int) -> Work:
    device, settings = [f"device={args.device}"], []
    if args.model is not None:
        settings = REAL if str(TrainSettings().update.micro_batch) == "auto" else [*REAL, *SIZES]
    elif args.rival or args.side:
        settings = ["policy.lora.rank=0"]
    chosen = config.load(TrainSettings, None, [*ENDLESS, *device, *settings, *args.settings])
    if args.rival and chosen.policy.lora.rank:
        sys.exit("--rival trains all weights: leave policy.lora.rank at 0")
    profiled = args.device == "cuda" and not args.no_profile
    if args.model is None:
        given = fixed_examples(args.sentences)
    else:
        # As many for a side with fewer steps: the order depends on the number.
        steps = max(args.cold + args.updates, args.rival_cold + args.rival_updates) + profiled
        given = mixed_examples(chosen.prompts * steps, args.sentences)
    return Work(chosen, args.folder, given, cold, updates, profiled, profiled and args.waiting, args.trace)


def make_folder(args: argparse.Namespace, scratch: str) -> str:
    """Where each side reads weights and tokenizer from."""
    if args.model is not None and args.shape is None:
        return locate(args.model)
    if args.model is not None:
        from transformers import LlamaConfig, LlamaForCausalLM

        tokenizer, place = load_tokenizer(args.model), torch.device(args.device)
        torch.manual_seed(0)
        shape = LlamaConfig(
            **dict(zip(SHAPE, SHAPES[args.shape], strict=True)),
            vocab_size=len(tokenizer),
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        with place:
            model = LlamaForCausalLM(shape).to(torch.bfloat16)  # half the bytes; each side reads them as it likes
    else:
        given = fixed_examples(args.sentences)
        tokenizer = tiny_tokenizer([f"{one.prompt} {one.reference}" for one in given], vocab_size=4096)
        model = tiny_model(tokenizer, hidden_size=args.hidden, layers=args.layers)
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    del model
    if args.device == "cuda":
        torch.cuda.empty_cache()
    return scratch


# ---------------------------------------------------------------------------------------------------------- measuring


class Enough(Exception):
    """All steps are measured."""


@dataclass(slots=True)
class Watch:
    """Told of each step's end: clock and memory, then one more step under the profiler."""

    work: Work
    ends: list[float] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)
    busy: float | None = None
    idle: list[tuple[float, str]] = field(default_factory=list)
    kernels: list[tuple[float, int, str]] = field(default_factory=list)
    profiler: Any = None
    sampler: StackSampler | None = None

    def begin(self) -> None:
        self.ends.append(self._now())

    def step(self) -> bool:
        """Whether that was the last one."""
        self.ends.append(self._now())
        done, timed = len(self.ends) - 1, self.work.cold + self.work.updates
        if self.work.device == "cuda" and done == self.work.cold:
            self.memory = {"gib_cold": torch.cuda.max_memory_allocated() / 2**30}
            torch.cuda.reset_peak_memory_stats()
        if self.work.device == "cuda" and done == timed:
            self.memory |= {"gib": torch.cuda.max_memory_allocated() / 2**30}
            self.memory |= {"gib_reserved": torch.cuda.max_memory_reserved() / 2**30}
        if self.work.profiled and done == timed:
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self.profiler.start()
            self.sampler = StackSampler().__enter__() if self.work.waiting else None
        if self.work.profiled and done == timed + 1:
            if self.sampler is not None:
                self.sampler.__exit__()
            self.profiler.stop()
            spans = busy_spans(self.profiler)
            self.busy = sum(end - start for start, end in spans) / 1e9 if spans else None
            if self.sampler is not None:
                self.idle = waiting(spans, self.sampler.samples)
                self.kernels = kernel_seconds(self.profiler)
            if self.work.trace:
                self.profiler.export_chrome_trace(self.work.trace)
        return done == self.work.steps

    def _now(self) -> float:
        if self.work.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def numbers(self) -> dict[str, Any]:
        each = [after - before for before, after in zip(self.ends, self.ends[1:], strict=False)]
        timed = each[self.work.cold : self.work.cold + self.work.updates]
        if len(timed) < self.work.updates:
            sys.exit(f"the run ended after {len(each)} of {self.work.steps} steps: a setting or a signal stopped it")
        seconds = sum(timed) / len(timed)
        busy = {} if self.busy is None else {"busy_seconds": self.busy, "busy_share": self.busy / seconds}
        idle = {"waiting": self.idle[:40], "kernels": self.kernels} if self.idle else {}
        return {"seconds": seconds, "each": timed, "cold": each[: self.work.cold], **self.memory, **busy, **idle}


# --------------------------------------------------------------------------------------------------------------- ours


def measure_ours(work: Work) -> dict[str, Any]:
    """Clock, parts, memory and lengths of our own steps."""
    began = time.perf_counter()
    model, tokenizer = load_model(work.folder, device=work.device)
    watch, rows, seen = Watch(work), list[Mapping[str, Any]](), list[int]()

    def note(_: Trainer, metrics: Mapping[str, Any]) -> None:
        rows.append(metrics)
        if watch.step():
            raise Enough

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            work.settings,
            Path(folder) / "run",
            model=model,
            tokenizer=tokenizer,
            examples=work.examples,
            callbacks=[note],
        )
        count_update(trainer, model.get_input_embeddings(), seen)
        ready = time.perf_counter() - began
        watch.begin()
        with suppress(Enough):
            trainer.train()
    timed = rows[work.cold : work.cold + work.updates]
    every = work.settings.prompts * work.settings.completions
    lengths = [[len(prompt_ids(tokenizer, one.prompt)) for one in work.prompts(step)] for step in range(len(rows))]
    needed = sum(lengths[0]) + (rows[0]["length/mean"] - 1) * every  # the last token of a completion is not read
    own = {key: mean(row.get(key, 0.0) for row in timed) for key in sorted({key for row in timed for key in row})}
    seconds = {part: own.get(f"time/{part}", 0.0) for part in PARTS[:-1]}
    numbers = watch.numbers()
    return numbers | {
        "ready": ready,
        "parts": seconds | {"other": numbers["seconds"] - sum(seconds.values())},
        "prompt_tokens": mean(sum(each) / len(each) for each in lengths[work.cold : work.cold + work.updates]),
        "prompt_lengths": [min(map(min, lengths)), max(map(max, lengths))],
        "completion_tokens": own["length/mean"],
        "optimizer_steps": own["update/steps"],
        "unscored": own["critic/unscored_frac"],
        "update_tokens_run": sum(seen) / work.settings.update.epochs,
        "padding_share": 1 - needed * work.settings.update.epochs / sum(seen) if seen else None,
        "metrics": own,
        "rows": timed,
    }


def count_update(trainer: Trainer, embedding: Any, seen: list[int]) -> None:
    """Note how many tokens each pass of the first update reads; then get out of the way."""
    run = trainer.update

    def counted(*given: Any, **named: Any) -> Any:
        trainer.update = run  # type: ignore[method-assign]
        hook = embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numel()))
        try:
            return run(*given, **named)
        finally:
            hook.remove()

    trainer.update = counted  # type: ignore[method-assign]


def mean(numbers: Iterable[Any]) -> float:
    known = [number for number in numbers if isinstance(number, int | float)]
    return sum(known) / len(known) if known else 0.0


# ---------------------------------------------------------------------------------------------------------------- TRL


def measure_trl(work: Work, variant: str) -> dict[str, Any]:
    """The same of GRPOTrainer. Its parts: sampling and critic, each of which waits for the device by itself."""
    import transformers
    import trl
    from datasets import Dataset

    began, watch, seconds = time.perf_counter(), Watch(work), {"sample": list[float](), "critic": list[float]()}
    lengths: dict[str, list[float]] = {"prompt": [], "completion": []}

    class Told(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            watch.begin()

        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            if state.global_step % work.optimizer_steps == 0 and watch.step():
                control.should_training_stop = True

    critic = critic_named(work.settings.critic or "reference", work.settings.critics)

    def reward(
        prompts: Any, completions: Any, reference: list[str], completion_ids: list[list[int]], **_: Any
    ) -> list[float | None]:
        lengths["completion"].append(mean(len(ids) for ids in completion_ids))
        texts = [turns[-1]["content"] for turns in completions]
        judged = ask_now(critic, [turns[-1]["content"] for turns in prompts], texts, {"reference": reference})
        return [None if critique is None else critique.score for critique in judged]

    given = [one for step in range(work.steps) for one in work.prompts(step)]
    rows = [{"prompt": [{"role": "user", "content": one.prompt}], "reference": one.reference} for one in given]
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.GRPOTrainer(
            model=work.folder,
            reward_funcs=reward,
            args=trl.GRPOConfig(output_dir=folder, **trl_settings(work, variant)),
            train_dataset=Dataset.from_list(rows),
            processing_class=transformers.AutoTokenizer.from_pretrained(work.folder, padding_side="left"),
            callbacks=[Told()],
        )
        note_parts(trainer, seconds, lengths["prompt"])
        padding = count_padding(trainer)
        ready = time.perf_counter() - began
        trainer.train()
    numbers, some = watch.numbers(), slice(work.cold, work.cold + work.updates)
    parts = {part: mean(each[some]) for part, each in seconds.items()}
    return numbers | {
        "ready": ready,
        "trl": trl.__version__,
        "parts": parts | {"other": numbers["seconds"] - sum(parts.values())},
        "prompt_tokens": mean(lengths["prompt"][some]),
        "completion_tokens": mean(lengths["completion"][some]),
        "optimizer_steps": trainer.state.global_step / work.steps,
        "padding_share": 1 - padding[0] / padding[1],
        "log": trainer.state.log_history[-3:],
    }


def note_parts(trainer: Any, seconds: dict[str, list[float]], lengths: list[float]) -> None:
    """Its seconds of sampling and judging, and the mean number of tokens of a prompt, step by step."""
    generate, judge = trainer._generate_single_turn, trainer._calculate_rewards

    def generated(prompts: list[list[int]], *more: Any, **named: Any) -> Any:
        lengths.append(mean(len(ids) for ids in prompts))
        with timed(seconds["sample"]):
            return generate(prompts, *more, **named)

    def judged(*more: Any, **named: Any) -> Any:
        with timed(seconds["critic"]):
            return judge(*more, **named)

    trainer._generate_single_turn, trainer._calculate_rewards = generated, judged


def trl_settings(work: Work, variant: str) -> dict[str, Any]:
    """Ours in its words."""
    ours, half = work.settings, work.settings.policy.precision == "bfloat16"
    rows, update = ours.prompts * ours.completions, ours.update
    chosen: dict[str, Any] = {
        "per_device_train_batch_size": rows // update.minibatches,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": update.minibatches,
        "num_iterations": update.epochs,
        "num_generations": ours.completions,
        "max_steps": work.steps * work.optimizer_steps,
        "max_completion_length": ours.sampling.max_new_tokens,
        "temperature": ours.sampling.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "beta": ours.kl.coefficient,
        "epsilon": update.clip,
        "learning_rate": update.learning_rate,
        "lr_scheduler_type": "constant",
        "adam_beta2": update.beta2,
        "weight_decay": update.weight_decay,
        "max_grad_norm": update.max_grad_norm,
        "seed": ours.seed,
        "shuffle_dataset": False,
        "bf16": half,
        "use_cpu": work.device == "cpu",
        "gradient_checkpointing": False,
        "logging_steps": work.optimizer_steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "model_init_kwargs": {
            "dtype": "float32" if variant == "fp32" or not half else "bfloat16",
            "attn_implementation": "sdpa",
        },
    }
    if variant == "paged":
        chosen["use_transformers_continuous_batching"] = True
    if variant == "static":
        # The same shapes in every step, as far as it goes: each new one is compiled.
        chosen |= {"cache_implementation": "static", "pad_to_multiple_of": 64}
    return chosen


def count_padding(trainer: Any) -> list[int]:
    """[tokens that count, tokens run] of its updates; a prompt counts with each of its completions."""
    sums, compute = [0, 0], trainer._compute_loss

    def counted(model: Any, inputs: Any) -> Any:
        if len(first) < 4:  # of the first steps alone: sums wait for the device
            first.append(1)
            for mask in (inputs["prompt_mask"], inputs["completion_mask"]):
                sums[0] += int(mask.sum())
                sums[1] += mask.numel()
        return compute(model, inputs)

    first: list[int] = []
    trainer._compute_loss = counted
    return sums


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)


# ------------------------------------------------------------------------------------------------------ model FLOPs


def utilisation(work: Work, found: Mapping[str, Any]) -> dict[str, float]:
    """MFU of update and step; `rows`: a prompt counts with each of its completions."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape, settings = AutoConfig.from_pretrained(work.folder), work.settings
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)
    head = model.get_output_embeddings().weight.numel()
    tables = {
        id(part.weight): part.weight.numel() for part in (model.get_input_embeddings(), model.get_output_embeddings())
    }
    body = sum(weight.numel() for weight in model.parameters()) - sum(tables.values())
    count = settings.prompts * settings.completions
    completions, seconds = found["completion_tokens"] * count, found["seconds"]
    numbers: dict[str, float] = {"weights": body + sum(tables.values())}
    for name, prompts in (("", settings.prompts), ("_rows", count)):
        forward = 2 * body * (found["prompt_tokens"] * prompts + completions) + 2 * head * completions
        update = 3 * forward * settings.update.epochs
        passes = 1 + bool(settings.kl.coefficient) * (1 + (settings.policy.precision != "float32"))
        numbers |= {f"tflop_update{name}": update / 1e12, f"tflop_step{name}": (update + passes * forward) / 1e12}
        if work.device == "cuda":
            numbers[f"mfu_step{name}"] = (update + passes * forward) / seconds / PEAK
            if spent := found["parts"].get("update"):
                numbers[f"mfu_update{name}"] = update / spent / PEAK
    return numbers


# ------------------------------------------------------------------------------------------------------------ telling


def tell(name: str, work: Work, found: Mapping[str, Any]) -> None:
    if "failed" in found:
        print(f"{name}: failed: {found['failed']}")
        return
    each, cold = found["each"], " ".join(f"{one:.2f}" for one in found["cold"])
    print(f"{name}: {found['seconds']:.3f} s a step ({min(each):.3f} to {max(each):.3f}), first steps {cold} s")
    for part, seconds in found["parts"].items():
        print(f"  {part:<8} {seconds:8.3f} s  {seconds / found['seconds']:6.1%}")
    count = work.settings.prompts * work.settings.completions
    print(
        f"  {count} completions of {found['completion_tokens']:.1f} tokens after prompts of "
        f"{found['prompt_tokens']:.1f}, {found['optimizer_steps']:.0f} optimizer steps"
    )
    shares = ("padding_share", "busy_share", "mfu_update", "mfu_step", "mfu_update_rows", "mfu_step_rows")
    known = [f"{key.replace('_', ' ')} {found[key]:.1%}" for key in shares if found.get(key) is not None]
    known += [
        f"{key.replace('_', ' ')} {found[key]:.2f}" for key in ("gib", "gib_reserved", "gib_cold") if key in found
    ]
    print(f"  {', '.join(known)}", flush=True)
    for idle, function in found.get("waiting", [])[:40]:
        print(f"  idle {idle * 1000:6.1f} ms  {function}", flush=True)
    for busy, times, kernel in found.get("kernels", []):
        print(f"  busy {busy * 1000:6.1f} ms in {times:5d}  {kernel}", flush=True)


def measured(work: Work, side: str) -> dict[str, Any]:
    found = measure_ours(work) if side == "ours" else measure_trl(work, side)
    return found | utilisation(work, found)


def in_a_process(side: str, folder: str, words: Sequence[str], patience: int) -> dict[str, Any]:
    """The numbers of one side, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "found.json"
        command = [sys.executable, __file__, *words, "--side", side, "--folder", folder, "--json", str(file)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=patience)
        except subprocess.TimeoutExpired:
            return {"failed": f"no end after {patience} s"}
        if done.returncode or not file.exists():
            print(done.stderr[-3000:], file=sys.stderr)
            return {"failed": " ".join(done.stderr.split())[-300:]}
        numbers: dict[str, Any] = json.loads(file.read_text())
        return numbers


def machine(args: argparse.Namespace, words: Sequence[str]) -> dict[str, Any]:
    import transformers

    name = torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} threads"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {"device": name, "python": platform.python_version(), **versions, "command": list(words)}


def whole(least: int) -> Callable[[str], int]:
    """A whole number of at least `least`, for argparse."""

    def read(word: str) -> int:
        if not re.fullmatch(r"-?\d+", word, re.ASCII) or int(word) < least:
            raise argparse.ArgumentTypeError(f"{word!r}: it takes a whole number, {least} or more")
        return int(word)

    return read


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--model", help="alias, folder or .gguf file; default: smollm2-135m on a GPU, else the small one"
    )
    parser.add_argument("--shape", choices=list(SHAPES), help="random weights of this shape, the model's tokenizer")
    parser.add_argument("--rival", choices=["trl"], help="the same step there")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS, help="of the rival")
    parser.add_argument("--updates", type=whole(1), default=6, help="steps that are timed")
    parser.add_argument("--rival-updates", type=whole(1), help="default: as many")
    parser.add_argument("--cold", type=whole(0), help="steps before; default: 2 on a GPU, else 1")
    parser.add_argument(
        "--rival-cold",
        type=whole(0),
        help="default: as many. The first steps of ours are slower while passes are recorded as CUDA graphs",
    )
    parser.add_argument(
        "--waiting", action="store_true", help="say what the host did while the GPU was idle, and which kernels it ran"
    )
    parser.add_argument("--trace", default="", help="write the profiled step here, as a Chrome trace (.json.gz)")
    parser.add_argument("--no-profile", action="store_true", help="no step under the profiler")
    parser.add_argument("--patience", type=whole(1), default=300, help="seconds that one side may take, with --rival")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    parser.add_argument("--hidden", type=whole(1), default=256, help="of the small model")
    parser.add_argument("--layers", type=whole(1), default=4, help="of the small model")
    parser.add_argument(
        "--sentences", type=whole(0), default=14, help="of a text after its first; with --model on average"
    )
    parser.add_argument("--side", choices=["ours", *VARIANTS], help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    parser.add_argument("settings", nargs="*", help="settings of the run, as key=value")
    args = parser.parse_intermixed_args(words)
    if args.model is None and (args.device == "cuda" or args.shape):
        args.model = "smollm2-135m"
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no CUDA device here; leave it away to measure on the CPU")
    for name, file in ("--json", args.json), ("--trace", Path(args.trace) if args.trace else None):
        if file and (file.is_dir() or not file.absolute().parent.is_dir()):
            parser.error(f"{name} {file}: it takes a file in a folder that exists")
    for word in args.settings:
        if (key := word.partition("=")[0]) in OWN:
            parser.error(
                f"{word}: {key} is set by this script; say --device, and the number of steps by --cold and --updates"
            )
    if args.waiting or args.trace:
        if args.no_profile:
            parser.error("--waiting and --trace look at the profiled step: leave --no-profile away")
        if args.device != "cuda":
            parser.error("--waiting and --trace look at the GPU: they want --device cuda")
    args.cold = args.cold if args.cold is not None else 2 if args.device == "cuda" else 1
    args.rival_updates = args.rival_updates or args.updates
    args.rival_cold = args.cold if args.rival_cold is None else args.rival_cold
    return args


def main(words: Sequence[str]) -> None:
    args = arguments(words)
    if args.side:
        ours = args.side == "ours"
        work = work_of(args, *((args.cold, args.updates) if ours else (args.rival_cold, args.rival_updates)))
        args.json.write_text(json.dumps(measured(work, args.side), default=float))
        return
    here, found = machine(args, words), dict[str, dict[str, Any]]()
    with tempfile.TemporaryDirectory() as scratch:
        args.folder = make_folder(args, scratch)
        work = work_of(args, args.cold, args.updates)
        print(f"{here['device']}, torch {here['torch']}, transformers {here['transformers']}", flush=True)
        for side in ["ours", *(args.variants if args.rival else ())]:
            if args.rival is None:
                found[side] = measured(work, side)
            else:
                found[side] = in_a_process(side, args.folder, words, args.patience)
            tell(side if side == "ours" else f"trl {side}", work, found[side])
            if args.json:  # after each side: what comes next may fail
                kept = {"machine": here, "settings": config.plain(work.settings), "sides": found}
                args.json.write_text(json.dumps(kept, default=str, indent=1) + "\n")
    if "failed" in found["ours"]:
        sys.exit(1)
    conclude(work, found.pop("ours"), {name: each for name, each in found.items() if "failed" not in each})


def conclude(work: Work, ours: Mapping[str, Any], rivals: Mapping[str, Mapping[str, Any]]) -> None:
    """The ratios, last."""
    parts, (shortest, longest) = ours["parts"], ours["prompt_lengths"]
    print(f"prompts of {shortest} to {longest} tokens, {ours['weights']:,} weights")
    print(f"other_than_sampling_and_update={1 - (parts['sample'] + parts['update']) / ours['seconds']:.3f}")
    for name, each in rivals.items():
        apart = each["completion_tokens"] / ours["completion_tokens"] - 1
        warned = f"; its completions are {apart:+.0%} long, and nothing is scaled" if abs(apart) > 0.1 else ""
        print(f"trl {name}: {each['seconds'] / ours['seconds']:.2f} times our seconds{warned}")
    if rivals:
        best = min(rivals, key=lambda name: (name != EQUAL, float(rivals[name]["seconds"])))
        print(f"compared with TRL's {best}")
        print(f"speed_vs_trl={rivals[best]['seconds'] / ours['seconds']:.3g}")
    print(f"seconds={ours['seconds']:.3f}")
    if "gib" in ours:
        print(f"gib={ours['gib']:.2f}")
    if ours["unscored"] > 0.05 or ours["optimizer_steps"] != work.optimizer_steps:
        sys.exit(f"unequal work: {ours['unscored']:.1%} not scored, {ours['optimizer_steps']} optimizer steps")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Text2GradError as problem:
        sys.exit(str(problem))
