"""Files of rows as people have them: path → (number, object) of each row, under this package's names.

Enters: JSON lines, a JSON list, a JSON object of objects, CSV, TSV or Parquet, text also as `.gz`; and `columns`, which
says where our names are found in the file: `{"revision": "feedback.summary"}`. Leaves: rows, and `InvalidData` in the
place of a row that cannot be read. What a file is, is found from its content. Spreadsheets' habits are understood: a
byte order mark, UTF-16, semicolons or tabs, quoted line breaks, CRLF. A row of `rollouts.jsonl` becomes a row like any
other. The only door for files that somebody else wrote; files that this package appends to are `jsonl.py`'s.
"""

import ast
import csv
import difflib
import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData, MissingExtra
from text2grad.runs.jsonl import parse_object

Item = tuple[int, dict[str, Any] | InvalidData]
"""(the line it begins on, or in a list its number from 1; the row, or what is wrong with it)."""
LISTS = ("spans", "passages", "tests", "hidden_tests", "messages")
"""Columns that a cell of a table may hold as JSON. Any other text stays the text that it is."""
LIKELY = {
    "completion": ("response", "output", "candidate", "prediction", "generated", "answer", "summary", "code"),
    "prompt": ("question", "instruction", "input", "query", "article", "post", "document", "text"),
    "critique": ("feedback", "comment", "review", "explanation", "rationale", "notes"),
    "reference": ("target", "gold", "ideal", "highlights", "solution", "abstract", "label"),
    "revision": ("corrected", "edited", "fixed", "rewrite"),
    "tests": ("test_list", "test", "test_cases", "unit_tests"),
}
"""What others call our columns, the likeliest first."""
OURS = {*LIKELY, *LISTS, "id", "annotator"}
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST = 50_000_000
"""Characters of one field; the csv module's own limit of 131,072 is less than some completions have."""
_MISSING: Any = object()


def read_table(
    path: str | Path | IO[bytes], columns: Mapping[str, str] | None = None, encoding: str = "utf-8"
) -> Iterator[Item]:
    """The rows of a file, or the JSON lines of an open stream, in their order.

    Raises `InvalidData` where the file as a whole cannot be read, or no row has a column that `columns` names."""
    columns = dict(columns or {})
    if not isinstance(path, str | Path):
        return _mapped(_lines(io.TextIOWrapper(path, encoding, "surrogateescape", newline="\n")), columns)
    path = Path(path).expanduser()
    if columns:
        _check(path, columns, encoding)
    return _mapped(_rows(path, columns, encoding), columns)


def pick(row: Mapping[str, Any], name: str) -> Any:
    """The value under a name: the column of that name, or what `a.b` and `a.0` mean inside of it. KeyError if none.

    >>> pick({"feedback": {"summary": "Nine."}, "texts": '["a", "b"]'}, "feedback.summary")
    'Nine.'
    >>> pick({"texts": '["a", "b"]'}, "texts.-1")
    'b'
    """
    if (value := _pick(row, name)) is _MISSING:
        raise KeyError(name)
    return value


def nearest(ours: str, row: Mapping[str, Any]) -> str:
    """What a row has, and which of it may be the column that is missing.

    >>> nearest("completion", {"id": 1, "response": "Nine."})
    'the columns are id, response; try columns.completion=response'
    """
    names = column_names(row)
    # A name with other signs is no name: the file is a text, read as a table.
    plain = [name for name in names if name != ours and re.fullmatch(r"[\w.\- ]+", name)]
    likely = [name for word in LIKELY.get(ours, ()) for name in plain if word in name.rpartition(".")[2].lower()]
    near = difflib.get_close_matches(ours, plain, n=1) or likely[:1]
    return listed(row) + (f"; try columns.{ours}={near[0]}" if near else "")


def listed(row: Mapping[str, Any]) -> str:
    """What a row has, in words."""
    names = column_names(row)
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"the columns are {shown}" if names else "there are no columns"


def column_names(row: Mapping[str, Any]) -> list[str]:
    """Names of a row's columns, nested ones included; without an id that was made from the line's number."""
    made = re.fullmatch(r"line-\d+", str(row.get("id")))
    return [name for name in _names(row) if name != "id" or not made]


