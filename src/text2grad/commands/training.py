"""What the training commands share: a run folder, settings, several processes, the exit status.

A command names its settings class and where its trainer lives. The trainer's module brings torch, so it is imported
last, after everything that can be refused without it. A trainer is `Trainer(settings, folder, show=…)` with
`train() -> result` that has a `status`.
"""

import argparse
import importlib
from collections.abc import Callable
from typing import TypeVar

from text2grad.commands import launching, parsing
from text2grad.errors import UsageError

S = TypeVar("S")


def add_training(parser: argparse.ArgumentParser, cls: type, *, sandbox: bool = False) -> None:
    """Declare the words of a training command. `sandbox`: its critic may run programs."""
    parser.add_argument("words", nargs="*", metavar="RUN key=value", help="the run folder, and settings")
    if sandbox:
        parser.add_argument(
            "--unsafe-no-sandbox",
            action="store_true",
            help="let the critic `code` run programs without a sandbox: only on a machine that can be thrown away",
        )
    parser.add_argument("--quiet", action="store_true", help="no progress display")
    launching.add_launch(parser)
    parsing.add_settings(parser, cls)


def run_training(
    args: argparse.Namespace, command: str, cls: type[S], trainer: str, check: Callable[[S], str | None]
) -> int:
    """Run `trainer` ("module:Class") on the settings, here or as several processes.

    `check` says what is missing in the settings, or None: it is asked once, before any process is started.
    """
    folders, overrides = parsing.split_overrides(args.words)
    unsafe = getattr(args, "unsafe_no_sandbox", False)
    if unsafe:
        overrides.append("critics.code.unsafe=true")
    settings = parsing.resolve(args, cls, overrides)
    if settings is None:
        return 0
    if len(folders) != 1:
        raise UsageError(f"wants one run folder, got {len(folders)}; see text2grad {command} --help")
    if not folders[0].strip():
        raise UsageError(f"the name of the run folder is empty; name one, as in text2grad {command} runs/first")
    if (problem := check(settings)) is not None:
        raise UsageError(f"{problem}; see text2grad {command} --help")
    if args.launch or args.processes is not None:
        return launching.launch(args, command, ["--unsafe-no-sandbox"] if unsafe else [])
    module, _, name = trainer.partition(":")
    made = getattr(importlib.import_module(module), name)(settings, folders[0], show=not args.quiet)
    return launching.ended(made.train().status, first=made.world.is_main)
