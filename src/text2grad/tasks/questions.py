"""Questions with known answers, and benchmarks for judges: PubMedQA, ARC, AlpacaEval, MT-Bench.

Enters: the published files. Leaves: tasks with their metrics. ARC's choices are the column `choices`, with `gold`, the
index of the right one: `text2grad evaluate` then also measures which choice the model finds likeliest. MT-Bench's
further turns are the column `turns`: `evaluate` asks them after the model's own first answer.
"""

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from text2grad.errors import ConfigError, InvalidData
from text2grad.tasks.published import get, published_task, pubmedqa, texts
from text2grad.tasks.task import Metric, Task, mean_of
from text2grad.types import Example, Rollout

_DECISION = re.compile(r"\b(yes|no|maybe)\b", re.IGNORECASE)
_DECIDE = "\n\nBegin with yes, no or maybe."


def decision_of(text: str) -> str | None:
    """The first yes, no or maybe of a text.

    >>> decision_of("**Yes**: no other study says so."), decision_of("It depends.")
    ('yes', None)
    """
    found = _DECISION.search(text)
    return found[1].lower() if found else None


def _right(example: Example, text: str) -> float | None:
    gold = example.columns.get("decision")
    return None if gold is None else float(decision_of(text) == gold)


def _majority(rollouts: Sequence[Rollout]) -> float | None:
    counts = Counter(rollout.example.columns.get("decision") for rollout in rollouts)
    counts.pop(None, None)
    return max(counts.values()) / counts.total() if counts else None


_FIRST = "Share of completions whose first yes, no or maybe is the right one."
_CONSTANT = "Share of the most frequent right decision: what a constant answer would reach."
DECISIONS = (
    Metric("decision_accuracy", "Decisions right", _FIRST, "higher", mean_of(_right)),
    Metric("decision_majority", "Most frequent decision", _CONSTANT, "neither", _majority),
)


def pubmedqa_task(data: str = "", held_out: str = "", test_ids: str = "", decide: bool = False) -> Task:
    """`task=pubmedqa data=FILE`. `test_ids`: the published file of the ids of the test split; of the others, a fifth by
    their ids is the validation split. `decide`: ask for yes, no or maybe first, and measure it."""
    tested = _ids(test_ids) if test_ids else frozenset()

    def rows(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
        for each in pubmedqa(row, number):
            if tested:
                apart = "validation" if zlib.crc32(each["id"].encode()) % 5 == 0 else "train"
                each["split"] = "test" if each["id"] in tested else apart
            if decide and each.get("decision"):
                each["prompt"] += _DECIDE
                each["reference"] = f"{each['decision'].capitalize()}. {each['reference']}"
            yield each

    task = published_task("pubmedqa", rows, "grounded", data, held_out)
    if tested and data and not held_out and "test" not in task.splits:
        raise ConfigError(f"task_options.test_ids: {test_ids} should hold ids of {data}, and names none of its rows")
    return replace(task, metrics=DECISIONS) if decide else task


def _ids(path: str) -> frozenset[str]:
    """Of a JSON list of ids, or an object whose keys they are."""
    try:
        found = json.loads(Path(path).expanduser().read_bytes())
    except (OSError, ValueError) as problem:
        raise ConfigError(f"task_options.test_ids: {path} should be a JSON file of ids: {problem}") from None
    if not isinstance(found, list | dict) or not found:
        raise ConfigError(f"task_options.test_ids: {path} should hold a list of ids, or an object with ids for keys")
    return frozenset(map(str, found))


def arc(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """allenai/ai2_arc (question, choices.text, answerKey), or files with query, choices and gold."""
    if "answerKey" in row:
        texts, labels = get(row, list, "choices.text"), get(row, list, "choices.label")
        question, gold = get(row, str, "question"), labels.index(get(row, str, "answerKey"))
    else:
        texts, gold = get(row, list, "choices"), get(row, int, "gold")
        question = get(row, str, "query", "question").removeprefix("Question:").strip()
    if not 0 <= gold < len(texts):
        raise InvalidData(f"gold should be the index of one of {len(texts)} choices, got {gold}")
    yield {
        "id": str(row.get("id", f"arc-{number}")),
        "prompt": f"Question: {question}\nAnswer:",
        "reference": texts[gold],
        "choices": texts,
        "gold": gold,
    }


def alpaca_eval(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """tatsu-lab/alpaca_eval: an instruction and another model's output, with which a judge compares (`judge=`)."""
    yield {
        "id": str(row.get("id", f"alpaca-{number}")),
        "prompt": get(row, str, "instruction"),
        "reference": get(row, str, "output"),
        "category": row.get("dataset"),
        "model": row.get("generator"),
    }


def mt_bench(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """MT-Bench's questions: a first turn, further turns, for some a reference per turn. A judge grades (`grader=`)."""
    turns, references = texts(get(row, list, "turns"), "turns"), texts(row.get("reference") or [], "reference")
    yield {
        "id": str(row.get("question_id", number)),
        "prompt": turns[0],
        "reference": references[0] if references else None,
        "turns": turns[1:] or None,
        "turn_references": references[1:] or None,
        "category": row.get("category"),
    }


arc_task = partial(published_task, "arc", arc, "reference")
alpaca_eval_task = partial(published_task, "alpaca_eval", alpaca_eval, "reference")
mt_bench_task = partial(published_task, "mt_bench", mt_bench, "reference")
