"""Completions with located critiques: what reward models learn. And what all loaders of files share.

`text2grad annotate` writes such rows to a JSONL file; published human feedback is read into the same format. The rules
are the same for every data set: what a person found wrong is poor; a completion in which nothing was found wrong is
good as a whole; the rest of a completion with something wrong in it has no verdict, because people mark what is wrong
and are silent about the rest.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.rows import Rejected, Row, check_writable, identity
from text2grad.runs.tables import read_table
from text2grad.types import Alignment, Critique, Message, Span

T = TypeVar("T")
LARGEST = 1e12
"""Scores beyond it are mistakes, and their squares and sums would not be finite."""


@dataclass(frozen=True, slots=True)
class Annotated:
    """One completion with its located critique."""

    id: str
    prompt: str | tuple[Message, ...]
    completion: str
    critique: Critique
    alignment: Alignment
    row: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What it was read from, with the other columns."""

    def __post_init__(self) -> None:
        quality = [value for _, value in self.critique.quality or ()]
        for number in (*quality, self.critique.score or 0.0):
            if abs(number) > LARGEST:
                raise InvalidData(
                    f"row {self.id!r}: a score should be within ±{LARGEST:g} to be learned from, got {number:g}"
                )

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Annotated":
        """From a row; one without spans has not been through `annotate` or `align`."""
        if row.get("spans") is None:
            raise InvalidData("has no `spans`: run it through `text2grad annotate` first, which locates its critique")
        read = Row.of(row)
        prompt = row.get("prompt") or ""
        turns = tuple(Message.from_json(turn) for turn in prompt) if isinstance(prompt, list) else prompt
        alignment = Alignment(read.spans, (), read.critique.omissions)
        return cls(str(read.id), turns, read.completion, read.critique, alignment, row)


def fields_of(row: Annotated) -> dict[str, Any]:
    """A row as `text2grad annotate` takes it; what it was read from only adds columns."""
    prompt = row.prompt if isinstance(row.prompt, str) else [turn.to_json() for turn in row.prompt]
    omissions = list(dict.fromkeys((*row.critique.omissions, *row.alignment.omissions)))
    fields = {
        "id": row.id,
        "prompt": prompt,
        "completion": row.completion,
        "critique": row.critique.to_json() | {"omissions": omissions},
        "spans": row.alignment.to_json()["spans"],
    }
    return fields | {name: value for name, value in row.row.items() if name not in fields}


def load_annotated(path: str | Path, columns: Mapping[str, str] | None = None) -> list[Annotated]:
    """All of them, in the order of the file."""

    def read(number: int, row: dict[str, Any]) -> Annotated:
        return Annotated.of({"id": f"line-{number}"} | row)

    return list(read_each(path, "annotated completions", read, columns))


def split_by_prompt(rows: Sequence[Annotated], share: float, seed: int) -> tuple[list[Annotated], list[Annotated]]:
    """(to learn from, held out): about `share` of the prompts is held out, each with all its completions. Which ones
    depends on the prompt and the seed alone, so more data moves none to the other side."""
    held = {key for key in map(prompt_key, rows) if _fraction(key, seed) < share}
    if not held or len(held) == len({prompt_key(row) for row in rows}):
        ranked = sorted({prompt_key(row) for row in rows}, key=lambda key: _fraction(key, seed))
        if len(ranked) < 2:
            raise InvalidData(
                "all completions have the same prompt, so none can be held out by prompt; name a file with held_out="
            )
        held = set(ranked[: max(1, min(len(ranked) - 1, round(share * len(ranked))))])
    return [row for row in rows if prompt_key(row) not in held], [row for row in rows if prompt_key(row) in held]


def rows_digest(rows: Iterable[Annotated]) -> str:
    """sha256 of rows that were given from Python."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(row).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def prompt_key(row: Annotated) -> str:
    """The same for rows with the same prompt, be it a text or a chat of one message."""
    chat = row.prompt if isinstance(row.prompt, tuple) else ()
    return repr(chat[0].content if len(chat) == 1 else row.prompt)


def _fraction(key: str, seed: int) -> float:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "replace")).digest()[:8], "big") / 2**64


def read_each(
    path: str | Path,
    what: str,
    read: Callable[[int, dict[str, Any]], T],
    columns: Mapping[str, str] | None = None,
) -> Iterator[T]:
    """`read(line number, row)` of each row of a file, whatever its kind. An error names the line, also where the last
    line was cut off: training data should be right. Inside `leaving_out` the row is put aside instead."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise InvalidData(f"{path}: should be a file of {what}, and there is no such file")
    for number, row in read_table(path, columns):
        try:
            if isinstance(row, InvalidData):
                raise row
            check_writable(row, numbers=False)
            item = read(number, row)
        except InvalidData as problem:
            if _ASIDE.get() is None:
                raise InvalidData(f"{path}, line {number}: {problem}") from None
            leave_out(number, None if isinstance(row, InvalidData) else identity(row), problem)
            continue
        yield item


Aside = dict[tuple[int, str | int | None], Rejected]
"""Rows that were put aside, by line and id: a file that is read twice rejects each row once."""
_ASIDE: ContextVar[Aside | None] = ContextVar("_ASIDE", default=None)


@contextmanager
def leaving_out() -> Iterator[Aside]:
    """Inside, one bad row does not stop the reading of a file: `read_each` puts it aside, in what this gives."""
    aside: Aside = {}
    token = _ASIDE.set(aside)
    try:
        yield aside
    finally:
        _ASIDE.reset(token)


def putting_aside() -> bool:
    """Whether somebody is `leaving_out`, and will tell."""
    return _ASIDE.get() is not None


def leave_out(line: int, known: str | int | None, problem: InvalidData) -> None:
    """Put a part of a row aside, or raise where nothing is put aside."""
    if (aside := _ASIDE.get()) is None:
        raise problem
    aside.setdefault((line, known), Rejected(line, known, str(problem)))


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