def _check(path: Path, columns: Mapping[str, str], encoding: str) -> None:
    """Refuse a mapping to something that no row has. Mostly the first row has it all, and nothing else is read."""
    left, first = dict(columns), None
    for _, row in _rows(path, columns, encoding):
        if not isinstance(row, InvalidData):
            first = first or row
            left = {ours: theirs for ours, theirs in left.items() if _pick(row, theirs) is _MISSING}
        if not left:
            return
    if first is not None:
        ours, theirs = next(iter(left.items()))
        names = list(_names(first))
        near = difflib.get_close_matches(theirs, names, n=1) or difflib.get_close_matches(
            theirs.rpartition(".")[2], names, n=1
        )
        hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(names)}"
        raise InvalidData(f"{path}: columns.{ours}={theirs}: no row has it; {hint}")


def _names(row: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Names of a row, nested ones behind the one that holds them."""
    for name, value in row.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping) and above.count(".") < 2:
            yield from _names(value, f"{above}{name}.")


def _pick(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, str):
            value = _from_json(value)
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and re.fullmatch(r"-?\d+", part) and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value


def _mapped(items: Iterable[Item], columns: Mapping[str, str]) -> Iterator[Item]:
    """Rows under our names. What is mapped and empty is left out: a table has no other word for nothing."""
    for number, row in items:
        if isinstance(row, InvalidData):
            yield number, row
            continue
        row = _unrolled(row)
        picked = {ours: _pick(row, theirs) for ours, theirs in columns.items()}
        # A prompt that serves as the reference is still the prompt.
        taken = set(columns.values()) - OURS
        # A column that has one of our names, while another was mapped to it, keeps its content under another name.
        rest = {f"{name}_column" if name in columns else name: row[name] for name in row if name not in taken}
        yield number, {name: each for name, each in picked.items() if each not in (_MISSING, None, "")} | rest


def _unrolled(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `rollouts.jsonl`, or of `evaluate --rollouts`, as data; any other row as it is."""
    example, completion = row.get("example"), row.get("completion")
    if not (isinstance(example, Mapping) and isinstance(completion, Mapping) and "text" in completion):
        return row
    when = f"{row.get('update', row.get('part', ''))}{'-held-out' if row.get('held_out') else ''}"
    plain = {
        "id": f"{example.get('id')}@{when}.{row.get('index', 0)}",
        "prompt": example.get("prompt"),
        "reference": example.get("reference"),
        "completion": completion["text"],
        "critique": row.get("critique"),
        **(row.get("alignment") or {}),
        "score": row.get("score"),
    }
    columns = example.get("columns") or {}
    return dict(columns) | {name: value for name, value in plain.items() if value is not None}


# --------------------------------------------------------------------------------------------------- kinds of files


def _rows(path: Path, columns: Mapping[str, str], encoding: str) -> Iterator[Item]:
    """The rows of a file; one without any is refused."""
    empty = True
    for item in _found(path, columns, encoding):
        empty = False
        yield item
    if empty:
        raise InvalidData(f"{path}: should hold rows, got none")


def _found(path: Path, columns: Mapping[str, str], encoding: str) -> Iterator[Item]:
    with _explained(path, encoding), path.open("rb") as file:
        start = file.read(4)
        if start == b"PAR1":
            yield from _parquet(path)
            return
        text = _text(file, start, encoding)
        opening = text.read(1)
        while opening and opening in "\ufeff \t\r\n":
            opening = text.read(1)
        text.seek(0)
        lines = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))
        if lines or (opening == "{" and _is_lines(text)):
            yield from _lines(text)
            return
        if not opening:
            raise InvalidData(f"{path}: should hold rows, got an empty file")
        whole = text.read().lstrip("\ufeff")
        if opening == "[":
            yield from enumerate(_list(path, whole), 1)
        else:
            yield from _objects(whole) if opening == "{" else _table(path, whole, columns)


