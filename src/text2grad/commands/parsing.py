"""The words that every configurable stage understands: `--config FILE`, `--print-config` and `a.b=c` overrides."""

import argparse
import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TypeVar

from text2grad import config

S = TypeVar("S")
_OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")


def add_settings(parser: argparse.ArgumentParser, cls: type) -> None:
    """Declare the words, and list every setting with its default and help below the stage's own help."""
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings; see --print-config")
    parser.add_argument(
        "--print-config", action="store_true", help="print the resolved settings as YAML, with help, and stop"
    )
    lines = []
    for key, help_text, default in config.describe(cls):
        lines.append(f"  {key}={config.inline(default)}")
        lines.extend(textwrap.wrap(" ".join(help_text.split()), 100, initial_indent=" " * 6, subsequent_indent=" " * 6))
    parser.epilog = "settings (give them as key=value words, or in the --config file):\n" + "\n".join(lines)


def split_overrides(words: list[str]) -> tuple[list[str], list[str]]:
    """Positional words → (the stage's own, the `a.b=c` overrides). A file whose name looks like one is `./a=b`.

    >>> split_overrides(["in.jsonl", "quotes.ambiguous=first", "./a=b"])
    (['in.jsonl', './a=b'], ['quotes.ambiguous=first'])
    """
    overrides = [word for word in words if _OVERRIDE.match(word)]
    return [word for word in words if not _OVERRIDE.match(word)], overrides


def resolve(args: argparse.Namespace, cls: type[S], overrides: list[str]) -> S | None:
    """The settings; or None where `--print-config` asked only to see them, and they have been printed."""
    resolved = config.load(cls, args.config, overrides)
    if args.print_config:
        sys.stdout.write(config.dump(resolved))
        return None
    return resolved


def resume_command(stage: str, folder: Path, launched: str = "") -> str:
    """What to type to go on, in the folder where the run was begun; `launched`: the words that start several processes.

    >>> resume_command("train", Path("runs/my first"))
    "text2grad train 'runs/my first' --config 'runs/my first/config.yaml'"
    """
    # A name that would be read as a setting or a flag is written as a path.
    named = str(folder) if folder.is_absolute() else f"./{folder}" if re.search(r"=|^-", str(folder)) else str(folder)
    words = f"text2grad {stage} {shlex.quote(named)} --config {shlex.quote(f'{named}/config.yaml')}"
    return f"{words} {launched}" if launched else words
