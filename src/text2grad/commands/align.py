"""`text2grad align`: a file of critiques → a file of spans. No model needed.

A line that cannot be read goes to `OUT.rejected.jsonl` with its number and the reason; the rest is aligned.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import field
from importlib import resources
from itertools import chain, count, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from text2grad.commands import parsing
from text2grad.config import settings
from text2grad.errors import InvalidData, UsageError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.settings import OpenAISettings
from text2grad.runs import encode_row, write_atomic
from text2grad.runs.ledger import check_target, rejects_of, write_rejects

if TYPE_CHECKING:
    from text2grad.feedback.align.locator import Locator
    from text2grad.feedback.rows import Row


@settings
class ServerSettings:
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    """Server, key, cache and budget of the locator; the same settings as of a model critic."""


@settings
class AlignCommandSettings(AlignSettings):
    COMMON: ClassVar = (
        *("verdict", "embedder", "locator", "columns", "quotes.ambiguous", "quotes.fuzzy", "quotes.shortest_fuzzy"),
        *("revision.use", "code.use", "code.share", "paraphrase.use", "paraphrase.threshold", "paraphrase.bridge"),
        *("critics.openai.base_url", "critics.openai.concurrency", "critics.openai.budget.requests"),
        *("critics.openai.budget.tokens", "critics.openai.budget.money"),
    )
    columns: dict[str, str] = field(default_factory=dict)
    """What our columns are called in the file, as columns.critique=feedback.text."""
    critics: ServerSettings = field(default_factory=ServerSettings)
    """Who is asked by `locator`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "text2grad align IN [OUT.jsonl] [key=value …] [--config FILE] [--show]\n"
        "       text2grad align --examples [OUT.jsonl] [--show]"
    )
    words = "files and settings; IN is JSONL, JSON, CSV or Parquet, or - for JSON lines on standard input"
    parser.add_argument("words", nargs="*", metavar="IN OUT key=value", help=words)
    examples = "use the examples that come with text2grad instead of IN"
    parser.add_argument("--examples", action="store_true", help=examples)
    show = "print each completion and critique in colour; OUT may then be left out"
    parser.add_argument("--show", action="store_true", help=show)
    parsing.add_settings(parser, AlignCommandSettings)


def run(args: argparse.Namespace) -> int:
    files, overrides = parsing.split_overrides(args.words)
    settings = parsing.resolve(args, AlignCommandSettings, overrides)
    if settings is None:
        return 0
    source, target = _files(files, args)
    rejected: list[dict[str, Any]] = []
    done = count()
    with _open(source) as opened, _opened_locator(settings, target) as locator:
        lines = _aligned(_rows(opened, settings, rejected), settings, args.show, locator)
        counted = (line for line, _ in zip(lines, done, strict=False))
        first = next(counted, None)
        if target is None:
            for _ in counted:
                pass
        else:
            if first is not None:
                write_atomic(target, chain([first], counted))
            write_rejects(target, rejected)
    return _report(source or "the examples", target, rejected, next(done))


def _files(files: list[str], args: argparse.Namespace) -> tuple[str | None, Path | None]:
    """(input or None for the examples, output or None where only shown)."""
    wanted = 1 if args.examples else 2
    if not args.examples and not files:
        raise UsageError(
            "wants a file of critiques: text2grad align IN.jsonl OUT.jsonl; or --examples --show to see some"
        )
    if len(files) > wanted:
        raise UsageError(f"takes {'OUT' if args.examples else 'IN and OUT'}, got {len(files)} files: {' '.join(files)}")
    source = None if args.examples else files[0]
    target = Path(files[-1]) if len(files) == wanted else None
    if target is None and not args.show:
        raise UsageError("has nowhere to put the spans: name OUT.jsonl, or give --show to print them")
    if target is not None:
        check_target(None if source in (None, "-") else Path(source), target)
    return source, target


def _open(source: str | None) -> "AbstractContextManager[Path | BinaryIO]":
    if source is None:
        return resources.as_file(resources.files("text2grad.feedback").joinpath("examples.jsonl"))
    if source == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed: name a file instead of -")
        return closing(sys.stdin.buffer)
    return nullcontext(Path(source))


@contextmanager
def _opened_locator(settings: AlignCommandSettings, target: Path | None) -> "Iterator[Locator | None]":
    """The locator that the settings name. What it spends is kept beside the output until that is written: a run that
    was killed resumes within the same budget, and what was answered is remembered."""
    if settings.locator is None:
        yield None
        return
    from text2grad.feedback.align.locator import Locator
    from text2grad.feedback.critics.budget import Budget

    budget = Budget(settings.critics.openai.budget)
    with Locator(settings.locator, settings.critics.openai, budget) as locator:
        with budget.kept_beside(target) if target is not None else nullcontext():
            try:
                yield locator
            finally:
                print(f"{locator.model.__name__}: {budget}\n{locator}", file=sys.stderr)
        if target is not None:
            budget.journal_of(target).unlink(missing_ok=True)


def _rows(opened: Path | BinaryIO, settings: AlignCommandSettings, rejected: list[dict[str, Any]]) -> "Iterator[Row]":
    """The rows that can be read; the others are put aside with their number and the reason."""
    from text2grad.feedback.align.ladder import check_sizes
    from text2grad.feedback.rows import Row, check_writable, identity
    from text2grad.runs.tables import read_table

    for number, fields in read_table(opened, settings.columns):
        try:
            if isinstance(fields, InvalidData):
                raise fields
            check_writable(fields, numbers=False)
            row = Row.of({"id": f"line-{number}"} | fields)
            check_sizes(row.completion, row.critique, settings)
        except InvalidData as problem:
            known = None if isinstance(fields, InvalidData) else identity(fields)
            rejected.append({"line": number, "id": known, "reason": str(problem)})
        else:
            yield row


def _aligned(rows: "Iterator[Row]", settings: AlignSettings, show: bool, locator: "Locator | None") -> Iterator[bytes]:
    """Result lines, in the order of the input; with `show`, each row is printed as soon as it is done."""
    from text2grad.feedback.align import align_many, segments

    embed = None
    if settings.embedder is not None:
        from text2grad.models.embed import Embedder

        embed = Embedder(settings.embedder)
    if show:
        from text2grad.report import terminal

        console = terminal.plain_console()
    rows, again = tee(rows)
    alignments = align_many((row.pair for row in again), embed=embed, locate=locator, settings=settings)
    for row, alignment in zip(rows, alignments, strict=True):
        result = row.with_given(alignment)
        if show:
            words = row.critique.feedback
            terminal.show(console, str(row.id), row.completion, words, result, segments(result.spans))
        yield encode_row({"id": row.id, **result.to_json()})


def _report(name: str, target: Path | None, rejected: list[dict[str, Any]], done: int) -> int:
    """Say what was rejected. 0: nothing; 1: some lines; 2: all of them."""
    if not done and not rejected:
        raise InvalidData(f"{name}: should hold one JSON object a line, got no lines")
    if not rejected:
        return 0
    said = [f"text2grad align: {len(rejected)} of {done + len(rejected)} lines of {name} rejected"]
    said += [f"  line {row['line']}: {row['reason']}" for row in rejected[:5]]
    said += [f"  and {len(rejected) - 5} more"] if len(rejected) > 5 else []
    said += [f"all of them are in {rejects_of(target)}"] if target is not None else []
    said += [f"{target} was not written"] if target is not None and not done else []
    print("\n".join(said), file=sys.stderr)
    return 1 if done else 2
