"""One row of a data file, checked. The format is in docs/formats.md; a row that breaks it says how.

Enters: an object. Leaves: a `Row`, with its critique or still to be judged, or `InvalidData` that names the field, what
it takes and what came.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.align import Pair
from text2grad.feedback.align.settings import AlignSettings
from text2grad.runs import Closable
from text2grad.runs.tables import nearest
from text2grad.types import Alignment, Completion, Critique, Span, Verdict

_NOTHING = Critique("")
"""Of a row that is still to be judged."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that could not be used."""

    line: int
    """The line it begins on; in a JSON list, its number, from 1."""
    id: str | int | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "id": self.id, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Row:
    """A completion and what was said about it: what `align` takes."""

    id: str | int
    completion: str
    source: str | None
    revision: str | None
    verdict: Verdict | None
    critique: Critique = _NOTHING
    spans: tuple[Span, ...] = ()
    """Given with the data; they stay as they are."""

    def __post_init__(self) -> None:
        end = self.critique.quality[-1][0] if self.critique.quality else 0
        if end > len(self.completion):
            raise InvalidData(
                f"critique.quality: should end within the completion's {len(self.completion)} characters, got {end}"
            )

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Row":
        """A row that brings its critique, and spans if it has any."""
        row = cls.unjudged(fields)
        return replace(row, critique=_critique(fields), spans=spans_in(fields, row.completion))

    @classmethod
    def unjudged(cls, fields: Mapping[str, Any]) -> "Row":
        """A row whose completion is to be judged."""
        identity = fields.get("id")
        if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
            raise InvalidData(f"id: should be a non-empty text or a whole number, {_came(fields, 'id')}")
        verdict = fields.get("verdict")
        if verdict not in (None, "good", "poor", "neutral"):
            raise InvalidData(f"verdict: should be 'good', 'poor' or 'neutral', got {shorten(verdict)}")
        source = _text(fields, "source") or _prompt(fields)
        return cls(identity, _completion(fields), source, _text(fields, "revision"), verdict)

    @property
    def pair(self) -> Pair:
        return Pair(self.completion, self.critique, self.source, self.revision, self.verdict)

    def align(self, settings: AlignSettings) -> Alignment:
        """Without any model, whatever the settings name."""
        return self.with_given(self.pair.align(settings))

    def with_given(self, found: Alignment) -> Alignment:
        """What was found, beside the spans that came with the data. A span that both have is kept once, as given, so
        that a row which was annotated before stays as it is."""
        if not self.spans:
            return found
        given = {(span.start, span.end, span.verdict) for span in self.spans}
        new = [span for span in found.spans if (span.start, span.end, span.verdict) not in given]
        spans = sorted((*self.spans, *new), key=lambda span: (span.start, span.end))
        return Alignment(tuple(spans), found.missed, found.omissions)


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
        """Remember a row's id. If it was used before and the row names its annotator, the id becomes `ID#ANNOTATOR`; if
        that was used too, the reason to reject the row is returned."""
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


def check_writable(row: Mapping[str, Any], *, numbers: bool = True) -> None:
    """Refuse a row that cannot be written again: UTF-8 has no half of a surrogate pair, and JSON (`numbers`) no NaN."""
    for name, value in row.items():
        try:
            json.dumps([name, value], ensure_ascii=False, allow_nan=not numbers).encode()
        except UnicodeEncodeError:
            raise InvalidData(
                f"{name}: holds half of a surrogate pair, or a byte that is no text in the file's encoding; write the "
                "escape in full, save the file as UTF-8, or set its encoding"
            ) from None
        except ValueError:
            raise InvalidData(
                f"{name}: should hold finite numbers, got NaN or one too large; write null, or leave it out"
            ) from None


def identity(row: Mapping[str, Any]) -> str | int | None:
    """The id of a row that was rejected, if it can still be read; half a surrogate pair in it as an escape."""
    known = row.get("id")
    if isinstance(known, str):
        return known.encode("utf-8", "backslashreplace").decode()
    return known if isinstance(known, int) else None


def spans_in(row: Mapping[str, Any], completion: str) -> tuple[Span, ...]:
    """The spans that a row brings, each within the completion."""
    value = row.get("spans")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidData(f"spans: should be a list of objects with start, end and verdict, got {shorten(value)}")
    spans = tuple(Span.from_json(item) for item in value)
    for span in spans:
        span.slice(completion)
    return spans


def _came(row: Mapping[str, Any], key: str) -> str:
    if key in row:
        return f"got {shorten(row[key])}"
    return f"nothing came; {nearest(key, row)}"


def _text(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidData(f"{key}: should be a text, {_came(row, key)}")
    return value


def _completion(row: Mapping[str, Any]) -> str:
    value = row.get("completion")
    return _visible(row, "completion", "a text", Completion.from_json(value).text if isinstance(value, dict) else value)


def _critique(row: Mapping[str, Any]) -> Critique:
    value = row.get("critique")
    if isinstance(value, dict):
        return Critique.from_json(value)
    return Critique(_visible(row, "critique", "a text or an object with `feedback`", value))


def _visible(row: Mapping[str, Any], key: str, wanted: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidData(f"{key}: should be {wanted}, {_came(row, key)}")
    if not value.strip():
        raise InvalidData(f"{key}: should hold at least one visible character, got {shorten(value)}")
    return value


def _prompt(row: Mapping[str, Any]) -> str | None:
    value = row.get("prompt")
    if isinstance(value, list):
        if not all(isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in value):
            raise InvalidData(f"prompt: should be a text or a list of messages with `content`, got {shorten(value)}")
        return "\n\n".join(turn["content"] for turn in value)
    return _text(row, "prompt")
