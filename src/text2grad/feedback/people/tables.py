"""CSV files from people. Enters: a path. Leaves: (line, fields) of each record, or `Rejected`; spreadsheets' habits are
understood: a byte order mark, UTF-16, semicolons or tabs, quoted line breaks, CRLF. What is not text in the expected
encoding is rejected by its line, not guessed at.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.items import Rejected
from text2grad.feedback.people.settings import PeopleSettings

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST = 50_000_000
"""Characters of one field; the csv module's own limit of 131,072 is less than some completions have."""


def encoding_of(start: bytes, wanted: str) -> str:
    """The encoding by the byte order mark, else the one that is wanted."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    return "utf-8-sig" if wanted.lower().replace("_", "-") in ("utf-8", "utf8") else wanted


def read_csv(path: Path, settings: PeopleSettings) -> Iterator[tuple[int, dict[str, str]] | Rejected]:
    """The records below the header, by column name; empty fields are left out."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    with path.open("rb") as file:
        encoding = encoding_of(file.read(4), settings.encoding)
    # Bytes that are no text become half surrogates, which no text has: they are found again line by line.
    with path.open(encoding=encoding, errors="surrogateescape", newline="") as stream:
        delimiter = settings.delimiter if settings.delimiter != "auto" else _sniff(stream, settings)
        stream.seek(0)
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header = _header(path, reader, settings)
        yield from _records(reader, header, settings)


def _header(path: Path, reader: Any, settings: PeopleSettings) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except (csv.Error, UnicodeError) as problem:
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


def _records(
    reader: Any, header: list[str], settings: PeopleSettings
) -> Iterator[tuple[int, dict[str, str]] | Rejected]:
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            yield Rejected(line, None, f"is not CSV: {problem}; is a quotation mark missing or not doubled?")
            continue
        except UnicodeError as problem:
            yield Rejected(line, None, f"is not text: {problem}; nothing behind it can be read")
            return
        if not record:
            continue
        if len(record) != len(header):
            yield Rejected(line, None, f"should have {len(header)} fields like the header, got {len(record)}")
            continue
        fields = {name: value for name, value in zip(header, record, strict=True) if value != ""}
        broken = next((name for name, value in fields.items() if undecoded(value)), None)
        if broken is not None:
            yield Rejected(
                line,
                None if undecoded(fields.get(settings.columns.id, "")) else fields.get(settings.columns.id),
                f"{broken}: is not {settings.encoding}: byte {_byte(fields[broken]):#04x} in "
                f"{_readable(fields[broken])}; save the file as UTF-8, or set encoding to its own",
            )
            continue
        yield line, fields


def undecoded(value: str) -> bool:
    """Whether bytes were left that are no text in the file's encoding."""
    return any("\udc80" <= character <= "\udcff" for character in value)


def _byte(value: str) -> int:
    return next(ord(character) - 0xDC00 for character in value if "\udc80" <= character <= "\udcff")


def _readable(value: str) -> str:
    return shorten("".join("�" if "\udc80" <= character <= "\udcff" else character for character in value), 40)


def _sniff(stream: Any, settings: PeopleSettings) -> str:
    """The delimiter by which the header has most of the columns that are looked for, then most columns."""
    columns = settings.columns
    wanted = {columns.id, columns.prompt, columns.completion, columns.critique, columns.revision, columns.annotator}
    start = io.StringIO(stream.read(65_536), newline="")

    def found(delimiter: str) -> tuple[int, int]:
        start.seek(0)
        try:
            header = [name.strip() for name in next(csv.reader(start, delimiter=delimiter), [])]
        except csv.Error:
            return (0, 0)
        return len(wanted & set(header)), len(header)

    return max(_DELIMITERS, key=found)
