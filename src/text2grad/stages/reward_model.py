"""`text2grad reward-model`: annotated completions → a model that judges every token and writes the critique.

The settings and the command line; the loop is `reward_trainer.py`. As in `text2grad train`, the same command goes on
after a kill. The result, RUN/model, is a critic: `--critic RUN/model` in `annotate` and `train`.
"""

import argparse
from dataclasses import field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import ConfigError, UsageError
from text2grad.models.reward.template import Template
from text2grad.models.settings import PolicySettings
from text2grad.stages import _launch, _settings
from text2grad.stages.sft import SupervisedSettings, TrackerSettings

NO_BEST = "keep=best wants whole weights in each process; with --launch fsdp2 set keep=last"


@settings
class LossSettings:
    """The joint loss: span · cross entropy of the verdicts + worth · error of the worths + language · −log p of the
    critique, each a mean over its own tokens."""

    span: Annotated[Real, Ge(0)] = 1.0
    """Of the verdicts, poor, neutral or good, of the completion's tokens. 0 with `worth` 0 is the paper's way: a model
    that only writes critiques (judge with `critics.learned.by=generation` then)."""
    worth: Annotated[Real, Ge(0)] = 0.5
    """Of how much a poor or a good token is worth: its share of the score, or its severity."""
    language: Annotated[Real, Ge(0)] = 0.5
    """Of the critique's own words. 0 leaves the language head as it is, and reads no critique: about half the work."""
    imbalance: Annotated[Real, Ge(0), Le(1)] = 0.5
    """Most tokens are neutral. A class counts by its rarity to this power: 0, as often as it comes; 1, all alike. The
    probabilities are put right again when the model judges."""


@settings
class RewardModelSettings:
    model: str = "smollm2-135m"
    """The causal model to start from: an alias, a folder, a .gguf file or a hub id. From the folder of a reward model
    training goes on, span head included: first on many labels of a program, then on few of people."""
    data: str = ""
    """JSONL of annotated completions, as `text2grad annotate` writes them: prompt, completion, critique, spans."""
    held_out: str = ""
    """JSONL of annotated completions to measure on; empty: `validation` of the prompts in `data`."""
    validation: Annotated[Real, Gt(0), Lt(1)] = 0.1
    """Share of the prompts that is held out of `data`, with all their completions, if `held_out` is empty."""
    updates: Annotated[Int, Gt(0)] | None = None
    """Optimizer steps; none: as many as `epochs` takes."""
    epochs: Annotated[Real, Gt(0)] = 3.0
    """Times that the completions are gone through, each time in a new order, if `updates` is not given."""
    too_long: Literal["error", "skip"] = "skip"
    """What to do with a completion that has no room in the template: stop and name it, or leave it out and count it."""
    evaluate_every: Annotated[Int, Gt(0)] = 50
    """Updates between two looks at the held-out completions; the start and the end are always looked at."""
    patience: Annotated[Int, Ge(0)] = 0
    """Stop when so many looks in a row have found the held-out loss above its lowest. 0: never. What is watched is the
    span head's loss, verdicts and worths; of a model without one, the language head's."""
    keep: Literal["best", "last"] = "best"
    """Which weights become the model: those of the lowest held-out loss (see `patience`), or those of the last
    update."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of everything that is random."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    checkpoint_every: Annotated[Int, Gt(0)] = 100
    """Updates between two checkpoints."""
    keep_checkpoints: Annotated[Int, Gt(0)] = 2
    """The newest so many stay on the disk."""
    template: Template = field(default_factory=Template)
    """What the model reads; stored with it."""
    loss: LossSettings = field(default_factory=LossSettings)
    """What the parts of the loss count."""
    head_learning_rate: Annotated[Real, Gt(0)] = 1e-3
    """Peak learning rate of the span head, which begins at 0."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """How the model is held and computed."""
    update: SupervisedSettings = field(default_factory=SupervisedSettings)
    """How a batch changes the weights."""
    log: TrackerSettings = field(default_factory=TrackerSettings)
    """What the metrics are sent to beside metrics.jsonl."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad reward-model RUN data=FILE model=NAME [key=value …] [--config FILE] [--launch ddp]"
    parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    _launch.add_launch(parser)
    _settings.add_settings(parser, RewardModelSettings)


def run(args: argparse.Namespace) -> int:
    folders, overrides = _settings.split_overrides(args.words)
    options = _settings.resolve(args, RewardModelSettings, overrides)
    if options is None:
        return 0
    if len(folders) != 1:
        raise UsageError(f"wants one run folder, got {len(folders)}; see text2grad reward-model --help")
    if not options.data:
        raise UsageError("wants annotated completions to learn from: data=FILE.jsonl; `text2grad annotate` makes them")
    if args.launch == "fsdp2" and options.keep == "best":
        # Said here, once, and not by each process.
        raise ConfigError(NO_BEST)
    if args.launch or args.processes is not None:
        return _launch.launch(args, "reward-model")
    from text2grad.stages.reward_trainer import RewardTrainer

    trainer = RewardTrainer(options, folders[0], show=not args.quiet)
    return _launch.ended(trainer.train().status, first=trainer.others.first)
