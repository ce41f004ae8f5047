"""A model critic's reply → a `Critique`, or the reason why it is none. Nothing crashes it; nothing broken earns reward.

Enters: whatever a model wrote. Leaves: a `Reply`. Two degrees of trust:
  - the reply holds one JSON object of the right shape, whole, whatever stands around it: taken at its word;
  - it holds something that can be mended into one (cut off, trailing commas, single quotes): then praise and score are
    dropped, for what was mended may have been cut in the middle of a "not". What is left can only cost, never earn.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import json_repair

from text2grad.errors import InvalidData
from text2grad.types import Critique, Quote

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_LONGEST = 200_000
"""Characters of a reply that are read; no critique is that long, and mending is slow."""
_MOST_BRACES = 50
"""Places at which an object is looked for; a reply with more is noise."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a reply: a critique, and whether it had to be mended; or None and the reason."""

    critique: Critique | None
    mended: bool = False
    reason: str = ""


def read_reply(text: str) -> Reply:
    """
    >>> read_reply('{"critique": "Fine.", "quotes": [], "omissions": [], "score": 0.9}').critique.score
    0.9
    >>> read_reply('{"critique": "Fine.", "score": 0.9').critique.score is None
    True
    >>> read_reply("I could not say.").reason
    'it holds no JSON object'
    """
    if not text.strip():
        return Reply(None, reason="it is empty")
    text = text[:_LONGEST].encode("utf-8", "replace").decode()
    reason = "it holds no JSON object"
    for found in _objects(text):
        try:
            return Reply(_critique(found))
        except InvalidData as problem:
            reason = str(problem)
    mended = _mend(text)
    if mended is None:
        return Reply(None, reason=reason)
    try:
        return Reply(_distrusted(_critique(mended)), mended=True)
    except InvalidData as problem:
        return Reply(None, reason=str(problem))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Whole JSON objects in a reply: the reply itself, in a fence, or between other words; the outermost first."""
    decoder = json.JSONDecoder()
    for candidate in (text.strip(), *_FENCE.findall(text)):
        yield from _decoded(decoder, candidate.strip(), 0)
    position = text.find("{")
    for _ in range(_MOST_BRACES):
        if position < 0:
            return
        yield from _decoded(decoder, text, position)
        position = text.find("{", position + 1)


def _decoded(decoder: json.JSONDecoder, text: str, position: int) -> Iterator[dict[str, Any]]:
    try:
        found, _ = decoder.raw_decode(text, position)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict) and "critique" in found:
        yield found


def _mend(text: str) -> dict[str, Any] | None:
    start = text.find("{")
    if start < 0:
        return None
    try:
        found = json_repair.loads(text[start:])
    except (ValueError, RecursionError, IndexError, TypeError):
        return None
    return found if isinstance(found, dict) and "critique" in found else None


def _critique(found: dict[str, Any]) -> Critique:
    feedback = found.get("critique")
    if not isinstance(feedback, str) or not feedback.strip():
        raise InvalidData("`critique` should be a text")
    quotes = found.get("quotes") or []
    omissions = found.get("omissions") or []
    if not isinstance(quotes, list) or not isinstance(omissions, list):
        raise InvalidData("`quotes` and `omissions` should be lists")
    return Critique(
        feedback,
        tuple(_quote(item) for item in quotes),
        tuple(item for item in omissions if isinstance(item, str) and item.strip()),
        _score(found.get("score")),
    )


def _quote(item: object) -> Quote:
    if not isinstance(item, dict):
        raise InvalidData("each quote should be an object with text, verdict, severity and comment")
    severity = item.get("severity")
    return Quote.from_json(
        {
            "text": item.get("text"),
            "verdict": item.get("verdict"),
            "severity": min(max(float(severity), 0.05), 1.0) if _is_number(severity) else None,
            "comment": item.get("comment") if isinstance(item.get("comment"), str) else "",
        }
    )


def _score(value: object) -> float | None:
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value <= 1:
        raise InvalidData(f"`score` should be a number from 0 to 1, got {str(value)[:40]!r}")
    return float(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    # NaN is a number to Python's reader of JSON, and equal to nothing, itself included.
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _distrusted(critique: Critique) -> Critique:
    kept = tuple(quote for quote in critique.quotes if quote.verdict != "good")
    return Critique(critique.feedback, kept, critique.omissions, score=None)
