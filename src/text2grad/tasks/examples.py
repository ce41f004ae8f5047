"""Examples from a JSONL file: `{"id", "prompt", "reference"?, …columns}`, one a line.

`prompt` is a text or a list of messages; `messages` is taken for it too, as many data sets call it. A conversation that
ends with an assistant turn is one whose last turn is to be written anew: it becomes the reference if there is none.
Training data should be right: the first bad line is an error with its number.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from text2grad.errors import InvalidData
from text2grad.tasks.annotated import load_annotated
from text2grad.tasks.task import Task, task_of_files
from text2grad.types import Example

T = TypeVar("T")
_OWN = ("id", "prompt", "messages", "reference")


def load_examples(path: str | Path) -> list[Example]:
    """All of them, in the order of the file."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise InvalidData(f"{path}: should be a JSONL file of examples, and there is no such file")
    found: list[Example] = []
    seen: dict[str, int] = {}
    for number, row in json_rows(path):
        try:
            example = example_of(row, f"line-{number}")
        except InvalidData as problem:
            raise InvalidData(f"{path}, line {number}: {problem}") from None
        if example.id in seen:
            raise InvalidData(
                f"{path}, line {number}: the id {example.id!r} stands already in line {seen[example.id]}; give each "
                f"example its own"
            )
        seen[example.id] = number
        found.append(example)
    if not found:
        raise InvalidData(f"{path}: should hold at least one example, got an empty file")
    return found


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object). Empty lines are passed over, and nothing else: a last line that was cut off is an error too."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as problem:
                raise InvalidData(f"{path}, line {number}: should be one JSON object, {problem}") from None
            if not isinstance(row, dict):
                raise InvalidData(f"{path}, line {number}: should be a JSON object, got {type(row).__name__}")
            yield number, row


def example_of(row: dict[str, Any], default_id: str) -> Example:
    """One row; `completion` and other columns go to the critic by name."""
    prompt, reference = row.get("prompt"), row.get("reference")
    if prompt is None and (prompt := row.get("messages")) is None:
        raise InvalidData(f"should have a `prompt` (a text, or a list of messages), got {', '.join(row) or 'nothing'}")
    if taken := [name for name in ("prompts", "completions") if name in row]:
        raise InvalidData(f"`{taken[0]}` is what critics call the texts of a batch; give this column another name")
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict) and prompt[-1].get("role") == "assistant":
        reference = prompt[-1].get("content") if reference is None else reference
        prompt = prompt[:-1]
    columns = {name: value for name, value in row.items() if name not in _OWN}
    if isinstance(reference, list):
        # Several references: the critic takes them by name, the example has none of its own.
        columns["reference"], reference = reference, None
    return Example.from_json(
        {"id": row.get("id", default_id), "prompt": prompt, "reference": reference, "columns": columns}
    )


def jsonl_task(data: str = "", held_out: str = "") -> Task:
    """`task=jsonl`, the default: a user's JSONL files, of examples or of annotated completions."""
    return task_of_files("jsonl", data, held_out, load_examples, load_annotated)


class Stream(Generic[T]):
    """The examples without end: the file again and again, each time in a new order, all of it given by the seed."""

    def __init__(self, examples: Sequence[T], seed: int) -> None:
        self.examples, self.seed = list(examples), seed
        self._turn, self._order = -1, [0]

    def at(self, place: int) -> T:
        """The example at this place, from 0 on."""
        turn, offset = divmod(place, len(self.examples))
        if turn != self._turn:
            order = np.random.default_rng([self.seed, turn]).permutation(len(self.examples))
            self._turn, self._order = turn, order.tolist()
        return self.examples[self._order[offset]]


def columns_of(examples: list[Example]) -> dict[str, list[Any]]:
    """What critics take by name, one list a column; None where an example lacks it."""
    names = dict.fromkeys(name for example in examples for name in example.columns)
    columns = {name: [example.columns.get(name) for example in examples] for name in names}
    if any(example.reference is not None for example in examples):
        columns["reference"] = [
            example.reference if example.reference is not None else example.columns.get("reference")
            for example in examples
        ]
    return columns
