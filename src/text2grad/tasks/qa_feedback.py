"""QA-Feedback (allenai/FineGrainedRLHF): long completions to questions, in which people marked spans → annotated rows.

Enters: the JSON list as published; offsets index `prediction 1`. Leaves: rows. Marks of the kinds in `GROUNDING`, which
a source can decide, are poor; that a sentence is not asked for, or was said before, is another matter, and neutral.
What is missing is the sentence of the passages that people named. Most marks come without words of their own, so the
critique says each mark's kind in a sentence. No split is published: here it is by the parity of the index (the
passages of one item in each half are the same).
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.critics.words import cite
from text2grad.tasks.annotated import Annotated, fields, group_of, marked_row, read_each
from text2grad.tasks.task import Task, task_of_files
from text2grad.types import Critique, Example, Span

GROUNDING = ("Wrong-Grounding", "Unverifiable")
"""What the passages contradict, and what they do not say."""
KINDS = {
    "Wrong-Grounding": "the passages say something else",
    "Unverifiable": "no passage says so",
    "Irrelevant": "this is not asked for",
    "Redundant": "this was said before",
    "Incoherent": "this makes no sense",
}
T = TypeVar("T")
Half = Literal["even", "odd"]
_FIELDS = {"question": str, "passages": list, "prediction 1": str, "feedback": dict}


def read_qa_feedback(path: str | Path, half: Half | None = None) -> Iterator[dict[str, Any]]:
    """Rows in the order of the file; all, or those of even or odd index. `passages` and `question` are columns,
    `reference` is the published completion, `critique.revision` the corrected one."""

    def read(row: dict[str, Any], index: int) -> dict[str, Any]:
        fields(row["feedback"], {"errors": list, "missing-info": list}, f"item {index}, feedback: ")
        try:
            return _read(row, index)
        except (InvalidData, LookupError, TypeError, ValueError, AttributeError) as problem:
            raise InvalidData(f"item {index}: {type(problem).__name__}: {problem}") from None

    return _items(path, half, read)


def qa_examples(path: str | Path, half: Half | None = None) -> Iterator[Example]:
    """One example per question; the reference is the published long answer."""

    def read(row: dict[str, Any], index: int) -> Example:
        passages = _passages(row)
        columns = {"group": group_of("\n\n".join(passages)), "passages": passages, "question": row["question"]}
        return Example(f"qa-{index}", qa_prompt(row["question"], passages), row.get("gold"), columns)

    return _items(path, half, read)


def qa_feedback_task(data: str = "", held_out: str = "") -> Task:
    """`task=qa_feedback data=FILE.json`. Without `held_out`, items of even index are train, odd ones validation."""
    if held_out or not data:
        return replace(task_of_files("qa_feedback", data, held_out, qa_examples, _annotated), critic="grounded")
    halves: dict[str, Half] = {"train": "even", "validation": "odd"}
    return Task(
        "qa_feedback",
        {split: partial(qa_examples, data, half) for split, half in halves.items()},
        critic="grounded",
        annotations={split: partial(_annotated, data, half) for split, half in halves.items()},
    )


def _annotated(path: str, half: Half | None = None) -> Iterator[Annotated]:
    return map(Annotated.of, read_qa_feedback(path, half))


def _items(path: str | Path, half: Half | None, read: Callable[[dict[str, Any], int], T]) -> Iterator[T]:
    """`read(row, index)` of the rows of the published list, or of half of them."""

    def read_if(number: int, row: dict[str, Any]) -> list[T]:
        fields(row, _FIELDS)
        index = number - 1
        return [read(row, index)] if half is None or (index % 2 == 1) == (half == "odd") else []

    return (item for found in read_each(path, "QA-Feedback", read_if) for item in found)


def _passages(row: dict[str, Any]) -> list[str]:
    for passage in row["passages"]:
        if not isinstance(passage, list) or not all(isinstance(sentence, str) for sentence in passage):
            raise InvalidData(f"passages should be lists of sentences, got {shorten(passage)}")
    return ["\n".join(passage) for passage in row["passages"]]


def qa_prompt(question: str, passages: list[str]) -> str:
    """What the completions answer, as policies and reward models are asked it."""
    return f"Answer the question from the passages.\n\nQuestion: {question}\n\nPassages:\n" + "\n\n".join(passages)


def _read(row: dict[str, Any], index: int) -> dict[str, Any]:
    text, feedback = row["prediction 1"], row["feedback"]
    passages = _passages(row)
    spans, said = [], []
    for mark in feedback["errors"]:
        remark = f"{KINDS[mark['error type']]}{_grounds(mark, row)}"
        verdict: Literal["poor", "neutral"] = "poor" if mark["error type"] in GROUNDING else "neutral"
        spans.append(Span(mark["start"], mark["end"], verdict, comment=f"{mark['error type']}: {remark}"))
        said.append(f"{cite(spans[-1].slice(text))}: {remark}.")
    missing = [_sentences(row, mark) for mark in feedback["missing-info"]]
    said += [f"Missing: {cite(sentence)}." for sentence in missing]
    if not spans:
        spans = [Span(0, len(text), "good")]
        said = said or ["Nothing is wrong."]
    revision = feedback.get("corrected-prediction") or None
    critique = Critique(" ".join(said), omissions=tuple(missing), revision=revision, quotes_only=True)
    columns = {
        "group": group_of("\n\n".join(passages)),
        "passages": passages,
        "question": row["question"],
        "reference": row.get("gold"),
    }
    return marked_row(f"qa-{index}", qa_prompt(row["question"], passages), text, critique, spans, columns)


def _grounds(mark: dict[str, Any], row: dict[str, Any]) -> str:
    """What the mark points at, where it does: the sentences of a passage, or what was said before."""
    given = mark.get("explanation") or ""
    if mark["error type"] == "Wrong-Grounding" and given.startswith("{"):
        return f": {cite(_sentences(row, json.loads(given)))}"
    return f": {cite(given.strip())}" if given.strip() else ""


def _sentences(row: dict[str, Any], place: dict[str, Any]) -> str:
    """Passages are counted from 1, their sentences from 0, which is the title."""
    passage = row["passages"][place["passage_id"] - 1]
    return " ".join(" ".join(passage[index] for index in place["sentence_id"]).split())
