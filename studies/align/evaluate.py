"""Measure what train.py predicted, through the whole ladder and with the harness of benchmarks/kinds.py.

usage: python -m studies.align.evaluate DATA.jsonl.gz OUT [--data DIR] [--part develop|held_out] [--sweep]
       [--direct] [--variant TEXT] [--card NUMBERS]

Each kind is aligned by the model that has not seen it; the model's probabilities are replayed, so this needs no
card. `--sweep` tries the numbers of the card on the develop part; report on the other. `--variant`: the end of
the names of other jobs, as ", all weights". `direct` rows read code, too, which alignment leaves to its own rung.
"""

import argparse
import gzip
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
from benchmarks.gold import Item, Part, load
from benchmarks.kinds import averages, chosen, table
from numpy.typing import NDArray
from studies.align.reader import Card, decode, units_of
from studies.align.rung import reading

from text2grad import align

Chances = dict[tuple[str, str], NDArray[np.float32]]
"""(completion, critique) → the probabilities of the completion's units."""
ASKED: Counter[bool] = Counter()
"""Questions with (True) and without a prediction."""


def predictions(data: Path, out: Path, variant: str = "") -> dict[str, Chances]:
    """Kind → what the model that was trained without it says."""
    with gzip.open(data, "rt", encoding="utf-8") as file:
        rows = {
            "|".join((row["kind"], row["part"], row["use"], row["name"])): (row["completion"], row["critique"])
            for row in map(json.loads, file)
            if row["use"] != "train"
        }
    kept = np.load(out / "predictions.npz")
    found: dict[str, Chances] = {}
    for kind in sorted({key.partition("|")[0] for key in rows}):
        job = f"without {kind}{variant}"
        if f"{job}/names" in kept:
            parts = np.split(kept[f"{job}/chances"].astype(np.float32), np.cumsum(kept[f"{job}/sizes"])[:-1])
            names = kept[f"{job}/names"].tolist()
            found[kind] = {rows[name]: part for name, part in zip(names, parts, strict=True) if name in rows}
    return found


def method(known: Chances, card: Card) -> Callable[[Item], set[int]]:
    """Alignment with a reader that repeats what was predicted. What the ladder did not ask when the data was made has
    no answer: the reader abstains, and it is counted."""

    def read(completion: str, critique: str) -> list[tuple[int, int, float]]:
        ASKED[chance := known.get((completion, critique)) is not None] += 1
        return decode(completion, units_of(completion), known[completion, critique], card) if chance else []

    def found(item: Item) -> set[int]:
        with reading(read):
            return chosen(item, align(item.completion, item.critique, source=item.source))

    return found


def direct(known: Chances, card: Card) -> Callable[[Item], set[int]]:
    """The reader alone, without the ladder."""

    def found(item: Item) -> set[int]:
        places = decode(item.completion, units_of(item.completion), known[item.completion, item.critique], card)
        return {k for start, end, _ in places for k in range(start, end)}

    return found


def sweep(kinds: dict[str, list[Item]], known: dict[str, Chances], card: Card, make: Any) -> None:
    for threshold, certain, bridge in product((0.05, 0.1, 0.2), (0.3, 0.4, 0.5, 0.6), (0, 2, 4)):
        tried = replace(card, threshold=threshold, certain=certain, bridge=bridge)
        rows = [averages(items, make(known[kind], tried)) for kind, items in kinds.items()]
        f1, hit, *_, silent = np.mean([row[:6] for row in rows], axis=0)
        print(
            f"threshold={threshold} certain={certain} bridge={bridge} f1={f1:.3f} hit={hit:.3f} abstained={silent:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of data")
    parser.add_argument("--part", default="develop", choices=["develop", "held_out"])
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--direct", action="store_true", help="the reader alone")
    parser.add_argument("--variant", default="")
    parser.add_argument("--card", default="", help="numbers of the card, as threshold=0.1,certain=0.4")
    args = parser.parse_args()
    known = predictions(args.pairs, args.out, args.variant)
    card = Card(**json.loads((args.out / "results.json").read_text(encoding="utf-8"))["card"])
    for word in filter(None, args.card.split(",")):
        name, _, value = word.partition("=")
        number: Any = int(value) if name == "bridge" else float(value)
        card = replace(card, **{name: number})
    items = load(Path(args.data), cast("Part", args.part.replace("_", " ")))
    kinds = {kind: each for kind, each in items.items() if kind in known}
    make = direct if args.direct else method
    if args.sweep:
        sweep(kinds, known, card, make)
    else:
        table(kinds, {kind: make(known[kind], card) for kind in kinds})
        print(f"questions without a prediction: {ASKED[False]} of {ASKED.total()}")


if __name__ == "__main__":
    main()
