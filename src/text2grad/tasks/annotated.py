"""Completions with located critiques, as `text2grad annotate` writes them to a JSONL file: what reward models learn."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from text2grad.errors import InvalidData
from text2grad.feedback.rows import Row
from text2grad.tasks.files import read_each
from text2grad.types import Alignment, Critique, Message

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


def load_annotated(path: str | Path) -> list[Annotated]:
    """All of them, in the order of the file."""
    rows = list(read_each(path, "annotated completions", lambda _, row: Annotated.of(row)))
    if not rows:
        raise InvalidData(f"{path}: should hold at least one annotated completion, got an empty file")
    return rows


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


def digest_of(rows: Iterable[Annotated]) -> str:
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
