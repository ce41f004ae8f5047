"""What every reader of people's files makes: a row in the project's format, or `Rejected` with place and reason.

Enters: the fields of one item as they were found. Leaves: a row that `feedback.rows` accepts. Knows no file format.
Also here: the one rule about ids that come twice, for whatever kind of file.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from text2grad.errors import InvalidData
from text2grad.feedback.rows import Row
from text2grad.runs import Closable, encode_row

CORRECTED = "There is a corrected version."
"""The critique of a person who only corrects; it quotes nothing, so nothing is located by it."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that could not be read."""

    line: int
    """The line it begins on; in a JSON list, its number, from 1."""
    id: str | int | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "id": self.id, "reason": self.reason}


Found = tuple[int, dict[str, Any]] | Rejected
"""(line, row), or why there is no row."""


def finish(row: dict[str, Any], line: int) -> Found:
    """Give the row a critique where the person did not write one, and hold it to the format."""
    identity = row.get("id")
    spans = row.get("spans")
    try:
        said = row.get("critique")
        if said is None or (isinstance(said, str) and not said.strip()):
            if spans:
                row["critique"] = remarks(spans)
            elif row.get("revision"):
                row["critique"] = CORRECTED
            else:
                raise InvalidData("says nothing about the completion: it has no critique, no revision and no spans")
        Row.read(encode_row(row))
    except InvalidData as problem:
        known = identity if isinstance(identity, str | int) and not isinstance(identity, bool) else None
        return Rejected(line, known, str(problem))
    return line, row


def remarks(spans: list[Mapping[str, Any]]) -> str:
    """Marked spans as a critique: the remarks on them, or how many there are of each verdict. It quotes nothing: the
    spans themselves say where."""
    said = [str(span["comment"]).strip() for span in spans if str(span.get("comment") or "").strip()]
    if said:
        return " ".join(text if text[-1] in ".!?…。！？" else f"{text}." for text in said)
    counts = {verdict: sum(span.get("verdict") == verdict for span in spans) for verdict in ("good", "poor", "neutral")}
    return f"Marked: {', '.join(f'{count} {verdict}' for verdict, count in counts.items() if count)}."


def several(identity: str | int, annotator: object, others: bool) -> str | int:
    """The id of one person's row: the item's own, with `#ANNOTATOR` behind it where several people annotated the item.

    >>> several(7, "ada", others=True), several(7, "ada", others=False)
    ('7#ada', 7)
    """
    return f"{identity}#{annotator}" if others else identity


class Ids(Closable):
    """Which ids there have been, as texts (7 and "7" are one), in a table that SQLite moves to the disk when it grows:
    memory stays flat, however many there are.

    >>> with Ids() as ids:
    ...     row = {"id": 7, "annotator": "ada"}
    ...     ids.repeated({"id": 7}), ids.repeated(row), row["id"], ids.repeated({"id": "7"})
    (None, None, '7#ada', 'its id was used before; give each item its own, or name the annotator')
    """

    def __init__(self) -> None:
        self._table = sqlite3.connect("", isolation_level=None)
        self._table.execute("PRAGMA journal_mode=OFF")
        self._table.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def repeated(self, row: dict[str, Any]) -> str | None:
        """Remember a row's id. Where there was one like it and the row names its annotator, the id becomes
        `ID#ANNOTATOR`; where that was there, too, this says so, and the row is to be rejected."""
        if self._new(row["id"]):
            return None
        if row.get("annotator"):
            row["id"] = f"{row['id']}#{row['annotator']}"
            if self._new(row["id"]):
                return None
        return "its id was used before; give each item its own, or name the annotator"

    def close(self) -> None:
        self._table.close()

    def _new(self, identity: object) -> bool:
        text = str(identity).encode("utf-8", "surrogatepass")
        return self._table.execute("INSERT OR IGNORE INTO ids VALUES (?)", (text,)).rowcount == 1
