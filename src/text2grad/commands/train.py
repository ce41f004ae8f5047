"""`text2grad train`: a policy learns from critiques. The settings and the command line; the loop is `trainer.py`.

Run the same command again after a kill, Ctrl-C or a full disk: it goes on from the last checkpoint, and ends with the
same weights and files as a run that was never disturbed.
"""

import argparse

from text2grad.commands import launching, parsing
from text2grad.errors import UsageError
from text2grad.training.settings import TrainSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad train RUN data=FILE critic=NAME model=NAME [key=value …] [--config FILE] [--launch ddp]"
    parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
    parser.add_argument(
        "--unsafe-no-sandbox",
        action="store_true",
        help="let the critic `code` run programs without a sandbox, as you: only on a machine that can be thrown away",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    launching.add_launch(parser)
    parsing.add_settings(parser, TrainSettings)


def run(args: argparse.Namespace) -> int:
    folders, overrides = parsing.split_overrides(args.words)
    if args.unsafe_no_sandbox:
        overrides.append("critics.code.unsafe=true")
    options = parsing.resolve(args, TrainSettings, overrides)
    if options is None:
        return 0
    if len(folders) != 1:
        raise UsageError(f"wants one run folder, got {len(folders)}; see text2grad train --help")
    if not options.data:
        raise UsageError("wants examples to train on: data=FILE.jsonl; see text2grad train --help")
    if args.launch or args.processes is not None:
        flags = ["--unsafe-no-sandbox"] if args.unsafe_no_sandbox else []
        return launching.launch(args, "train", flags)
    from text2grad.training.rl import Trainer

    trainer = Trainer(options, folders[0], show=not args.quiet)
    return launching.ended(trainer.train().status, first=trainer.others.first)
