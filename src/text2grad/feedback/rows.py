"""One line of a data file → what `align` takes. The format is docs/formats.md's; a line that breaks it says how.

Enters: the bytes of a line. Leaves: a `Row`, or `InvalidData` that names the field, what it takes and what came.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.align import Pair
from text2grad.feedback.align.settings import AlignSettings
from text2grad.types import Alignment, Completion, Critique, Span, Verdict

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Row:
    id: str | int
    completion: str
    critique: Critique
    source: str | None
    revision: str | None
    verdict: Verdict | None
    spans: tuple[Span, ...]
    """Given with the data; they stay as they are."""

    @classmethod
    def read(cls, line: bytes) -> "Row":
        return cls.of(read_object(line))

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Row":
        identity = row.get("id")
        if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
            raise InvalidData(f"id: should be a non-empty text or a whole number, {_came(row, 'id')}")
        completion, critique = _completion(row), _critique(row)
        if critique.quality and critique.quality[-1][0] > len(completion):
            raise InvalidData(
                f"critique.quality: should end within the completion's {len(completion)} characters, got "
                f"{critique.quality[-1][0]}"
            )
        return cls(
            id=identity,
            completion=completion,
            critique=critique,
            source=_text(row, "source") or _prompt(row),
            revision=_text(row, "revision"),
            verdict=_verdict(row),
            spans=_spans(row, completion),
        )

    @property
    def pair(self) -> Pair:
        return Pair(self.completion, self.critique, self.source, self.revision, self.verdict)

    def align(self, settings: AlignSettings) -> Alignment:
        return self.with_given(self.pair.align(settings, None))

    def with_given(self, found: Alignment) -> Alignment:
        """What was found, and the spans that came with the data, as they are; what both have, once: a line that was
        annotated before stays as it is."""
        if not self.spans:
            return found
        there = {(span.start, span.end, span.verdict) for span in self.spans}
        new = [span for span in found.spans if (span.start, span.end, span.verdict) not in there]
        spans = sorted((*self.spans, *new), key=lambda span: (span.start, span.end))
        return Alignment(tuple(spans), found.missed, found.omissions)


def identity(line: bytes) -> Any:
    """The id of a line that was rejected, if it can still be read; half a surrogate pair in it as an escape."""
    try:
        row = json.loads(line.decode("utf-8-sig", "replace"))
    except (RecursionError, ValueError):
        return None
    found = row.get("id") if isinstance(row, dict) else None
    if isinstance(found, str):
        return found.encode("utf-8", "backslashreplace").decode()
    return found if isinstance(found, int) else None


def check_numbers(row: dict[str, Any]) -> None:
    """Refuse a row that cannot be written again: JSON has no NaN and nothing beyond the numbers."""
    for name, value in row.items():
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            raise InvalidData(
                f"{name}: should hold finite numbers, got NaN or one too large; write null, or leave it out"
            ) from None


def read_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidData(f"is not UTF-8: {problem.reason} at byte {problem.start}") from None
    try:
        row = json.loads(text)
    except json.JSONDecodeError as problem:
        raise InvalidData(f"is not JSON: {problem.msg} at character {problem.pos}") from None
    except (RecursionError, ValueError) as problem:
        raise InvalidData(f"is not JSON that can be read: {problem}") from None
    if not isinstance(row, dict):
        raise InvalidData(f"should be a JSON object, got {shorten(row)}")
    if "\\u" in text and _SURROGATE.search(json.dumps(row, ensure_ascii=False)):
        raise InvalidData(
            "holds half of a surrogate pair, which is no character; write the escape in full or leave it out"
        )
    return row


def _came(row: dict[str, Any], key: str) -> str:
    return (
        f"got {shorten(row[key])}"
        if key in row
        else f"nothing came; the line has {', '.join(map(str, row)) or 'no fields'}"
    )


def _text(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidData(f"{key}: should be a text, {_came(row, key)}")
    return value


def _completion(row: dict[str, Any]) -> str:
    value = row.get("completion")
    if isinstance(value, dict):
        value = Completion.from_json(value).text
    if not isinstance(value, str):
        raise InvalidData(f"completion: should be a text, {_came(row, 'completion')}")
    if not value.strip():
        raise InvalidData(f"completion: should hold at least one visible character, got {shorten(value)}")
    return value


def _critique(row: dict[str, Any]) -> Critique:
    value = row.get("critique")
    if isinstance(value, dict):
        return Critique.from_json(value)
    if not isinstance(value, str):
        raise InvalidData(f"critique: should be a text or an object with `feedback`, {_came(row, 'critique')}")
    if not value.strip():
        raise InvalidData(f"critique: should hold at least one visible character, got {shorten(value)}")
    return Critique(value)


def _prompt(row: dict[str, Any]) -> str | None:
    value = row.get("prompt")
    if isinstance(value, list):
        if not all(isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in value):
            raise InvalidData(f"prompt: should be a text or a list of messages with `content`, got {shorten(value)}")
        return "\n\n".join(turn["content"] for turn in value)
    return _text(row, "prompt")


def _verdict(row: dict[str, Any]) -> Verdict | None:
    value = row.get("verdict")
    if value not in (None, "good", "poor", "neutral"):
        raise InvalidData(f"verdict: should be 'good', 'poor' or 'neutral', got {shorten(value)}")
    return value


def _spans(row: dict[str, Any], completion: str) -> tuple[Span, ...]:
    value = row.get("spans")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidData(f"spans: should be a list of objects with start, end and verdict, got {shorten(value)}")
    spans = tuple(Span.from_json(item) for item in value)
    for span in spans:
        span.slice(completion)
    return spans
