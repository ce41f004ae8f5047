"""A model critic's reply → a `Critique`, or the reason why it is none. Nothing crashes it; nothing broken earns reward.

Enters: whatever a model wrote. Leaves: a `Reply`. Two degrees of trust:
  - the reply is one JSON object of the right shape, in a fence or between other words or not: taken at its word;
  - it holds several such objects (one of them may be the completion's own words, thought about), or something that can
    be mended into one (cut off, trailing commas, single quotes). Then praise and score are dropped: what is left can
    only cost, never earn.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, TypeGuard

import json_repair

from text2grad.errors import InvalidData
from text2grad.types import Critique, Quote

_OPENING = re.compile(r"\{\s*[\"'}]")
"""How an object begins, well or badly written; `{about}` in a sentence does not."""
_LONGEST = 200_000
"""Characters of a reply that are read; no critique is that long."""
_LONGEST_MENDED = 8_000
"""Characters that are mended: guessing at broken JSON takes time that grows with the square of its length."""
_MOST_BRACES = 200
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
    text = text[:_LONGEST].encode("utf-8", "replace").decode().rpartition("</think>")[2]
    found, whole = _objects(text)
    candidate = found[-1] if found else _mend(text)
    if candidate is None:
        return Reply(None, reason="it holds no JSON object")
    trusted = whole and len(found) == 1
    try:
        critique = _critique(candidate)
    except InvalidData as problem:
        return Reply(None, reason=str(problem))
    return Reply(critique) if trusted else Reply(_distrusted(critique), mended=True)


def _objects(text: str) -> tuple[list[dict[str, Any]], bool]:
    """(JSON objects in a reply that hold a critique, one after the other; whether the reply is whole: nothing in it
    begins like an object and does not end, or says the same key twice). What stands inside an object is part of it."""
    doubles: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        doubles.extend(["twice"] * (len(made) < len(pairs)))
        return made

    decoder = json.JSONDecoder(object_pairs_hook=once)
    found: list[dict[str, Any]] = []
    whole = True
    position = text.find("{")
    for _ in range(_MOST_BRACES):
        if position < 0:
            break
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            whole = whole and not _OPENING.match(text, position)
            position += 1
        else:
            found += [value] if isinstance(value, dict) and "critique" in value else []
        position = text.find("{", position)
    return found, whole and not doubles


def _mend(text: str) -> dict[str, Any] | None:
    start = text.find("{")
    if start < 0:
        return None
    try:
        found = json_repair.loads(text[start : start + _LONGEST_MENDED])
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
            "severity": float(min(max(severity, 0.05), 1.0)) if _is_number(severity) else None,
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
