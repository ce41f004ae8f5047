"""What the labelling tools' files have in common: which text was marked, what a label means, how a prompt is shown.

Enters: objects of a tool's file, or rows. Leaves: texts and verdicts, or `InvalidData` that names the setting to
change.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.types import Completion, Span, Verdict


def checked_rows(rows: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Rows fit to be shown: each with an id and a text, its spans inside it; the completion as its text."""
    for number, row in enumerate(rows, 1):
        identity, completion = row.get("id"), row.get("completion")
        if isinstance(completion, Mapping):
            completion = Completion.from_json(completion).text
        if isinstance(identity, bool) or not isinstance(identity, str | int) or not isinstance(completion, str):
            raise InvalidData(
                f"row {number}: should have a text or whole number as id and a text as completion, got "
                f"{shorten(identity)} and {shorten(completion)}"
            )
        try:
            spans = [Span.from_json(span) for span in row.get("spans") or ()]
            for span in spans:
                span.slice(completion)
        except InvalidData as problem:
            raise InvalidData(f"row {number}, id {identity}: {problem}") from None
        yield {**row, "completion": completion, "spans": [span.to_json() for span in spans]}


def to_file(data: Any) -> bytes:
    """Readable JSON; halves of surrogate pairs, from somebody's file, as escapes, since UTF-8 cannot hold them."""
    try:
        return json.dumps(data, ensure_ascii=False, indent=1).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(data, indent=1).encode() + b"\n"


def completion_in(data: Mapping[str, Any], name: str) -> str:
    """The text that was marked: the one of that name, or the only one there is."""
    if isinstance(data.get(name), str):
        return str(data[name])
    texts = [value for key, value in data.items() if isinstance(value, str) and key not in ("text2grad_id", "id")]
    if len(texts) == 1 and name not in data:
        return texts[0]
    raise InvalidData(
        f"{name}: should be the text that was marked, got {shorten(data.get(name))}; the item has "
        f"{', '.join(map(str, data)) or 'nothing'}; set columns.completion to one of them"
    )


def verdict_of(label: object, labels: Mapping[str, Verdict]) -> Verdict:
    """What a label means."""
    known = {key.lower(): verdict for key, verdict in labels.items()}
    verdict = known.get(str(label).lower())
    if verdict is None:
        raise InvalidData(
            f"the label {shorten(label)} has no verdict; the labels known are {', '.join(labels)}; set labels to "
            "say what yours mean"
        )
    return verdict


def as_text(prompt: Any) -> str:
    """A prompt, as people see it."""
    if isinstance(prompt, list):
        turns = [turn for turn in prompt if isinstance(turn, Mapping)]
        return "\n\n".join(f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in turns)
    return prompt if isinstance(prompt, str) else ""
