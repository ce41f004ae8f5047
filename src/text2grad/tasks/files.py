"""What the loaders of files share: rows with their line, columns that must be there, people's marks as a row.

A row of published human feedback has the format of `text2grad annotate`. The rules are the same for every data set:
what a person found wrong is poor; a completion in which nothing was found wrong is good as a whole; the rest of a
completion with something wrong in it has no verdict, because people mark what is wrong and are silent about the rest.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.rows import Row, check_writable
from text2grad.runs import read_rows
from text2grad.types import Critique, Span

T = TypeVar("T")


def existing(path: str | Path, what: str) -> Path:
    path = Path(path).expanduser()
    if not path.is_file():
        raise InvalidData(f"{path}: should be {what}, and there is no such file")
    return path


def read_each(path: str | Path, what: str, read: Callable[[int, dict[str, Any]], T]) -> Iterator[T]:
    """`read(line number, row)` of each line of a JSONL file. An error names the line, also where the last line was cut
    off: training data should be right."""
    for number, row in read_rows(existing(path, f"a JSONL file of {what}")):
        try:
            check_writable(row, numbers=False)
            item = read(number, row)
        except InvalidData as problem:
            raise InvalidData(f"{path}, line {number}: {problem}") from None
        yield item


def fields(row: Any, names: Mapping[str, type], inside: str = "") -> None:
    """Raise `InvalidData` unless the row has these columns, each of its type: if not, it is another data set's."""
    if not isinstance(row, dict):
        raise InvalidData(f"{inside}should be a JSON object, got {shorten(row)}")
    for name, kind in names.items():
        if not isinstance(row.get(name), kind):
            columns = ", ".join(map(str, row)) or "nothing"
            came = f"got {shorten(row[name])}" if name in row else f"the row has {columns}"
            raise InvalidData(f"{inside}{name} should be there as {kind.__name__}, {came}")


def group_of(source: str) -> str:
    """The same for the same source, in whatever split it was published. Rows of one group belong to one split.

    >>> group_of("The dam broke at noon.")
    '3f40cebf039e13da'
    """
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def marked_row(
    identity: str, prompt: str, completion: str, critique: Critique, spans: Sequence[Span], columns: Mapping[str, Any]
) -> dict[str, Any]:
    """What a person marked, as `text2grad annotate` writes it; `InvalidData` where the format does not allow it."""
    marks = [span.to_json() for span in sorted(spans, key=lambda span: (span.start, span.end))]
    plain = critique.to_json()
    row = {"id": identity, "prompt": prompt, "completion": completion, "critique": plain, "spans": marks, "missed": []}
    Row.of(row)
    return row | dict(columns)
