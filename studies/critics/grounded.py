"""The weights of the critic `grounded`: learned from what people marked in the even half of QA-Feedback, measured on
the odd one.

    python -m studies.critics.grounded --data DIR --held-out     prints weights and numbers; writes grounded.json

A clause's target is the share of its characters that people marked as wrong or not verifiable. The threshold is the
lowest at which half of the marked characters are people's, by cross-validation on the even half. The
odd half chose nothing. `both_halves` is over all items, each half with the weights that the other teaches.
"""

import argparse
import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from text2grad.feedback.critics import grounded
from text2grad.feedback.critics.support import Labelled
from text2grad.feedback.settings import GroundedSettings
from text2grad.runs.folder import write_atomic
from text2grad.tasks.qa_feedback import Half, read_qa_feedback

HERE = Path(__file__).parent
PRECISIONS = (0.6, 0.5, 0.4, 0.3)
RIDGE = 1.0


class Item(NamedTuple):
    clauses: list[grounded.CompletionClause]
    marked: "np.ndarray[Any, np.dtype[np.bool_]]"
    """Of each character: whether people called it ungrounded."""
    objected: "np.ndarray[Any, np.dtype[np.bool_]]"
    """Whether they marked it for any reason: not asked for, said before, without sense."""


def items_of(folder: Path, half: Half) -> Iterator[Item]:
    for row in read_qa_feedback(folder / "qa" / "qa_feedback_dev.json", half):
        marked, objected = (np.zeros(len(row["completion"]), bool) for _ in range(2))
        for span in row["spans"]:
            objected[span["start"] : span["end"]] |= span["verdict"] != "good"
            marked[span["start"] : span["end"]] |= span["verdict"] == "poor"
        known = grounded.passages_of(tuple(row["passages"]))
        yield Item(list(known.clauses(Labelled(row["completion"]))), marked, objected)


def learn(items: Sequence[Item]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """(bias, weight of coverage, weight of pairs) by logistic regression, clauses weighted by their length."""
    clauses = [(clause, item.marked[clause.start : clause.end].mean()) for item in items for clause in item.clauses]
    x = np.array([[1.0, -clause.coverage, -clause.pairs] for clause, _ in clauses])
    y = np.array([share for _, share in clauses])
    weight = np.array([clause.end - clause.start for clause, _ in clauses], float)
    weight /= weight.mean()
    theta = np.zeros(3)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ theta))
        gradient = x.T @ (weight * (p - y)) + RIDGE * theta
        theta -= np.linalg.solve((x * (weight * p * (1 - p))[:, None]).T @ x + RIDGE * np.eye(3), gradient)
    return theta


def doubts(theta: Any, items: Sequence[Item]) -> list[list[float]]:
    return [
        [float(1 / (1 + np.exp(-(theta[0] - theta[1] * c.coverage - theta[2] * c.pairs)))) for c in item.clauses]
        for item in items
    ]


def curve(items: Sequence[Item], found: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Precision → [the largest recall that has it, and the threshold], in characters."""
    rows = sorted(
        (
            (doubt, int(item.marked[clause.start : clause.end].sum()), clause.end - clause.start)
            for item, given in zip(items, found, strict=True)
            for clause, doubt in zip(item.clauses, given, strict=True)
        ),
        reverse=True,
    )
    right, called = np.cumsum([row[1] for row in rows]), np.cumsum([row[2] for row in rows])
    all_marked = sum(int(item.marked.sum()) for item in items)
    made = {}
    for precision in PRECISIONS:
        places = np.flatnonzero((right / called >= precision) & (called > 200))
        last = int(places.max()) if len(places) else 0
        made[f"{precision:g}"] = (
            [round(float(right[last] / all_marked), 3), round(rows[last][0], 3)] if len(places) else [0.0, 1.0]
        )
    return made


def interval(items: Sequence[Item], found: Sequence[Sequence[float]], times: int = 400) -> list[float]:
    """95 % interval of the recall at precision 0.5: the items drawn anew, with putting back."""
    draw, recalls = random.Random(0), []
    for _ in range(times):
        places = [draw.randrange(len(items)) for _ in items]
        recalls.append(curve([items[place] for place in places], [found[place] for place in places])["0.5"][0])
    return [round(float(np.percentile(recalls, edge)), 2) for edge in (2.5, 97.5)]


def at(items: Sequence[Item], found: Sequence[Sequence[float]], threshold: float) -> dict[str, float]:
    """Of the characters called ungrounded from a threshold on: the share that people called so, too, and the share that
    they marked for any reason; and how many of those that people called ungrounded are among them."""
    called = [
        (item, slice(clause.start, clause.end))
        for item, given in zip(items, found, strict=True)
        for clause, doubt in zip(item.clauses, given, strict=True)
        if doubt >= threshold
    ]
    characters = max(1, sum(place.stop - place.start for _, place in called))
    right = sum(int(item.marked[place].sum()) for item, place in called)
    return {
        "precision": round(right / characters, 3),
        "precision_any_mark": round(sum(int(item.objected[place].sum()) for item, place in called) / characters, 3),
        "recall": round(right / max(1, sum(int(item.marked.sum()) for item in items)), 3),
    }


def crossed(items: Sequence[Item], folds: int = 5, times: int = 6) -> list[dict[str, list[float]]]:
    """The curve of doubts that were learned without the item, several times over."""
    curves = []
    for turn in range(times):
        order = list(range(len(items)))
        random.Random(turn).shuffle(order)
        found: list[list[float]] = [[] for _ in items]
        for fold in range(folds):
            out = set(order[fold::folds])
            theta = learn([item for index, item in enumerate(items) if index not in out])
            for index in out:
                (found[index],) = doubts(theta, [items[index]])
        curves.append(curve(items, found))
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder with qa/qa_feedback_dev.json")
    parser.add_argument("--held-out", action="store_true", help="read the odd half as well")
    args = parser.parse_args()
    if not args.data:
        raise SystemExit("name the folder with qa/ by --data or TEXT2GRAD_DATA")
    even = list(items_of(Path(args.data), "even"))
    theta, curves = learn(even), crossed(even)
    mean = {key: [round(float(np.mean([c[key][i] for c in curves])), 3) for i in (0, 1)] for key in curves[0]}
    found: dict[str, Any] = {"weights": [round(float(value), 2) for value in theta], "cross_validated": mean}
    if args.held_out:
        odd = list(items_of(Path(args.data), "odd"))
        threshold = GroundedSettings().doubt
        found["held_out"] = curve(odd, doubts(theta, odd))
        every, crossed_doubts = [*even, *odd], [*doubts(learn(odd), even), *doubts(theta, odd)]
        found["both_halves"] = curve(every, crossed_doubts)
        found["interval_at_precision_0.5"] = {
            "odd": interval(odd, doubts(theta, odd)),
            "both halves": interval(every, crossed_doubts),
        }
        found["at_the_default"] = {
            "even": at(even, doubts(theta, even), threshold),
            "odd": at(odd, doubts(theta, odd), threshold),
            "odd, everything called so": at(odd, doubts(theta, odd), 0.0),
        }
        write_atomic(HERE / "grounded.json", json.dumps(found, indent=1).encode() + b"\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
