"""`text2grad align`: a file of critiques → a file of spans. Reads lines, calls `align`, writes lines; no model needed.

A line that cannot be read is reported with its number and the reason in `OUT.rejected.jsonl`; the rest is done.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from text2grad.commands import parsing
from text2grad.errors import InvalidData, UsageError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.runs import encode_row, write_atomic
from text2grad.runs.ledger import check_target, rejects_of, write_rejects

if TYPE_CHECKING:
    from rich.console import Console

    from text2grad.feedback.rows import Row
    from text2grad.models.embed import Embedder


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "text2grad align IN.jsonl [OUT.jsonl] [key=value …] [--config FILE] [--show]\n"
        "       text2grad align --examples [OUT.jsonl] [--show]"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="IN OUT key=value",
        help="files and settings; IN may be - for standard input",
    )
    parser.add_argument(
        "--examples", action="store_true", help="use the examples that come with text2grad instead of IN"
    )
    parser.add_argument(
        "--show",
        action="store_true",
        help="print each completion and critique in colour; OUT may then be left out",
    )
    parsing.add_settings(parser, AlignSettings)


def run(args: argparse.Namespace) -> int:
    files, overrides = parsing.split_overrides(args.words)
    settings = parsing.resolve(args, AlignSettings, overrides)
    if settings is None:
        return 0
    source, target = _files(files, args)
    console = _console() if args.show else None
    work = _Work(settings, console)
    with _open(source) as stream:
        lines = work.lines(stream)
        if target is None:
            for _ in lines:
                pass
        else:
            work.write(target, lines)
    return work.report(source, target)


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


def _open(source: str | None) -> "closing[BinaryIO]":
    if source is None:
        return closing(cast(BinaryIO, resources.files("text2grad.feedback").joinpath("examples.jsonl").open("rb")))
    if source == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed: name a file instead of -")
        return closing(sys.stdin.buffer)
    try:
        return closing(Path(source).open("rb"))
    except OSError as problem:
        raise InvalidData(f"{source}: should be a readable file of JSON lines: {problem.strerror}") from None


def _console() -> "Console":
    from text2grad.report.terminal import plain_console

    return plain_console()


@dataclass
class _Work:
    """One pass over the lines, and the count of what became of them."""

    settings: AlignSettings
    console: "Console | None"
    done: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)

    def lines(self, stream: Iterable[bytes]) -> Iterator[bytes]:
        """Result lines, in the order of the input."""
        from text2grad.feedback.align.batch import AT_ONCE, align_many

        embed = self._embedder()
        rows = self._rows(stream)
        # One at a time unless an embedder gains from more: a row is shown as soon as it is done.
        while chunk := list(islice(rows, AT_ONCE if embed else 1)):
            found = align_many([row.pair for row in chunk], embed=embed, settings=self.settings)
            for row, alignment in zip(chunk, found, strict=True):
                result = row.with_given(alignment)
                self.done += 1
                if self.console is not None:
                    self._show(row, result)
                yield encode_row({"id": row.id, **result.to_json()})

    def _rows(self, stream: Iterable[bytes]) -> "Iterator[Row]":
        """The lines that can be read; the others are remembered with their number and the reason."""
        from text2grad.feedback.align.ladder import check_sizes
        from text2grad.feedback.rows import Row, identity

        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = Row.read(line)
                check_sizes(row.completion, row.critique, self.settings)
            except InvalidData as problem:
                self.rejected.append({"line": number, "id": identity(line), "reason": str(problem)})
            else:
                yield row

    def _embedder(self) -> "Embedder | None":
        if self.settings.embedder is None:
            return None
        from text2grad.models.embed import Embedder

        return Embedder(self.settings.embedder)

    def _show(self, row: "Row", result: Any) -> None:
        from text2grad.feedback.align.overlap import segments
        from text2grad.report.terminal import show

        assert self.console is not None
        show(self.console, str(row.id), row.completion, row.critique.feedback, result, segments(result.spans))

    def write(self, target: Path, lines: Iterator[bytes]) -> None:
        first = next(lines, None)
        if first is not None:
            write_atomic(target, chain([first], lines))
        write_rejects(target, self.rejected)

    def report(self, source: str | None, target: Path | None) -> int:
        name = source or "the examples"
        if not self.done and not self.rejected:
            raise InvalidData(f"{name}: should hold one JSON object a line, got no lines")
        if self.rejected:
            print(
                f"text2grad align: {len(self.rejected)} of {self.done + len(self.rejected)} lines of {name} rejected",
                file=sys.stderr,
            )
            for row in self.rejected[:5]:
                print(f"  line {row['line']}: {row['reason']}", file=sys.stderr)
            if len(self.rejected) > 5:
                print(f"  and {len(self.rejected) - 5} more", file=sys.stderr)
            if target is not None:
                print(f"all of them are in {rejects_of(target)}", file=sys.stderr)
                if not self.done:
                    print(f"{target} was not written", file=sys.stderr)
        return 0 if not self.rejected else 1 if self.done else 2
