"""Any file that people's feedback comes in → rows of the project's format. `read_people` is the verb.

Enters: a path. Leaves: rows, and `Rejected` for what cannot be read, in the order of the file. Spreadsheets' habits
are understood: a byte order mark, UTF-16, semicolons or tabs, quoted line breaks, CRLF. What is not text in the
expected encoding is rejected by its line, not guessed at.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.argilla import ARGILLA, is_record
from text2grad.feedback.people.common import Found, PeopleSettings, finish, rows_of
from text2grad.feedback.people.label_studio import LABEL_STUDIO, is_task
from text2grad.feedback.rows import Ids, Rejected
from text2grad.runs import parse_object

_OURS = ("id", "prompt", "completion", "critique", "revision", "spans", "annotator")
_LISTS = ("passages", "tests")
"""Columns that, beside the spans, a table holds as JSON."""
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST = 50_000_000
"""Characters of one field; the csv module's own limit of 131,072 is less than some completions have."""

Item = tuple[int, Any] | Rejected
"""(line or number, value), or why there is none."""


def read_people(path: str | Path, settings: PeopleSettings | None = None) -> Iterator[dict[str, Any] | Rejected]:
    """Rows `{"id", "completion", "critique", "prompt"?, "revision"?, "spans"?, …}`, each with whatever other columns it
    came with; and `Rejected`, with its place and reason, for each item that is none. Ids are unique: another person's
    row on the same id becomes `ID#ANNOTATOR`, and a row that still repeats one is rejected.

    Raises `InvalidData` where the file as a whole cannot be read.
    """
    path, settings = Path(path), settings or PeopleSettings()
    text = _decoded(path, settings.encoding).lstrip("\ufeff")
    opening = text.lstrip()[:1]
    if not opening:
        raise InvalidData(f"{path}: should hold feedback, got an empty file")
    if settings.kind == "csv" or (settings.kind == "auto" and opening not in "[{"):
        items = _table(path, text, settings)
    else:
        items = _list(path, text) if opening == "[" else _lines(text)
    return _unique(each for item in items for each in _from_item(item, path, settings))


def _decoded(path: Path, encoding: str) -> str:
    """The file's text. Bytes that are no text become half surrogates, which no text has: their row is rejected."""
    try:
        data = path.read_bytes()
        return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else encoding, "surrogateescape")
    except OSError as problem:
        raise InvalidData(f"{path}: should be a readable file: {problem.strerror}") from None
    except LookupError:
        raise InvalidData(f"encoding: should be one that Python knows, got {encoding!r}") from None
    except UnicodeError as problem:
        raise InvalidData(f"{path}: {problem}; save the file as UTF-8, or set encoding to its own") from None


def _from_item(item: Item, path: Path, settings: PeopleSettings) -> Iterator[Found]:
    """An item of a labelling tool, or a row."""
    if isinstance(item, Rejected):
        yield item
        return
    number, value = item
    if not isinstance(value, Mapping):
        yield Rejected(number, None, f"should be a JSON object, got {shorten(value)}")
    elif settings.kind == "label_studio" or (settings.kind == "auto" and is_task(value)):
        yield from rows_of(LABEL_STUDIO, number, value, f"{path.stem}-{number}", settings)
    elif settings.kind == "argilla" or (settings.kind == "auto" and is_record(value)):
        yield from rows_of(ARGILLA, number, value, f"{path.stem}-{number}", settings)
    else:
        yield _from_row(number, value, path, settings)


def _from_row(line: int, value: Mapping[str, Any], path: Path, settings: PeopleSettings) -> Found:
    ours = {getattr(settings.columns, key): key for key in _OURS}
    row = {ours[name]: each for name, each in value.items() if name in ours and each not in (None, "")}
    # A column that has one of our names, while another was mapped to it, keeps its content under another name.
    row |= {f"{name}_column" if name in _OURS else name: each for name, each in value.items() if name not in ours}
    row.setdefault("id", f"{path.stem}-{line}")
    return finish({"id": row.pop("id"), **row}, line)


def _unique(found: Iterable[Found]) -> Iterator[dict[str, Any] | Rejected]:
    with Ids() as ids:
        for each in found:
            if isinstance(each, Rejected):
                yield each
                continue
            line, row = each
            reason = ids.repeated(row)
            yield row if reason is None else Rejected(line, row["id"], reason)


def _lines(text: str) -> Iterator[Item]:
    """One object per line."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, parse_object(line)
            except InvalidData as problem:
                yield Rejected(number, None, str(problem))


def _list(path: Path, text: str) -> Iterator[Item]:
    try:
        items = json.loads(text)
    except json.JSONDecodeError as problem:
        raise InvalidData(
            f"{path}, line {problem.lineno}, column {problem.colno}: should be JSON: {problem.msg}; was it cut off?"
        ) from None
    except (RecursionError, ValueError) as problem:
        raise InvalidData(f"{path}: is not JSON that can be read: {problem}") from None
    yield from enumerate(items, 1)


def _table(path: Path, text: str, settings: PeopleSettings) -> Iterator[Item]:
    """The records below the header, by column name; empty fields are left out."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    reader = csv.reader(
        StringIO(text, newline=""), delimiter=_delimiter(text.partition("\n")[0], settings), strict=True
    )
    header = _header(path, reader, settings)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            yield Rejected(line, None, f"is not CSV: {problem}; is a quotation mark missing or not doubled?")
            continue
        if record:
            yield _record(line, header, record, settings)


def _header(path: Path, reader: Any, settings: PeopleSettings) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as problem:
        raise InvalidData(f"{path}, line 1: should be the names of the columns: {problem}") from None
    name = settings.columns.completion
    if name not in header:
        raise InvalidData(
            f"{path}: should have a column {name!r}, got the columns {shorten(header, 200)}; set columns.completion to "
            "the one that holds what the model wrote"
        )
    if len(set(header)) < len(header):
        twice = next(column for column in header if header.count(column) > 1)
        raise InvalidData(f"{path}: should have each column once, got {twice!r} several times; rename them")
    return header


def _record(line: int, header: list[str], record: list[str], settings: PeopleSettings) -> Item:
    if len(record) != len(header):
        return Rejected(line, None, f"should have {len(header)} fields like the header, got {len(record)}")
    fields: dict[str, Any] = {name: value for name, value in zip(header, record, strict=True) if value != ""}
    for name in (*_LISTS, settings.columns.spans):
        if isinstance(fields.get(name), str) and fields[name].lstrip().startswith("["):
            # What is no JSON stays the text that it is; where a list is a must, the row is rejected for it.
            with suppress(ValueError, RecursionError):
                fields[name] = json.loads(fields[name])
    return line, fields


def _delimiter(header: str, settings: PeopleSettings) -> str:
    """The delimiter by which the header has most of the columns that are looked for, then most columns."""
    wanted = {getattr(settings.columns, name) for name in _OURS}

    def columns(delimiter: str) -> tuple[int, int]:
        names = [name.strip(' "\r\n\ufeff') for name in header.split(delimiter)]
        return len(wanted & set(names)), len(names)

    return max(_DELIMITERS, key=columns)
