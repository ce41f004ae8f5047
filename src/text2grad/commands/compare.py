"""`text2grad compare`: a table of arms × seeds. The plan is `training/compare.py`, its processes `schedule.py`."""

import argparse
import math
import sys
from contextlib import suppress
from pathlib import Path

from text2grad.commands import parsing
from text2grad.errors import UsageError
from text2grad.training.compare import CompareSettings, plan
from text2grad.training.costs import dry_run, judge_line
from text2grad.training.schedule import Scheduler

UNFINISHED = 75
"""Exit status where the time was up before the runs were done: try again, as sysexits.h calls it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad compare --config FILE [FOLDER] [key=value …] [--dry-run]"
    parser.add_argument("words", nargs="*", metavar="FOLDER key=value", help="where the runs go; settings")
    parser.add_argument("--dry-run", action="store_true", help="say what the runs would do and cost, and stop")
    parser.add_argument("--judge", metavar="openai:MODEL", help="the same as judge=openai:MODEL")
    minutes = "stop after N minutes and save (exit status 75); run the same command again to continue"
    parser.add_argument("--minutes", type=_minutes, metavar="N", help=minutes)
    parser.add_argument("--quiet", action="store_true", help="say only what failed")
    parsing.add_settings(parser, CompareSettings)


def run(args: argparse.Namespace) -> int:
    folders, overrides = parsing.split_overrides(args.words)
    overrides += [f"judge={args.judge}"] if args.judge else []
    settings = parsing.resolve(args, CompareSettings, overrides)
    if settings is None:
        return 0
    if len(folders) > 1 or not (folders or args.config):
        raise UsageError(
            f"wants --config FILE and one folder at most, got {len(folders)}; see text2grad compare --help"
        )
    folder = Path(folders[0]) if folders else Path("runs") / Path(args.config).stem
    jobs = plan(settings, folder)
    if args.dry_run:
        print("\n".join((*dry_run(jobs), *judge_line(settings, jobs))))
        return 0
    from text2grad.runs.folder import Lock
    from text2grad.training.compared import Compared, record

    folder.mkdir(parents=True, exist_ok=True)

    def tell(words: str) -> None:
        if not args.quiet or words.startswith("failed"):
            print(words, file=sys.stderr, flush=True)

    with Lock(folder / ".lock", f"{folder}: another comparison is at work here; wait for it"):
        seconds = math.inf if args.minutes is None else 60 * args.minutes
        scheduler = Scheduler(jobs, settings.workers, settings.memory, tell=tell, record=record, seconds=seconds)
        outcomes = scheduler.run()
        compared = Compared(settings, jobs, outcomes.failed)
        compared.write(folder, judge=not scheduler.stopping)
    if outcomes.interrupted:
        return 128 + outcomes.interrupted
    print("\n".join(compared.words().sentences))
    print(f"wrote results.json, comparison.json and report.html in {folder}")
    return UNFINISHED if outcomes.late else 1 if compared.failed else 0


def _minutes(word: str) -> float:
    with suppress(ValueError):
        if 0 < (minutes := float(word)) < math.inf:
            return minutes
    raise argparse.ArgumentTypeError(f"should be a number above 0, got {word!r}")
