"""A model critic's reply → a `Critique`, or the reason why there is none. No reply crashes it; no broken one earns.

Enters: whatever a model wrote, whether it was cut off, and what the model was shown. Leaves: a `Reply`. A reply is
trusted as a whole or not at all:
  - trusted: one whole JSON object of the right shape, at the end of the reply. Before it may stand thoughts in
    `<think>…</think>`, sentences that are finished and open no bracket or quotation, a line like "Here is my
    critique:", a code fence.
  - not trusted: anything else. It was cut off or mended, holds several objects, has the object inside a sentence or
    before more words, or repeats what the model was shown (perhaps the completion's own words). Of such a reply the
    poor quotes and the omissions are kept; praise, score and the words around them are dropped, so it can only cost,
    never earn. If no blame is left, there is no critique.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, TypeGuard

import json_repair

from text2grad.errors import InvalidData
from text2grad.types import Critique, Quote

_LONGEST = 200_000
"""Characters of a reply that are read; no critique is that long."""
_LONGEST_MENDED = 8_000
"""Characters that are mended: guessing at broken JSON takes time that grows with the square of its length."""
_LONGEST_LEAD = 4_000
"""Characters before the object; more is no introduction."""
_THING = (
    "(critique|review|evaluation|assessment|feedback|judge?ment|json( object)?|reply|response|answer|output|result)"
)
_LEAD = re.compile(
    r"((sure|certainly|okay|ok|of course)[,.!]? )?((here('s|’s| is)|below is|this is) )?((my|the|a|an) )?"
    rf"((final|valid|requested|structured|json) )*{_THING}( of the completion)?"
    r"( (in|as) ((a|one|valid|the requested) )*json( object| format)?)?:?",
    re.IGNORECASE,
)
"""A line that introduces the critic's own object, and nobody else's."""
_COINCIDENCE = 20
"""Characters from which a critique that was shown to the model word for word is no coincidence."""
_CUT = "it was cut off at the length limit; be brief"
_KEPT = "The critic's reply was broken; of what it said, only the blame is kept."


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a reply: a critique, and whether it is distrusted; or None. The reason says why, of either."""

    critique: Critique | None
    mended: bool = False
    reason: str = ""


def read_reply(text: str, *, cut: bool = False, shown: str = "") -> Reply:
    """`cut`: the server says that it is not the whole reply. `shown`: what the model was asked, completion included.

    >>> read_reply('{"critique": "Fine.", "quotes": [], "omissions": [], "score": 0.9}').critique.score
    0.9
    >>> read_reply('{"critique": "Fine.", "score": 0.9').reason
    'no blame is left of it: it is no JSON object, or a broken one'
    >>> read_reply("I could not say.").reason
    'it holds no JSON object'
    """
    if not text.strip():
        return Reply(None, reason=_CUT if cut else "it is empty")
    thoughts, _, body = text[:_LONGEST].encode("utf-8", "replace").decode().rpartition("</think>")
    value, doubt = _object(body)
    if value is None:
        return Reply(None, mended="{" in body, reason=_CUT if cut else "it holds no JSON object")
    try:
        critique = _critique(value)
    except InvalidData as problem:
        return Reply(None, reason=_CUT if cut else str(problem))
    if cut or len(text) > _LONGEST:
        doubt = _CUT
    elif not doubt and "</think>" in thoughts:
        doubt = "its thoughts end more than once"
    elif not doubt and _was_shown(critique.feedback, shown):
        doubt = "its critique stands word for word in what was to be judged"
    return _distrusted(critique, doubt) if doubt else Reply(critique)


def _object(body: str) -> tuple[dict[str, Any] | None, str]:
    """(the object that a reply holds, why it may not be the critic's own word; nothing where it is)."""
    whole = True

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal whole
        whole = whole and len(dict(pairs)) == len(pairs)
        return dict(pairs)

    start = body.find("{")
    try:
        value, end = json.JSONDecoder(object_pairs_hook=once).raw_decode(body, max(0, start))
    except (ValueError, RecursionError):
        whole = False
    if start < 0 or not whole or "critique" not in value:
        return _mended(body[start:] if start >= 0 else ""), "it is no JSON object, or a broken one"
    lead, after = body[:start], body[end:].strip()
    if fence := re.search(r"```(json)?\s*$", lead, re.IGNORECASE):
        lead, after = lead[: fence.start()], after.removesuffix("```")
    if after:
        return _mended(body[start:]), "the object is not the last thing in it"
    return value, "" if _introduces(lead) else "the object stands inside other words"


def _mended(text: str) -> dict[str, Any] | None:
    """The last critique that can be made of broken JSON."""
    try:
        values = json_repair.loads(text[:_LONGEST_MENDED])
    except (ValueError, RecursionError, IndexError, TypeError):
        return None
    found = [each for each in (values if isinstance(values, list) else [values]) if isinstance(each, dict)]
    return next((each for each in reversed(found) if "critique" in each), None)


def _introduces(lead: str) -> bool:
    """Whether words before an object leave no doubt that it is the critic's own."""
    if not lead.strip():
        return True
    if len(lead) > _LONGEST_LEAD or not re.search(r"\n[ \t]*$", lead) or "<think" in lead:
        return False
    pairs = (("[", "]"), ("(", ")"), ("“", "”"), ("«", "»"))
    if any(lead.count(a) != lead.count(b) for a, b in pairs) or lead.count('"') % 2 or lead.count("```") % 2:
        return False
    last = lead.strip().splitlines()[-1].strip(" *#_")
    return last.endswith((".", "!", "?")) or _LEAD.fullmatch(last) is not None


def _was_shown(feedback: str, shown: str) -> bool:
    """Whether a critique was in front of the model before it was written: in a completion that praises itself, say."""
    shown, feedback = " ".join(shown.split()), " ".join(feedback.split())
    forms = (feedback, json.dumps(feedback)[1:-1], json.dumps(feedback, ensure_ascii=False)[1:-1])
    if len(feedback) >= _COINCIDENCE:
        return any(form in shown for form in forms)
    return "critique" in shown and any(f"{mark}{form}{mark}" in shown for form in forms for mark in "\"'")


def _critique(value: dict[str, Any]) -> Critique:
    feedback = value.get("critique")
    if not isinstance(feedback, str) or not feedback.strip():
        raise InvalidData("`critique` should be a text")
    quotes, omissions = value.get("quotes") or [], value.get("omissions") or []
    if not isinstance(quotes, list) or not isinstance(omissions, list):
        raise InvalidData("`quotes` and `omissions` should be lists")
    return Critique(
        feedback,
        tuple(_quote(item) for item in quotes),
        tuple(item for item in omissions if isinstance(item, str) and item.strip()),
        _score(value.get("score")),
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


def _distrusted(critique: Critique, why: str) -> Reply:
    """The blame alone. The feedback goes, too: alignment reads praise out of words, also after a merge with others."""
    kept = tuple(quote for quote in critique.quotes if quote.verdict != "good")
    if not critique.omissions and all(quote.verdict != "poor" for quote in kept):
        return Reply(None, mended=True, reason=f"no blame is left of it: {why}")
    feedback = " ".join([_KEPT, *(quote.comment for quote in kept if quote.verdict == "poor" and quote.comment)])
    return Reply(Critique(feedback, kept, critique.omissions, score=None, quotes_only=True), mended=True, reason=why)
