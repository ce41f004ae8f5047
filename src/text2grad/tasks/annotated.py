"""Annotated completions from a JSONL file, as `text2grad annotate` writes them: prompt, completion, critique, spans.

What a reward model learns from. The first bad line is an error with its number: training data should be right.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from text2grad.errors import InvalidData
from text2grad.feedback.rows import Row, read_object
from text2grad.types import Alignment, Critique, Message

LARGEST = 1e12
"""Scores beyond it are mistakes, and their squares and sums would become no numbers."""


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
        said = self.critique
        for number in (*(value for _, value in said.quality or ()), said.score or 0.0):
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
    path = Path(path).expanduser()
    if not path.is_file():
        raise InvalidData(f"{path}: should be a JSONL file of annotated completions, and there is no such file")
    found = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found.append(Annotated.of(read_object(line)))
            except InvalidData as problem:
                raise InvalidData(f"{path}, line {number}: {problem}") from None
    if not found:
        raise InvalidData(f"{path}: should hold at least one annotated completion, got an empty file")
    return found


def split_by_prompt(rows: Sequence[Annotated], share: float, seed: int) -> tuple[list[Annotated], list[Annotated]]:
    """(to learn from, held out): about `share` of the prompts is held out, each with all its completions. Which ones
    depends on the prompt and the seed alone, so that more data moves none."""
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
    """What rows of the same prompt share; as a text or as a chat of one message, it is the same."""
    chat = row.prompt if isinstance(row.prompt, tuple) else ()
    return repr(chat[0].content if len(chat) == 1 else row.prompt)


def _fraction(key: str, seed: int) -> float:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "replace")).digest()[:8], "big") / 2**64
