"""Any file that people's feedback comes in → rows of the project's format. `read_people` is the verb.

Enters: a path. Leaves: rows, and `Rejected` for what cannot be read, in the order of the file. How files are read is
`runs/tables.py`'s; which items are a labelling tool's is found here. What is not text in the expected encoding is
rejected by its line, not guessed at.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from text2grad.errors import InvalidData
from text2grad.feedback.people.argilla import ARGILLA, is_record
from text2grad.feedback.people.common import Found, PeopleSettings, finish, rows_by_person
from text2grad.feedback.people.label_studio import LABEL_STUDIO, is_task
from text2grad.feedback.rows import Ids, Rejected
from text2grad.runs.tables import read_table

TOOLS = {"label_studio": (LABEL_STUDIO, is_task), "argilla": (ARGILLA, is_record)}


def read_people(
    path: str | Path, settings: PeopleSettings | None = None, columns: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any] | Rejected]:
    """Rows `{"id", "completion", "critique"?, "prompt"?, "revision"?, "spans"?, …}`, each with whatever other columns
    it came with; and `Rejected`, with its place and reason, for each item that is none. Ids are unique: another
    person's row on the same id becomes `ID#ANNOTATOR`, and a row that still repeats one is rejected. `columns`: what
    our names are called in the file.

    Raises `InvalidData` where the file as a whole cannot be read.
    """
    return (row for _, row in numbered(path, settings or PeopleSettings(), dict(columns or {})))


def numbered(
    path: str | Path, settings: PeopleSettings, columns: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, Any] | Rejected]]:
    """The same, each with the line that it begins on, or its number in a list."""
    # Of a labelling tool's items these are the names of its texts and controls, not columns of the file.
    own = {} if columns and _is_tools(path, settings) else columns
    items = read_table(path, own, settings.encoding)
    return _unique(found for number, row in items for found in _from_item(number, row, settings, columns))


def _is_tools(path: str | Path, settings: PeopleSettings) -> bool:
    if settings.kind != "auto":
        return settings.kind in TOOLS
    rows = (row for _, row in read_table(path, encoding=settings.encoding) if isinstance(row, dict))
    first = next(rows, {})
    return any(recognised(first) for _, recognised in TOOLS.values())


def _from_item(
    number: int, row: dict[str, Any] | InvalidData, settings: PeopleSettings, columns: Mapping[str, str]
) -> Iterator[Found]:
    """A labelling tool's item, which is one row per person, or a row."""
    if isinstance(row, InvalidData):
        yield Rejected(number, None, str(row))
        return
    for kind, (tool, recognised) in TOOLS.items():
        if settings.kind == kind or (settings.kind == "auto" and recognised(row)):
            yield from rows_by_person(tool, number, row, f"line-{number}", settings, columns)
            return
    identity = f"line-{number}" if row.get("id") in (None, "") else row["id"]
    yield finish({"id": identity} | {name: value for name, value in row.items() if name != "id"}, number)


def _unique(found: Iterable[Found]) -> Iterator[tuple[int, dict[str, Any] | Rejected]]:
    with Ids() as ids:
        for each in found:
            if isinstance(each, Rejected):
                yield each.line, each
                continue
            line, row = each
            reason = ids.repeated(row)
            yield line, row if reason is None else Rejected(line, row["id"], reason)
