"""How far critics agree with people on which words are poor: DeFacto's validation file and QA-Feedback's odd indices.

    python studies/reward_model/run.py baselines --data DIR      writes studies/reward_model/baselines.json
    python studies/reward_model/run.py table                     writes the tables of README.md from the files here

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

from text2grad.feedback.agreement import Agreement, Judged, by_content, by_spans, by_tokens
from text2grad.feedback.baselines import Marker, absent, majority, supported
from text2grad.feedback.people import Rejected
from text2grad.tasks.defacto import read_defacto
from text2grad.tasks.qa_feedback import read_qa_feedback
from text2grad.types import Verdict

HERE = Path(__file__).parent
MARK = "<!-- below: written by run.py from the JSON files beside it -->"
Row = dict[str, Any]
Measured = dict[Verdict, Agreement]
MEASURES: dict[str, Callable[[Sequence[Judged]], Measured]] = {
    "tokens": by_tokens,
    "content": by_content,
    "spans": by_spans,
    "touched": lambda items: by_spans(items, least=0.0),
}
TITLES = {
    "defacto": "DeFacto, validation file",
    "qa": "QA-Feedback, odd indices",
    "majority": "majority",
    "absent": "words that no passage has",
    "supported": "`support`, aligned",
}


@dataclass(frozen=True)
class Part:
    """Annotated rows to learn from and, of other sources, to measure on; how many could not be used."""

    train: list[Row]
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
    return Part(apart, measure, len(train) + len(held_out) - len(learn) - len(measure), len(learn) - len(apart))


def measured(items: Sequence[Judged]) -> dict[str, Any]:
    """Every measure of every verdict, as plain numbers."""
    return {
        name: {verdict: found.to_json() for verdict, found in measure(items).items()}
        for name, measure in MEASURES.items()
    }


def baselines(part: Part) -> Iterator[tuple[str, Marker]]:
    yield "majority", majority(part.train)
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


def tables(out: Path) -> str:
    lines: list[str] = []
    found = json.loads((out / "baselines.json").read_text(encoding="utf-8"))
    for name, part in found.items():
        lines += [
            f"**{TITLES[name]}**, {part['rows']} completions; precision / recall / F1 of poor.",
            "",
            "| | characters of content words | words (span head: its tokens) | spans, IoU ≥ ½ | spans that touch |",
            "|---|---|---|---|---|",
        ]
        for critic, measures in part["critics"].items():
            cells = (_cell(measures[measure]["poor"]) for measure in ("content", "tokens", "spans", "touched"))
            lines.append(f"| {TITLES[critic]} | {' | '.join(cells)} |")
        for title, runs in _learned(out, name).items():
            for run in runs:
                cells = (_cell(run[measure]["poor"]) for measure in ("content", "tokens", "spans", "touched"))
                lines.append(f"| {title}, seed {run['seed']} | {' | '.join(cells)} |")
        lines += ["", *_curves(out, name, part["critics"]["supported"]["content"]["poor"]), *_written(out, name)]
    return "\n".join([*lines, *_rl(out)])


def _learned(out: Path, part: str) -> dict[str, list[dict[str, Any]]]:
    """What learn.py measured, by the way it was learned."""
    found = {}
    for pattern, title in (
        (f"{part}-head-*.json", "span head"),
        (f"{part}-both-head-*.json", "span head, trained on both data sets"),
        (f"{part}-written-*.json", "written critiques (the paper's way)"),
    ):
        runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob(pattern))]
        if runs:
            found[title] = runs
    return found


def _curves(out: Path, part: str, support: dict[str, float]) -> list[str]:
    """The span head at every threshold, against `support` at its one."""
    wanted = f"{round(support['precision'] / 0.005) * 0.005:.3f}"
    lines = []
    for title, runs in _learned(out, part).items():
        if "curve" not in runs[0]:
            continue
        recalls, theirs = ", ".join(f"{r['recall_at_precision'][wanted]:.3f}" for r in runs), support["recall"]
        precisions = ", ".join(f"{run['average_precision']:.3f}" for run in runs)
        errors = ", ".join(f"{run['calibration_error']:.3f}" for run in runs)
        lines += [
            f"{title}, by seed: recall **{recalls}** at precision {wanted}; `support` has {theirs:.3f} there "
            f"(characters of content words); average precision {precisions} (base rate {runs[0]['base']:.3f}); "
            f"expected calibration error {errors}.",
            "",
        ]
        lines += _points(title, runs)
    return lines


def _points(title: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    """The precision–recall curve, read off at round precisions."""
    marks = ["0.400", "0.450", "0.500", "0.550", "0.600", "0.650", "0.700", "0.750", "0.800", "0.850"]
    rows = []
    for run in runs:
        recalls = " | ".join(f"{run['recall_at_precision'][mark]:.2f}" for mark in marks)
        rows.append(f"| recall, seed {run['seed']} | {recalls}")
    head = f"| {title}, precision at least | " + " | ".join(mark[:-1] for mark in marks) + " |"
    return [head, "|" + "---|" * (len(marks) + 1), *(f"{row} |" for row in rows), ""]


def _written(out: Path, part: str) -> list[str]:
    lines = []
    for title, runs in _learned(out, part).items():
        if "parse_rate" in runs[0]:
            parsed = ", ".join(f"{run['parse_rate']:.2f}" for run in runs)
            quoted = ", ".join(f"{run['quote_found_rate']:.2f}" for run in runs)
            lines += [f"{title}, by seed: parse rate {parsed}; quotes found {quoted}. Unparseable counts as wrong.", ""]
    return lines


def _rl(out: Path) -> list[str]:
    """The demo's task with the learned critic in the place of the true one."""
    if not (out / "demo.json").exists():
        return []
    found = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    marks = [0, 16, 32, 48, 96, 144, 192]
    lines = [
        "**RL on the demo's task**, held-out score by the true critic (in brackets: by the learned one); 48 updates "
        "with the true critic, 192 with the learned one.",
        "",
        "| seed, critic | " + " | ".join(f"update {mark}" for mark in marks) + " |",
        "|" + "---|" * (len(marks) + 1),
    ]
    for seed, arms in found["seeds"].items():
        for which in ("true", "learned"):
            points = {int(point["update"]): point for point in arms[which]}
            cells = [_point(points[mark]) if mark in points else "" for mark in marks]
            lines.append(f"| {seed}, {which} | {' | '.join(cells)} |")
    shares = {name: ", ".join(f"{one:.0%}" for one in found["summary"][name]["shares"]) for name in found["summary"]}
    lines += [
        "",
        f"Share of the true critic's improvement after 48 updates, by seed: score {shares['score']}; facts right "
        f"{shares['facts_right']}.",
    ]
    return lines


def _point(point: dict[str, float]) -> str:
    learned = f" ({point['critic_score']:.2f})" if "critic_score" in point else ""
    return f"{point['score']:.2f}{learned}"


def _cell(found: dict[str, float]) -> str:
    if not found["called"]:
        return "nothing called"
    return " / ".join(f"{found[name]:.2f}" for name in ("precision", "recall", "f1"))


def write_readme(out: Path) -> None:
    """The page above its mark is written by hand, below it by this script."""
    print(found := tables(out))
    page = out / "README.md"
    if page.exists():
        text = page.read_text(encoding="utf-8").split(MARK)[0]
        page.write_text(f"{text}{MARK}\n\n{found}\n", encoding="utf-8")


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


if __name__ == "__main__":
    main()