@contextmanager
def _explained(path: Path, encoding: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise InvalidData(f"{path}: should be a readable file: {why}") from None
    except UnicodeError as problem:
        raise InvalidData(f"{path}: {problem}; save the file as UTF-8, or set its encoding") from None
    except LookupError:
        raise InvalidData(f"encoding: should be one that Python knows, got {encoding!r}") from None


def _text(file: IO[bytes], start: bytes, encoding: str) -> IO[str]:
    """The file's text. Bytes that are no text become half surrogates, which no text has: their row is refused later."""
    file.seek(0)
    data: Any = gzip.GzipFile(fileobj=file) if start.startswith(b"\x1f\x8b") else file
    utf16 = data.read(2) in (b"\xff\xfe", b"\xfe\xff")
    data.seek(0)
    return io.TextIOWrapper(data, "utf-16" if utf16 else encoding, "surrogateescape", newline="\n")


def _is_lines(text: IO[str]) -> bool:
    """Whether a text that opens with { is JSON lines: its first line is an object, and there are more."""
    first = next((line for line in text if line.strip()), "")
    more = any(line.strip() for line in text)
    text.seek(0)
    return more and isinstance(_from_json(first.strip().lstrip("\ufeff")), dict)


def _lines(text: IO[str]) -> Iterator[Item]:
    for number, line in enumerate(text, 1):
        if line.strip():
            try:
                yield number, parse_object(line.lstrip("\ufeff") if number == 1 else line)
            except InvalidData as problem:
                yield number, problem


def _list(path: Path, text: str) -> Iterator[dict[str, Any] | InvalidData]:
    try:
        items = json.loads(text)
    except json.JSONDecodeError as problem:
        raise InvalidData(
            f"{path}, line {problem.lineno}, column {problem.colno}: should be JSON: {problem.msg}; was it cut off?"
        ) from None
    except (RecursionError, ValueError) as problem:
        raise InvalidData(f"{path}: is not JSON that can be read: {problem}") from None
    for item in items:
        yield item if isinstance(item, dict) else InvalidData(f"should be a JSON object, got {shorten(item)}")


def _objects(text: str) -> Iterator[Item]:
    """One JSON object: of rows, by their ids; with one list of rows in it; or a row itself. What is none of these is
    read line by line, for the sake of the messages."""
    whole = _from_json(text)
    if not isinstance(whole, dict):
        return _lines(io.StringIO(text))
    if whole and all(isinstance(row, dict) for row in whole.values()) and "example" not in whole:
        return enumerate(({"id": key} | row for key, row in whole.items()), 1)
    lists = [value for value in whole.values() if isinstance(value, list) and value]
    if len(lists) == 1 and len(whole) < 4 and all(isinstance(row, dict) for row in lists[0]):
        return enumerate(lists[0], 1)
    return iter([(1, whole)])


def _table(path: Path, text: str, columns: Mapping[str, str]) -> Iterator[Item]:
    """The records below the header, by column name; empty fields are left out."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST))
    delimiter = _delimiter(text.partition("\n")[0], columns)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header = _header(path, reader)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            lines = _with_it(line, reader.line_num)
            why = f"is not CSV: {problem}; is a quotation mark missing or not doubled?{lines}"
            yield line, InvalidData(why)
            continue
        if record and len(record) != len(header):
            lines = _with_it(line, reader.line_num)
            yield line, InvalidData(f"should have {len(header)} fields like the header, got {len(record)}{lines}")
        elif record:
            fields: dict[str, Any] = {name: value for name, value in zip(header, record, strict=True) if value}
            for name in LISTS:
                if isinstance(cell := fields.get(columns.get(name, name)), str) and cell.lstrip().startswith("["):
                    fields[columns.get(name, name)] = _from_python(_from_json(cell))
            yield line, fields


def _with_it(first: int, last: int) -> str:
    """What is said where one record that cannot be used took several lines with it."""
    return f"; it goes on to line {last}, so {last - first + 1:,} lines are lost with it" if last > first else ""


def _header(path: Path, reader: Any) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as problem:
        raise InvalidData(f"{path}, line 1: should be the names of the columns: {problem}") from None
    if len(set(header)) < len(header):
        twice = next(column for column in header if header.count(column) > 1)
        raise InvalidData(f"{path}: should have each column once, got {twice!r} several times; rename them")
    return header


def _delimiter(header: str, columns: Mapping[str, str]) -> str:
    """The delimiter by which the header has most of the columns that are looked for, then most columns."""
    wanted = {*OURS, *(name.partition(".")[0] for name in columns.values())}

    def found(delimiter: str) -> tuple[int, int]:
        names = [name.strip(' "\r\n\ufeff') for name in header.split(delimiter)]
        return len(wanted & set(names)), len(names)

    return max(_DELIMITERS, key=found)


def _parquet(path: Path) -> Iterator[Item]:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as problem:
        raise MissingExtra.of(problem, f"reading {path}") or problem from None
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(256):
            for row in batch.to_pylist():
                number += 1
                # Dates and decimals as texts: a row is JSON.
                yield number, json.loads(json.dumps(row, default=str))
    except (ArrowException, OSError) as problem:
        raise InvalidData(f"{path}: is not Parquet that can be read ({problem}); was it cut off?") from None


def _from_python(cell: Any) -> Any:
    """A list as Python prints it, which is how pandas writes one into a cell; else what came. Not what only looks like
    one: numpy prints no commas, and Python would glue such texts together."""
    if isinstance(cell, str):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            found = ast.literal_eval(cell.strip())
            return found if isinstance(found, list) and repr(found) == cell.strip() else cell
    return cell


def _from_json(text: str) -> Any:
    """A text as JSON where it is some; else the text."""
    if text.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text
