"""`text2grad reward-model`: annotated completions → a model that judges every token and writes the critique.

The settings and the command line; the loop is `reward_trainer.py`. As in `text2grad train`, the same command goes on
after a kill. The result, RUN/model, is a critic: `--critic RUN/model` in `annotate` and `train`.
"""

import argparse

from text2grad.commands import launching, parsing
from text2grad.errors import ConfigError, UsageError
from text2grad.training.settings import NO_BEST, RewardModelSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad reward-model RUN data=FILE model=NAME [key=value …] [--config FILE] [--launch ddp]"
    parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    launching.add_launch(parser)
    parsing.add_settings(parser, RewardModelSettings)


def run(args: argparse.Namespace) -> int:
    folders, overrides = parsing.split_overrides(args.words)
    options = parsing.resolve(args, RewardModelSettings, overrides)
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
        return launching.launch(args, "reward-model")
    from text2grad.training.reward_model import RewardTrainer

    trainer = RewardTrainer(options, folders[0], show=not args.quiet)
    return launching.ended(trainer.train().status, first=trainer.others.first)
