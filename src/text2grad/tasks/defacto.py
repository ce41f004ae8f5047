"""DeFacto (microsoft/DeFacto): one-sentence news summaries that people explained and corrected → annotated rows.

Enters: a JSONL file as published (`article`, `abstract`, `candidate`, `has_error`, `feedback`). Leaves: rows, and
`Rejected` for summaries with an error whose correction does not say which words are wrong: it only adds, or is another
text altogether. What the correction removed or replaced is poor (`feedback.align.revision`); a summary without an error
is good as a whole; what it only added is an omission. One article of the published validation file is in the training
file, too: split by `group`.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.align.revision import changed
from text2grad.feedback.people import Rejected
from text2grad.tasks.annotated import Annotated, fields, group_of, marked_row, read_each
from text2grad.tasks.task import Task, task_of_files
from text2grad.types import Critique, Example, Span

INSTRUCTION = "Summarise the article in one sentence. Say nothing that it does not say."


def read_defacto(path: str | Path) -> Iterator[dict[str, Any] | Rejected]:
    """Rows in the order of the file. The critique is the person's explanation; `passages` is the article, `reference`
    the published summary, `critique.revision` the corrected one."""

    def read(line: int, row: dict[str, Any]) -> dict[str, Any] | Rejected:
        _check(row)
        try:
            return _read(row, line)
        except InvalidData as problem:
            return Rejected(line, _identity(row), str(problem))

    return read_each(path, "DeFacto", read)


def defacto_examples(path: str | Path, target: str = "correction") -> Iterator[Example]:
    """One example per article. The reference is the summary that people made right: their correction, or the candidate
    where they found no error. The published `abstract` often says what the article does not, so it is a column, and
    what `sft` learns where it is the `target`; what the model is measured by stays the same."""
    if target not in ("correction", "abstract"):
        raise ConfigError(f"task_options.target should be correction or abstract, got {target!r}")

    def read(_: int, row: dict[str, Any]) -> Example:
        _check(row)
        article, reference = row["article"], row["feedback"].get("summary") if row["has_error"] else row["candidate"]
        columns = {"group": group_of(article), "passages": [article], "abstract": row.get("abstract")}
        if target == "abstract" and row.get("abstract"):
            columns["completion"] = row["abstract"]
        return Example(_identity(row), defacto_prompt(article), reference or None, columns)

    return read_each(path, "DeFacto", read)


def _check(row: dict[str, Any]) -> None:
    fields(row, {"article": str, "candidate": str, "doc_id": int, "has_error": bool, "feedback": dict})
    fields(row["feedback"], {"explanation": str}, "feedback: ")


def defacto_task(data: str = "", held_out: str = "", target: str = "correction") -> Task:
    """`task=defacto data=TRAIN.jsonl held_out=VALIDATION.jsonl`, the files as published. The critic is `support`: it
    agrees with people's corrections, where `reference` prefers the wrong summary (docs/critics.md)."""

    def annotated(path: str) -> Iterator[Annotated | Rejected]:
        return (row if isinstance(row, Rejected) else Annotated.of(row) for row in read_defacto(path))

    examples = partial(defacto_examples, target=target)
    return replace(task_of_files("defacto", data, held_out, examples, annotated), critic="support")


def defacto_prompt(article: str) -> str:
    """What the summaries answer, as policies and reward models are asked it."""
    return f"{INSTRUCTION}\n\nArticle:\n{article}"


def _read(row: dict[str, Any], line: int) -> dict[str, Any] | Rejected:
    text, article = row["candidate"], row["article"]
    # Published as null once, and as "" where there is no error.
    revision = row["feedback"].get("summary") or None
    added: list[str] = []
    if row["has_error"]:
        places, added = changed(text, revision or "")
        if not places:
            return Rejected(line, _identity(row), "its correction does not say which words are wrong")
        spans = [Span(start, end, "poor", provenance="revision") for start, end in places]
    else:
        spans, revision = [Span(0, len(text), "good")], None
    critique = Critique(row["feedback"]["explanation"], omissions=tuple(added), revision=revision, quotes_only=True)
    columns = {"group": group_of(article), "passages": [article], "reference": row.get("abstract")}
    return marked_row(_identity(row), defacto_prompt(article), text, critique, spans, columns)


def _identity(row: dict[str, Any]) -> str:
    return f"defacto-{row['doc_id']}"
