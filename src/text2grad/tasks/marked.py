"""Published data that people have marked → rows as `text2grad annotate` writes them; what the loaders share.

Enters: what one item says. Leaves: `{"id", "prompt", "completion", "critique", "spans", "missed", "group", …}`, held to
the data format. The rules are the same for every data set: what a person found wrong is poor; a completion in which
nothing was found wrong is good as a whole; what stands beside something wrong has no verdict, because people mark what
is wrong and are silent about the rest. `group` is a digest of the source: rows of one group belong to one split.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.rows import Row
from text2grad.types import Critique, Span


def annotated(
    identity: str, prompt: str, completion: str, critique: Critique, spans: Sequence[Span], columns: Mapping[str, Any]
) -> dict[str, Any]:
    """One row; `InvalidData` where the format does not allow it."""
    plain = critique.to_json()
    marked = [span.to_json() for span in sorted(spans, key=lambda span: (span.start, span.end))]
    row = {"id": identity, "prompt": prompt, "completion": completion, "critique": plain, "spans": marked, "missed": []}
    Row.of(row)
    return row | dict(columns)


def group_of(source: str) -> str:
    """The same for the same source, whatever the split it was published in.

    >>> group_of("The dam broke at noon.")
    '3f40cebf039e13da'
    """
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def fields(row: Any, names: Mapping[str, type], where: str) -> None:
    """Raise `InvalidData` unless the row has these fields, each of its kind: then the file is another one."""
    if not isinstance(row, dict):
        raise InvalidData(f"{where}: should be a JSON object, got {shorten(row)}")
    for name, kind in names.items():
        if not isinstance(row.get(name), kind):
            came = (
                f"got {shorten(row[name])}" if name in row else f"the row has {', '.join(map(str, row)) or 'nothing'}"
            )
            raise InvalidData(f"{where}: {name} should be there as {kind.__name__}, {came}")


def existing(path: str | Path) -> Path:
    path = Path(path).expanduser()
    if not path.is_file():
        raise InvalidData(f"{path}: there is no such file")
    return path
