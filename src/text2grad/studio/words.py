"""What a person wrote about a completion → spans, what was missed, and the rewards of its tokens; and back to JSON.

Enters: a completion as the store has it, and what came from the page. Leaves: plain values for JSON, or `InvalidData`
that says what was wanted. Here a critique is read exactly as every other command reads it. No torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.align import Pair, project
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.words import prompt_text
from text2grad.report.completions import cut_at_phrases, pieces
from text2grad.report.phrases import phrases
from text2grad.types import Alignment, Completion, Critique, Example, Span

MOST_SPANS = 1000


def text_in(data: Mapping[str, Any], name: str, longest: int, *, needed: bool = False) -> str | None:
    """A text that came from the page; None where there is none."""
    text = data.get(name)
    if text is None and not needed:
        return None
    if not isinstance(text, str):
        raise InvalidData(f"{name}: should be a text, got {shorten(text)}")
    if len(text) > longest:
        raise InvalidData(f"{name}: should have at most {longest:,} characters, got {len(text):,}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidData(f"{name}: holds half of a surrogate pair, which is no character; leave it out") from None
    return text


def completion_in(row: Mapping[str, Any]) -> Completion:
    """The completion of a row of the store: the very ids that were sampled."""
    return Completion(row["text"], tuple(row["token_ids"]), tuple((s, e) for s, e in row["offsets"]))


def example_in(row: Mapping[str, Any]) -> Example:
    return Example.from_json(
        {name: row.get(name) for name in ("prompt", "reference")} | {"id": row["example"], "columns": row["columns"]}
    )


def example_body(example: Example, given: Sequence[str] = ()) -> dict[str, Any]:
    """What the store keeps of an example."""
    plain = example.to_json()
    return {"example": plain.pop("id"), **plain, "given": list(given)}


def spans_in(found: Any, text: str, name: str) -> tuple[Span, ...]:
    """Spans, or notes, that came from the page; each within the text."""
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found) or len(found) > MOST_SPANS:
        raise InvalidData(f"{name}: should be a list of at most {MOST_SPANS} objects, got {shorten(found)}")
    known = ("start", "end", "verdict", "severity", "comment", "provenance", "confidence")
    spans = []
    for each in found:
        text_in(each, "comment", 20_000)
        span = Span.from_json({key: each[key] for key in known if each.get(key) is not None})
        span.slice(text)
        spans.append(span)
    return tuple(sorted(spans, key=lambda span: (span.start, span.end)))


def read(
    example: Example,
    completion: Completion,
    data: Mapping[str, Any],
    longest: int,
    settings: AlignSettings,
) -> tuple[Critique, Alignment, bool]:
    """(what was said, where it is, whether spans were corrected by hand). Spans that are given stay as they are; notes
    stand beside what is found in the feedback."""
    feedback = text_in(data, "feedback", longest) or ""
    revision = text_in(data, "revision", max(longest, 4 * len(completion.text)))
    revision = None if revision is None or not revision.strip() or revision == completion.text else revision
    score = data.get("score")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not -1e6 < score < 1e6):
        raise InvalidData(f"score: should be a number or null, got {shorten(score)}")
    said = Critique(feedback, revision=revision, score=score)
    if feedback.strip() or revision:
        found = Pair(completion, said, source=prompt_text(example.prompt)).align(settings)
    else:
        found = Alignment()
    notes = spans_in(data.get("notes") or [], completion.text, "notes")
    if data.get("spans") is not None:
        return said, replace(found, spans=spans_in(data["spans"], completion.text, "spans")), True
    noted = {(note.start, note.end) for note in notes}
    # Where words were marked, what is only gathered from the feedback about the very same words says nothing new.
    others = [span for span in found.spans if (span.start, span.end) not in noted]
    return said, replace(found, spans=tuple(sorted((*notes, *others), key=lambda s: (s.start, s.end)))), False


def rewards_of(completion: Completion, alignment: Alignment, *, ended: bool = True) -> tuple[float, ...]:
    """What the direct loss learns: ± severity on the tokens of located spans, −1 on the decision to stop where
    something was left out, 0 elsewhere."""
    rewards = project(alignment.spans, np.asarray(completion.offsets).reshape(-1, 2), severity=True)
    if ended and alignment.omissions and len(rewards) and not rewards[-1]:
        rewards[-1] = -1.0
    return tuple(rewards.tolist())


def preview(
    example: Example, row: Mapping[str, Any], data: Mapping[str, Any], longest: int, settings: AlignSettings
) -> dict[str, Any]:
    """What the page shows while somebody types."""
    completion = completion_in(row)
    said, found, _ = read(example, completion, data, longest, settings)
    return {
        **shown_alignment(said.feedback, completion.text, found, data.get("notes")),
        "rewards": rewards_of(completion, found, ended=not row["truncated"]),
        "pieces": cut_at_phrases(said.feedback, completion.text, found),
    }


def shown_alignment(feedback: str, text: str, found: Alignment, notes: Any) -> dict[str, Any]:
    """Spans, each with the words of the feedback that it came from, or the number of its note; what was missed; what
    was left out."""
    plain = found.to_json()
    places = {i: [p.start, p.end] for p in phrases(feedback, text, found) if p.kind == "span" for i in p.indices}
    noted = {(note.get("start"), note.get("end")): index for index, note in enumerate(notes or ())}
    given = [noted.get((s["start"], s["end"])) if s["provenance"] == "given" else None for s in plain["spans"]]
    return {
        "spans": [s | {"phrase": places.get(i), "note": given[i]} for i, s in enumerate(plain["spans"])],
        "missed": plain["missed"],
        "omissions": plain["omissions"],
    }


def critique_body(said: Critique, found: Alignment, by_hand: bool, notes: Any) -> dict[str, Any]:
    """What the store keeps of a critique."""
    return {
        "feedback": said.feedback,
        "revision": said.revision,
        "score": said.score,
        "alignment": found.to_json(),
        "by_hand": by_hand,
        "notes": notes or [],
    }


def critique_in(row: Mapping[str, Any]) -> tuple[Critique, Alignment]:
    """A critique of the store as the other rooms know it. It is read already: nothing is to be located again."""
    found = Alignment.from_json(row["alignment"])
    said = Critique(
        row["feedback"], omissions=found.omissions, score=row["score"], revision=row["revision"], quotes_only=True
    )
    return said, found


def shown_critique(row: Mapping[str, Any], text: str, learned: Mapping[str, int]) -> dict[str, Any]:
    """A critique as the page takes it. `learned`: the edits that the current version has learned from."""
    there = bool(row.get("alignment"))
    found = Alignment.from_json(row["alignment"]) if there else Alignment()
    feedback = row.get("feedback", "")
    return {
        **{name: row[name] for name in ("id", "completion", "author", "version", "time")},
        **shown_alignment(feedback, text, found, row.get("notes")),
        "feedback": feedback,
        "pieces": cut_at_phrases(feedback, text, found),
        **{name: row.get(name) for name in ("revision", "score")},
        "notes": row.get("notes", []),
        "by_hand": bool(row.get("by_hand")),
        "deleted": bool(row["deleted"]),
        "learned": learned.get(str(row["id"])) == row["version"],
    }


def shown_completion(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("id", "text", "offsets", "logprobs", "version", "truncated")},
        "score": row.get("score"),
        "pieces": pieces(completion_in(row)),
    }
