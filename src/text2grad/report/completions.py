"""Rollouts → the completions that the page shows, small enough to send in one file.

Enters: `rollouts.jsonl` files of any size, read a line at a time. Leaves: plain lists for JSON: the text of each token,
its numbers, the spans it belongs to, the critique cut at its phrases; and counts of what is left out. All positions
become token indices here, since browsers count characters differently from Python.

A token belongs to a span if they share a character; an empty token (a special one) belongs to none.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from text2grad.errors import InvalidData
from text2grad.report.folders import USABLE, is_update
from text2grad.report.phrases import phrases
from text2grad.report.terminal import evidence, visible
from text2grad.runs import parse_object, scan
from text2grad.types import Alignment, Completion, Example, Rollout, Span

BYTES = 8_000_000
"""Of completions in one page, all runs together: a page stays under 10 MB."""
PAIRS_SHARE = 0.4
"""Share of those bytes, at most, for the held-out prompts before and after training."""
LARGEST_SHARE = 0.25
"""Share of the bytes, at most, for one completion, or one before and after; larger ones are left out, and counted."""
LARGE_SHARE, LARGE_SUM = 0.05, 0.5
"""Completions with more than the first share of the bytes get at most the second together: the rest is for others."""
LONGEST_TEXT = 20_000
"""Characters of a prompt that are shown; what is cut off is counted."""
_STREAMS = (
    ("token_rewards", "rewards", 4),
    ("advantages", "advantages", 3),
    ("logprobs", "before", 3),
    ("logprobs_after", "after", 3),
)
"""(field of a rollout, its name on the page, digits)."""


@dataclass
class Shown:
    """The completions of one run: those on the page, and how many there are."""

    during: list[dict[str, Any]] = field(default_factory=list)
    """Rows of training, in the order of the file."""
    pairs: list[list[dict[str, Any]]] = field(default_factory=list)
    """[before, after] of one held-out prompt; one row where there was one evaluation only."""
    during_total: int = 0
    pairs_total: int = 0
    unreadable: int = 0
    reason: str = ""
    """Why the first unreadable row was."""


def read_completions(path: Path, budget: int = BYTES) -> Shown:
    """What is shown of a run within a budget of bytes."""
    shown = Shown()
    if not path.is_file():
        return shown
    during: list[int] = []
    held_out: dict[str, list[tuple[int, int]]] = {}
    for place, number, row in scan(path, **USABLE):
        if isinstance(row, InvalidData) or not is_update(row.get("update")):
            shown.unreadable += 1
            shown.reason = shown.reason or f"line {number} is no row of an update"
        elif row.get("held_out"):
            example = row.get("example")
            identity = str(example.get("id")) if isinstance(example, dict) else ""
            held_out.setdefault(identity, []).append((row["update"], place))
        else:
            during.append(place)
    with path.open("rb") as file:
        if not (during or held_out or shown.unreadable) and file.read(1) not in (b"", b"{"):
            # A last line that is torn is passed over; this one never was a row.
            shown.unreadable, shown.reason = 1, "line 1 is no row of an update"
    pairs = []
    for (first, place), (last, other) in ((min(looks), max(looks)) for looks in held_out.values()):
        pairs.append([place, other] if first < last else [place])
    shown.during_total, shown.pairs_total = len(during), len(pairs)
    with path.open("rb") as file:
        shelf = _Shelf(file, shown)
        shown.pairs = shelf.take(pairs, budget * PAIRS_SHARE)
        shown.during = [row for (row,) in shelf.take([[place] for place in during], budget)]
    return shown


@dataclass
class _Shelf:
    """Rows, fetched from the file as long as there is room for them."""

    file: BinaryIO
    shown: Shown
    used: int = 0
    large: int = 0
    prompts: set[str] = field(default_factory=set)

    def take(self, groups: Sequence[Sequence[int]], budget: float) -> list[list[dict[str, Any]]]:
        """The rows at these places in the file, group by group; as many as there is room for, spread evenly."""
        taken = {}
        for index in _evenly(len(groups)):
            rows = [row for place in groups[index] if (row := self._read(place)) is not None]
            if len(rows) < len(groups[index]):
                continue
            prompts = {row["prompt"] for row in rows} - self.prompts
            size = sum(_size({**row, "prompt": 0}) for row in rows) + sum(map(_size, prompts))
            large = self.large + size if size > budget * LARGE_SHARE else 0
            if size > budget * LARGEST_SHARE or large > budget * LARGE_SUM:
                continue  # it would hide the others
            if self.used + size > budget:
                break
            self.used, self.large = self.used + size, max(self.large, large)
            self.prompts |= prompts
            taken[index] = rows
        return [taken[index] for index in sorted(taken)]

    def _read(self, place: int) -> dict[str, Any] | None:
        self.file.seek(place)
        try:
            return encode(parse_object(self.file.readline(), **USABLE))
        except InvalidData as problem:
            self.shown.unreadable += 1
            if not self.shown.reason:
                self.file.seek(0)
                number = 1 + self.file.read(place).count(b"\n")
                self.shown.reason = f"line {number}: {problem}"
            return None


def _size(value: object) -> int:
    return len(embedded(value).encode("utf-8", "replace"))


def embedded(data: object) -> str:
    """JSON that cannot end the element it stands in, whatever it says.

    >>> embedded(["</script><!--", "a & b"])
    '["\\\\u003c/script\\\\u003e\\\\u003c!--","a \\\\u0026 b"]'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _evenly(count: int) -> list[int]:
    """All of 0 … count − 1, so that any first few are spread evenly: in the order of their multiples of the golden
    ratio, modulo 1.

    >>> _evenly(8)
    [0, 5, 2, 7, 4, 1, 6, 3]
    """
    return sorted(range(count), key=lambda index: index * 0.6180339887498949 % 1)


