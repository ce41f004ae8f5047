"""One update step (forward, loss, backward, clipping, AdamW) against TRL's GRPOTrainer with the same (B, T) advantages.

usage: update.py [--device cpu|cuda] [--dtype float32|bfloat16] [--rounds N] [--mfu-only] (--help: all options)

A Llama of about 20M parameters with a vocabulary of 32k (with --device cuda the shape of SmolLM2-135M), random
weights, prompts and completions of mixed length, the same micro-batch size, entropy logged on both sides. TRL pads to
the longest of the batch, as it does in training; on a processor it also projects prompts onto the vocabulary, and
computes every projection again for the backward pass, which is most of the difference. Equal work first: loss and
gradients of both, within 1e-5. Then the sides take turns, and medians are compared: on a processor one thread, in its
own time, so that what else the machine does is not counted. Memory is the peak above the built model, each side in a
process of its own: of the resident set on a processor, of what torch allocated on a GPU. Where TRL is not installed,
plain transformers with full logits stands in for it, and the output says so.

The last line is `speed=… memory=…`: their time over ours, our memory over theirs. Asserted on a processor against TRL:
speed at least 2, memory at most 0.8. On a GPU also `mfu=…` of our update: the operations that it needs (vocabulary
projection for completions only) over an H200's 989e12 a second; `mfu_6pt` counts 6 · parameters · tokens instead.
With `--mfu-only` there is no other side: the update alone is timed, and the last line is `mfu=… mfu_6pt=…`.
"""

import argparse
import gc
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from text2grad.models.policy import Policy
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.optim.batch import Batch, collate_ids
from text2grad.optim.estimators import Advantages
from text2grad.optim.settings import UpdateSettings
from text2grad.optim.update import update

PEAK = 989e12
NUMBERS = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"]
NUMBERS += ["num_attention_heads", "num_key_value_heads"]
SHAPES = {
    "20m": (32_000, 320, 864, 8, 5, 5),
    "135m": (49_152, 576, 1536, 30, 9, 3),
    "360m": (49_152, 960, 2560, 32, 15, 5),
    "1.7b": (49_152, 2048, 8192, 24, 32, 32),
}
CLIP, RATE, NORM = 0.2, 1e-6, 1.0


class Side(Protocol):
    """One way to do the update."""

    model: Any
    optimizer: torch.optim.Optimizer

    def step(self) -> float:
        """One update; gives the loss."""
        ...


def model_of(shape: str, device: str, made_on: str = "cpu") -> Any:
    torch.manual_seed(0)
    rest = {"max_position_embeddings": 2048, "tie_word_embeddings": True, "bos_token_id": None, "pad_token_id": 0}
    with torch.device(made_on):
        return LlamaForCausalLM(LlamaConfig(**dict(zip(NUMBERS, SHAPES[shape], strict=True)), **rest)).to(device)


