"""JSON lines in: path → (line number, object). The only reader of JSONL in the package, with two policies.

`read_rows(path)` is strict, for files that somebody else wrote: the first line that is no object is an `InvalidData`
with its number. `read_jsonl(path)` is for files that this package appends to: what a kill left of the last line is
passed over. Both skip blank lines.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData


def read_rows(path: str | Path, *, torn_end: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object). `torn_end`: a broken last line without a line end is passed over."""
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = parse_object(line)
            except InvalidData as problem:
                if torn_end and not line.endswith(b"\n"):
                    return
                raise InvalidData(f"{path}, line {number}: {problem}") from None
            yield number, row


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """The objects of a file that this package appends to."""
    return (row for _, row in read_rows(path, torn_end=True))


def parse_object(line: bytes | str) -> dict[str, Any]:
    """The object of one line.

    >>> parse_object(b'{"step": 1}')
    {'step': 1}
    """
    try:
        row = json.loads(line if isinstance(line, str) else line.decode("utf-8-sig"))
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
