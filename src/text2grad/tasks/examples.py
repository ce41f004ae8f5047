"""Examples from a file: `{"id"?, "prompt", "reference"?, …columns}` per row.

`prompt` is a text or a list of messages; the name `messages` is accepted too. Where a conversation ends with an
assistant turn, that turn is to be written anew: it becomes the reference if there is none.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from text2grad.errors import InvalidData
from text2grad.runs.tables import nearest
from text2grad.tasks.annotated import load_annotated, read_each
from text2grad.tasks.task import Task, task_of_files
from text2grad.types import Example

T = TypeVar("T")
_OWN = ("id", "prompt", "messages", "reference")


def load_examples(path: str | Path, columns: Mapping[str, str] | None = None) -> list[Example]:
    """All of them, in the order of the file. `columns`: what our names are called in it."""
    lines: dict[str, int] = {}

    def read(number: int, row: dict[str, Any]) -> Example:
        example = example_of(row, f"line-{number}")
        if (first := lines.setdefault(example.id, number)) != number:
            raise InvalidData(f"the id {example.id!r} is already in line {first}; give each example its own")
        return example

    return list(read_each(path, "examples", read, columns))


def example_of(row: dict[str, Any], default_id: str) -> Example:
    """The example of one row; `completion` and other columns go to the critic by name."""
    prompt, reference = row.get("prompt"), row.get("reference")
    if prompt is None and (prompt := row.get("messages")) is None:
        raise InvalidData(f"should have a `prompt` (a text, or a list of messages); {nearest('prompt', row)}")
    if taken := [name for name in ("prompts", "completions") if name in row]:
        raise InvalidData(f"`{taken[0]}` is what critics call the texts of a batch; give this column another name")
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict) and prompt[-1].get("role") == "assistant":
        reference = prompt[-1].get("content") if reference is None else reference
        prompt = prompt[:-1]
    columns = {name: value for name, value in row.items() if name not in _OWN}
    if isinstance(reference, list):
        # Several references: the critic takes them by name, the example has none of its own.
        columns["reference"], reference = reference, None
    identity = default_id if row.get("id") in (None, "") else row["id"]
    return Example.from_json({"id": identity, "prompt": prompt, "reference": reference, "columns": columns})


def jsonl_task(data: str = "", held_out: str = "", columns: Mapping[str, str] | None = None) -> Task:
    """`task=jsonl`, the default: a user's files, of examples or of annotated completions; JSONL, JSON, CSV, Parquet."""
    examples, annotated = partial(load_examples, columns=columns), partial(load_annotated, columns=columns)
    return task_of_files("jsonl", data, held_out, examples, annotated)


class Stream(Generic[T]):
    """The examples without end: all of them again and again, each time in a new order that the seed decides."""

    def __init__(self, examples: Sequence[T], seed: int) -> None:
        self.examples, self.seed = list(examples), seed
        self._turn, self._order = -1, [0]

    def at(self, place: int) -> T:
        """The example at this place, counted from 0."""
        turn, offset = divmod(place, len(self.examples))
        if turn != self._turn:
            order = np.random.default_rng([self.seed, turn]).permutation(len(self.examples))
            self._turn, self._order = turn, order.tolist()
        return self.examples[self._order[offset]]
