"""`text2grad train`: a policy learns from critiques. The settings and the command line; the loop is `trainer.py`.

Run the same command again after a kill, Ctrl-C or a full disk: it goes on from the last checkpoint, and ends with the
same weights and files as a run that was never disturbed.
"""

import argparse
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import UsageError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.named import CriticSettings
from text2grad.models.sampling.settings import SamplingSettings
from text2grad.models.settings import PolicySettings
from text2grad.optim.settings import CreditSettings, KLSettings, UpdateSettings
from text2grad.stages import _launch, _settings
from text2grad.stages._watch import GuardSettings
from text2grad.types import Scoring


@settings
class ScoringSettings:
    """How spans become token rewards."""

    rule: Literal["return_equivalent", "paper"] = "return_equivalent"
    """return_equivalent: rewards redistribute the score, so the optimum is that of the score. paper: +1 on good spans,
    −1 on poor ones, 0 elsewhere; its sum grows with the length, and it is easy to hack."""
    placement: Literal["last", "even"] = "last"
    """A segment's reward on its last token, or spread evenly over it."""
    scale: Annotated[Real, Ge(0)] | None = None
    """Reward of a verdict where the critic has only an overall score; none: the running least-squares slope."""

    def noun(self) -> Scoring:
        return Scoring(self.rule, self.placement, self.scale)


@settings
class EvaluationSettings:
    """The held-out set, on which nothing is ever trained."""

    every: Annotated[Int, Gt(0)] = 10
    """Updates between two evaluations; the start and the end are always evaluated."""
    examples: Annotated[Int, Gt(0)] = 64
    """Held-out examples that are completed, greedily; the first so many of the file."""
    critic: str | None = None
    """Judge them by another critic than the one that is trained on; none: the same."""


@settings
class LogSettings:
    """What is written beside the metrics."""

    rollouts: Annotated[Int, Ge(0)] = 16
    """Completions of each update that go to rollouts.jsonl: all those of some prompts, spread over the update; and
    held-out ones of each evaluation."""
    locality: Annotated[Int, Ge(0)] = 16
    """Completions of each update whose log-probs are taken again after it, to see what moved on poor spans, good spans
    and unlabelled tokens. 0: not measured."""
    trackers: tuple[str, ...] = ()
    """Send the metrics to these as well, through accelerate: tensorboard, wandb, trackio."""


@settings
class TrainSettings:
    model: str = "smollm2-135m"
    """The policy to start from: an alias, a folder, a .gguf file or a hub id. Warm-start it with `text2grad sft`."""
    data: str = ""
    """JSONL of examples: prompt, and what the critic needs (reference, tests, passages, …)."""
    held_out: str = ""
    """JSONL of examples that are only ever evaluated; empty: no evaluation."""
    critic: str = "reference"
    """Who writes the critiques; as in `text2grad annotate`."""
    reward: Literal["span", "scalar"] = "span"
    """span: rewards where the critique points. scalar: the same sum, all of it on the last token; nothing else
    differs."""
    updates: Annotated[Int, Gt(0)] = 100
    """Rounds of sampling, judging and updating."""
    prompts: Annotated[Int, Gt(0)] = 16
    """Prompts an update."""
    completions: Annotated[Int, Gt(0)] = 4
    """Completions of each prompt; `credit.kind=group` wants at least 2."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of everything that is random."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    format: Literal["auto", "chat", "plain"] = "auto"
    """chat: prompts go through the model's chat template. plain: as they are. auto: chat where there is a template."""
    checkpoint_every: Annotated[Int, Gt(0)] = 10
    """Updates between two checkpoints. What is sampled and judged in between is kept as well, and not paid again."""
    keep_checkpoints: Annotated[Int, Gt(0)] = 2
    """The newest so many stay on the disk."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """How the policy is held and computed."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How completions are drawn."""
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    """How spans become token rewards."""
    credit: CreditSettings = field(default_factory=CreditSettings)
    """How token rewards become advantages."""
    kl: KLSettings = field(default_factory=KLSettings)
    """The penalty for leaving the reference."""
    update: UpdateSettings = field(default_factory=UpdateSettings)
    """How a batch changes the weights."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """The held-out set."""
    guard: GuardSettings = field(default_factory=GuardSettings)
    """When a run looks as if it hacks its critic."""
    log: LogSettings = field(default_factory=LogSettings)
    """What is written beside the metrics."""
    critics: CriticSettings = field(default_factory=CriticSettings)
    """Settings of the critics."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How quotes are located; see `text2grad align --help`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad train RUN data=FILE critic=NAME model=NAME [key=value …] [--config FILE] [--launch ddp]"
    parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
    parser.add_argument(
        "--unsafe-no-sandbox",
        action="store_true",
        help="let the critic `code` run programs without a sandbox, as you: only on a machine that can be thrown away",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    _launch.add_launch(parser)
    _settings.add_settings(parser, TrainSettings)


def run(args: argparse.Namespace) -> int:
    folders, overrides = _settings.split_overrides(args.words)
    if args.unsafe_no_sandbox:
        overrides.append("critics.code.unsafe=true")
    options = _settings.resolve(args, TrainSettings, overrides)
    if options is None:
        return 0
    if len(folders) != 1:
        raise UsageError(f"wants one run folder, got {len(folders)}; see text2grad train --help")
    if not options.data:
        raise UsageError("wants examples to train on: data=FILE.jsonl; see text2grad train --help")
    if args.launch or args.processes is not None:
        flags = ["--unsafe-no-sandbox"] if args.unsafe_no_sandbox else []
        return _launch.launch(args, "train", flags)
    from text2grad.stages.trainer import Trainer

    trainer = Trainer(options, folders[0], show=not args.quiet)
    return _launch.ended(trainer.train().status, first=trainer.others.first)
