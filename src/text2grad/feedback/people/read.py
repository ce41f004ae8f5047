"""Any file that people's feedback comes in → rows of the project's format. `read_people` is the verb.

Enters: a path. Leaves: rows, and `Rejected` for what cannot be read, in the order of the file. CSV and JSON lines in
the project's own format are read one by one; exports of labelling tools are read whole, because what their offsets
count is a matter of the whole file. Refuses to know commands and stages.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.people.argilla import is_record, read_argilla
from text2grad.feedback.people.items import Found, Ids, Rejected, finish
from text2grad.feedback.people.label_studio import is_minimal, is_task, read_label_studio
from text2grad.feedback.people.settings import Kind, PeopleSettings
from text2grad.feedback.people.tables import encoding_of, read_csv, undecoded

_DEFAULT = PeopleSettings()
_OURS = ("id", "prompt", "completion", "critique", "revision", "spans", "annotator")
_LISTS = ("passages", "tests")
"""Columns that, beside the spans, a CSV file holds as JSON."""

_LOOKED_AT = 100
"""Items by which a file's kind is told: in some exports an item that nobody marked looks like a plain row."""

Item = tuple[int, Any] | Rejected
"""(line or number, value), or why there is none."""


def read_people(path: str | Path, settings: PeopleSettings = _DEFAULT) -> Iterator[dict[str, Any] | Rejected]:
    """Rows `{"id", "completion", "critique", "prompt"?, "revision"?, "spans"?, …}`, each with whatever other columns it
    came with; and `Rejected`, with its place and reason, for each item that is none. Ids are unique: another person's
    row on the same id becomes `ID#ANNOTATOR`, and a row that still repeats one is rejected.

    Raises `InvalidData` where the file as a whole cannot be read.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            start = file.read(65_536)
    except OSError as problem:
        raise InvalidData(f"{path}: should be a readable file: {problem.strerror}") from None
    encoding = encoding_of(start, settings.encoding)
    try:
        opening = start.decode(encoding, "replace").lstrip("\ufeff \t\r\n")[:1]
    except LookupError:
        raise InvalidData(f"encoding: should be one that Python knows, got {settings.encoding!r}") from None
    if not opening:
        raise InvalidData(f"{path}: should hold feedback, got an empty file")
    if settings.kind == "csv" or (settings.kind == "auto" and opening not in "[{"):
        return _unique(_from_csv(path, settings))
    items = _list(path, encoding) if opening == "[" else _lines(path, encoding)
    return _unique(_from_items(items, path, settings))


def _from_items(items: Iterator[Item], path: Path, settings: PeopleSettings) -> Iterator[Found]:
    kind = settings.kind
    held: list[Item] = []
    while kind == "auto" and len(held) < _LOOKED_AT and (item := next(items, None)) is not None:
        held.append(item)
        found = _kind_of(item[1]) if not isinstance(item, Rejected) and isinstance(item[1], Mapping) else "rows"
        kind = kind if found == "rows" else found
    everything = chain(held, items)
    if kind not in ("label_studio", "argilla"):
        yield from (_from_row(item, path, settings) for item in everything)
        return
    good: list[tuple[int, Mapping[str, Any]]] = []
    bad: list[Rejected] = []
    for item in everything:
        if isinstance(item, Rejected):
            bad.append(item)
        elif isinstance(item[1], Mapping):
            good.append(item)
        else:
            bad.append(_no_object(item))
    reader = read_label_studio if kind == "label_studio" else read_argilla
    yield from merge(bad, reader(good, path.stem, settings), key=_line)


def _kind_of(item: Mapping[str, Any]) -> Kind:
    if is_task(item) or is_minimal(item):
        return "label_studio"
    return "argilla" if is_record(item) else "rows"


def _line(found: Found) -> int:
    return found.line if isinstance(found, Rejected) else found[0]


def _no_object(item: tuple[int, Any]) -> Rejected:
    return Rejected(item[0], None, f"should be a JSON object, got {shorten(item[1])}")


def _from_csv(path: Path, settings: PeopleSettings) -> Iterator[Found]:
    for record in read_csv(path, settings):
        if not isinstance(record, Rejected):
            values: dict[str, Any] = dict(record[1])
            for name in (*_LISTS, settings.columns.spans):
                if isinstance(values.get(name), str) and values[name].lstrip().startswith("["):
                    # What is no JSON stays the text that it is; where a list is a must, the row is rejected for it.
                    with suppress(ValueError, RecursionError):
                        values[name] = json.loads(values[name])
            record = (record[0], values)
        yield _from_row(record, path, settings)


def _from_row(item: Item, path: Path, settings: PeopleSettings) -> Found:
    if isinstance(item, Rejected):
        return item
    line, value = item
    if not isinstance(value, Mapping):
        return _no_object(item)
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


def _lines(path: Path, encoding: str) -> Iterator[Item]:
    """One object a line; or, where the first line is none, the whole file as one object if it is that."""
    with path.open(encoding=encoding, errors="surrogateescape", newline="\n") as stream:
        for number, line in enumerate(stream, 1):
            text = line.strip("\ufeff \t\r\n")
            if not text:
                continue
            value = _parsed(number, text, encoding)
            if number == 1 and isinstance(value, Rejected):
                whole = _parsed(1, path.read_bytes().decode(encoding, "surrogateescape").lstrip("\ufeff"), encoding)
                if not isinstance(whole, Rejected):
                    yield whole
                    return
            yield value


def _parsed(number: int, text: str, encoding: str) -> Item:
    if undecoded(text):
        reason = f"is not {encoding.removesuffix('-sig')}; save the file as UTF-8, or set encoding to its own"
        return Rejected(number, None, reason)
    try:
        return number, json.loads(text)
    except json.JSONDecodeError as problem:
        return Rejected(number, None, f"is not JSON: {problem.msg} at character {problem.pos}")
    except (RecursionError, ValueError) as problem:
        return Rejected(number, None, f"is not JSON that can be read: {problem}")


def _list(path: Path, encoding: str) -> Iterator[Item]:
    text = path.read_bytes().decode(encoding, "surrogateescape").lstrip("\ufeff")
    if undecoded(text):
        line = next(number for number, part in enumerate(text.split("\n"), 1) if undecoded(part))
        raise InvalidData(
            f"{path}, line {line}: is not {encoding.removesuffix('-sig')}; save the file as UTF-8, or set encoding to "
            "its own"
        )
    try:
        items = json.loads(text)
    except json.JSONDecodeError as problem:
        raise InvalidData(
            f"{path}, line {problem.lineno}, column {problem.colno}: should be JSON: {problem.msg}; was it cut off?"
        ) from None
    except (RecursionError, ValueError) as problem:
        raise InvalidData(f"{path}: is not JSON that can be read: {problem}") from None
    yield from enumerate(items, 1)
