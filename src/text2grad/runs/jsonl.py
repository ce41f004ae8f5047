"""JSON lines in: path → (line number, object). The only reader of JSONL in the package, with three policies.

`read_rows(path)` is strict, for files that somebody else wrote: the first line that is no object is an `InvalidData`
with its number. `read_jsonl(path)` is for files that this package appends to: what a kill left of the last line is
passed over. `scan(path)` and `scan_lines(lines)` read on behind broken lines and tell where each line begins. All
skip blank lines.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData


def scan(
    path: str | Path, *, torn_end: bool = True, **options: Any
) -> Iterator[tuple[int, int, dict[str, Any] | InvalidData]]:
    """(byte where a line begins, its number, its object or what is wrong with it). `torn_end`: a broken last line
    without a line end is passed over. `options`: those of `json.loads`."""
    with Path(path).open("rb") as file:
        yield from scan_lines(file, torn_end=torn_end, **options)


def scan_lines(
    lines: Iterable[bytes], *, torn_end: bool = False, **options: Any
) -> Iterator[tuple[int, int, dict[str, Any] | InvalidData]]:
    """The same for lines with their ends, such as an open file or a `BytesIO`."""
    start = 0
    for number, line in enumerate(lines, 1):
        row: dict[str, Any] | InvalidData
        try:
            row = parse_object(line, **options)
        except InvalidData as problem:
            row = problem
        torn = torn_end and isinstance(row, InvalidData) and not line.endswith(b"\n")
        if line.strip() and not torn:
            yield start, number, row
        start += len(line)


def read_rows(path: str | Path, *, torn_end: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object)."""
    for _, number, row in scan(path, torn_end=torn_end):
        if isinstance(row, InvalidData):
            raise InvalidData(f"{path}, line {number}: {row}")
        yield number, row


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """The objects of a file that this package appends to."""
    return (row for _, row in read_rows(path, torn_end=True))


def parse_object(line: bytes | str, **options: Any) -> dict[str, Any]:
    """The object of one line. `options`: those of `json.loads`.

    >>> parse_object(b'{"step": 1}')
    {'step': 1}
    """
    try:
        row = json.loads(line if isinstance(line, str) else line.decode("utf-8-sig"), **options)
    except UnicodeDecodeError as problem:
        reason = f"it is not UTF-8: {problem.reason} at byte {problem.start}"
    except json.JSONDecodeError as problem:
        reason = f"it is not JSON: {problem.msg} at character {problem.pos}"
    except (RecursionError, ValueError) as problem:
        reason = f"it is not JSON that can be read: {problem}"
    else:
        if isinstance(row, dict):
            return row
        raise InvalidData(f"should be a JSON object, got {type(row).__name__} {shorten(row)}")
    raise InvalidData(f"should be one JSON object, but {reason}")
