"""`text2grad agree`: how far two sets of annotated completions agree: people with people, people with a critic."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from text2grad.commands import parsing
from text2grad.config import settings
from text2grad.errors import InvalidData, UsageError

if TYPE_CHECKING:
    from text2grad.feedback.agreement import Agreements


@settings
class AgreeSettings:
    columns: dict[str, str] = field(default_factory=dict)
    """What our columns are called in the files, as columns.critique=feedback.text."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad agree A.jsonl [B.jsonl] [columns.NAME=THEIRS …]"
    words = "annotated rows, matched by id; of one file, what several people say of the same items"
    parser.add_argument("words", nargs="*", metavar="A B key=value", help=words)
    parsing.add_settings(parser, AgreeSettings)


def run(args: argparse.Namespace) -> int:
    files, overrides = parsing.split_overrides(args.words)
    options = parsing.resolve(args, AgreeSettings, overrides)
    if options is None:
        return 0
    if len(files) not in (1, 2):
        raise UsageError(f"wants one file or two, got {len(files)}; see text2grad agree --help")
    from text2grad.feedback.agreement import agreement

    rows = [list(read(file, options.columns)) for file in files]
    for file, part in zip(files, rows, strict=True):
        if not part:
            raise InvalidData(f"{file}: no row has anything to compare: a critique, a revision or spans")
    comparison = agreement(rows[0], rows[1] if len(rows) == 2 else None)
    if not comparison.items and comparison.differing:
        raise InvalidData(
            f"nothing can be compared: {comparison.differing:,} with the same id, and all with different completions; "
            "both files should be about the same texts"
        )
    if not comparison.items:
        some = [str(part[0]["id"]) for part in rows]
        raise InvalidData(
            f"no completion was annotated twice: rows are matched by id, and the first are {', '.join(some)}"
        )
    show(comparison, files)
    return 0


def read(file: str, columns: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The rows that say something; the others are counted and said."""
    from text2grad.feedback.people import Rejected, read_people

    left_out = []
    for row in read_people(file, columns=columns):
        if isinstance(row, Rejected):
            left_out.append(row.reason)
        elif row.get("critique"):
            yield row
        else:
            left_out.append("it has no critique, no revision and no spans")
    if left_out:
        print(f"{file}: {len(left_out):,} rows left out; the first, because {left_out[0]}", file=sys.stderr)


def show(comparison: "Agreements", files: list[str]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    who = f"{files[1]} against {files[0]}" if len(files) == 2 else f"several people in {files[0]}"
    completions = f"{comparison.items:,} completion{'' if comparison.items == 1 else 's'}"
    differing = f" ({comparison.differing:,} with the same id have different texts)" if comparison.differing else ""
    print(f"{who}: {completions}, {comparison.unmatched:,} without a counterpart{differing}")
    table = Table("", *(Column(title, justify="right") for title in ("precision", "recall", "F1")))
    for unit, verdicts in (("words", comparison.words), ("spans", comparison.spans)):
        for verdict in ("poor", "good"):
            found = verdicts[verdict]
            called, marked = found.called, found.marked
            # Where nothing was marked there is nothing to divide by: a dash.
            known = (found.precision, called), (found.recall, marked), (found.f1, called + marked)
            table.add_row(f"{verdict} {unit}", *(f"{number:.2f}" if of else "–" for number, of in known))
    Console().print(table)
    kappa = "undefined: one of the two gives every word the same verdict"
    print(f"Cohen's kappa over words: {kappa if comparison.kappa is None else f'{comparison.kappa:.2f}'}")
    if comparison.scores is not None:
        print(f"rank correlation of the scores: {comparison.scores:.2f}")
