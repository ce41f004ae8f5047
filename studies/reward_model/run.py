"""How far critics agree with people on which words are poor: DeFacto's validation file and QA-Feedback's odd indices.

    python -m studies.reward_model.run baselines --data DIR      writes studies/reward_model/baselines.json
    python -m studies.reward_model.run table                     writes the tables of README.md and the pictures

`DIR` is a folder with `summarization/defacto_*.jsonl` and `qa/qa_feedback_dev.json`; TEXT2GRAD_DATA can name it, too.
What a critic learns, it learns from DeFacto's training file and from the even indices.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.reward_model.baselines import Marker, absent, majority, supported
from studies.reward_model.measures import by_content, by_cover

from text2grad.feedback.agreement import Agreement, Judged, by_spans, by_tokens
from text2grad.feedback.people import Rejected
from text2grad.tasks.defacto import read_defacto
from text2grad.tasks.qa_feedback import read_qa_feedback
from text2grad.types import Verdict

HERE = Path(__file__).parent
MARK = "<!-- below: written by run.py from the JSON files beside it -->"
CHOOSING = 0.15
"""Of the sources to learn from, the share that is not learned from, but chosen by."""
Row = dict[str, Any]
Measured = dict[Verdict, Agreement]
SPANS: dict[str, Callable[[Sequence[Judged]], Measured]] = {
    "spans": by_spans,
    "covered": by_cover,
    "touched": lambda items: by_spans(items, least=0.0),
}
MEASURES: dict[str, Callable[[Sequence[Judged]], Measured]] = {"tokens": by_tokens, "content": by_content, **SPANS}


@dataclass(frozen=True)
class Part:
    """Annotated rows to learn from, to choose by, and to measure on, no source in two of them (of QA-Feedback, whose
    sources are several passages: not the same ones; single passages come twice); how many could not be used."""

    train: list[Row]
    choosing: list[Row]
    """Of the sources that are published for training, those that nothing is learned from: thresholds, weights and how
    spans are made are chosen here."""
    held_out: list[Row]
    left_out: int
    shared: int
    """Rows to learn from that were dropped because their source is among the held-out ones."""


def parts(folder: Path) -> dict[str, Part]:
    news = [list(read_defacto(folder / "summarization" / f"defacto_{name}.jsonl")) for name in ("train", "val")]
    path = folder / "qa" / "qa_feedback_dev.json"
    return {
        "defacto": _part(*news),
        "qa": _part(list(read_qa_feedback(path, "even")), list(read_qa_feedback(path, "odd"))),
    }


def _part(train: Sequence[Row | Rejected], held_out: Sequence[Row | Rejected]) -> Part:
    learn, measure = ([row for row in rows if not isinstance(row, Rejected)] for rows in (train, held_out))
    groups = {row["group"] for row in measure}
    apart = [row for row in learn if row["group"] not in groups]
    sides = {side: [row for row in apart if _chosen_by(row) == side] for side in (False, True)}
    left_out = len(train) + len(held_out) - len(learn) - len(measure)
    return Part(sides[False], sides[True], measure, left_out, len(learn) - len(apart))


def _chosen_by(row: Row) -> bool:
    """Which side a row is on depends on its source alone (`group` is a digest)."""
    return int(row["group"], 16) / 16**16 < CHOOSING


def measured(items: Sequence[Judged]) -> dict[str, Any]:
    """Every measure of every verdict, as plain numbers."""
    return {
        name: {verdict: found.to_json() for verdict, found in measure(items).items()}
        for name, measure in MEASURES.items()
    }


def baselines(part: Part) -> Iterator[tuple[str, Marker]]:
    yield "majority", majority([*part.train, *part.choosing])
    yield "absent", absent
    yield "supported", supported


def by_baselines(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in parts(folder).items():
        facts = {"rows": len(part.held_out), "left_out": part.left_out, "shared": part.shared}
        critics = {
            critic: measured([Judged.of(row, mark(row)) for row in part.held_out]) for critic, mark in baselines(part)
        }
        found[name] = facts | {"critics": critics}
    return found


def write_readme(out: Path) -> None:
    """The page above its mark is written by hand, below it by this script."""
    from studies.reward_model.tables import tables

    print(found := tables(out))
    page = out / "README.md"
    if page.exists():
        text = page.read_text(encoding="utf-8").split(MARK)[0]
        page.write_text(f"{text}{MARK}\n\n{found}\n", encoding="utf-8")


def write_pictures(out: Path) -> None:
    from studies.reward_model.pictures import draw

    draw(out)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["baselines", "table"])
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of the marked data")
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args(words)
    if args.what == "baselines":
        if not args.data:
            sys.exit("name the folder of the data by --data or TEXT2GRAD_DATA")
        found = by_baselines(Path(args.data))
        (args.out / "baselines.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_readme(args.out)
    write_pictures(args.out)


if __name__ == "__main__":
    main()