def encode(row: dict[str, Any]) -> dict[str, Any]:
    """One row of `rollouts.jsonl`, as the page's script reads it; a row that breaks the contract is InvalidData."""
    rollout = Rollout.from_json(row)
    completion = rollout.completion
    made: dict[str, Any] = {
        "update": row.get("update"),
        "id": visible(rollout.example.id),
        "prompt": visible(cut(prompt_text(rollout.example))),
        "pieces": [visible(piece) for piece in pieces(completion)],
        "empty": [index for index, (start, end) in enumerate(completion.offsets) if start == end],
    }
    if rollout.truncated:
        made["truncated"] = 1
    for name, key, digits in _STREAMS:
        if (stream := getattr(rollout, name)) is not None:
            made[key] = [_short(value, digits) for value in stream]
    if rollout.critique is not None and rollout.alignment is not None:
        scores = (rollout.score, rollout.critique.score, math.fsum(rollout.token_rewards or ()))
        made["score"] = _short(next(score for score in scores if score is not None), 4)
        made["critique"] = cut_at_phrases(rollout.critique.feedback, completion.text, rollout.alignment)
        made["spans"] = [_span(span, completion, rollout.verdicts) for span in rollout.alignment.spans]
        made["missed"] = [[visible(missed.quote), visible(missed.reason)] for missed in rollout.alignment.missed]
        made["omissions"] = [visible(omission) for omission in rollout.alignment.omissions]
    return made


def pieces(completion: Completion) -> list[str]:
    """What each token adds to the text; a token that only adds bytes to a character already there adds nothing.

    >>> pieces(Completion("a 🦩", (81, 15107, 116, 119), ((0, 1), (1, 3), (2, 3), (2, 3))))
    ['a', ' 🦩', '', '']
    """
    found, covered = [], 0
    for start, end in completion.offsets:
        found.append(completion.text[max(start, covered) : end])
        covered = max(covered, end)
    return found


def _span(span: Span, completion: Completion, verdicts: Sequence[float] | None) -> list[Any]:
    """[first token, token behind the last, verdict, comment, evidence, 1 if other spans decide all its tokens]."""
    ranges = enumerate(completion.offsets)
    touched = [i for i, (start, end) in ranges if start < end and start < span.end and end > span.start]
    sign = {"good": 1, "poor": -1, "neutral": 0}[span.verdict]
    overruled = verdicts is not None and all(verdicts[i] != sign for i in touched)
    shown = [touched[0], touched[-1] + 1, span.verdict, visible(span.comment), evidence(span, ", confidence")]
    return [*shown, 1] if overruled else shown


def cut_at_phrases(feedback: str, completion: str, alignment: Alignment) -> list[list[Any]]:
    """The critique's text in pieces: [text], or [text, "span" | "missed", indices]."""
    position = 0
    made: list[list[Any]] = []
    for phrase in phrases(feedback, completion, alignment):
        made.append([visible(feedback[position : phrase.start])])
        made.append([visible(feedback[phrase.start : phrase.end]), phrase.kind, list(phrase.indices)])
        position = phrase.end
    made.append([visible(feedback[position:])])
    return [piece for piece in made if piece[0]]


def prompt_text(example: Example) -> str:
    """A prompt as people read it: conversations as `role: text`."""
    if isinstance(example.prompt, str):
        return example.prompt
    return "\n\n".join(f"{message.role}: {message.content}" for message in example.prompt)


def cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """
    >>> cut("abcdef", 4)
    'abcd […2 more characters]'
    """
    return text if len(text) <= longest else f"{text[:longest]} […{len(text) - longest:,} more characters]"


def _short(value: float, digits: int) -> float | int:
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded
