"""`text2grad demo`: see a model learn from words in a few minutes. The work is `training/demo.py`."""

import argparse
import shlex
from contextlib import suppress
from pathlib import Path

from text2grad import config
from text2grad.commands import launching, parsing
from text2grad.errors import UsageError
from text2grad.training.settings import SMALLER, DemoSettings, slow


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad demo [--out DIR] [--model NAME] [--device NAME] [--open] [key=value …]"
    parser.add_argument("words", nargs="*", metavar="key=value", help="settings")
    parser.add_argument("--out", default="demo", metavar="DIR", help="where the runs and the report go (default: demo)")
    parser.add_argument("--model", metavar="NAME", help="another model than the embedded one; the same as model=NAME")
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda; the same as device=NAME")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    parsing.add_settings(parser, DemoSettings)


def run(args: argparse.Namespace) -> int:
    others, overrides = parsing.split_overrides(args.words)
    for name in ("model", "device"):
        if (value := getattr(args, name)) is not None:
            overrides.append(f"{name}={config.inline(value)}")
    if slow(config.load(DemoSettings, args.config, overrides)):
        in_file = config.read(args.config) if args.config is not None else {}
        overrides = [*(word for word in SMALLER if word.partition("=")[0] not in in_file), *overrides]
    options = parsing.resolve(args, DemoSettings, overrides)
    if options is None:
        return 0
    if others:
        raise UsageError(f"wants settings only, got {others[0]!r}; the folder is named with --out")
    if not args.out.strip():
        raise UsageError("--out should name a folder to write to, got the empty name")
    from text2grad.training.demo import show

    with suppress(OSError):
        launching.set_threads(*Path(args.out).glob("*/"))
    flags = {"--out": args.out, "--model": args.model, "--device": args.device, "--config": args.config}
    given = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    again = shlex.join(["text2grad", "demo", *given, *args.words])
    return show(options, Path(args.out), again, display=not args.quiet, browser=args.open)
