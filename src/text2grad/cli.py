"""The command line: find the command, parse its words, run it, turn our errors into one clear message and a status.

Enters: argv. Leaves: an exit status (0 done, 1 done but some lines were rejected, 2 not done, 130 interrupted). Knows
nothing of a command's work: its module offers `arguments(parser)` and `run(args) -> int`, and is imported only when it
is named, so `--help` answers without torch.
"""

import argparse
import contextlib
import difflib
import importlib
import io
import keyword
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, Protocol, TextIO, cast

from text2grad import __version__, secrets
from text2grad.errors import MissingExtra, Text2GradError, panicked

COMMANDS = {
    "demo": "train a small model in a few minutes, and open the report",
    "studio": "write critiques in the browser, and watch the model learn from them",
    "import": "a published data set's file → rows that every command takes",
    "align": "critiques → spans, no model needed",
    "annotate": "completions → critiques → spans, by people, programs or models",
    "agree": "how far people agree with each other, or with a critic",
    "reward-model": "train a model that scores every token and says why",
    "sft": "supervised start of a policy, from given completions",
    "train": "reinforcement learning of a policy, from critiques",
    "dpo": "preference learning: of two completions the better one becomes likelier",
    "trl": "TRL's GRPO or SDPO with the same data, critic and evaluation",
    "compare": "a table of arms and seeds by one command, with intervals",
    "evaluate": "metrics of any model on a task: greedy, samples, best of n",
    "generate": "see what a model writes: for a prompt, a file or standard input",
    "doctor": "what is missing on this machine, and the command to get it",
    "env": "versions and devices, for bug reports",
    "export": "a checkpoint of a stopped run → a model folder; rollouts → rows for other trainers",
    "push": "a finished run's model and its card → a model hub",
    "report": "run folders → one HTML file: charts, completions, critiques",
}
"""Name → one line of help; the command itself is `text2grad.commands.NAME`, see `module_of`."""


class Command(Protocol):
    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's words; no heavy import here, `--help` comes through it."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    for word in words:
        secrets.hidden_word(word)  # remembered, so that no message repeats it
    _prepare_streams()
    top = _parser()
    # Only the first word is parsed here: the command's own parser is built when the command is known.
    name = top.parse_args(words[:1]).command
    if name is None:
        top.print_help()
        return 2
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"the commands are {', '.join(COMMANDS)}"
        print(f"text2grad: there is no command {name!r}; {hint}", file=sys.stderr)
        return 2
    try:
        status = _run(name, words[1:])
        sys.stdout.flush()
        return status
    except ModuleNotFoundError as problem:
        missing = MissingExtra.of(problem, f"text2grad {name}")
        if missing is None:
            raise
        return _failed(str(missing))
    except MissingExtra as problem:
        return _failed(str(problem))
    except Text2GradError as problem:
        return _failed(f"text2grad {name}: {problem}")
    except KeyboardInterrupt:
        print(f"text2grad {name}: interrupted", file=sys.stderr)
        return 130
    except RecursionError:
        return _failed(f"text2grad {name}: something here is nested too deeply: a path of a thousand folders, or data")
    except BrokenPipeError:
        # The reader (`| head`) has gone, and has all it wanted.
        _silence(sys.stdout)
        return 0
    except OSError as problem:
        _silence(sys.stdout)
        print(f"text2grad {name}: {problem}", file=sys.stderr)
        return 2
    except BaseException as problem:
        if not panicked(problem):
            raise
        return _failed(f"text2grad {name}: a library gave up, as on a tokenizer that is damaged ({problem})")


def _run(name: str, words: Sequence[str]) -> int:
    command = cast(Command, importlib.import_module(f"text2grad.commands.{module_of(name)}"))
    parser = _Parser(
        prog=f"text2grad {name}",
        description=COMMANDS[name],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.arguments(parser)
    return command.run(parser.parse_intermixed_args(words))


class _Parser(argparse.ArgumentParser):
    """Says how a setting is written where one was given as a flag."""

    def error(self, message: str) -> NoReturn:
        flag = re.search(r"unrecognized arguments: --([\w.-]+)", message)
        hint = f"; settings are written without dashes: {flag[1].replace('-', '_')}=VALUE" if flag else ""
        super().error(message + hint)


def module_of(name: str) -> str:
    """A command's module: with an underscore for a hyphen, and behind a word of Python's own."""
    return name.replace("-", "_") + "_" * keyword.iskeyword(name)


def _failed(message: str) -> int:
    if os.environ.get("TEXT2GRAD_DEBUG"):
        traceback.print_exc()
    print(secrets.hidden(message, message=True), file=sys.stderr)
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
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {line}" for name, line in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="text2grad",
        usage="text2grad COMMAND [words of the command]",
        description="Train language models from written feedback.",
        epilog=f"commands:\n{listing}\n\n`text2grad COMMAND --help` explains one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"text2grad {__version__}")
    parser.add_argument("command", nargs="?", metavar="COMMAND", help=argparse.SUPPRESS)
    return parser
