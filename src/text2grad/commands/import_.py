"""`text2grad import`: a published data set's file → rows that every command takes. The formats are in `tasks/`."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from text2grad.commands import parsing
from text2grad.errors import InvalidData, UsageError
from text2grad.runs import encode_row, write_atomic
from text2grad.runs.ledger import check_target, rejects_of, write_rejects

NAMES = (
    *("defacto", "humaneval", "kodcode", "mbpp", "pubmedqa", "qa_feedback", "scitldr", "slf5k", "tldr"),
    *("ultrafeedback", "xsum"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad import TASK FILE OUT.jsonl [--split NAME]"
    parser.add_argument("words", nargs="*", metavar="TASK FILE OUT", help=f"TASK is one of {', '.join(NAMES)}")
    parser.add_argument("--split", metavar="NAME", help="only this split of the file: train, validation or test")
    parser.epilog = (
        "FILE is JSONL, JSON, CSV or Parquet, as published. Your own file needs no import: every command maps its\n"
        "columns, as in columns.completion=output columns.revision=feedback.summary."
    )


def run(args: argparse.Namespace) -> int:
    words, overrides = parsing.split_overrides(args.words)
    if len(words) != 3 or overrides:
        raise UsageError("wants TASK, FILE and OUT.jsonl; see text2grad import --help")
    name, source, target = words[0], Path(words[1]).expanduser(), Path(words[2])
    check_target(source, target)
    if target.exists():
        raise UsageError(f"{target} exists already; name another OUT, or delete it")
    from text2grad.tasks.annotated import leaving_out
    from text2grad.tasks.published import numbered

    rejected: list[dict[str, Any]] = []
    with leaving_out() as aside:
        rows = list(imported_rows(name, str(source), args.split, rejected))
    seen: Counter[str] = Counter()
    rows = [row | {"id": numbered(str(row["id"]), seen)} for row in rows]
    rejected = sorted([*rejected, *(row.to_json() for row in aside.values())], key=lambda row: row["line"])
    if not rows:
        first = f"; line {rejected[0]['line']}: {rejected[0]['reason']}" if rejected else ""
        raise InvalidData(f"{source}: should hold rows of {name}, got none{first}")
    write_atomic(target, map(encode_row, rows))
    write_rejects(target, rejected)
    columns = ", ".join(dict.fromkeys(column for row in rows for column in row))
    count = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    print(f"{count} in {target}, {len(rejected):,} rejected; columns: {columns}", file=sys.stderr)
    if rejected:
        print(f"the first is line {rejected[0]['line']}: {rejected[0]['reason']}", file=sys.stderr)
        print(f"the reasons are in {rejects_of(target)}", file=sys.stderr)
    return 1 if rejected else 0


def imported_rows(
    name: str, source: str, split: str | None, rejected: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Completions with what people said, where the data set has them; else its examples."""
    from text2grad.feedback.people import Rejected
    from text2grad.tasks.annotated import fields_of
    from text2grad.tasks.task import open_task

    task = open_task(name, data=source)
    for part in task.splits if split is None else [split]:
        # Unlike in training, there may be none; of a split that is not there, `examples` tells.
        given = task.splits[part] if part in task.splits else task.examples(part)
        examples = {example.id: example for example in (given() if callable(given) else given)}
        for row in task.annotated(part) if part in task.annotations else ():
            if isinstance(row, Rejected):
                rejected.append(row.to_json())
            else:
                example = examples.get(row.id)
                own = {} if example is None or example.reference is None else {"reference": example.reference}
                yield fields_of(row) | own
        if part not in task.annotations:
            for example in examples.values():
                plain = example.to_json()
                columns = plain.pop("columns")
                yield {key: value for key, value in plain.items() if value is not None} | columns
