"""The words that every command with settings understands: `--config FILE`, `--print-config`, `--help-all`, `a.b=c`."""

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from text2grad import config
from text2grad.errors import UsageError

S = TypeVar("S")
STATUS = "TEXT2GRAD_STATUS"
"""Environment variable: where the first of several launched processes writes how the run ended."""
_OVERRIDE = re.compile(r"[A-Za-z_][\w.]*=")


def add_settings(parser: argparse.ArgumentParser, cls: type) -> None:
    """Declare the words. `--help` lists the settings that people change first, `--help-all` every one."""
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings; see --print-config")
    if "critic" in cls.__dataclass_fields__:  # type: ignore[attr-defined]
        parser.add_argument("--critic", metavar="NAME", help="who writes the critiques; the same as critic=NAME")
    shown = "print the resolved settings as YAML, with help, and stop"
    parser.add_argument("--print-config", action="store_true", help=shown)
    first, every = config.common(cls), list(config.describe(cls))
    parser.epilog = _listing(first)
    if len(first) < len(every):
        parser.add_argument("--help-all", action=_HelpAll, nargs=0, every=every, help="show every setting, and stop")
        parser.epilog += f"\n\n--help-all lists every setting ({len(every)})"


def add_unsafe(parser: argparse.ArgumentParser) -> None:
    """Declare the word that lets the critic `code` run programs unprotected."""
    unsafe = "let the critic `code` run programs without a sandbox, as you, with your files and your network: only on "
    unsafe += "a machine that can be thrown away"
    parser.add_argument("--unsafe-no-sandbox", action="store_true", help=unsafe)


def flags_again(args: argparse.Namespace) -> list[str]:
    """The flags that stand for settings, again, for the processes that a command starts."""
    critic = getattr(args, "critic", None)
    unsafe = ["--unsafe-no-sandbox"] if getattr(args, "unsafe_no_sandbox", False) else []
    return [*unsafe, *(["--critic", critic] if critic is not None else [])]


class _HelpAll(argparse.Action):
    """`--help`, with all settings instead of the common ones."""

    def __init__(self, *args: Any, every: Iterable[config.Setting], **options: Any) -> None:
        super().__init__(*args, **options)
        self.every = every

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        del namespace, values, option
        parser.epilog = _listing(self.every)
        parser.print_help()
        parser.exit()


def _listing(settings: Iterable[config.Setting]) -> str:
    lines = []
    for key, help_text, default, choices in settings:
        values = f"   ({' | '.join(map(config.inline, choices))})" if choices else ""
        lines.append(f"  {key}={config.inline(default)}{values}")
        lines.extend(textwrap.wrap(" ".join(help_text.split()), 100, initial_indent=" " * 6, subsequent_indent=" " * 6))
    return "settings, as key=value words or in the --config file, with their defaults:\n" + "\n".join(lines)


def split_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Positional words → (the command's own, the `a.b=c` overrides). A file whose name looks like one is `./a=b`.

    >>> split_overrides(["in.jsonl", "quotes.ambiguous=first", "./a=b"])
    (['in.jsonl', './a=b'], ['quotes.ambiguous=first'])
    """
    overrides = [word for word in words if _OVERRIDE.match(word)]
    return [word for word in words if not _OVERRIDE.match(word)], overrides


def resolve(args: argparse.Namespace, cls: type[S], overrides: list[str]) -> S | None:
    """The settings; or None where `--print-config` asked only to see them, and they have been printed."""
    if getattr(args, "unsafe_no_sandbox", False):
        overrides = [*overrides, "critics.code.unsafe=true"]
    if (critic := getattr(args, "critic", None)) is not None:
        said = f"critic={config.inline(critic)}"
        others = [word for word in overrides if word.startswith("critic=")]
        if other := [word for word in others if word not in (said, f"critic={critic}")]:
            raise UsageError(f"--critic {critic} and {other[0]} say different things; keep one of them")
        overrides = [*overrides, said]
    resolved = config.load(cls, args.config, overrides, warn=_tell)
    if args.print_config:
        sys.stdout.write(config.dump(resolved))
        return None
    return resolved


def _tell(message: str) -> None:
    # Of several processes the one that started them has said it already.
    if STATUS not in os.environ:
        print(f"text2grad: {message}", file=sys.stderr)
