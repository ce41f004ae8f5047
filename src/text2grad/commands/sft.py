"""`text2grad sft`: a supervised warm start. The settings and the command line; the loop is `warm_start.py`.

Reinforcement learning from a cold model finds what its critic overlooks before it finds the task. A short supervised
start shows the model what a completion looks like. As in `text2grad train`, the same command goes on after a kill.
"""

import argparse

from text2grad.commands import launching, parsing
from text2grad.errors import UsageError
from text2grad.training.settings import SftSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad sft RUN data=FILE model=NAME [key=value …] [--config FILE] [--launch ddp]"
    parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    launching.add_launch(parser)
    parsing.add_settings(parser, SftSettings)


def run(args: argparse.Namespace) -> int:
    folders, overrides = parsing.split_overrides(args.words)
    options = parsing.resolve(args, SftSettings, overrides)
    if options is None:
        return 0
    if len(folders) != 1:
        raise UsageError(f"wants one run folder, got {len(folders)}; see text2grad sft --help")
    if not options.data:
        raise UsageError("wants examples to learn from: data=FILE.jsonl; see text2grad sft --help")
    if args.launch or args.processes is not None:
        return launching.launch(args, "sft")
    from text2grad.training.sft import WarmStart

    start = WarmStart(options, folders[0], show=not args.quiet)
    return launching.ended(start.train().status, first=start.others.first)