def batch_of(args: argparse.Namespace, policy: Policy | None = None) -> tuple[Batch, Advantages]:
    """Prompts and completions of mixed length. A third of the ratios is clipped; none is so near to its bound that
    rounding decides."""
    draw = random.Random(0)
    if policy is None:
        own = model_of(args.shape, args.device)
        policy = Policy(own, PolicySettings(lora=LoraSettings(rank=0)), value_head=False)
    vocabulary = SHAPES[args.shape][0]
    prompts, completions, logprobs, rewards = [], [], [], []
    for _ in range(args.completions):
        prompt, length = draw.randint(*args.prompt_tokens), draw.randint(*args.new_tokens)
        prompts.append([draw.randrange(1, vocabulary) for _ in range(prompt)])
        completions.append([draw.randrange(1, vocabulary) for _ in range(length)])
        logprobs.append(torch.tensor([draw.choice((-0.4, 0.0, 0.4)) + draw.gauss(0, 0.02) for _ in range(length)]))
        rewards.append(torch.tensor([draw.gauss(0, 1) for _ in range(length)]))
    batch = collate_ids(prompts, completions, groups=[index // 4 for index in range(args.completions)])
    padded = torch.nn.utils.rnn.pad_sequence
    batch = replace(
        batch, logprobs_BT=padded(logprobs, batch_first=True), rewards_BT=padded(rewards, batch_first=True)
    ).to(args.device)
    own_BT, _ = policy.logprobs_and_values(batch, args.micro_batch)
    batch = replace(batch, logprobs_BT=own_BT + batch.logprobs_BT)
    return batch, Advantages(batch.rewards_BT, batch.mask_BT)


def optimizer_of(model: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)


class Ours:
    def __init__(self, args: argparse.Namespace) -> None:
        # Where all sides have the same weights, they are drawn on the processor, which takes a while for many.
        self.model = model_of(args.shape, args.device, args.device if args.mfu_only else "cpu")
        settings = PolicySettings(lora=LoraSettings(rank=0), precision=args.dtype, compile=args.compile)
        self.policy = Policy(self.model, settings, value_head=False)
        self.batch, self.found = batch_of(args, self.policy if args.mfu_only else None)
        self.optimizer = optimizer_of(self.model)
        self.options = UpdateSettings(
            epochs=1, minibatches=1, micro_batch=args.micro_batch, clip=CLIP, max_grad_norm=NORM
        )

    def step(self) -> float:
        stats = update(self.policy, self.optimizer, self.batch, self.found, self.options, seed=0)
        self.entropy = stats.means()["loss/entropy"]
        return stats.means()["loss/policy"]


class Padded:
    """What both baselines share: prompts padded on the left, completions on the right, all to the longest; the loss of
    each micro-batch, gradients added up."""

    model: Any
    optimizer: torch.optim.Optimizer

    def __init__(self, args: argparse.Namespace) -> None:
        self.size, self.dtype, self.device = args.micro_batch, args.dtype, args.device
        batch, found = batch_of(args)
        width = int(batch.prompt_B.max())
        prompt_ids = batch.ids_BS.new_zeros(len(batch), width)
        completion_ids = batch.ids_BS.new_zeros(batch.mask_BT.shape)
        for row, (prompt, length) in enumerate(zip(batch.prompt_B.tolist(), batch.lengths_B.tolist(), strict=True)):
            prompt_ids[row, width - prompt :] = batch.ids_BS[row, :prompt]
            completion_ids[row, :length] = batch.ids_BS[row, prompt : prompt + length]
        places = torch.arange(width, device=args.device)
        self.streams = {
            "prompt_ids": prompt_ids,
            "prompt_mask": (places >= width - batch.prompt_B[:, None]).long(),
            "completion_ids": completion_ids,
            "completion_mask": batch.mask_BT.long(),
            "advantages": found.advantages_BT,
            "old_per_token_logps": batch.logprobs_BT,
        }
        self.tokens = batch.mask_BT.sum()

    def loss(self, inputs: dict[str, Tensor]) -> Tensor:
        raise NotImplementedError

    def step(self) -> float:
        total = 0.0
        for start in range(0, len(self.streams["prompt_ids"]), self.size):
            inputs = {name: stream[start : start + self.size] for name, stream in self.streams.items()}
            loss = self.loss(inputs | {"num_items_in_batch": self.tokens})
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total


class Trl(Padded):
    """TRL's own code computes the loss, metrics included."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        import trl
        from datasets import Dataset

        from text2grad.models.tiny import tiny_tokenizer

        parts = -(-args.completions // args.micro_batch)
        with tempfile.TemporaryDirectory() as folder:
            model_of(args.shape, "cpu").save_pretrained(folder)
            self.trainer = trl.GRPOTrainer(
                model=folder,
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=trl.GRPOConfig(
                    output_dir=folder,
                    loss_type="dapo",
                    epsilon=CLIP,
                    beta=0.0,
                    temperature=1.0,
                    per_device_train_batch_size=args.micro_batch,
                    num_generations=4,
                    gradient_accumulation_steps=parts,
                    report_to="none",
                    use_cpu=args.device == "cpu",
                    bf16=args.dtype == "bfloat16",
                    gradient_checkpointing=False,
                ),
                train_dataset=Dataset.from_list([{"prompt": "Hi"}] * args.completions),
                processing_class=tiny_tokenizer(),
            )
        self.trainer.current_gradient_accumulation_steps = parts
        self.model = self.trainer.model.to(args.device).train()
        self.optimizer = optimizer_of(self.model)
        gc.collect()

    def loss(self, inputs: dict[str, Tensor]) -> Tensor:
        found: Tensor = self.trainer._compute_loss(self.model, inputs)
        return found


class Plain(Padded):
    """Full logits of the completions, log_softmax, autograd."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self.model = model_of(args.shape, args.device).train()
        self.optimizer = optimizer_of(self.model)

    def loss(self, inputs: dict[str, Tensor]) -> Tensor:
        ids_BS = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        seen_BS = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        keep = inputs["completion_ids"].shape[1]
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.dtype == "bfloat16"):
            logits_BTV = self.model(ids_BS, attention_mask=seen_BS, logits_to_keep=keep + 1, use_cache=False).logits
        log_BTV = torch.log_softmax(logits_BTV[:, :-1].float(), -1)
        with torch.no_grad():
            self.entropy_BT = -(log_BTV.exp() * log_BTV).sum(-1)
        logprobs_BT = log_BTV.gather(2, inputs["completion_ids"][..., None])[..., 0]
        ratio_BT = (logprobs_BT - inputs["old_per_token_logps"]).exp()
        ours_BT = inputs["advantages"]
        loss_BT = -torch.min(ratio_BT * ours_BT, ratio_BT.clamp(1 - CLIP, 1 + CLIP) * ours_BT)
        return (loss_BT * inputs["completion_mask"]).sum() / inputs["num_items_in_batch"]


SIDES: dict[str, Callable[[argparse.Namespace], Side]] = {"ours": Ours, "trl": Trl, "plain": Plain}


def gradients(side: Side) -> tuple[float, dict[str, Tensor]]:
    """Of a first step, as the optimizer meets them."""
    kept: dict[str, Tensor] = {}

    def keep(*_: object) -> None:
        for name, weight in side.model.named_parameters():
            kept[name] = weight.grad.detach().clone()

    hook = side.optimizer.register_step_pre_hook(keep)
    loss = side.step()
    hook.remove()
    return loss, kept


def equal_work(ours: Side, theirs: Side, dtype: str) -> None:
    (loss, mine), (their_loss, others) = gradients(ours), gradients(theirs)
    assert mine.keys() == others.keys(), "unequal work: other weights"
    flat, their_flat = (torch.cat([grads[name].flatten() for name in mine]) for grads in (mine, others))
    apart = float((flat - their_flat).norm() / their_flat.norm())
    print(f"loss {loss:.6f} and {their_loss:.6f}; gradients differ by {apart:.1e} of their length")
    allowed = 1e-5 if dtype == "float32" else 3e-2
    assert abs(loss - their_loss) <= allowed, "unequal work: other losses"
    assert apart <= allowed, "unequal work: other gradients"


def timed(sides: dict[str, Side], rounds: int, device: str) -> dict[str, float]:
    """Seconds a step: the sides take turns, so that what else the machine does meets them alike."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            start = now(device)
            sides[name].step()
            times[name].append(now(device) - start)
    return {name: statistics.median(each) for name, each in times.items()}


def now(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def peak(args: argparse.Namespace) -> float:
    """MiB above the built model that two updates need; in a process of its own."""
    side = SIDES[args.only](args)
    gc.collect()
    if args.device == "cuda":
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        side.step(), side.step()
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    # 5: forget the peak so far, which building the model may have set. getrusage would not do: it begins with the
    # peak of the process that started this one.
    Path("/proc/self/clear_refs").write_text("5")
    base = resident("VmRSS")
    side.step(), side.step()
    return resident("VmHWM") - base


def resident(line: str) -> float:
    """MiB of the process, by the kernel's books."""
    status = Path("/proc/self/status").read_text()
    return int(next(each for each in status.splitlines() if each.startswith(line)).split()[1]) / 1024


def peak_of(name: str, words: list[str]) -> float:
    command = [sys.executable, __file__, *words, "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    return float(done.stdout.split()[-1])


def operations(ours: Ours) -> tuple[float, float]:
    """(needed, by the rule of thumb) in one update: forward and twice that backward, no padding."""
    config, batch = ours.model.config, ours.batch
    total_B, lengths_B = (batch.prompt_B + batch.lengths_B).double(), batch.lengths_B.double()
    weights = sum(weight.numel() for weight in ours.model.parameters())
    table = config.vocab_size * config.hidden_size
    attention = 6 * config.num_hidden_layers * config.hidden_size * float((total_B**2).sum())
    needed = 6 * (weights - table) * float(total_B.sum()) + 6 * table * float(lengths_B.sum()) + attention
    return needed, 6 * weights * float(total_B.sum()) + attention


def utilisation(args: argparse.Namespace) -> None:
    """Of our update alone."""
    began = now(args.device)
    ours = Ours(args)
    ours.step(), ours.step()  # compiles, fills caches
    ready, seconds = now(args.device) - began, timed({"ours": ours}, args.rounds, args.device)["ours"]
    needed, rule = operations(ours)
    tokens, longest = int((ours.batch.prompt_B + ours.batch.lengths_B).sum()), ours.batch.ids_BS.shape[1]
    memory = torch.cuda.max_memory_allocated() / 2**30 if args.device == "cuda" else resident("VmHWM") / 1024
    print(
        f"{args.shape}, {args.completions} completions in micro-batches of {args.micro_batch}, {tokens} tokens in rows "
        f"of up to {longest}, {args.dtype}{', compiled' * args.compile}: {seconds * 1e3:.1f} ms an update, "
        f"{needed / seconds / 1e12:.1f} TFLOP/s, peak {memory:.1f} GiB, ready after {ready:.0f} s"
    )
    print(f"mfu={needed / seconds / PEAK:.3g} mfu_6pt={rule / seconds / PEAK:.3g}")


def baseline() -> str:
    try:
        import trl  # noqa: F401
    except ImportError:
        return "plain"
    return "trl"


def compare(args: argparse.Namespace) -> None:
    on_gpu, other = args.device == "cuda", baseline()
    print(f"text2grad against {'TRL' if other == 'trl' else 'plain transformers, full logits (TRL is not installed)'}")
    ours, theirs = Ours(args), SIDES[other](args)
    equal_work(ours, theirs, args.dtype)
    seconds = timed({"ours": ours, other: theirs}, args.rounds, args.device)
    needed, rule = operations(ours)
    del ours, theirs
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    memory = {name: peak_of(name, sys.argv[1:]) for name in ("ours", other)}
    for name in ("ours", other):
        print(f"  {name:<6} {seconds[name] * 1e3:>9.1f} ms an update   {memory[name]:>8.1f} MiB above the model")
    speed, ratio = seconds[other] / seconds["ours"], memory["ours"] / memory[other]
    pairs = {"speed": speed, "memory": ratio}
    if on_gpu:
        pairs |= {"mfu": needed / seconds["ours"] / PEAK, "mfu_6pt": rule / seconds["ours"] / PEAK}
    print(" ".join(f"{name}={number:.3g}" for name, number in pairs.items()))
    if other == "trl" and not on_gpu and (speed < 2 or ratio > 0.8):
        sys.exit("aims missed: speed at least 2, memory at most 0.8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--shape", choices=list(SHAPES), help="default: 20m, on a GPU 135m")
    parser.add_argument("--completions", type=int, help="of an update; default: 32, on a GPU 256")
    parser.add_argument("--micro-batch", type=int, help="default: 8, on a GPU 64")
    parser.add_argument("--prompt-tokens", type=int, nargs=2, default=(32, 96), help="fewest and most of a prompt")
    parser.add_argument("--new-tokens", type=int, nargs=2, default=(16, 64), help="fewest and most of a completion")
    parser.add_argument("--compile", action="store_true", help="policy.compile=true on our side")
    parser.add_argument("--rounds", type=int, default=5, help="steps of each side that are timed")
    parser.add_argument("--mfu-only", action="store_true", help="no other side: how well ours uses the device")
    parser.add_argument("--only", choices=list(SIDES), help="measure the memory of one side and print it")
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    args.shape = args.shape or ("135m" if on_gpu else "20m")
    args.completions = args.completions or (256 if on_gpu else 32)
    args.micro_batch = args.micro_batch or (64 if on_gpu else 8)
    if not on_gpu:
        torch.set_num_threads(1)
    if args.only:
        print(peak(args))
    elif args.mfu_only:
        utilisation(args)
    else:
        compare(args)


if __name__ == "__main__":
    main()
