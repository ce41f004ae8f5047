"""Alignment over several kinds of critiques: how well it does on a kind that nothing was learned from.

usage: kinds.py [--data DIR] [--part develop|held_out] [--show KIND]

Kinds: news summaries and explanations (DeFacto), code reviews (ILF), reviews of summaries of stories (SQuALITY),
explained marks in answers (QA-Feedback), and five perturbed kinds (see `gold`). Methods: ours as shipped, the plain
word-overlap window, the published matcher, and the whole completion. Develop on `develop`; `held out` is to report.
`--show` prints pairs of one kind with gold and what was found. For the leave-one-kind-out numbers, in which the scorer
has not seen the kind that it is measured on, see scripts/train_aligner.py --measure.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.align import everything, overlap_window
from benchmarks.gold import MEASURES, Item, Part, load, measure

from text2grad import Alignment, align
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.quotes import find_quotes
from text2grad.feedback.text import sentences

Method = Callable[[Item], set[int]]
HEADER = (
    "F1",
    "hit",
    "precision",
    "recall",
    "length",
    "abstained",
    "over",
    "under",
    "pointing: F1",
    "hit",
    "abstained",
)
"""`over` and `under`: of the items where something was marked, the share with over twice, or under half, of gold's
length; `pointing`: of critiques that point somewhere alone."""


def chosen(item: Item, found: Alignment) -> set[int]:
    """The characters of the spans that count."""
    spans = [span for span in found.spans if item.praise or span.verdict != "good"]
    return {place for span in spans for place in range(span.start, span.end)}


def aligned(item: Item) -> set[int]:
    return chosen(item, align(item.completion, item.critique, source=item.source))


def published(item: Item) -> set[int]:
    """As the published code does: each quoted phrase, or else each sentence of the critique, is looked for as written,
    then loosely, with a bound that falls until something matches; the first place counts. After its description."""
    quotes = [quote.text for quote in find_quotes(item.critique)]
    phrases = quotes or [item.critique[start:end] for start, end in sentences(item.critique)]
    text, places = item.completion.lower(), set[int]()
    for phrase in (phrase.lower().strip() for phrase in phrases):
        if (at := text.find(phrase)) >= 0:
            places.update(range(at, at + len(phrase)))
        elif found := fuzz.partial_ratio_alignment(phrase, text):
            places.update(range(found.dest_start, found.dest_end))
    return places


METHODS: dict[str, Method] = {
    "aligned": aligned,
    "overlap window": overlap_window,
    "published matcher": published,
    "whole completion": everything,
}


def points(item: Item) -> bool:
    """Whether a critique points somewhere: it shares a content word with a sentence that has gold."""
    said = content_stems(item.critique)
    return any(
        said & content_stems(item.completion[start:end])
        for start, end in sentences(item.completion)
        if not item.gold.isdisjoint(range(start, end))
    )


def averages(items: Sequence[Item], method: Method) -> list[float]:
    """A number for each name in `HEADER`: means, but the median of the length where something was chosen."""
    scores = [measure(item, method(item)) for item in items]
    rows = np.array([[getattr(score, name) for name in MEASURES] for score in scores], dtype=np.float64)
    means = rows.mean(axis=0)
    lengths = np.array([score.length for score in scores if not score.abstained])
    means[MEASURES.index("length")] = np.median(lengths) if len(lengths) else 0.0
    off = [float((lengths > 2).mean()), float((lengths < 0.5).mean())] if len(lengths) else [0.0, 0.0]
    pointing = np.array([points(item) for item in items])
    aimed = rows[pointing].mean(axis=0) if pointing.any() else means
    return [*means, *off, *(aimed[MEASURES.index(name)] for name in ("f1", "hit", "abstained"))]


def table(kinds: dict[str, list[Item]], methods: dict[str, Method]) -> NDArray[np.float64]:
    """Print a row per kind and the macro average, as Markdown; `methods`: kind → the method for it."""
    print(f"| kind | items | {' | '.join(HEADER)} |")
    print("|---|" + "---|" * (len(HEADER) + 1))
    rows = []
    for kind, items in kinds.items():
        rows.append(averages(items, methods[kind]))
        print(f"| {kind} | {len(items)} | " + " | ".join(f"{value:.3f}" for value in rows[-1]) + " |", flush=True)
    macro = np.mean(rows, axis=0)
    print("| **macro** | | " + " | ".join(f"**{value:.3f}**" for value in macro) + " |")
    return cast("NDArray[np.float64]", macro)


def compared(kinds: dict[str, list[Item]]) -> None:
    """Print F1, precision and recall of all methods side by side, as Markdown."""
    print(f"| kind | {' | '.join(METHODS)} |")
    print("|---|" + "---|" * len(METHODS))
    rows = []
    for kind, items in kinds.items():
        rows.append(
            [
                [averages(items, method)[HEADER.index(name)] for name in ("F1", "precision", "recall")]
                for method in METHODS.values()
            ]
        )
        print(f"| {kind} | {_triples(rows[-1])} |", flush=True)
    print(f"| **macro** | {_triples(np.mean(rows, axis=0).tolist())} |")


def _triples(row: Sequence[Sequence[float]]) -> str:
    return " | ".join(f"{f1:.3f} ({precision:.2f}, {recall:.2f})" for f1, precision, recall in row)


def show(items: Sequence[Item], count: int = 40) -> None:
    for item in items[:: max(1, len(items) // count)]:
        found = align(item.completion, item.critique, source=item.source)
        score = measure(item, chosen(item, found))
        print(f"\n{item.name}  F1 {score.f1:.2f}  {item.critique!r}")
        print("   gold ", [item.completion[a:b] for a, b in item.spans])
        print("   found", [(span.slice(item.completion), span.provenance, span.verdict) for span in found.spans])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of data; default: $TEXT2GRAD_DATA"
    )
    parser.add_argument("--part", default="develop", choices=["develop", "held_out"], help="half of each kind")
    parser.add_argument("--show", metavar="KIND", help="print pairs of this kind with gold and what was found")
    args = parser.parse_args()
    if not args.data:
        parser.error("name the folder of data with --data or TEXT2GRAD_DATA")
    kinds = load(Path(args.data), cast("Part", args.part.replace("_", " ")))
    if args.show:
        show(kinds[args.show])
        return
    for name, method in METHODS.items():
        print(f"\n{name}\n")
        table(kinds, dict.fromkeys(kinds, method))
    print("\nF1 (precision, recall) of each\n")
    compared(kinds)


if __name__ == "__main__":
    main()
