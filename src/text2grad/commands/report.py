"""`text2grad report`: run folders → one HTML file. Reads the folders, builds the page, writes it."""

import argparse
import sys
import webbrowser
from pathlib import Path

from text2grad.errors import RunError, UsageError
from text2grad.runs import write_atomic


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad report RUN… [--out FILE] [--open]"
    runs = "run folders, or a folder of them; runs that differ only in the seed form one arm"
    parser.add_argument("runs", nargs="*", metavar="RUN", help=runs)
    out = "the page; by default RUN/report.html for one run, ./report.html for several"
    parser.add_argument("--out", metavar="FILE", help=out)
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args: argparse.Namespace) -> int:
    if not args.runs:
        raise UsageError("wants at least one run folder: text2grad report RUN…")
    if args.out is not None and Path(args.out).is_dir():
        inside = Path(args.out) / "report.html"
        raise UsageError(f"--out {args.out}: should be a file to write to, got a folder; say {inside}")
    target = Path(args.out or (Path(args.runs[0]) / "report.html" if len(args.runs) == 1 else "report.html"))
    from text2grad.report.folders import find_folders, read_runs
    from text2grad.report.page import build

    folders, left_out = find_folders(args.runs)
    runs = read_runs(folders)
    compared = [run for run in runs if not run.supervised] or runs
    page = build(compared)
    left_out += [f"{run.path}: left out, {run.learns_from} has no scores" for run in runs if run not in compared]
    for line in (*left_out, *page.unread):
        print(line, file=sys.stderr)
    try:
        write_atomic(target, page.html)
    except OSError as problem:
        raise RunError(f"{target}: cannot be written ({problem.strerror}); name another file with --out") from problem
    for sentence in page.comparison.sentences:
        print(sentence)
    print(f"wrote {target} ({len(page.html) / 1e6:.1f} MB, {page.completions:,} completions): open it in a browser")
    if args.open and not webbrowser.open(target.resolve().as_uri()):
        print("no browser could be started here: open the file yourself")
    return 0
