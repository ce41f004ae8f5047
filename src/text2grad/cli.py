"""The command line: find the stage, parse its words, run it, turn our errors into one clear message and an exit status.

Enters: argv. Leaves: an exit status (0 done, 1 done but some lines were rejected, 2 not done, 130 interrupted). Knows
no stage's insides: a stage module offers `arguments(parser)` and `run(args) -> int`, and is imported only when it is
named, so `--help` answers without torch.
"""

import argparse
import contextlib
import difflib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TextIO, cast

from text2grad import __version__
from text2grad.errors import Text2GradError

STAGES = {
    "demo": "see a model learn from words: a few minutes, then a report",
    "align": "critiques → spans, no model needed",
    "annotate": "completions → critiques → spans, by people, programs or models",
    "reward-model": "annotated completions → a model that judges every token and says why",
    "sft": "supervised warm start of a policy, from given completions",
    "train": "span-level PPO of a policy, from critiques",
    "env": "versions and devices, for bug reports",
    "report": "run folders → one HTML file: charts, completions, critiques",
}
"""Name → one line of help; the stage itself is `text2grad.commands.NAME`, with an underscore for a hyphen."""


class Stage(Protocol):
    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the stage's words; no heavy import here, `--help` comes through it."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    top = _parser()
    # Only the first word is parsed here: the stage's own parser is built when the stage is known.
    name = top.parse_args(words[:1]).stage
    if name is None:
        top.print_help()
        return 2
    if name not in STAGES:
        near = difflib.get_close_matches(name, STAGES, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"the stages are {', '.join(STAGES)}"
        print(f"text2grad: there is no stage {name!r}; {hint}", file=sys.stderr)
        return 2
    stage = cast(Stage, importlib.import_module(f"text2grad.commands.{name.replace('-', '_')}"))
    parser = argparse.ArgumentParser(
        prog=f"text2grad {name}",
        description=STAGES[name],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    stage.arguments(parser)
    try:
        status = stage.run(parser.parse_intermixed_args(words[1:]))
        sys.stdout.flush()
        return status
    except Text2GradError as problem:
        if os.environ.get("TEXT2GRAD_DEBUG"):
            traceback.print_exc()
        print(f"text2grad {name}: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"text2grad {name}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone, and has all it wanted.
        _silence(sys.stdout)
        return 0
    except OSError as problem:
        _silence(sys.stdout)
        print(f"text2grad {name}: {problem}", file=sys.stderr)
        return 2


def _prepare_streams() -> None:
    """A closed stream is nowhere, not a crash; a terminal that lacks a character shows "?" instead of a traceback."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _silence(stream: TextIO) -> None:
    """Keep the interpreter from trying again, and complaining, when it closes the stream at exit."""
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, STAGES))
    listing = "\n".join(f"  {name:<{width}}  {line}" for name, line in STAGES.items())
    parser = argparse.ArgumentParser(
        prog="text2grad",
        usage="text2grad STAGE [words of the stage]",
        description="Train language models from written feedback.",
        epilog=f"stages:\n{listing}\n\n`text2grad STAGE --help` explains one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"text2grad {__version__}")
    parser.add_argument("stage", nargs="?", metavar="STAGE", help=argparse.SUPPRESS)
    return parser
