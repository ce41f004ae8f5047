"""`text2grad sft`: a supervised warm start. The settings and the command line; the loop is `warm_start.py`.

Reinforcement learning from a cold model finds what its critic overlooks before it finds the task. A short supervised
start shows the model what a completion looks like. As in `text2grad train`, the same command goes on after a kill.
"""

import argparse
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import UsageError
from text2grad.models.settings import PolicySettings
from text2grad.stages import _launch, _settings


@settings
class SupervisedSettings:
    """How a batch changes the weights."""

    batch: Annotated[Int, Gt(0)] = 32
    """Examples an update, over all processes."""
    micro_batch: Annotated[Int, Gt(0)] = 8
    """Examples that are in memory at once; gradients are accumulated over them. Lower it when memory runs out: the
    result stays the same."""
    learning_rate: Annotated[Real, Gt(0)] = 2e-4
    """Peak learning rate of AdamW. 2e-4 suits LoRA; full fine-tuning of pretrained models wants about 1e-5."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """What the learning rate does after the warm-up, over the updates of the run."""
    warmup: Annotated[Int, Ge(0)] = 0
    """Updates over which the learning rate rises from 0 to its peak."""
    weight_decay: Annotated[Real, Ge(0)] = 0.0
    """Of AdamW."""
    beta2: Annotated[Real, Gt(0), Lt(1)] = 0.999
    """Of AdamW: how slowly the scale of the gradients is forgotten."""
    max_grad_norm: Annotated[Real, Gt(0)] = 1.0
    """Gradients longer than this are shortened to it."""


@settings
class TrackerSettings:
    """What the metrics are sent to beside metrics.jsonl."""

    trackers: tuple[str, ...] = ()
    """Through accelerate: tensorboard, wandb, trackio."""


@settings
class SftSettings:
    model: str = "smollm2-135m"
    """The model to start from: an alias, a folder, a .gguf file or a hub id."""
    data: str = ""
    """JSONL of examples: prompt with completion or reference, or messages whose last assistant turn is the target."""
    held_out: str = ""
    """JSONL of examples whose loss is only ever measured; empty: none."""
    updates: Annotated[Int, Gt(0)] | None = None
    """Optimizer steps; none: as many as `epochs` takes."""
    epochs: Annotated[Real, Gt(0)] = 1.0
    """Times that the examples are gone through, each time in a new order, if `updates` is not given."""
    max_tokens: Annotated[Int, Gt(1)] = 1024
    """Longest example, prompt and completion together. Nothing is ever cut off: see `too_long`."""
    too_long: Literal["error", "skip"] = "error"
    """What to do with an example over `max_tokens`: stop and name it, or leave it out and count it."""
    evaluate_every: Annotated[Int, Gt(0)] = 20
    """Updates between two looks at the held-out loss; the start and the end are always looked at."""
    patience: Annotated[Int, Ge(0)] = 0
    """Stop when so many looks at the held-out loss in a row have found it above its lowest. 0: never. The weights are
    then those of the last update, not of the lowest loss."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of everything that is random."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    format: Literal["auto", "chat", "plain"] = "auto"
    """chat: prompts go through the model's chat template. plain: as they are. auto: chat where there is a template."""
    checkpoint_every: Annotated[Int, Gt(0)] = 100
    """Updates between two checkpoints."""
    keep_checkpoints: Annotated[Int, Gt(0)] = 2
    """The newest so many stay on the disk."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """How the model is held and computed."""
    update: SupervisedSettings = field(default_factory=SupervisedSettings)
    """How a batch changes the weights."""
    log: TrackerSettings = field(default_factory=TrackerSettings)
    """What the metrics are sent to beside metrics.jsonl."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad sft RUN data=FILE model=NAME [key=value …] [--config FILE] [--launch ddp]"
    parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    _launch.add_launch(parser)
    _settings.add_settings(parser, SftSettings)


def run(args: argparse.Namespace) -> int:
    folders, overrides = _settings.split_overrides(args.words)
    options = _settings.resolve(args, SftSettings, overrides)
    if options is None:
        return 0
    if len(folders) != 1:
        raise UsageError(f"wants one run folder, got {len(folders)}; see text2grad sft --help")
    if not options.data:
        raise UsageError("wants examples to learn from: data=FILE.jsonl; see text2grad sft --help")
    if args.launch or args.processes is not None:
        return _launch.launch(args, "sft")
    from text2grad.stages.warm_start import WarmStart

    start = WarmStart(options, folders[0], show=not args.quiet)
    return _launch.ended(start.train().status, first=start.others.first)
